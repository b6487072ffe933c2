//! What the state database says of the uplink: how far it is, the gaps in what it
//! sends, and the messages kept aside.
//!
//! Floor 1.

use super::logged::Kind;
use super::summary::{day_of, number_of};
use super::{BadRecord, Packer, Unpacker};
use crate::domain::day::Day;
use crate::domain::instant::Wall;
use crate::domain::outbox::{Class, Load};

const VERSION: u8 = 1;

const HAS_METRICS: u8 = 1;
const HAS_TRAFFIC: u8 = 1 << 1;

const HAS_PREVIOUS: u8 = 1;
const HAS_TOLD: u8 = 1 << 1;

/// How far the uplink is, and what waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UplinkPlace {
    /// The number the next event had when this was written: a program that knows
    /// nothing of this record may have logged since, and then all is counted anew.
    pub next_seq: u64,
    /// Every event up to this number is acknowledged or was passed over and
    /// reported.
    pub cursor: u64,
    /// Number of the newest event addressed to MQTT; 0: none yet.
    pub last: u64,
    /// What waits, by class in the order of [`Class::ALL`].
    pub loads: [Load; 4],
    /// Events passed over so far.
    pub passed_over: u64,
    /// Messages kept aside so far.
    pub dead_letters: u64,
    /// Nothing above this number was ever handed out to be sent.
    pub reserved: u64,
    /// Below this number no failed heartbeats are left whose time was up.
    pub swept_below: u64,
    /// Heartbeats scheduled before this were sent as metrics or need not be.
    pub metrics_from: Option<Wall>,
    /// MQTT bytes of a day: up, down.
    pub traffic: Option<(Day, u64, u64)>,
}

/// Events that are missing in a row, in whose place one event tells of it. It is
/// kept under the number of the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first missing number.
    pub from: u64,
    /// Number of the event before it that was addressed to MQTT, if there is one.
    pub previous: Option<u64>,
    /// How many events are missing.
    pub events: u64,
    /// When the last of them was given up.
    pub at: Wall,
    /// The log in which they are numbered.
    pub log_id: String,
    /// The envelope, once it was handed out to be sent: from then on it is the same
    /// for ever.
    pub told: Option<String>,
}

/// An event that the broker did not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// When it was kept aside.
    pub at: Wall,
    /// Why.
    pub reason: String,
    /// Which kind of event.
    pub kind: Kind,
    /// Its envelope.
    pub json: String,
}

impl UplinkPlace {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        for number in [self.next_seq, self.cursor, self.last] {
            packer.number(number);
        }
        for load in &self.loads {
            packer.number(load.events);
            packer.number(load.bytes);
        }
        for number in [
            self.passed_over,
            self.dead_letters,
            self.reserved,
            self.swept_below,
        ] {
            packer.number(number);
        }
        let mut flags = 0;
        flags |= self.metrics_from.map_or(0, |_| HAS_METRICS);
        flags |= self.traffic.map_or(0, |_| HAS_TRAFFIC);
        packer.byte(flags);
        if let Some(from) = self.metrics_from {
            packer.signed(from.millis());
        }
        if let Some((day, up, down)) = self.traffic {
            packer.signed(number_of(day));
            packer.number(up);
            packer.number(down);
        }
        packer.seal()
    }

    /// Reads a record. What a later version may have added at its end is left out.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let mut place = Self {
            next_seq: unpacker.number()?,
            cursor: unpacker.number()?,
            last: unpacker.number()?,
            ..Self::default()
        };
        for load in &mut place.loads {
            load.events = unpacker.number()?;
            load.bytes = unpacker.number()?;
        }
        place.passed_over = unpacker.number()?;
        place.dead_letters = unpacker.number()?;
        place.reserved = unpacker.number()?;
        place.swept_below = unpacker.number()?;
        let flags = unpacker.byte()?;
        if flags & HAS_METRICS != 0 {
            place.metrics_from = Some(Wall::from_millis(unpacker.signed()?));
        }
        if flags & HAS_TRAFFIC != 0 {
            let day = day_of(unpacker.signed()?);
            let day = day.ok_or(BadRecord("holds a day that the calendar has not"))?;
            place.traffic = Some((day, unpacker.number()?, unpacker.number()?));
        }
        Ok(place)
    }

    /// Takes an event in that waits from now on.
    pub fn take_in(&mut self, class: Class, bytes: u64) {
        if let Some(load) = self.loads.get_mut(class.index()) {
            load.events = load.events.saturating_add(1);
            load.bytes = load.bytes.saturating_add(bytes);
        }
    }

    /// Takes out what waits no more.
    pub fn take_out(&mut self, class: Class, gone: Load) {
        if let Some(load) = self.loads.get_mut(class.index()) {
            load.events = load.events.saturating_sub(gone.events);
            load.bytes = load.bytes.saturating_sub(gone.bytes);
        }
    }
}

