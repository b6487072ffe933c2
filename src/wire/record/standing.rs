//! A device's standing on disk: alone at a change of verdict, packed with all
//! others in a checkpoint.
//!
//! Floor 1.

use super::{BadRecord, Packer, Unpacker, status_code, status_of};
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::domain::status::{Liveness, Track};

const VERSION: u8 = 1;
const WATCHED: u8 = 0;
const GONE: u8 = 1;

const HAS_SINCE: u8 = 1 << 2;
const HAS_PING: u8 = 1 << 3;
const HAS_SEEN: u8 = 1 << 4;
const HAS_RTT: u8 = 1 << 5;
const HAS_UPDATED: u8 = 1 << 6;

/// What the last durable step said of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is watched and stood like this.
    Watched {
        /// Number of the event that tells of it.
        seq: u64,
        /// Its standing.
        track: Track,
    },
    /// It left. Kept so that older raw and checkpoints do not bring it back.
    Gone {
        /// Number of the event that tells of it.
        seq: u64,
        /// When it left.
        at: Wall,
    },
}

/// Some of the standings of one moment; several of these make a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// When it was taken.
    pub at: Wall,
    /// The number the next event was to get.
    pub next_seq: u64,
    /// The standings, in no particular order.
    pub standings: Vec<Liveness>,
}

impl Standing {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        match self {
            Self::Watched { seq, track } => {
                packer.byte(WATCHED);
                packer.number(*seq);
                pack_track(&mut packer, track, 0);
            }
            Self::Gone { seq, at } => {
                packer.byte(GONE);
                packer.number(*seq);
                packer.signed(at.millis());
            }
        }
        packer.seal()
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let kind = unpacker.byte()?;
        let seq = unpacker.number()?;
        let standing = match kind {
            WATCHED => Self::Watched {
                seq,
                track: unpack_track(&mut unpacker, 0)?,
            },
            GONE => Self::Gone {
                seq,
                at: Wall::from_millis(unpacker.signed()?),
            },
            _ => return Err(BadRecord("is neither a standing nor a farewell")),
        };
        unpacker.end()?;
        Ok(standing)
    }
}

impl Checkpoint {
    /// The whole checkpoint as records of about `bytes_max` bytes or less; at
    /// least one, so that an empty checkpoint is a checkpoint too.
    #[must_use]
    pub fn to_chunks(&self, bytes_max: usize) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        let mut open = self.head();
        for standing in &self.standings {
            let mut entry = Packer(Vec::new());
            entry.text(standing.device.as_str());
            pack_track(&mut entry, &standing.track, self.at.millis());
            if open.len() + entry.len() > bytes_max {
                chunks.push(std::mem::replace(&mut open, self.head()).seal());
            }
            open.0.extend_from_slice(&entry.0);
        }
        chunks.push(open.seal());
        chunks
    }

    fn head(&self) -> Packer {
        let mut packer = Packer::new(VERSION);
        packer.signed(self.at.millis());
        packer.number(self.next_seq);
        packer
    }

    /// Reads one of the records of a checkpoint.
    pub fn from_chunk(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let at = unpacker.signed()?;
        let next_seq = unpacker.number()?;
        let mut standings = Vec::new();
        while !unpacker.is_empty() {
            let device: DeviceId = unpacker.device()?;
            let track = unpack_track(&mut unpacker, at)?;
            standings.push(Liveness { device, track });
        }
        Ok(Self {
            at: Wall::from_millis(at),
            next_seq,
            standings,
        })
    }
}

fn pack_track(packer: &mut Packer, track: &Track, base: i64) {
    let mut flags = status_code(track.status);
    let mut flag = |is_set: bool, bit: u8| flags |= if is_set { bit } else { 0 };
    flag(track.since.is_some(), HAS_SINCE);
    flag(track.last_ping_at.is_some(), HAS_PING);
    flag(track.last_seen.is_some(), HAS_SEEN);
    flag(track.rtt_us.is_some(), HAS_RTT);
    flag(track.updated_at.is_some(), HAS_UPDATED);
    packer.byte(flags);
    let times = [
        track.since,
        track.last_ping_at,
        track.last_seen,
        track.updated_at,
    ];
    for time in times.into_iter().flatten() {
        packer.signed(time.millis().wrapping_sub(base));
    }
    if let Some(rtt_us) = track.rtt_us {
        packer.number(rtt_us.into());
    }
    packer.number(track.missed_count.into());
    packer.number(track.recovering.into());
}

