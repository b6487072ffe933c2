//! What may go, and when the clock is to be believed about it.
//!
//! Floor 3. `edge::rollup` asks.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use super::Rules;
use crate::domain::day::Day;
use crate::domain::instant::{Mono, Wall};
use crate::store::{Store, WriteError};

const DAY: Duration = Duration::from_hours(24);
const DAYS_OF_A_MONTH: u32 = 31;
/// Events of stage heartbeat are kept this long.
const HEARTBEAT_EVENTS: Duration = Duration::from_hours(7 * 24);
/// How long nothing is removed after the clock may have leapt ahead.
const CALM: Duration = Duration::from_hours(24);
/// A leap: more than this between what the clock shows and what it should.
const LEAP: Duration = Duration::from_hours(1);

/// Whether the clock has gone evenly for long enough.
///
/// A clock that leaps ahead makes every day look old. What is removed then is
/// gone when the clock comes back.
#[derive(Debug)]
pub(super) struct Calm {
    last: Option<(Mono, Wall)>,
    from: Mono,
}

/// From when on things are kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    now: Wall,
    raw: Duration,
    rows_from: Option<Day>,
    /// Months that must follow one whose rows go.
    months_after: usize,
    events_from: Wall,
    /// Days that were lived through: what tells old from a clock that is ahead,
    /// also over restarts.
    lived: BTreeSet<Day>,
}

impl Calm {
    pub(super) const fn new() -> Self {
        Self {
            last: None,
            from: Mono::from_nanos(0),
        }
    }

    /// The clocks show this now.
    pub(super) fn note(&mut self, mono: Mono, wall: Wall) {
        if let Some((mono_then, wall_then)) = self.last.replace((mono, wall))
            && wall > wall_then.plus(mono.since(mono_then)).plus(LEAP)
        {
            self.from = mono.plus(CALM);
        }
    }

    /// At the start: the newest day with raw. Where it lies back by more than a
    /// day the process was down for long, or the clock is ahead.
    pub(super) fn note_newest(&mut self, mono: Mono, now: Wall, newest: Option<Day>) {
        if newest.is_some_and(|newest| newest.next().end() < now) {
            self.from = mono.plus(CALM);
        }
    }

    pub(super) fn is_calm(&self, mono: Mono) -> bool {
        mono >= self.from
    }
}

impl Kept {
    pub(super) fn of(rules: &Rules, now: Wall, lived: BTreeSet<Day>) -> Self {
        let days = |n: u32| DAY.saturating_mul(n);
        let months = rules.history.daily_retention_days / DAYS_OF_A_MONTH;
        Self {
            now,
            raw: rules.raw_retention,
            rows_from: Day::of(now.minus(days(rules.history.daily_retention_days))),
            months_after: usize::try_from(months).unwrap_or(usize::MAX),
            events_from: now.minus(days(rules.history.events_retention_days)),
            lived,
        }
    }

    /// Whether a day's raw is past its retention, which counts from its end, and as
    /// many later days were lived through.
    pub(super) fn is_raw_past(&self, day: Day) -> bool {
        let today = Day::of(self.now).unwrap_or(day).max(day.next());
        let later = self
            .lived
            .range((Bound::Excluded(day), Bound::Excluded(today)));
        let wanted = self.raw.as_secs().div_ceil(DAY.as_secs());
        let has_lived = u64::try_from(later.count()).is_ok_and(|later| later >= wanted);
        has_lived && day.end().plus(self.raw) <= self.now
    }

    /// Whether the last week was lived through in part: the clock then shows about
    /// what it should.
    fn knows_the_week(&self) -> bool {
        let Some(today) = Day::of(self.now) else {
            return false;
        };
        let week = Day::of(self.now.minus(7 * DAY)).unwrap_or(today);
        self.lived.range(week..today).count() >= 2
    }
}

/// Removes these days' raw, and rows and events that are too old.
pub(super) fn let_go(store: &Store, raw: &[Day], kept: &Kept) -> Result<(), WriteError> {
    for &day in raw {
        store.remove_raw_day(day)?;
        tracing::info!(%day, "the heartbeats of a summarised day were removed");
    }
    let Some(rows_from) = kept.rows_from.filter(|_| kept.knows_the_week()) else {
        return Ok(());
    };
    let heartbeat_from = kept.now.minus(HEARTBEAT_EVENTS).max(kept.events_from);
    store.prune(
        rows_from,
        kept.months_after,
        kept.events_from,
        heartbeat_from,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(n: u64) -> Duration {
        Duration::from_hours(n)
    }

    #[test]
    fn clock_that_leaps_ahead_is_not_believed_for_a_day() {
        let mut calm = Calm::new();
        let (mono, wall) = (Mono::from_nanos(0), Wall::from_millis(1_773_273_900_000));
        calm.note(mono, wall);
        calm.note(mono.plus(hours(1)), wall.plus(hours(1)));
        assert!(calm.is_calm(mono.plus(hours(1))), "it went evenly");
        calm.note(mono.plus(hours(2)), wall.plus(hours(50_000)));
        assert!(!calm.is_calm(mono.plus(hours(2))));
        // Back again: still not believed until a day has passed.
        calm.note(mono.plus(hours(3)), wall.plus(hours(3)));
        assert!(!calm.is_calm(mono.plus(hours(25))));
        assert!(calm.is_calm(mono.plus(hours(26))));
    }

    #[test]
    fn start_long_after_the_newest_day_waits_a_day() {
        let day: Day = "2026-03-12".parse().unwrap();
        let mono = Mono::from_nanos(5);
        let calm = |now: Wall| {
            let mut calm = Calm::new();
            calm.note_newest(mono, now, Some(day));
            calm.is_calm(mono)
        };
        assert!(calm(day.end().plus(hours(20))));
        assert!(!calm(day.end().plus(hours(25))));
        let mut fresh = Calm::new();
        fresh.note_newest(mono, day.end(), None);
        assert!(fresh.is_calm(mono));
    }

    #[test]
    fn retention_counts_from_the_days_end() {
        let day: Day = "2026-03-12".parse().unwrap();
        let rules = Rules {
            rollup: crate::config::settings::Rollup::default(),
            history: crate::config::settings::History::default(),
            raw_retention: hours(48),
        };
        let lived: BTreeSet<Day> = [day, day.next(), day.next().next()].into();
        let kept = |now, lived: &BTreeSet<Day>| Kept::of(&rules, now, lived.clone());
        let end = day.end().plus(hours(48));
        assert!(!kept(end.minus(Duration::from_millis(1)), &lived).is_raw_past(day));
        assert!(kept(end, &lived).is_raw_past(day));
        // A day that only a clock far ahead has made old.
        let ahead = Wall::parse("2033-06-01T12:00:00Z").unwrap();
        let leapt: BTreeSet<Day> = [day, day.next(), Day::of(ahead).unwrap()].into();
        assert!(!kept(ahead, &leapt).is_raw_past(day));
        assert!(!kept(ahead, &leapt).knows_the_week());
        assert!(kept(end, &lived).knows_the_week());
    }
}
