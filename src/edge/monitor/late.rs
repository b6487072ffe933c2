//! Replies that came too late, told to whose they are.
//!
//! Floor 3. A late reply changes no verdict; the day counts it.

use super::flying::seat_of;
use super::{Monitor, Now};
use crate::edge::report::Entry;
use crate::ping::Late;

impl Monitor {
    /// Reports the late replies that the engine can name. Of a device that has
    /// left or moved since nothing is said.
    pub(super) fn name_late(&mut self) {
        self.probe.take_late(&mut self.late);
        if self.late.is_empty() {
            return;
        }
        let now = self.now();
        for late in std::mem::take(&mut self.late) {
            self.name_one(late, now);
        }
    }

    fn name_one(&mut self, late: Late, now: Now) {
        let seat = seat_of(late.key).and_then(|seat| self.seats.get(seat));
        if let Some(seat) = seat {
            self.held.push(Entry::Late {
                device: seat.id,
                at: now.wall_of(late.sent_at),
            });
        }
    }
}
