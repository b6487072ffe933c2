//! What waits in memory for the next regular flush.
//!
//! # Invariants
//!
//! - Bounded: when full, the oldest heartbeats are given up and counted.
//! - What was taken for writing and could not be written comes back in front.

use std::collections::VecDeque;

use crate::domain::event::Event;
use crate::domain::heartbeat::Sample;

/// Heartbeats held at most, about 50 MB: 17 hours of 1,000 devices a minute.
pub(super) const SAMPLES_MAX: usize = 1 << 20;

/// Notices held at most. One comes per run of misses, so this is the first
/// misses of a large site over many outages of its own.
pub(super) const NOTICES_MAX: usize = 20_000;

/// The open frame and the waiting notices.
#[derive(Debug, Default)]
pub(super) struct OpenFrame {
    samples: VecDeque<Sample>,
    notices: VecDeque<Event>,
    lost_samples: u64,
}

impl OpenFrame {
    pub(super) fn push(&mut self, samples: &[Sample]) {
        for sample in samples {
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
                self.lost_samples += 1;
            }
            self.samples.push_back(*sample);
        }
    }

    pub(super) fn push_notices(&mut self, events: Vec<Event>) {
        self.notices.extend(events);
        let excess = self.notices.len().saturating_sub(NOTICES_MAX);
        if excess > 0 {
            self.notices.drain(..excess);
            tracing::error!(
                notices = excess,
                "the oldest waiting notices were given up: the store takes no events"
            );
        }
    }

    /// All heartbeats; the frame is empty afterwards and its memory is free.
    pub(super) fn take(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples).into()
    }

    /// All notices.
    pub(super) fn take_notices(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.notices).into()
    }

    /// Puts back what could not be written, older than all that came since.
    pub(super) fn put_back(&mut self, samples: Vec<Sample>) {
        let newer = std::mem::replace(&mut self.samples, samples.into());
        self.push(&Vec::from(newer));
    }

    /// Puts back notices that could not be written.
    pub(super) fn put_back_notices(&mut self, notices: Vec<Event>) {
        let newer = std::mem::replace(&mut self.notices, notices.into());
        self.push_notices(newer.into());
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) const fn lost_samples(&self) -> u64 {
        self.lost_samples
    }

    /// Counts heartbeats given up elsewhere.
    pub(super) const fn give_up(&mut self, count: u64) {
        self.lost_samples += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::{Occasion, Outcome};
    use crate::domain::instant::Wall;
    use crate::domain::status::Status;

    fn sample(millis: i64) -> Sample {
        Sample {
            device: "d".parse().unwrap(),
            at: Wall::from_millis(millis),
            outcome: Outcome::Replied { rtt_us: 1 },
            occasion: Occasion::Scheduled,
            status: Status::Online,
        }
    }

    #[test]
    fn a_full_frame_gives_up_its_oldest_and_counts_them() {
        let mut frame = OpenFrame::default();
        let most = i64::try_from(SAMPLES_MAX).unwrap();
        let samples: Vec<_> = (0..most + 3).map(sample).collect();
        frame.push(&samples);
        assert_eq!((frame.len(), frame.lost_samples()), (SAMPLES_MAX, 3));
        assert_eq!(frame.samples().next(), Some(&sample(3)));
        // What comes back is older than what came meanwhile, and goes first.
        let taken = frame.take();
        frame.push(&[sample(most + 3), sample(most + 4)]);
        frame.put_back(taken);
        assert_eq!((frame.len(), frame.lost_samples()), (SAMPLES_MAX, 5));
        assert_eq!(frame.samples().next(), Some(&sample(5)));
        assert_eq!(frame.samples().last(), Some(&sample(most + 4)));
    }
}
