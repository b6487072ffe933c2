//! The two times of a gateway: the wall, which people read and which may step,
//! and the monotonic one, on which RTTs and timeouts run.
//!
//! Floor 0: pure. `clock` makes these values; everyone else receives them.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// A wall-clock time: milliseconds since 1970-01-01T00:00:00Z, negative before.
///
/// Prints as RFC 3339 in UTC with milliseconds: `2026-03-12T00:05:00.000Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

/// A monotonic time: nanoseconds since an arbitrary start of this process.
///
/// Comparable only with values of the same process run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Wall {
    /// The time `millis` milliseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 text with any offset; `None` where it is not that.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        Some(Self(time.timestamp_millis()))
    }

    /// This time plus `by`, held at the end of the range.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(clamped_millis(by)))
    }

    /// This time minus `by`, held at the start of the range.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(clamped_millis(by)))
    }

    /// How long after `earlier` this is; zero where it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            // Past the calendar's 262,000 years: no civil date, still readable.
            None => write!(f, "{} ms since 1970", self.0),
        }
    }
}

impl Mono {
    /// The time `nanos` nanoseconds after the process's own zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the process's own zero.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// This time plus `by`, held at the end of the range.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// This time minus `by`, held at zero.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// The first whole multiple of `tick` at or after this.
    #[must_use]
    pub fn up_to_grid(self, tick: Duration) -> Self {
        let tick = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0.div_ceil(tick).saturating_mul(tick))
    }

    /// How long after `earlier` this is; zero where it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn clamped_millis(by: Duration) -> i64 {
    i64::try_from(by.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_prints_utc_with_milliseconds_and_reads_itself_back() {
        let wall = Wall::from_millis(1_773_273_900_007);
        assert_eq!(wall.to_string(), "2026-03-12T00:05:00.007Z");
        assert_eq!(Wall::parse(&wall.to_string()), Some(wall));
        assert_eq!(Wall::parse("2026-03-12T01:05:00.007+01:00"), Some(wall));
        assert_eq!(Wall::parse("yesterday"), None);
    }

    #[test]
    fn no_wall_value_panics_in_print_or_arithmetic() {
        for millis in [i64::MIN, -1, 0, i64::MAX] {
            let wall = Wall::from_millis(millis);
            assert!(!wall.to_string().is_empty());
            assert!(wall.plus(Duration::MAX) >= wall);
            assert!(wall.minus(Duration::MAX) <= wall);
        }
    }

    #[test]
    fn a_grid_is_reached_at_or_after_the_time() {
        let tick = Duration::from_nanos(10);
        let grid = |nanos| Mono::from_nanos(nanos).up_to_grid(tick).nanos();
        assert_eq!([grid(0), grid(1), grid(10), grid(11)], [0, 10, 10, 20]);
        assert!(grid(u64::MAX) >= u64::MAX - 10);
        assert_eq!(Mono::from_nanos(7).up_to_grid(Duration::ZERO).nanos(), 7);
    }

    #[test]
    fn time_before_another_is_no_time_after_it() {
        assert_eq!(
            Mono::from_nanos(3).since(Mono::from_nanos(5)),
            Duration::ZERO
        );
        assert_eq!(
            Wall::from_millis(3).since(Wall::from_millis(5)),
            Duration::ZERO
        );
    }
}
