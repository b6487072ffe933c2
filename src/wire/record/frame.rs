//! Raw heartbeats, packed: some devices over some time in one value.
//!
//! Floor 1. Body: start number of the process (varint), number of the next
//! event at that time (varint), base time (signed varint), then per heartbeat:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | place of the device among the [`PLACES`] of its shard |
//! | 1-10 | `at` minus that of the heartbeat before, in ms (signed varint) |
//! | 1 | outcome kind and reason (bits 0-3), status (4-5), occasion (6-7) |
//! | 0-5 | RTT in microseconds (varint), for a reply only |
//!
//! Heartbeats come back in the order given; sorted by time they are smallest,
//! about 6 to 7 bytes each.

use super::{
    BadRecord, Packer, Unpacker, miss_code, no_data_code, occasion_code, occasion_of, status_code,
    status_of,
};
use crate::domain::heartbeat::{Miss, NoData, Occasion, Outcome};
use crate::domain::instant::Wall;
use crate::domain::status::Status;

/// Devices that share a shard, and so a frame.
pub const PLACES: u32 = 256;

/// The most bytes that one more heartbeat can add.
pub const BEAT_BYTES_MAX: usize = 17;

const VERSION: u8 = 1;

/// A heartbeat whose device is known by its place in the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Place of the device in its shard.
    pub place: u8,
    /// When its send was scheduled.
    pub at: Wall,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it was sent.
    pub occasion: Occasion,
    /// The device's status after it.
    pub status: Status,
}

/// What stands at the head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the start that wrote it.
    pub boot: u32,
    /// The number the next event was to get: what the event log must at least
    /// hold when this frame is read.
    pub next_seq: u64,
}

/// Packs one frame.
#[derive(Debug)]
pub struct FrameWriter {
    packer: Packer,
    last: i64,
}

/// Reads one frame; yields its heartbeats.
#[derive(Clone, Debug)]
pub struct FrameReader<'a> {
    /// Its head.
    pub head: Head,
    unpacker: Unpacker<'a>,
    last: i64,
}

impl FrameWriter {
    /// An empty frame; `base` is best the time of its first heartbeat.
    #[must_use]
    pub fn new(head: Head, base: Wall) -> Self {
        let mut packer = Packer::new(VERSION);
        packer.number(head.boot.into());
        packer.number(head.next_seq);
        packer.signed(base.millis());
        Self {
            packer,
            last: base.millis(),
        }
    }

    /// Adds a heartbeat.
    pub fn push(&mut self, beat: &Beat) {
        let at = beat.at.millis();
        self.packer.byte(beat.place);
        // Wrapping, so that even the two ends of the range are a difference.
        self.packer.signed(at.wrapping_sub(self.last));
        self.last = at;
        let code = match beat.outcome {
            Outcome::Replied { .. } => 0,
            Outcome::Missed(miss) => miss_code(miss),
            Outcome::NoData(no_data) => no_data_code(no_data),
        };
        let (status, occasion) = (status_code(beat.status), occasion_code(beat.occasion));
        self.packer.byte(code | status << 4 | occasion << 6);
        if let Some(rtt_us) = beat.outcome.rtt_us() {
            self.packer.number(rtt_us.into());
        }
    }

    /// Bytes so far, without the seal.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packer.len()
    }

    /// The finished record.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.packer.seal()
    }
}

impl<'a> FrameReader<'a> {
    /// Checks the record and reads its head.
    pub fn open(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let head = Head {
            boot: unpacker.small()?,
            next_seq: unpacker.number()?,
        };
        let last = unpacker.signed()?;
        Ok(Self {
            head,
            unpacker,
            last,
        })
    }

    fn beat(&mut self) -> Result<Beat, BadRecord> {
        let place = self.unpacker.byte()?;
        self.last = self.last.wrapping_add(self.unpacker.signed()?);
        let codes = self.unpacker.byte()?;
        let outcome = self.outcome(codes & 0x0f)?;
        let status = status_of(codes >> 4 & 3).ok_or(BadRecord("holds no known status"))?;
        let occasion = occasion_of(codes >> 6).ok_or(BadRecord("holds no known occasion"))?;
        Ok(Beat {
            place,
            at: Wall::from_millis(self.last),
            outcome,
            occasion,
            status,
        })
    }

