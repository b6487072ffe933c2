//! Changes that the disk does not have yet, and what the board shows after them.
//!
//! Floor 3. Pure data; `edge::recorder` owns it.
//!
//! # Invariants
//!
//! - Changes leave in the order in which they came.
//! - What is shown of a device waits for every change of it that came before.
//! - No more than [`PENDING_MAX`] wait; beyond, the oldest that is not being
//!   written goes and is counted.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::heartbeat::Sample;
use crate::domain::status::Track;

/// Changes that wait at most; some 500 bytes each.
const PENDING_MAX: usize = 100_000;
/// Changes per commit at most: memory grows with keys per transaction.
const GROUP_MAX: usize = 512;

/// One line of the board to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Show {
    pub(super) device: DeviceId,
    /// The device's place in the roster, or near it.
    pub(super) place: usize,
    pub(super) sample: Option<Sample>,
    pub(super) track: Track,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queue: VecDeque<Change>,
    /// For devices with a change in the queue.
    waiting: BTreeMap<DeviceId, Waiting>,
    given_up: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: usize,
    shows: Vec<Show>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a change that nothing waits for.
    pub(super) fn add(&mut self, change: Change) {
        self.queue.push_back(change);
        if self.queue.len() > PENDING_MAX {
            // Whatever is being written sits at the front, so the front stays.
            let oldest = self.queue.remove(GROUP_MAX);
            self.given_up += 1;
            if let Some(Change::Standing { liveness, .. }) = oldest {
                self.settle_one(liveness.device, &mut Vec::new());
            }
        }
    }

    /// Adds a change of a standing; the device's shows wait for it.
    pub(super) fn add_standing(&mut self, device: DeviceId, change: Change) {
        self.waiting.entry(device).or_default().changes += 1;
        self.add(change);
    }

    /// Keeps a show until its device has no change in the queue; `false` where
    /// there is none, and it may be shown now.
    pub(super) fn hold(&mut self, show: &Show) -> bool {
        // Nearly always: nothing waits at all.
        if self.waiting.is_empty() {
            return false;
        }
        let waiting = self.waiting.get_mut(&show.device);
        waiting.is_some_and(|waiting| {
            waiting.shows.push(*show);
            true
        })
    }

    /// How many changes the next group has.
    pub(super) fn next_group(&self) -> usize {
        self.queue.len().min(GROUP_MAX)
    }

    /// The first `changes`, to write; they stay in the queue until settled.
    pub(super) fn first(&self, changes: usize) -> Vec<Change> {
        self.queue.iter().take(changes).cloned().collect()
    }

    /// The first `changes` are on disk: appends what may be shown now.
    pub(super) fn settle(&mut self, changes: usize, shown: &mut Vec<Show>) {
        for _ in 0..changes {
            if let Some(Change::Standing { liveness, .. }) = self.queue.pop_front() {
                self.settle_one(liveness.device, shown);
            }
        }
    }

    /// Appends everything held, for a disk that takes nothing.
    pub(super) fn release(&mut self, shown: &mut Vec<Show>) {
        for waiting in self.waiting.values_mut() {
            shown.append(&mut waiting.shows);
        }
    }

    /// How many changes went because too many waited, since the last call.
    pub(super) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    fn settle_one(&mut self, device: DeviceId, shown: &mut Vec<Show>) {
        let Some(waiting) = self.waiting.get_mut(&device) else {
            return;
        };
        waiting.changes = waiting.changes.saturating_sub(1);
        if waiting.changes == 0
            && let Some(waiting) = self.waiting.remove(&device)
        {
            shown.extend(waiting.shows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Event, News};
    use crate::domain::instant::Wall;
    use crate::domain::status::{Liveness, Status};

    fn device(n: usize) -> DeviceId {
        format!("D{n}").parse().unwrap()
    }

    fn change(n: usize) -> Change {
        let news = News::StatusChanged {
            previous: Status::Online,
            current: Status::Offline,
            missed_count: 3,
            last_seen: None,
        };
        let event = Event {
            device: Some(device(n)),
            produced_at: Wall::default(),
            process_ms: 0,
            news,
        };
        let track = Track::default();
        let device = device(n);
        let liveness = Liveness { device, track };
        Change::Standing { liveness, event }
    }

    fn show(n: usize, missed_count: u32) -> Show {
        let track = Track {
            missed_count,
            ..Track::default()
        };
        Show {
            device: device(n),
            place: n,
            sample: None,
            track,
        }
    }

    fn settled(pending: &mut Pending, changes: usize) -> Vec<u32> {
        let mut shown = Vec::new();
        pending.settle(changes, &mut shown);
        shown.iter().map(|show| show.track.missed_count).collect()
    }

    #[test]
    fn a_device_waits_for_its_own_changes_and_no_others() {
        let mut pending = Pending::default();
        assert!(!pending.hold(&show(1, 0)));
        pending.add_standing(device(1), change(1));
        assert!(pending.hold(&show(1, 1)));
        assert!(!pending.hold(&show(2, 7)));
        pending.add_standing(device(2), change(2));
        pending.add_standing(device(1), change(1));
        assert!(pending.hold(&show(1, 2)));
        assert!(settled(&mut pending, 2).is_empty());
        assert_eq!(settled(&mut pending, 1), [1, 2]);
        assert!(!pending.hold(&show(1, 3)));
    }

    #[test]
    fn released_shows_do_not_come_again() {
        let mut pending = Pending::default();
        pending.add_standing(device(1), change(1));
        assert!(pending.hold(&show(1, 1)));
        let mut shown = Vec::new();
        pending.release(&mut shown);
        assert_eq!(shown, [show(1, 1)]);
        assert!(settled(&mut pending, 1).is_empty());
    }

    #[test]
    fn the_oldest_beyond_the_bound_goes_and_is_counted() {
        let mut pending = Pending::default();
        for n in 0..PENDING_MAX + 3 {
            pending.add_standing(device(n), change(n));
        }
        assert_eq!(pending.len(), PENDING_MAX);
        assert_eq!(pending.take_given_up(), 3);
        assert_eq!(pending.take_given_up(), 0);
        // Those being written are still the first.
        assert_eq!(
            pending.first(GROUP_MAX)[GROUP_MAX - 1],
            change(GROUP_MAX - 1)
        );
        assert!(!pending.hold(&show(GROUP_MAX, 9)));
    }
}
