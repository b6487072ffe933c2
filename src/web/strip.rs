//! A device's days as a drawing: one bar per day.
//!
//! Floor 3. The history page of a device and the device page call [`Strip::of`].
//! The drawing is stretched to the width of the page, so it holds no text; the
//! templates set the labels around it.
//!
//! # Invariants
//!
//! - A bar hides nothing: a share above zero is drawn, however small it is.
//! - A day without a row, or on which nothing was observed, is no bar but a gap.

use super::chart::{height, scale_top};
use super::text::{put, rtt_mark, several};
use crate::domain::daily::Summary;
use crate::domain::day::{DAY_MILLIS, Day};

/// Width of a day, and of the bar in it, in the drawing's own units.
const STEP: usize = 8;
const BAR: usize = 7;

/// Height of a bar. Below it stands the coverage, from [`FLOOR`] up.
const HEIGHT: u32 = 100;
const FLOOR: u32 = 120;
const COVERAGE: u32 = 14;

/// The least height of a share above zero.
const SHARE_MIN: u32 = 3;

/// A row of days, ready to print.
#[derive(Debug, Default)]
pub(super) struct Strip {
    /// Width in the drawing's own units.
    pub(super) width: usize,
    /// The shares of each day, from the ground up.
    pub(super) online: String,
    pub(super) degraded: String,
    pub(super) offline: String,
    /// Days of which nothing is known.
    pub(super) gaps: String,
    /// How much of each day was observed.
    pub(super) coverage: String,
    /// The 95th percentile of the RTT.
    pub(super) p95: String,
    /// Labels of the RTT axis, from the top; empty where nothing was answered.
    pub(super) scale: Vec<String>,
    /// Labels of the days, evenly spaced.
    pub(super) marks: Vec<String>,
    /// The drawing in words.
    pub(super) words: String,
    /// Whether there is nothing to draw.
    pub(super) is_empty: bool,
}

impl Strip {
    /// Draws the rows of one device, ascending, of `count` days from `from` on.
    pub(super) fn of(rows: &[Summary], from: Day, count: usize) -> Self {
        let mut strip = Self {
            width: count * STEP,
            marks: marks(from, count),
            words: words(rows, from, count),
            is_empty: rows.is_empty(),
            ..Self::default()
        };
        let highest = rows.iter().filter_map(|row| row.figures.p95_rtt_us).max();
        let top_us = highest.map(scale_top);
        if let Some(top_us) = top_us {
            strip.scale = (0..=4).rev().map(|n| rtt_mark(top_us / 4 * n)).collect();
        }
        let mut rows = rows.iter().peekable();
        let (mut day, mut is_joined) = (from, false);
        for place in 0..count {
            let row = rows.next_if(|row| row.day == day);
            let x = place * STEP;
            let p95 = row.and_then(|row| row.figures.p95_rtt_us);
            strip.bar(x, row);
            if let (Some(us), Some(top_us)) = (p95, top_us) {
                let y = height(us, top_us);
                let verb = if is_joined { 'L' } else { 'M' };
                // A lone day is a dash as wide as its bar.
                put(&mut strip.p95, format_args!("{verb}{x} {y}h{BAR}"));
            }
            is_joined = p95.is_some();
            day = day.next();
        }
        strip
    }

    fn bar(&mut self, x: usize, row: Option<&Summary>) {
        let figures = row.map(|row| row.figures);
        let counted = figures.map_or(0, |day| day.online + day.degraded + day.offline);
        let Some(figures) = figures.filter(|_| counted > 0) else {
            return block(&mut self.gaps, x, 0, HEIGHT);
        };
        let offline = share(figures.offline, counted);
        let degraded = share(figures.degraded, counted).min(HEIGHT - offline);
        block(&mut self.offline, x, 0, offline);
        block(&mut self.degraded, x, offline, degraded);
        block(
            &mut self.online,
            x,
            offline + degraded,
            HEIGHT - offline - degraded,
        );
        let observed = figures.observed().min(figures.expected);
        let part = u64::from(observed) * u64::from(COVERAGE);
        let part = part.checked_div(figures.expected.into()).unwrap_or(0);
        let covered = u32::try_from(part).unwrap_or(COVERAGE).max(1);
        block(&mut self.coverage, x, FLOOR - covered, covered);
    }
}

