//! What the state database says of the event log: its entries, its place, what
//! was announced, and the starts of the program.
//!
//! Floor 1.

use super::{BadRecord, Packer, Unpacker};
use crate::domain::device::DeviceId;
use crate::domain::event::News;
use crate::domain::instant::Wall;
use crate::domain::outbox::Class;

const VERSION: u8 = 1;

/// Beside the kind: the entry is not addressed to MQTT.
const LOCAL: u8 = 1 << 7;

/// Which kind of news an entry of the log tells, without reading its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device has another status.
    Status,
    /// Something did not work.
    Failed,
    /// A device is no longer watched.
    Removed,
    /// A day was summarised.
    Daily,
    /// The wall clock was set.
    Clock,
}

/// An entry of the log, as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Which kind of news it tells.
    pub kind: Kind,
    /// Whether it is kept for the page alone and not addressed to MQTT.
    pub is_local: bool,
    /// The envelope.
    pub json: &'a str,
}

/// Where the event log stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// Names the log: 12 hexadecimal digits.
    pub log_id: String,
    /// The number of this log's first event.
    pub base_seq: u64,
    /// The number the next event gets.
    pub next_seq: u64,
    /// Whether steps were lost with an older log and nothing has made up for
    /// them yet.
    pub is_rebuilt: bool,
    /// Entries below this number may be missing: they were removed when their
    /// time was up. All at and above it are there.
    pub pruned_below: u64,
    /// Entries removed that had a number of this log.
    pub pruned_count: u64,
}

impl Kind {
    /// The kind of these news.
    #[must_use]
    pub const fn of(news: &News) -> Self {
        match news {
            News::StatusChanged { .. } => Self::Status,
            News::Failed(_) => Self::Failed,
            News::DeviceRemoved { .. } => Self::Removed,
            News::DaySummarised(_) | News::SiteSummarised(_) => Self::Daily,
            News::ClockStepped { .. } => Self::Clock,
        }
    }

    /// Its class, by which it is passed over where too much waits.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Failed => Class::Failed,
            Self::Status | Self::Removed | Self::Clock => Class::Status,
            Self::Daily => Class::Daily,
        }
    }

    // On disk: never change a number, only add.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Status => 0,
            Self::Failed => 1,
            Self::Removed => 2,
            Self::Daily => 3,
            Self::Clock => 4,
        }
    }

    pub(super) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Status,
            1 => Self::Failed,
            2 => Self::Removed,
            3 => Self::Daily,
            4 => Self::Clock,
            _ => return None,
        })
    }
}

/// An entry of the log: the envelope exactly as it goes upstream.
#[must_use]
pub fn pack_event(kind: Kind, is_local: bool, json: &str) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.byte(kind.code() | if is_local { LOCAL } else { 0 });
    packer.text(json);
    packer.seal()
}

/// Reads an entry of the log.
pub fn unpack_event(bytes: &[u8]) -> Result<Entry<'_>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let code = unpacker.byte()?;
    let kind = Kind::from_code(code & !LOCAL).ok_or(BadRecord("is no known kind of event"))?;
    let json = unpacker.text()?;
    unpacker.end()?;
    Ok(Entry {
        kind,
        is_local: code & LOCAL != 0,
        json,
    })
}

/// When the event of an entry was produced, without reading its JSON in full.
#[must_use]
pub fn produced_at(json: &str) -> Option<Wall> {
    // The first one is the envelope's own: only words of ours stand before it.
    let (_, rest) = json.split_once("\"produced_at\":\"")?;
    let (time, _) = rest.split_once('"')?;
    Wall::parse(time)
}

/// What an envelope says of the event before its own, without reading it in full;
/// `None` where it is the first of its log.
#[must_use]
pub fn prev_seq(json: &str) -> Option<u64> {
    // Before it stand words, names and numbers of ours, none of which holds a quote.
    let (_, rest) = json.split_once("\"prev_seq\":")?;
    let (number, _) = rest.split_once('}')?;
    number.parse().ok()
}

/// The log that an envelope is numbered in.
#[must_use]
pub fn log_id(json: &str) -> Option<&str> {
    let (_, rest) = json.split_once("\"log_id\":\"")?;
    rest.split_once('"').map(|(log_id, _)| log_id)
}

/// The device that an envelope is about; `None`: the site or the node.
#[must_use]
pub fn device(json: &str) -> Option<DeviceId> {
    // The first one is the envelope's own: it comes right after `meta`.
    let (_, rest) = json.split_once("\"context\":{")?;
    let (device, _) = rest.strip_prefix("\"device_id\":\"")?.split_once('"')?;
    device.parse().ok()
}

/// Whether an entry tells that the broker did not take a message.
#[must_use]
pub fn is_refusal(kind: Kind, json: &str) -> bool {
    kind == Kind::Failed && json.contains("\"error_code\":\"MESSAGE_REFUSED\"")
}

/// Whether an entry tells of a heartbeat that failed: told in great numbers, kept
/// for a short time.
#[must_use]
pub fn is_failed_heartbeat(kind: Kind, json: &str) -> bool {
    // In a text of somebody else's the quotes would be escaped.
    kind == Kind::Failed && json.contains("\"failed_stage\":\"heartbeat\"")
}

/// What the JSON of an entry about this device holds, and no other does.
#[must_use]
pub fn needle_of(device: &DeviceId) -> String {
    format!("\"context\":{{\"device_id\":\"{device}\"}}")
}

/// What was announced of one row, as a hash.
#[must_use]
pub fn pack_mark(content: u64) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.number(content);
    packer.seal()
}

