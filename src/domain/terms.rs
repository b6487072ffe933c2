//! Since when, and how often, a device was to be asked.
//!
//! Floor 0: pure. `edge::recorder` notes each roster here, `edge::rollup` asks
//! how many heartbeats a day should have had.
//!
//! # Invariants
//!
//! - Terms are in order of time and do not overlap.
//! - No more than [`TERMS_MAX`] are remembered; the oldest go first.

use std::time::Duration;

use super::day::Day;
use super::device::DeviceId;
use super::instant::Wall;
use super::phase::{phase, slot_at_or_after};

/// Changes of one device's terms that are remembered.
pub const TERMS_MAX: usize = 32;

/// From a time on, a device is asked once per period, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// From when on.
    pub from: Wall,
    /// How often; `None`: not at all.
    pub period: Option<Duration>,
}

/// All terms of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    terms: Vec<Term>,
}

impl Terms {
    /// Terms from before, ascending.
    #[must_use]
    pub fn restored(mut terms: Vec<Term>) -> Self {
        terms.sort_by_key(|term| term.from);
        Self { terms }
    }

    /// What is remembered, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[Term] {
        &self.terms
    }

    /// From `now` on this holds; says whether that is news.
    pub fn note(&mut self, now: Wall, period: Option<Duration>) -> bool {
        let is_held = match self.terms.last() {
            Some(last) => last.period == period && last.from <= now,
            None => period.is_none(),
        };
        if is_held {
            return false;
        }
        // A clock that was set back: what was to come is void.
        self.terms.retain(|term| term.from < now);
        self.terms.push(Term { from: now, period });
        let excess = self.terms.len().saturating_sub(TERMS_MAX);
        self.terms.drain(..excess);
        true
    }

    /// Whether the device has not been asked since `before`.
    #[must_use]
    pub fn ended_before(&self, before: Wall) -> bool {
        self.terms
            .last()
            .is_none_or(|last| last.period.is_none() && last.from < before)
    }

    /// Whether the device was to be asked at any time of `day`.
    #[must_use]
    pub fn touches(&self, day: Day) -> bool {
        self.of_day(day).next().is_some()
    }

    /// How many scheduled heartbeats `day` should have had.
    #[must_use]
    pub fn expected(&self, device: &DeviceId, day: Day) -> u32 {
        let slots = self.of_day(day).map(|(from, until, period)| {
            let first = slot_at_or_after(from, period, phase(device, period));
            let room = until.millis() - first.millis();
            let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
            if room > 0 { (room - 1) / period + 1 } else { 0 }
        });
        u32::try_from(slots.sum::<i64>()).unwrap_or(u32::MAX)
    }

    /// The longest period in force on `day`.
    #[must_use]
    pub fn longest_period(&self, day: Day) -> Option<Duration> {
        self.of_day(day).map(|(_, _, period)| period).max()
    }

    /// The stretches of `day` in which the device was to be asked, with its period.
    fn of_day(&self, day: Day) -> impl Iterator<Item = (Wall, Wall, Duration)> + '_ {
        self.terms.iter().enumerate().filter_map(move |(n, term)| {
            let next = self.terms.get(n + 1).map_or(day.end(), |next| next.from);
            let (from, until) = (term.from.max(day.start()), next.min(day.end()));
            (from < until).then_some((from, until, term.period?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn day() -> Day {
        "2026-03-12".parse().unwrap()
    }

    fn at(time: &str) -> Wall {
        Wall::parse(&format!("2026-03-12T{time}Z")).unwrap()
    }

    fn expected(terms: &Terms) -> u32 {
        terms.expected(&"D7".parse().unwrap(), day())
    }

    #[test]
    fn a_whole_day_has_1440_minutes_and_one_from_six_in_the_evening_360() {
        let mut old = Terms::default();
        assert!(old.note(Wall::from_millis(0), Some(MINUTE)));
        assert_eq!(expected(&old), 1_440);
        let mut new = Terms::default();
        new.note(at("18:00:00"), Some(MINUTE));
        assert_eq!(expected(&new), 360);
        assert_eq!(new.expected(&"D7".parse().unwrap(), day().previous()), 0);
        assert!(!new.touches(day().previous()) && new.touches(day().next()));
    }

    #[test]
    fn a_change_of_period_and_a_pause_count_for_their_time() {
        let mut terms = Terms::default();
        terms.note(at("00:00:00"), Some(MINUTE));
        assert!(!terms.note(at("01:00:00"), Some(MINUTE)), "nothing new");
        terms.note(at("06:00:00"), Some(5 * MINUTE));
        terms.note(at("12:00:00"), None);
        assert!(!terms.note(at("13:00:00"), None));
        terms.note(at("18:00:00"), Some(MINUTE));
        assert_eq!(expected(&terms), 360 + 72 + 360);
        assert_eq!(terms.longest_period(day()), Some(5 * MINUTE));
        assert_eq!(terms.longest_period(day().next()), Some(MINUTE));
    }

    #[test]
    fn a_clock_set_back_voids_what_was_noted_for_later() {
        let mut terms = Terms::default();
        terms.note(at("12:00:00"), Some(MINUTE));
        terms.note(at("06:00:00"), Some(2 * MINUTE));
        assert_eq!(terms.as_slice().len(), 1);
        assert_eq!(expected(&terms), 540);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut terms = Terms::default();
        for n in 0..100 {
            terms.note(
                Wall::from_millis(n),
                Some(MINUTE * (u32::try_from(n % 2).unwrap() + 1)),
            );
        }
        assert_eq!(terms.as_slice().len(), TERMS_MAX);
    }
}
