//! MQTT bytes of the day, over restarts.
//!
//! Floor 3, pure.

use crate::board::TrafficOfDay;
use crate::broker::Traffic;
use crate::domain::day::Day;
use crate::domain::instant::Wall;

/// Counts by UTC day.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    day: Option<TrafficOfDay>,
    /// What of the process's traffic is counted already.
    counted: Traffic,
}

impl Ledger {
    /// Goes on with what was remembered.
    pub(super) fn recall(&mut self, day: Option<(Day, u64, u64)>) {
        self.day = day.map(|(day, up_bytes, down_bytes)| TrafficOfDay {
            day,
            up_bytes,
            down_bytes,
        });
    }

    /// Takes in the process's traffic so far.
    pub(super) fn note(&mut self, now: Wall, traffic: Traffic) {
        let Some(today) = Day::of(now) else { return };
        let day = self.day.take().filter(|held| held.day == today);
        let mut day = day.unwrap_or(TrafficOfDay {
            day: today,
            up_bytes: 0,
            down_bytes: 0,
        });
        day.up_bytes += traffic.up_bytes.saturating_sub(self.counted.up_bytes);
        day.down_bytes += traffic.down_bytes.saturating_sub(self.counted.down_bytes);
        self.counted = traffic;
        self.day = Some(day);
    }

    /// The day so far, to be remembered.
    pub(super) fn of_day(&self) -> Option<(Day, u64, u64)> {
        self.day.map(|day| (day.day, day.up_bytes, day.down_bytes))
    }

    /// The day so far, to be shown.
    pub(super) const fn today(&self) -> Option<TrafficOfDay> {
        self.day
    }

    /// The process's traffic as last taken in.
    pub(super) const fn of_process(&self) -> Traffic {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_goes_on_over_a_restart_and_begins_at_midnight() {
        let noon = Wall::parse("2026-03-12T12:00:00Z").unwrap();
        let midnight = Wall::parse("2026-03-13T00:00:00Z").unwrap();
        let of = |up_bytes, down_bytes| Traffic {
            up_bytes,
            down_bytes,
        };
        let mut before = Ledger::default();
        before.note(noon, of(100, 10));
        before.note(noon, of(150, 30));
        let mut after = Ledger::default();
        after.recall(before.of_day());
        after.note(noon, of(5, 1));
        let day = Day::of(noon).unwrap();
        assert_eq!(after.of_day(), Some((day, 155, 31)));
        after.note(midnight, of(7, 2));
        assert_eq!(after.of_day(), Some((day.next(), 2, 1)));
    }
}
