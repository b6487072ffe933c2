//! The UTC day, the unit in which heartbeats are kept and summarised.
//!
//! Floor 0: pure. A sample belongs to the UTC day of its scheduled send; the
//! host's time zone never matters.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate};

use super::instant::Wall;

/// Milliseconds in a UTC day; leap seconds are smeared or stepped by the
/// system clock, so there is no other length.
pub const DAY_MILLIS: i64 = 86_400_000;

/// A civil date in UTC, written `2026-03-12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(NaiveDate);

impl Day {
    /// The first day of the calendar.
    pub const MIN: Self = Self(NaiveDate::MIN);
    /// The last day of the calendar.
    pub const MAX: Self = Self(NaiveDate::MAX);

    /// The day that `wall` falls in; `None` beyond the calendar's range.
    #[must_use]
    pub fn of(wall: Wall) -> Option<Self> {
        let time = DateTime::from_timestamp_millis(wall.millis())?;
        Some(Self(time.date_naive()))
    }

    /// Its first millisecond.
    #[must_use]
    pub fn start(self) -> Wall {
        Wall::from_millis(
            self.0
                .and_time(chrono::NaiveTime::MIN)
                .and_utc()
                .timestamp_millis(),
        )
    }

    /// The first millisecond of the day after.
    #[must_use]
    pub fn end(self) -> Wall {
        Wall::from_millis(self.start().millis() + DAY_MILLIS)
    }

    /// The day before; itself at the start of the calendar.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.pred_opt().unwrap_or(self.0))
    }

    /// The day after; itself at the end of the calendar.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.succ_opt().unwrap_or(self.0))
    }
}

/// The text was no `yyyy-mm-dd` date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADay;

impl FromStr for Day {
    type Err = NotADay;

    /// Reads exactly `yyyy-mm-dd`; chrono alone would take `2026-3-12` and
    /// `+2026-03-12` too, and two spellings of one day make two keys.
    fn from_str(text: &str) -> Result<Self, NotADay> {
        let day = Self(NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| NotADay)?);
        if day.to_string() == text {
            Ok(day)
        } else {
            Err(NotADay)
        }
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m-%d"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_runs_from_its_first_millisecond_to_the_next_days_first() {
        let day: Day = "2026-03-29".parse().unwrap();
        assert_eq!(day.start().to_string(), "2026-03-29T00:00:00.000Z");
        assert_eq!(Day::of(day.start()), Some(day));
        assert_eq!(
            Day::of(Wall::from_millis(day.end().millis() - 1)),
            Some(day)
        );
        assert_eq!(Day::of(day.end()), Some(day.next()));
        assert_eq!(day.next().previous(), day);
    }

    #[test]
    fn only_one_spelling_of_a_day_is_read() {
        for text in [
            "2026-3-12",
            "+2026-03-12",
            "2026-03-12 ",
            "2026-02-30",
            "",
            "12.03.2026",
        ] {
            assert_eq!(text.parse::<Day>(), Err(NotADay), "{text:?}");
        }
    }
}