/// The height of `part` of `whole`; what is there is seen, and what is not all
/// leaves room for the rest.
fn share(part: u32, whole: u32) -> u32 {
    let high = u64::from(part) * u64::from(HEIGHT);
    let high = high.checked_div(whole.into()).unwrap_or(0);
    let high = u32::try_from(high).unwrap_or(HEIGHT);
    match part {
        0 => 0,
        _ if part == whole => HEIGHT,
        _ => high.clamp(SHARE_MIN, HEIGHT - SHARE_MIN),
    }
}

fn block(path: &mut String, x: usize, y: u32, high: u32) {
    if high > 0 {
        put(path, format_args!("M{x} {y}h{BAR}v{high}h-{BAR}z"));
    }
}

/// `03-12` at every so many days, up to the end of the last.
fn marks(from: Day, count: usize) -> Vec<String> {
    let every = match count {
        0..=7 => 1,
        8..=30 => 5,
        _ => 15,
    };
    let mut day = from;
    let mut marks = Vec::new();
    for place in 0..=count {
        if place % every == 0 {
            marks.push(day.to_string().get(5..).unwrap_or_default().to_owned());
        }
        day = day.next();
    }
    marks
}

fn words(rows: &[Summary], from: Day, count: usize) -> String {
    let to = (1..count).fold(from, |day, _| day.next());
    let seen: Vec<&Summary> = rows
        .iter()
        .filter(|row| row.figures.online_ratio().is_some())
        .collect();
    let faultless = |row: &&&Summary| row.figures.online_ratio() == Some(1.0);
    let whole = seen.iter().filter(faultless).count();
    format!(
        "{from} to {to} UTC: {} with figures, {whole} of them online throughout",
        several(seen.len(), "day", "days")
    )
}

/// The place of `day` in a row of days from `from` on; `None` before it.
pub(super) fn place(day: Day, from: Day) -> Option<usize> {
    let days = (day.start().millis() - from.start().millis()) / DAY_MILLIS;
    usize::try_from(days).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::daily::{CALC_VERSION, Figures};

    fn from() -> Day {
        "2026-03-01".parse().unwrap()
    }

    fn row(day: Day, (online, degraded, offline): (u32, u32, u32), p95: Option<u32>) -> Summary {
        let observed = online + degraded + offline;
        Summary {
            day,
            device: "a".parse().unwrap(),
            figures: Figures {
                expected: 1_440,
                replied: observed,
                online,
                degraded,
                offline,
                p95_rtt_us: p95,
                ..Figures::default()
            },
            calc_version: CALC_VERSION,
            created_at: day.end(),
            updated_at: day.end(),
        }
    }

    #[test]
    fn bars_stand_on_each_other_and_a_missing_day_is_a_gap() {
        let rows = [
            row(from(), (720, 360, 360), Some(400_000)),
            row(from().next().next(), (1_440, 0, 0), Some(200_000)),
        ];
        let strip = Strip::of(&rows, from(), 3);
        assert_eq!(strip.width, 24);
        assert_eq!(strip.offline, "M0 0h7v25h-7z");
        assert_eq!(strip.degraded, "M0 25h7v25h-7z");
        assert_eq!(strip.online, "M0 50h7v50h-7zM16 0h7v100h-7z");
        assert_eq!(strip.gaps, "M8 0h7v100h-7z");
        assert_eq!(strip.coverage, "M0 106h7v14h-7zM16 106h7v14h-7z");
        assert_eq!(strip.p95, "M0 120h7M16 180h7");
        assert_eq!(strip.scale, ["800", "600", "400", "200", "0"]);
        assert_eq!(strip.marks, ["03-01", "03-02", "03-03", "03-04"]);
        assert_eq!(
            strip.words,
            "2026-03-01 to 2026-03-03 UTC: 2 days with figures, 1 of them online throughout"
        );
    }

    #[test]
    fn one_heartbeat_of_a_day_is_seen() {
        assert_eq!([share(0, 9), share(9, 9)], [0, HEIGHT]);
        assert_eq!(share(1, 432_000), SHARE_MIN);
        assert_eq!(share(431_999, 432_000), HEIGHT - SHARE_MIN);
    }

    #[test]
    fn a_day_on_which_nothing_was_observed_is_a_gap() {
        let strip = Strip::of(&[row(from(), (0, 0, 0), None)], from(), 1);
        assert_eq!(strip.gaps, "M0 0h7v100h-7z");
        assert_eq!((strip.online.as_str(), strip.p95.as_str()), ("", ""));
        assert!(strip.scale.is_empty() && !strip.is_empty);
    }
}