fn unpack_track(unpacker: &mut Unpacker<'_>, base: i64) -> Result<Track, BadRecord> {
    let flags = unpacker.byte()?;
    let status = status_of(flags & 3).ok_or(BadRecord("holds no known status"))?;
    let mut time = |bit: u8| {
        if flags & bit == 0 {
            return Ok(None);
        }
        let millis = base.wrapping_add(unpacker.signed()?);
        Ok(Some(Wall::from_millis(millis)))
    };
    let since = time(HAS_SINCE)?;
    let last_ping_at = time(HAS_PING)?;
    let last_seen = time(HAS_SEEN)?;
    let updated_at = time(HAS_UPDATED)?;
    let rtt_us = match flags & HAS_RTT {
        0 => None,
        _ => Some(unpacker.small()?),
    };
    Ok(Track {
        status,
        since,
        last_ping_at,
        last_seen,
        rtt_us,
        missed_count: unpacker.small()?,
        recovering: unpacker.small()?,
        updated_at,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::status::Status;

    prop_compose! {
        fn track()(
            status in proptest::sample::select(Status::ALL.to_vec()),
            times: [Option<i64>; 4],
            rtt_us: Option<u32>,
            missed_count: u32,
            recovering: u32,
        ) -> Track {
            let [since, last_ping_at, last_seen, updated_at] =
                times.map(|time| time.map(Wall::from_millis));
            Track {
                status, since, last_ping_at, last_seen, rtt_us, missed_count, recovering, updated_at,
            }
        }
    }

    proptest! {
        #[test]
        fn a_standing_comes_back_exactly(track in track(), seq: u64, at: i64) {
            for standing in [
                Standing::Watched { seq, track },
                Standing::Gone { seq, at: Wall::from_millis(at) },
            ] {
                prop_assert_eq!(Standing::from_bytes(&standing.to_bytes()), Ok(standing));
            }
        }

        #[test]
        fn a_checkpoint_comes_back_from_its_chunks(
            tracks in proptest::collection::vec(("[A-Za-z0-9_-]{1,21}", track()), 0..300),
            at: i64,
            next_seq: u64,
        ) {
            let standings = tracks
                .into_iter()
                .map(|(id, track)| Liveness { device: id.parse().unwrap(), track })
                .collect();
            let whole = Checkpoint { at: Wall::from_millis(at), next_seq, standings };
            let chunks = whole.to_chunks(1_000);
            let mut read = Vec::new();
            for chunk in &chunks {
                prop_assert!(chunk.len() <= 1_004, "{} bytes", chunk.len());
                let part = Checkpoint::from_chunk(chunk).unwrap();
                prop_assert_eq!((part.at, part.next_seq), (whole.at, next_seq));
                read.extend(part.standings);
            }
            prop_assert_eq!(read, whole.standings);
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut packer = Packer::new(VERSION);
            packer.0.extend_from_slice(&bytes);
            for bytes in [&packer.seal(), &bytes] {
                let standing = Standing::from_bytes(bytes);
                let checkpoint = Checkpoint::from_chunk(bytes);
                prop_assert!(standing.is_ok() || standing.is_err() || checkpoint.is_ok());
            }
        }
    }

    #[test]
    fn a_thousand_ordinary_standings_take_less_than_40_kb() {
        let at = 1_773_273_900_000;
        let standings = (0..1_000)
            .map(|n| Liveness {
                device: format!("meter-{n:04}").parse().unwrap(),
                track: Track {
                    status: Status::Online,
                    since: Some(Wall::from_millis(at - 86_400_000)),
                    last_ping_at: Some(Wall::from_millis(at - 30_000)),
                    last_seen: Some(Wall::from_millis(at - 29_700)),
                    rtt_us: Some(312_345),
                    missed_count: 0,
                    recovering: 0,
                    updated_at: Some(Wall::from_millis(at - 29_700)),
                },
            })
            .collect();
        let whole = Checkpoint {
            at: Wall::from_millis(at),
            next_seq: 1,
            standings,
        };
        let bytes: usize = whole.to_chunks(3_500).iter().map(Vec::len).sum();
        assert!(bytes < 40_000, "{bytes}");
    }
}
