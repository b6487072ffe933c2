//! Every device's standing as a start finds it.
//!
//! Three witnesses, each where it knows best: the durable steps name the
//! verdict, the newer of step and checkpoint the counts, the raw heartbeats
//! since then move the counts on.
//!
//! # Invariants
//!
//! - A verdict comes from a durable step, because its event is durable with it.
//!   Only where steps were lost with the state database, checkpoint and raw
//!   heartbeats name verdicts too.
//! - A device that left comes back only by what is newer than its leaving.

use std::collections::BTreeMap;
use std::time::Duration;

use super::database::Fault;
use super::raw::RawDays;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::domain::status::{Liveness, Status, Track};
use crate::wire::record::standing::{Checkpoint, Standing};

/// How far before a checkpoint the frames are read that may hold heartbeats it
/// does not know. A frame is found by its first heartbeat and may span hours.
const CHECKPOINT_MARGIN: Duration = Duration::from_hours(3);

/// Days read where there is no checkpoint.
const DAYS_WITHOUT_CHECKPOINT: usize = 3;

/// Heartbeats dated later than this after now come from a clock that was wrong.
const FUTURE_TOLERANCE: Duration = Duration::from_mins(5);

/// Heartbeats held to be put in order. More are taken in early, but for the last
/// minutes, within which frames may overlap.
const WAITING_MAX: usize = 1 << 16;
const OVERLAP: Duration = Duration::from_mins(10);

/// What the raw heartbeats say beside the standings.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// The standings, by device.
    pub(super) standings: Vec<Liveness>,
    /// The highest start number seen in a frame; 0 if none.
    pub(super) boot: u32,
    /// The highest number that a frame knows the next event had; 0 if none.
    pub(super) next_seq: u64,
}

/// What is known of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    track: Track,
    /// Heartbeats up to here are taken in already, or are of no interest.
    until: Option<Wall>,
    /// Whether a durable step or a checkpoint names it.
    is_watched: bool,
    /// Whether raw heartbeats may name its verdict.
    takes_raw_verdict: bool,
    /// Whether any raw heartbeat after `until` was seen.
    was_heard: bool,
}

/// Puts the witnesses together. `trusts_raw`: steps were lost, so newer raw names
/// verdicts too, and a checkpoint where there is no step. Days that cannot be read
/// in full are named in `mended`.
pub(super) fn recall(
    steps: &[(DeviceId, Standing)],
    checkpoint: Option<&Checkpoint>,
    trusts_raw: bool,
    raw: &mut RawDays,
    mended: &mut Vec<String>,
) -> Recalled {
    let mut recaller = Recaller {
        known: known_from(steps, checkpoint, trusts_raw),
        trusts_raw,
        horizon: None,
        waiting: Vec::new(),
        boot: 0,
        next_seq: 0,
    };
    let since = checkpoint.map(|checkpoint| checkpoint.at.minus(CHECKPOINT_MARGIN));
    for day in days_to_read(raw, since, &mut recaller.horizon) {
        let mended_before = raw.mended.len();
        let Err(fault) = recaller.read(raw, day, since) else {
            continue;
        };
        recaller.take_in_all();
        if raw.mended.len() == mended_before {
            mended.push(format!(
                "raw of {day} could be read only in part ({fault}): some devices start with \
                 older counts"
            ));
        }
    }
    recaller.finish()
}

struct Recaller {
    known: BTreeMap<DeviceId, Known>,
    trusts_raw: bool,
    horizon: Option<Wall>,
    /// Heartbeats of one shard, to be taken in by time.
    waiting: Vec<Sample>,
    boot: u32,
    next_seq: u64,
}

impl Recaller {
    fn read(&mut self, raw: &mut RawDays, day: Day, since: Option<Wall>) -> Result<(), Fault> {
        // Two closures need the same recaller, one after the other.
        let this = std::cell::RefCell::new(self);
        raw.read_all(
            day,
            since,
            &mut |device, beat, head| {
                let mut this = this.borrow_mut();
                this.boot = this.boot.max(head.boot);
                this.next_seq = this.next_seq.max(head.next_seq);
                if this.is_news(device, beat.at) {
                    this.waiting.push(super::raw::sample_of(device, beat));
                }
                if this.waiting.len() >= WAITING_MAX {
                    let until = beat.at.minus(OVERLAP);
                    this.take_in(until);
                }
            },
            &mut || this.borrow_mut().take_in_all(),
        )
    }

