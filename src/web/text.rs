//! Values as people read them.
//!
//! Floor 3. View models call this; templates print what comes out. Every time
//! carries its zone.

use std::fmt::{self, Write as _};
use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike};

use crate::domain::heartbeat::RttMillis;
use crate::domain::instant::Wall;
use crate::domain::size::Bytes;

/// What stands where there is nothing to say.
pub(super) const DASH: &str = "\u{2013}";

/// `2026-03-12 14:02:11Z`
pub(super) fn stamp(at: Wall) -> String {
    let Some(time) = DateTime::from_timestamp_millis(at.millis()) else {
        return at.to_string();
    };
    let mut text = String::with_capacity(20);
    push_two_by_two(
        &mut text,
        &[
            (time.year() / 100, ""),
            (time.year() % 100, ""),
            (month(time), "-"),
            (day(time), "-"),
        ],
    );
    push_clock(&mut text, ' ', time);
    text
}

/// `14:02:11Z` where it is today by `now`, else `2026-03-11 14:02:11Z`.
pub(super) fn short_stamp(at: Wall, now: Wall) -> String {
    const DAY: i64 = crate::domain::day::DAY_MILLIS;
    if at.millis().div_euclid(DAY) != now.millis().div_euclid(DAY) {
        return stamp(at);
    }
    let Some(time) = DateTime::from_timestamp_millis(at.millis()) else {
        return stamp(at);
    };
    let mut text = String::with_capacity(9);
    push_clock(&mut text, '\0', time);
    text
}

/// `2026-03-12 14:02:11 UTC`, for running text.
pub(super) fn long_stamp(at: Wall) -> String {
    stamp(at).replace('Z', " UTC")
}

/// A length of time in its two largest units: `3 s`, `12 min`, `2 h 14 min`,
/// `3 d 4 h`.
pub(super) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// How long before `now` that was: `3 s ago`; what lies ahead (the clock was
/// stepped) is `just now`.
pub(super) fn ago(at: Wall, now: Wall) -> String {
    let length = now.since(at);
    if length < Duration::from_secs(1) {
        "just now".into()
    } else {
        format!("{} ago", span(length))
    }
}

/// `1.2 MB`, decimal units.
pub(super) fn bytes(n: u64) -> String {
    Bytes(n).to_string()
}

/// `1 234 567`, with thin spaces.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + 6);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 device`, `3 devices`.
pub(super) fn several(n: usize, one: &str, many: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {many}")
    }
}

/// An RTT in milliseconds as a table shows it: three figures are all one reads,
/// and the same number of decimals for neighbours in size, so that they align.
pub(super) fn rtt(rtt_us: u32) -> String {
    let ms = rtt_us / 1_000;
    let rest = rtt_us % 1_000;
    match ms {
        0 => format!("0.{rest:03}"),
        1..10 => format!("{ms}.{:02}", rest / 10),
        10..100 => format!("{ms}.{}", rest / 100),
        _ => ms.to_string(),
    }
}

/// An RTT in milliseconds on an axis: no more decimals than it has.
pub(super) fn rtt_mark(rtt_us: u32) -> String {
    RttMillis(rtt_us).to_string()
}

/// Appends formatted text.
pub(super) fn put(text: &mut String, words: fmt::Arguments<'_>) {
    let written = text.write_fmt(words);
    debug_assert!(written.is_ok(), "a String takes any text");
}

/// Text as the value of a query: all but unreserved characters as `%XX`.
pub(super) fn query_value(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            put(&mut out, format_args!("%{byte:02X}"));
        }
    }
    out
}

/// The first `limit` characters of what somebody sent, for an error text.
pub(super) fn quote(text: &str, limit: usize) -> String {
    let mut quoted: String = text.chars().take(limit).collect();
    if quoted.len() < text.len() {
        quoted.push('\u{2026}');
    }
    quoted
}

fn month(time: DateTime<chrono::Utc>) -> i32 {
    i32::try_from(time.month()).unwrap_or(0)
}

fn day(time: DateTime<chrono::Utc>) -> i32 {
    i32::try_from(time.day()).unwrap_or(0)
}

fn push_clock(text: &mut String, before: char, time: DateTime<chrono::Utc>) {
    if before != '\0' {
        text.push(before);
    }
    let part = |n: u32| i32::try_from(n).unwrap_or(0);
    push_two_by_two(
        text,
        &[
            (part(time.hour()), ""),
            (part(time.minute()), ":"),
            (part(time.second()), ":"),
        ],
    );
    text.push('Z');
}

/// Pairs of digits by hand: a page prints thousands, and the formatting
/// machinery costs ten times as much.
fn push_two_by_two(text: &mut String, parts: &[(i32, &str)]) {
    for &(n, before) in parts {
        text.push_str(before);
        let n = u8::try_from(n.rem_euclid(100)).unwrap_or(0);
        text.push(char::from(b'0' + n / 10));
        text.push(char::from(b'0' + n % 10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_their_zone() {
        let at = Wall::parse("2026-03-12T00:05:07.900Z").unwrap();
        assert_eq!(stamp(at), "2026-03-12 00:05:07Z");
        assert_eq!(long_stamp(at), "2026-03-12 00:05:07 UTC");
        assert_eq!(
            short_stamp(at, at.plus(Duration::from_mins(1))),
            "00:05:07Z"
        );
        let tomorrow = at.plus(Duration::from_hours(24));
        assert_eq!(short_stamp(at, tomorrow), "2026-03-12 00:05:07Z");
        for millis in [i64::MIN, i64::MAX, -1] {
            assert!(!stamp(Wall::from_millis(millis)).is_empty());
        }
    }

    #[test]
    fn spans_name_their_two_largest_units() {
        let printed = |seconds| span(Duration::from_secs(seconds));
        assert_eq!(printed(0), "0 s");
        assert_eq!(printed(59), "59 s");
        assert_eq!(printed(720), "12 min");
        assert_eq!(printed(7_200), "2 h");
        assert_eq!(printed(8_040), "2 h 14 min");
        assert_eq!(printed(86_399), "23 h 59 min");
        assert_eq!(printed(86_400), "1 d");
        assert_eq!(printed(273_600), "3 d 4 h");
    }

    #[test]
    fn sizes_and_counts_are_short_and_never_rounded_up() {
        assert_eq!(bytes(1_999_999), "1.9 MB");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn rtts_keep_three_figures_or_so() {
        assert_eq!(rtt(3_270), "3.27");
        assert_eq!(rtt(43_219), "43.2");
        assert_eq!(rtt(820_900), "820");
        assert_eq!(
            [0, 90, 7_000, 10_000].map(rtt),
            ["0.000", "0.090", "7.00", "10.0"]
        );
        assert_eq!([0, 250, 1_500].map(rtt_mark), ["0", "0.25", "1.5"]);
    }

    #[test]
    fn query_values_cannot_leave_their_place() {
        assert_eq!(
            query_value("a b&c=\"<\u{e4}\r\n"),
            "a%20b%26c%3D%22%3C%C3%A4%0D%0A"
        );
    }
}