    fn outcome(&mut self, code: u8) -> Result<Outcome, BadRecord> {
        Ok(match code {
            0 => Outcome::Replied {
                rtt_us: self.unpacker.small()?,
            },
            1 => Outcome::Missed(Miss::Timeout),
            2 => Outcome::Missed(Miss::Unreachable),
            3 => Outcome::Missed(Miss::TtlExceeded),
            4 => Outcome::Missed(Miss::OtherError),
            8 => Outcome::NoData(NoData::SendFailed),
            9 => Outcome::NoData(NoData::PathDown),
            10 => Outcome::NoData(NoData::Maintenance),
            11 => Outcome::NoData(NoData::ClockUntrusted),
            _ => return Err(BadRecord("holds no known outcome")),
        })
    }
}

impl Iterator for FrameReader<'_> {
    type Item = Result<Beat, BadRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.unpacker.is_empty() {
            return None;
        }
        let beat = self.beat();
        if beat.is_err() {
            self.unpacker = Unpacker(&[]);
        }
        Some(beat)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: Head = Head {
        boot: 3,
        next_seq: 4_711,
    };

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            any::<u32>().prop_map(|rtt_us| Outcome::Replied { rtt_us }),
            proptest::sample::select(vec![
                Outcome::Missed(Miss::Timeout),
                Outcome::Missed(Miss::Unreachable),
                Outcome::Missed(Miss::TtlExceeded),
                Outcome::Missed(Miss::OtherError),
                Outcome::NoData(NoData::SendFailed),
                Outcome::NoData(NoData::PathDown),
                Outcome::NoData(NoData::Maintenance),
                Outcome::NoData(NoData::ClockUntrusted),
            ]),
        ]
    }

    fn time() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            Just(i64::MIN),
            Just(i64::MAX),
            Just(0),
            1_773_273_900_000..1_773_273_960_000_i64,
        ]
    }

    prop_compose! {
        fn beat()(
            place: u8,
            at in time(),
            outcome in outcome(),
            occasion in proptest::sample::select(vec![
                Occasion::Scheduled, Occasion::Recheck, Occasion::FirstLook, Occasion::OnDemand,
            ]),
            status in proptest::sample::select(Status::ALL.to_vec()),
        ) -> Beat {
            Beat { place, at: Wall::from_millis(at), outcome, occasion, status }
        }
    }

    fn pack(beats: &[Beat], base: i64) -> Vec<u8> {
        let mut writer = FrameWriter::new(HEAD, Wall::from_millis(base));
        for beat in beats {
            let before = writer.bytes();
            writer.push(beat);
            assert!(writer.bytes() - before <= BEAT_BYTES_MAX);
        }
        writer.finish()
    }

    proptest! {
        #[test]
        fn heartbeats_of_any_time_and_order_come_back_exactly(
            beats in proptest::collection::vec(beat(), 0..60),
            base in time(),
        ) {
            let bytes = pack(&beats, base);
            let reader = FrameReader::open(&bytes).unwrap();
            prop_assert_eq!(reader.head, HEAD);
            let read: Vec<Beat> = reader.map(Result::unwrap).collect();
            prop_assert_eq!(read, beats);
        }

        #[test]
        fn bytes_from_outside_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            // A right seal lets the noise through to the inner checks.
            let sum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            for sealed in [false, true] {
                if sealed {
                    let body = bytes.len() - 4;
                    let sum = crc32fast::hash(&bytes[..body]);
                    bytes[body..].copy_from_slice(&sum.to_le_bytes());
                }
                if let Ok(reader) = FrameReader::open(&bytes) {
                    prop_assert!(reader.count() <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn a_minute_of_256_devices_takes_less_than_seven_bytes_a_heartbeat() {
        let start = 1_773_273_900_000;
        let beats: Vec<Beat> = (0..=255_u8)
            .map(|place| Beat {
                place: place.wrapping_mul(37),
                at: Wall::from_millis(start + i64::from(place) * 234),
                outcome: Outcome::Replied {
                    rtt_us: 300_000 + u32::from(place) * 1_000,
                },
                occasion: Occasion::Scheduled,
                status: Status::Online,
            })
            .collect();
        let bytes = pack(&beats, start).len();
        assert!(bytes < 256 * 7 + 20, "{bytes} bytes");
    }
}
