//! What waits in memory until it can be dated.
//!
//! Floor 3. Pure data; `edge::recorder` owns it while the clock is not trusted.
//!
//! # Invariants
//!
//! - Bounded: beyond, the oldest of a kind go and are counted.
//! - All of it is dated by the same offset, and leaves in the order in which it
//!   came.

use std::collections::VecDeque;

use tracing::error;

use crate::domain::event::{Change, Event};
use crate::domain::heartbeat::Sample;
use crate::domain::trust::Offset;

/// Heartbeats that wait at most, 10 MB: three hours of 1,000 devices a minute.
const BEATS_MAX: usize = 200_000;
/// Failures of heartbeats, one per run of misses.
const NOTICES_MAX: usize = 20_000;
/// Changes, some 500 bytes each.
const CHANGES_MAX: usize = 100_000;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Undated {
    samples: VecDeque<Sample>,
    notices: VecDeque<Event>,
    changes: VecDeque<Change>,
    lost_beats: u64,
    /// Changes and notices.
    lost_events: u64,
}

/// The same with its dates.
#[derive(Debug)]
pub(super) struct Dated {
    pub(super) samples: VecDeque<Sample>,
    pub(super) notices: VecDeque<Event>,
    pub(super) changes: VecDeque<Change>,
}

impl Undated {
    pub(super) fn add_beat(&mut self, sample: Sample, notice: Option<Event>) {
        self.lost_beats += push(&mut self.samples, sample, BEATS_MAX);
        if let Some(notice) = notice {
            self.lost_events += push(&mut self.notices, notice, NOTICES_MAX);
        }
    }

    pub(super) fn add_change(&mut self, change: Change) {
        self.lost_events += push(&mut self.changes, change, CHANGES_MAX);
    }

    pub(super) fn beats(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Whether nothing waits, and nothing went.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.samples.len() + self.notices.len() + self.changes.len();
        waiting == 0 && self.lost_beats + self.lost_events == 0
    }

    /// What went because too much waited, in one sentence.
    pub(super) fn lost_sentence(&self) -> Option<String> {
        (self.lost_beats + self.lost_events > 0).then(|| {
            format!(
                "{} heartbeats and {} events were given up before the clock was trusted: too many \
                 waited for a date",
                self.lost_beats, self.lost_events
            )
        })
    }

    /// The process ends and nobody will ever know the dates.
    pub(super) fn tell_given_up(&self) {
        if self.is_empty() {
            return;
        }
        error!(
            heartbeats = self.samples.len() as u64 + self.lost_beats,
            changes = self.changes.len(),
            "stopped before the clock was trusted: what waited for a date is given up; set the \
             clock, or have it synchronised"
        );
    }

    /// All of it with dates.
    pub(super) fn date(self, offset: Offset) -> Dated {
        let Self {
            mut samples,
            mut notices,
            mut changes,
            ..
        } = self;
        for sample in &mut samples {
            offset.date(&mut sample.at);
        }
        for notice in &mut notices {
            offset.date_event(notice);
        }
        for change in &mut changes {
            offset.date_change(change);
        }
        Dated {
            samples,
            notices,
            changes,
        }
    }
}

/// Appends; tells how many had to go for it.
fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) -> u64 {
    let is_full = queue.len() >= most;
    if is_full {
        queue.pop_front();
    }
    queue.push_back(item);
    u64::from(is_full)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::heartbeat::{Occasion, Outcome};
    use crate::domain::instant::{Mono, Wall};
    use crate::domain::status::Status;
    use crate::domain::trust::Reading;

    #[test]
    fn the_newest_wait_and_the_oldest_are_counted() {
        let mut undated = Undated::default();
        let beats = i64::try_from(BEATS_MAX).unwrap();
        for second in 0..beats + 2 {
            let sample = Sample {
                device: "d".parse().unwrap(),
                at: Wall::from_millis(second * 1_000),
                outcome: Outcome::Replied { rtt_us: 1 },
                occasion: Occasion::Scheduled,
                status: Status::Online,
            };
            undated.add_beat(sample, None);
        }
        assert_eq!(undated.beats(), BEATS_MAX);
        let sentence = undated.lost_sentence().unwrap();
        assert!(
            sentence.starts_with("2 heartbeats and 0 events"),
            "{sentence}"
        );
        let noon = Wall::parse("2026-03-10T12:00:00Z").unwrap();
        let dated = undated.date(Offset::at(&Reading {
            mono: Mono::default().plus(Duration::from_secs(2)),
            wall: noon,
            is_synchronised: false,
        }));
        assert_eq!(dated.samples[0].at, noon);
    }
}
