//! What is due when: the one queue of the monitor.
//!
//! Floor 3. Pure data; `edge::monitor` fills and empties it. An entry names its
//! device's seat and that seat's generation, so that entries of a device that
//! left or moved die quietly when their turn comes, or with the next change of
//! the roster.
//!
//! Entries lie in buckets of time, as in a calendar: a probe is put down and
//! picked up again every period, and a bucket takes it at the cost of an append,
//! where a heap of ten thousand would sift it through fourteen levels.

use std::collections::BTreeMap;

use crate::domain::heartbeat::Occasion;
use crate::domain::instant::Mono;

/// Width of a bucket: the finest tick of the monitor.
const BUCKET_NANOS: u64 = 10_000_000;

/// One probe to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub due: Mono,
    /// Which seat of the monitor.
    pub seat: u32,
    /// The seat's generation when this was entered.
    pub generation: u32,
    /// Why it is to be sent.
    pub occasion: Occasion,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Agenda {
    /// By time; no bucket is empty.
    buckets: BTreeMap<u64, Vec<Entry>>,
    /// Emptied buckets, to be filled again.
    spare: Vec<Vec<Entry>>,
}

/// Emptied buckets kept.
const SPARE_MAX: usize = 64;

impl Agenda {
    /// Enters a probe.
    pub fn enter(&mut self, entry: Entry) {
        let spare = &mut self.spare;
        let bucket = self.buckets.entry(bucket_of(entry.due));
        bucket
            .or_insert_with(|| spare.pop().unwrap_or_default())
            .push(entry);
    }

    /// Moves every probe due at `now` or before to the end of `due`, earliest
    /// first.
    pub fn take_due(&mut self, now: Mono, due: &mut Vec<Entry>) {
        let current = bucket_of(now);
        while let Some(mut first) = self.buckets.first_entry() {
            if *first.key() > current {
                return;
            }
            let before = due.len();
            if *first.key() == current {
                due.extend(first.get_mut().extract_if(.., |entry| entry.due <= now));
            } else {
                due.append(first.get_mut());
            }
            if let Some(taken) = due.get_mut(before..) {
                taken.sort_unstable_by_key(|entry| (entry.due, entry.seat));
            }
            if !first.get().is_empty() {
                return;
            }
            let emptied = first.remove();
            if self.spare.len() < SPARE_MAX {
                self.spare.push(emptied);
            }
        }
    }

    /// Keeps those that `lives` says of, and gives back the room of the others.
    pub fn retain(&mut self, lives: impl Fn(&Entry) -> bool) {
        self.buckets.retain(|_, bucket| {
            bucket.retain(&lives);
            !bucket.is_empty()
        });
    }

    /// When the earliest probe is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        let (_, first) = self.buckets.first_key_value()?;
        first.iter().map(|entry| entry.due).min()
    }
}

const fn bucket_of(at: Mono) -> u64 {
    at.nanos() / BUCKET_NANOS
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn entry(due_ms: u64, seat: u32) -> Entry {
        let due = Mono::default().plus(Duration::from_millis(due_ms));
        Entry {
            due,
            seat,
            generation: 0,
            occasion: Occasion::Scheduled,
        }
    }

    fn taken(agenda: &mut Agenda, now_ms: u64) -> Vec<(u64, u32)> {
        let mut due = Vec::new();
        agenda.take_due(
            Mono::default().plus(Duration::from_millis(now_ms)),
            &mut due,
        );
        due.iter()
            .map(|entry| (entry.due.nanos() / 1_000_000, entry.seat))
            .collect()
    }

    #[test]
    fn entries_come_out_by_time_and_not_before_it() {
        let mut agenda = Agenda::default();
        for (due, seat) in [(33, 1), (10, 2), (21, 3), (10, 1), (24, 4)] {
            agenda.enter(entry(due, seat));
        }
        assert_eq!(taken(&mut agenda, 9), []);
        assert_eq!(taken(&mut agenda, 22), [(10, 1), (10, 2), (21, 3)]);
        assert_eq!(agenda.next_due(), Some(entry(24, 4).due));
        assert_eq!(taken(&mut agenda, 1_000), [(24, 4), (33, 1)]);
        assert_eq!(agenda.next_due(), None);
    }

    #[test]
    fn what_is_not_kept_is_gone_and_leaves_no_empty_bucket() {
        let mut agenda = Agenda::default();
        for (due, seat) in [(10, 1), (11, 2), (30, 2), (50, 1)] {
            agenda.enter(entry(due, seat));
        }
        agenda.retain(|entry| entry.seat == 1);
        assert_eq!(agenda.buckets.len(), 2);
        assert_eq!(taken(&mut agenda, 1_000), [(10, 1), (50, 1)]);
    }

    proptest! {
        #[test]
        fn it_gives_what_a_sorted_list_would(
            steps in prop::collection::vec((0_u64..200, 0_u64..50), 1..60)
        ) {
            let (mut agenda, mut list, mut now) = (Agenda::default(), Vec::new(), 0);
            for (seat, (ahead, pass)) in (0..).zip(steps) {
                agenda.enter(entry(now + ahead, seat));
                list.push((now + ahead, seat));
                now += pass;
                list.sort_unstable();
                let split = list.partition_point(|&(due, _)| due <= now);
                let expected: Vec<_> = list.drain(..split).collect();
                prop_assert_eq!(taken(&mut agenda, now), expected);
                let next = list.first().map(|&(due, _)| entry(due, 0).due);
                prop_assert_eq!(agenda.next_due(), next);
            }
        }
    }
}
