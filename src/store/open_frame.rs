//! What waits in memory for the next regular flush.
//!
//! # Invariants
//!
//! - Bounded: when full, the oldest heartbeats are given up and counted.
//! - What was taken for writing and could not be written comes back in front.
//! - A parcel of late counts that was tried once keeps its place on disk, so that
//!   it is not counted twice where the try turns out to be durable.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Event;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::wire::record::late;

/// Heartbeats held at most, about 50 MB: 17 hours of 1,000 devices a minute.
pub(super) const SAMPLES_MAX: usize = 1 << 20;

/// Notices held at most. One comes per run of misses, so this is the first
/// misses of a large site over many outages of its own.
pub(super) const NOTICES_MAX: usize = 20_000;

/// Counts of late replies held at most, one a device and day.
pub(super) const LATE_MAX: usize = 50_000;

/// Late replies of one day, counted by device, to be written as one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    /// The day of the heartbeats.
    pub(super) day: Day,
    /// How many each device had.
    pub(super) counts: Vec<(DeviceId, u32)>,
    /// Its number on disk, once it was tried.
    pub(super) n: Option<u32>,
}

/// The open frame, the late counts and the waiting notices.
#[derive(Debug, Default)]
pub(super) struct OpenFrame {
    samples: VecDeque<Sample>,
    late: BTreeMap<(Day, DeviceId), u32>,
    /// Late counts whose writing failed.
    parcels: Vec<Parcel>,
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

    /// Counts late replies to heartbeats of these times.
    pub(super) fn push_late(&mut self, late: &[(DeviceId, Wall)]) {
        let put_back: usize = self.parcels.iter().map(|parcel| parcel.counts.len()).sum();
        let mut excess = 0;
        for &(device, at) in late {
            let Some(day) = Day::of(at) else { continue };
            let is_full = self.late.len() + put_back >= LATE_MAX;
            match self.late.get_mut(&(day, device)) {
                Some(count) => *count = count.saturating_add(1),
                None if is_full => excess += 1,
                None => {
                    self.late.insert((day, device), 1);
                }
            }
        }
        if excess > 0 {
            tracing::error!(
                replies = excess,
                "late replies were not counted: the store takes no heartbeats"
            );
        }
    }

    /// All late counts.
    pub(super) fn take_late(&mut self) -> Vec<Parcel> {
        let mut parcels = std::mem::take(&mut self.parcels);
        let fresh: Vec<_> = std::mem::take(&mut self.late).into_iter().collect();
        for of_day in fresh.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
            for part in of_day.chunks(late::DEVICES_MAX) {
                let Some(((day, _), _)) = part.first() else {
                    continue;
                };
                parcels.push(Parcel {
                    day: *day,
                    counts: part
                        .iter()
                        .map(|((_, device), count)| (*device, *count))
                        .collect(),
                    n: None,
                });
            }
        }
        parcels
    }

    /// Puts back late counts that could not be written.
    pub(super) fn put_back_late(&mut self, parcels: Vec<Parcel>) {
        self.parcels.extend(parcels);
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

    /// Whether there is nothing that a day of raw takes.
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.late.is_empty() && self.parcels.is_empty()
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
    #[test]
    fn late_replies_are_counted_by_day_and_device_up_to_a_bound() {
        let mut frame = OpenFrame::default();
        let device = |n: usize| -> DeviceId { format!("d{n}").parse().unwrap() };
        let (one, other) = (Wall::from_millis(0), Wall::from_millis(86_400_000));
        frame.push_late(&[(device(1), one), (device(2), one), (device(1), one)]);
        frame.push_late(&[(device(1), other), (device(1), Wall::from_millis(i64::MAX))]);
        let taken = frame.take_late();
        let counts: Vec<_> = taken.iter().map(|parcel| &parcel.counts[..]).collect();
        assert_eq!(
            counts,
            [&[(device(1), 2), (device(2), 1)][..], &[(device(1), 1)]]
        );
        assert!(frame.is_empty());
        frame.put_back_late(taken.clone());
        let many: Vec<_> = (0..LATE_MAX + 10).map(|n| (device(n), one)).collect();
        frame.push_late(&many);
        let all = frame.take_late();
        assert_eq!(all[..2], taken);
        let held: usize = all.iter().map(|parcel| parcel.counts.len()).sum();
        assert_eq!(held, LATE_MAX);
        assert!(
            all.iter()
                .all(|parcel| parcel.counts.len() <= late::DEVICES_MAX)
        );
    }
}