    fn is_news(&self, device: DeviceId, at: Wall) -> bool {
        let until = self.known.get(&device).and_then(|known| known.until);
        until.is_none_or(|until| at > until) && self.horizon.is_none_or(|horizon| at <= horizon)
    }

    fn take_in_all(&mut self) {
        self.take_in(Wall::from_millis(i64::MAX));
    }

    /// Takes in what waits up to `until`; all of it, if that would free little.
    fn take_in(&mut self, until: Wall) {
        let mut samples = std::mem::take(&mut self.waiting);
        samples.sort_by_key(|sample| sample.at);
        let mut count = samples.partition_point(|sample| sample.at <= until);
        if count < WAITING_MAX / 2 {
            count = samples.len();
        }
        for sample in samples.drain(..count) {
            let fresh = Known {
                takes_raw_verdict: self.trusts_raw,
                ..Known::default()
            };
            let known = self.known.entry(sample.device).or_insert(fresh);
            known.was_heard = true;
            known.track.recall(&sample);
            if known.takes_raw_verdict && known.track.status != sample.status {
                known.track.status = sample.status;
                known.track.since = Some(sample.at);
            }
        }
        self.waiting = samples;
    }

    fn finish(self) -> Recalled {
        let watched = self
            .known
            .into_iter()
            .filter(|(_, known)| known.is_watched || known.was_heard);
        Recalled {
            standings: watched
                .map(|(device, known)| Liveness {
                    device,
                    track: known.track,
                })
                .collect(),
            boot: self.boot,
            next_seq: self.next_seq,
        }
    }
}

fn known_from(
    steps: &[(DeviceId, Standing)],
    checkpoint: Option<&Checkpoint>,
    trusts_raw: bool,
) -> BTreeMap<DeviceId, Known> {
    let steps: BTreeMap<DeviceId, Standing> = steps.iter().copied().collect();
    let mut known: BTreeMap<DeviceId, Known> = steps
        .iter()
        .map(|(device, standing)| (*device, known_from_step(standing, trusts_raw)))
        .collect();
    let taken = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.standings);
    let next_seq = checkpoint.map_or(0, |checkpoint| checkpoint.next_seq);
    for &Liveness { device, mut track } in taken {
        match steps.get(&device) {
            // The step is newer than the checkpoint.
            Some(Standing::Watched { seq, .. } | Standing::Gone { seq, .. })
                if *seq >= next_seq =>
            {
                continue;
            }
            Some(Standing::Watched { track: step, .. }) => {
                (track.status, track.since) = (step.status, step.since);
            }
            Some(Standing::Gone { .. }) | None if trusts_raw => {}
            Some(Standing::Gone { .. }) | None => {
                (track.status, track.since) = (Status::Unknown, None);
            }
        }
        let entry = Known {
            track,
            until: taken_in_until(&track),
            is_watched: true,
            takes_raw_verdict: trusts_raw,
            was_heard: false,
        };
        known.insert(device, entry);
    }
    known
}

fn known_from_step(standing: &Standing, trusts_raw: bool) -> Known {
    match *standing {
        Standing::Watched { track, .. } => Known {
            track,
            until: taken_in_until(&track),
            is_watched: true,
            takes_raw_verdict: trusts_raw,
            was_heard: false,
        },
        Standing::Gone { at, .. } => Known {
            until: Some(at),
            takes_raw_verdict: trusts_raw,
            ..Known::default()
        },
    }
}

/// A device that was just forgotten has no last probe, yet its older heartbeats
/// are of no interest any more.
fn taken_in_until(track: &Track) -> Option<Wall> {
    track.last_ping_at.or(track.updated_at)
}

/// The days that may hold news, ascending, and up to when to believe them.
fn days_to_read(raw: &RawDays, since: Option<Wall>, horizon: &mut Option<Wall>) -> Vec<Day> {
    let mut days = raw.days().unwrap_or_default();
    let latest = raw.now.plus(FUTURE_TOLERANCE);
    // A gateway without a battery starts in 1970: then every day is later than
    // now, and it is now that is not to be believed.
    if days.iter().any(|day| day.start() <= latest) {
        *horizon = Some(latest);
        days.retain(|day| day.start() <= latest);
    }
    match since {
        Some(since) => days.retain(|day| day.end() > since),
        None => {
            days.drain(..days.len().saturating_sub(DAYS_WITHOUT_CHECKPOINT));
        }
    }
    days
}