/// Reads what was announced.
pub fn unpack_mark(bytes: &[u8]) -> Result<u64, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let content = unpacker.number()?;
    unpacker.end()?;
    Ok(content)
}

/// The number of a start of the program.
#[must_use]
pub fn pack_boot(boot: u32) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.number(boot.into());
    packer.seal()
}

/// Reads the number of a start.
pub fn unpack_boot(bytes: &[u8]) -> Result<u32, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let boot = unpacker.small()?;
    unpacker.end()?;
    Ok(boot)
}

impl LogPlace {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        packer.text(&self.log_id);
        packer.number(self.base_seq);
        packer.number(self.next_seq);
        packer.byte(u8::from(self.is_rebuilt));
        // Came later: without it the record is as it always was.
        if self.pruned_below > 0 {
            packer.number(self.pruned_below);
            packer.number(self.pruned_count);
        }
        packer.seal()
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let mut place = Self {
            log_id: unpacker.text()?.to_owned(),
            base_seq: unpacker.number()?,
            next_seq: unpacker.number()?,
            is_rebuilt: unpacker.byte()? != 0,
            pruned_below: 0,
            pruned_count: 0,
        };
        if !unpacker.is_empty() {
            place.pruned_below = unpacker.number()?;
            place.pruned_count = unpacker.number()?;
        }
        unpacker.end()?;
        let pruned = place.pruned_below.saturating_sub(place.base_seq);
        if place.base_seq == 0
            || place.next_seq < place.base_seq
            || place.pruned_below > place.next_seq
            || place.pruned_count > pruned
        {
            return Err(BadRecord("holds numbers out of order"));
        }
        Ok(place)
    }

    /// From this number on the log is whole.
    #[must_use]
    pub fn whole_from(&self) -> u64 {
        self.base_seq.max(self.pruned_below)
    }

    /// How many entries the log holds that have a number of its own.
    #[must_use]
    pub const fn held(&self) -> u64 {
        (self.next_seq - self.base_seq).saturating_sub(self.pruned_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_places_and_starts_come_back() {
        let json = "{\"event\":\"\u{e4}\"}";
        for is_local in [false, true] {
            let kind = Kind::Failed;
            let bytes = pack_event(kind, is_local, json);
            let entry = Entry {
                kind,
                is_local,
                json,
            };
            assert_eq!(unpack_event(&bytes), Ok(entry));
        }
        let place = LogPlace {
            log_id: "0123456789ab".into(),
            base_seq: 1,
            next_seq: 77,
            is_rebuilt: true,
            pruned_below: 0,
            pruned_count: 0,
        };
        let plain = place.to_bytes();
        assert_eq!(LogPlace::from_bytes(&plain), Ok(place.clone()));
        let pruned = LogPlace {
            pruned_below: 70,
            pruned_count: 69,
            ..place
        };
        assert_eq!(LogPlace::from_bytes(&pruned.to_bytes()), Ok(pruned.clone()));
        assert_eq!((pruned.whole_from(), pruned.held()), (70, 7));
        for bad in [(78, 0), (70, 70), (1, 1)] {
            let bad = LogPlace {
                pruned_below: bad.0,
                pruned_count: bad.1,
                ..pruned.clone()
            };
            assert!(LogPlace::from_bytes(&bad.to_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(unpack_mark(&pack_mark(u64::MAX)), Ok(u64::MAX));
        assert_eq!(unpack_boot(&pack_boot(u32::MAX)), Ok(u32::MAX));
        assert!(unpack_boot(&pack_event(Kind::Clock, false, json)).is_err());
        assert!(unpack_event(&[]).is_err());
    }
    #[test]
    fn time_stage_and_device_are_found_in_an_envelope_whatever_its_message_says() {
        use crate::domain::event::{Event, Failure, FailureCode, Stage};
        use crate::wire::message::{Place, envelope};

        let at = Wall::from_millis(1_773_273_600_123);
        let device: DeviceId = "meter-1".parse().unwrap();
        let event = |stage| Event {
            device: Some(device),
            produced_at: at,
            process_ms: 1,
            news: News::Failed(Failure {
                stage,
                code: FailureCode::PingTimeout,
                message: "\"failed_stage\":\"heartbeat\" \"context\":{\"device_id\":\"meter-2\"}"
                    .into(),
                retryable: true,
                failed_at: Wall::from_millis(0),
            }),
        };
        let place = Place {
            site: "site-1",
            node: "gw",
            log_id: "0123456789ab",
            seq: 7,
            prev_seq: None,
        };
        let json = envelope(&event(Stage::Heartbeat), &place);
        assert_eq!(produced_at(&json), Some(at));
        assert!(is_failed_heartbeat(Kind::Failed, &json));
        assert!(json.contains(&needle_of(&device)));
        assert!(!json.contains(&needle_of(&"meter-2".parse().unwrap())));
        assert_eq!(super::device(&json), Some(device));
        assert_eq!(log_id(&json), Some("0123456789ab"));
        assert_eq!(prev_seq(&json), None);
        assert!(!is_refusal(Kind::Failed, &json));
        let later = Place {
            prev_seq: Some(6),
            ..place
        };
        let json = envelope(&event(Stage::Heartbeat), &later);
        assert_eq!(prev_seq(&json), Some(6));
        let json = envelope(&event(Stage::Store), &place);
        assert!(!is_failed_heartbeat(Kind::Failed, &json));
        assert_eq!(produced_at("{}"), None);
    }
}