impl Gap {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        let mut flags = 0;
        flags |= self.previous.map_or(0, |_| HAS_PREVIOUS);
        flags |= self.told.as_ref().map_or(0, |_| HAS_TOLD);
        packer.byte(flags);
        packer.number(self.from);
        packer.number(self.events);
        packer.signed(self.at.millis());
        packer.text(&self.log_id);
        if let Some(previous) = self.previous {
            packer.number(previous);
        }
        if let Some(told) = &self.told {
            packer.text(told);
        }
        packer.seal()
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let flags = unpacker.byte()?;
        let mut gap = Self {
            from: unpacker.number()?,
            previous: None,
            events: unpacker.number()?,
            at: Wall::from_millis(unpacker.signed()?),
            log_id: unpacker.text()?.to_owned(),
            told: None,
        };
        if flags & HAS_PREVIOUS != 0 {
            gap.previous = Some(unpacker.number()?);
        }
        if flags & HAS_TOLD != 0 {
            gap.told = Some(unpacker.text()?.to_owned());
        }
        unpacker.end()?;
        Ok(gap)
    }
}

impl DeadLetter {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        packer.signed(self.at.millis());
        packer.text(&self.reason);
        packer.byte(self.kind.code());
        packer.text(&self.json);
        packer.seal()
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let letter = Self {
            at: Wall::from_millis(unpacker.signed()?),
            reason: unpacker.text()?.to_owned(),
            kind: Kind::from_code(unpacker.byte()?)
                .ok_or(BadRecord("is no known kind of event"))?,
            json: unpacker.text()?.to_owned(),
        };
        unpacker.end()?;
        Ok(letter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn place()(
            numbers: [u64; 7],
            loads: [(u64, u64); 4],
            metrics_from: Option<i64>,
            traffic in proptest::option::of((-100_000..100_000_i64, any::<(u64, u64)>())),
        ) -> UplinkPlace {
            let [next_seq, cursor, last, passed_over, dead_letters, reserved, swept_below] = numbers;
            UplinkPlace {
                next_seq, cursor, last, passed_over, dead_letters, reserved, swept_below,
                loads: loads.map(|(events, bytes)| Load { events, bytes }),
                metrics_from: metrics_from.map(Wall::from_millis),
                traffic: traffic.map(|(day, (up, down))| (day_of(day).unwrap(), up, down)),
            }
        }
    }

    proptest! {
        #[test]
        fn a_place_comes_back_exactly_and_tolerates_what_comes_later(place in place()) {
            let bytes = place.to_bytes();
            prop_assert_eq!(UplinkPlace::from_bytes(&bytes), Ok(place.clone()));
            let mut longer = Packer(bytes[..bytes.len() - 4].to_vec());
            longer.number(99);
            prop_assert_eq!(UplinkPlace::from_bytes(&longer.seal()), Ok(place));
        }

        #[test]
        fn a_gap_and_a_dead_letter_come_back_exactly(
            (from, events) in any::<(u64, u64)>(),
            previous: Option<u64>,
            at: i64,
            (log_id, json) in ("[0-9a-f]{12}", ".{0,40}"),
            is_told: bool,
        ) {
            let at = Wall::from_millis(at);
            let told = is_told.then(|| json.clone());
            let gap = Gap { from, previous, events, at, log_id: log_id.clone(), told };
            prop_assert_eq!(Gap::from_bytes(&gap.to_bytes()), Ok(gap));
            let letter = DeadLetter { at, reason: log_id, kind: Kind::Daily, json };
            prop_assert_eq!(DeadLetter::from_bytes(&letter.to_bytes()), Ok(letter));
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut packer = Packer::new(VERSION);
            packer.0.extend_from_slice(&bytes);
            for bytes in [&packer.seal(), &bytes] {
                drop(UplinkPlace::from_bytes(bytes));
                drop(Gap::from_bytes(bytes));
                drop(DeadLetter::from_bytes(bytes));
            }
        }
    }

    #[test]
    fn the_place_of_an_ordinary_gateway_takes_less_than_60_bytes() {
        let place = UplinkPlace {
            next_seq: 2_000_000,
            cursor: 1_999_990,
            last: 1_999_999,
            loads: [Load {
                events: 1_000,
                bytes: 400_000,
            }; 4],
            reserved: 2_000_010,
            metrics_from: Some(Wall::from_millis(1_773_273_600_000)),
            traffic: day_of(20_000).map(|day| (day, 5_000_000, 100_000)),
            ..UplinkPlace::default()
        };
        assert!(place.to_bytes().len() < 60, "{}", place.to_bytes().len());
    }
}
