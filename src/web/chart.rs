//! A day of RTTs as a drawing.
//!
//! Floor 3. The device page calls [`Chart::of`]. The drawing is stretched to the
//! width of the page, so it holds no text; the template sets the labels around it.
//!
//! # Invariants
//!
//! - However many heartbeats a day has, the drawing has [`COLUMNS`] columns.
//! - A column hides nothing: it spans from the smallest to the largest RTT in
//!   it, and a miss or the worst status in it is drawn.

use std::time::Duration;

use super::text::{count, put, rtt, rtt_mark};
use crate::domain::day::{DAY_MILLIS, Day};
use crate::domain::heartbeat::{Outcome, Sample};
use crate::domain::instant::Wall;
use crate::domain::status::Status;

/// Columns of the drawing: two minutes each.
const COLUMNS: usize = 720;

/// Height of the drawing in its own units.
const HEIGHT: u32 = 240;

/// Heights of the marks of a miss and of a heartbeat without data, and of the
/// strip along the top that says degraded.
const MISS: u32 = 14;
const NO_DATA: u32 = 6;
const STRIP: u32 = 8;

/// What else a drawing depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The degraded threshold in force now.
    pub(super) degraded_rtt_us: u32,
    /// The heartbeat period in force now.
    pub(super) period: Duration,
    /// What lies ahead of it is no gap.
    pub(super) now: Wall,
}

/// A day, ready to print.
#[derive(Debug, Default)]
pub(super) struct Chart {
    /// Shaded: the day's part without heartbeats.
    pub(super) gaps: String,
    /// Shaded: the day's part with this status.
    pub(super) offline: String,
    pub(super) degraded: String,
    /// From smallest to largest RTT, per column.
    pub(super) spread: String,
    /// Through the mean RTT of each column.
    pub(super) line: String,
    /// Marks of misses and of heartbeats without data.
    pub(super) misses: String,
    pub(super) no_data: String,
    /// Height of the degraded threshold; `None` where it is beyond the scale.
    pub(super) threshold_y: Option<u32>,
    /// Where now is; `None` on another day.
    pub(super) now_x: Option<usize>,
    /// Labels of the RTT axis, from the top.
    pub(super) scale: Vec<String>,
    /// The drawing in words.
    pub(super) words: String,
    /// Whether there is nothing to draw.
    pub(super) is_empty: bool,
}

/// What one column holds.
#[derive(Clone, Copy, Default)]
struct Column {
    replies: u32,
    rtt_us_sum: u64,
    rtt_us_min: u32,
    rtt_us_max: u32,
    misses: u32,
    no_data: u32,
    is_offline: bool,
    is_degraded: bool,
}

impl Chart {
    /// Draws the heartbeats of `day`.
    pub(super) fn of(samples: &[Sample], day: Day, terms: Terms) -> Self {
        let Terms {
            degraded_rtt_us, ..
        } = terms;
        let columns = columns(samples, day);
        let highest = columns.iter().map(|column| column.rtt_us_max).max();
        // Where nothing was answered the threshold gives the scale.
        let highest = highest.filter(|&us| us > 0).unwrap_or(degraded_rtt_us);
        let top_us = scale_top(highest);
        let gap_min = gap_min(terms.period);
        let now_x = column_at(terms.now, day);
        let mut chart = Self {
            gaps: gaps(&columns, gap_min, passed(terms.now, day)),
            offline: shade(&columns, HEIGHT, |column| column.is_offline),
            degraded: shade(&columns, STRIP, |column| {
                column.is_degraded && !column.is_offline
            }),
            misses: marks(&columns, MISS, |column| column.misses > 0),
            no_data: marks(&columns, NO_DATA, |column| {
                column.no_data > 0 && column.misses == 0
            }),
            now_x,
            threshold_y: (degraded_rtt_us <= top_us).then(|| height(degraded_rtt_us, top_us)),
            scale: (0..=4).rev().map(|n| rtt_mark(top_us / 4 * n)).collect(),
            words: words(&columns, day),
            is_empty: samples.is_empty(),
            ..Self::default()
        };
        chart.draw_rtts(&columns, top_us, gap_min);
        chart
    }

    fn draw_rtts(&mut self, columns: &[Column], top_us: u32, gap_min: usize) {
        let mut is_joined = false;
        let mut empty = 0;
        for (x, column) in columns.iter().enumerate() {
            if column.replies == 0 {
                // A longer period than two minutes leaves empty columns; only a
                // miss or a real gap cuts the line.
                empty += 1;
                is_joined &= column.misses == 0 && column.no_data == 0 && empty < gap_min;
                continue;
            }
            empty = 0;
            let mean = column.rtt_us_sum / u64::from(column.replies);
            let mean = u32::try_from(mean).unwrap_or(u32::MAX);
            let verb = if is_joined { 'L' } else { 'M' };
            put(
                &mut self.line,
                format_args!("{verb}{x} {}", height(mean, top_us)),
            );
            let low = height(column.rtt_us_min, top_us);
            let high = height(column.rtt_us_max, top_us);
            put(&mut self.spread, format_args!("M{x} {low}V{high}"));
            is_joined = true;
        }
    }
}

fn columns(samples: &[Sample], day: Day) -> Vec<Column> {
    let mut columns = vec![Column::default(); COLUMNS];
    for sample in samples {
        let place = column_at(sample.at, day);
        let Some(column) = place.and_then(|place| columns.get_mut(place)) else {
            continue;
        };
        match sample.outcome {
            Outcome::Replied { rtt_us } => column.reply(rtt_us),
            Outcome::Missed(_) => column.misses += 1,
            Outcome::NoData(_) => column.no_data += 1,
        }
        column.is_offline |= sample.status == Status::Offline;
        column.is_degraded |= sample.status == Status::Degraded;
    }
    columns
}

impl Column {
    fn is_empty(&self) -> bool {
        self.replies == 0 && self.misses == 0 && self.no_data == 0
    }

    fn reply(&mut self, rtt_us: u32) {
        self.rtt_us_min = if self.replies == 0 {
            rtt_us
        } else {
            self.rtt_us_min.min(rtt_us)
        };
        self.rtt_us_max = self.rtt_us_max.max(rtt_us);
        self.rtt_us_sum += u64::from(rtt_us);
        self.replies += 1;
    }
}

/// The smallest round number (1, 2, 4, 8 times a power of ten) that leaves some
/// room above `highest`: each quarter of it is short to print.
pub(super) fn scale_top(highest: u32) -> u32 {
    let wanted = u64::from(highest) * 11 / 10;
    let mut power = 1_000_u64;
    loop {
        for step in [1, 2, 4, 8] {
            let top = power * step;
            if top >= wanted {
                return u32::try_from(top).unwrap_or(u32::MAX);
            }
        }
        power *= 10;
    }
}

pub(super) fn height(rtt_us: u32, top_us: u32) -> u32 {
    let part = u64::from(rtt_us) * u64::from(HEIGHT) / u64::from(top_us.max(1));
    HEIGHT.saturating_sub(u32::try_from(part).unwrap_or(HEIGHT))
}

/// The column of a moment; `None` on another day.
fn column_at(at: Wall, day: Day) -> Option<usize> {
    let width = DAY_MILLIS / i64::try_from(COLUMNS).unwrap_or(1);
    let place = at.millis().saturating_sub(day.start().millis());
    let place = usize::try_from(place.div_euclid(width)).ok()?;
    (place < COLUMNS).then_some(place)
}

/// Columns of `day` that have passed by `now`.
fn passed(now: Wall, day: Day) -> usize {
    if now < day.start() {
        return 0;
    }
    column_at(now, day).unwrap_or(COLUMNS)
}

/// Empty columns in a row that are a gap: no heartbeat for three periods.
fn gap_min(period: Duration) -> usize {
    let column_ms = DAY_MILLIS.unsigned_abs() / COLUMNS as u64;
    let periods = 3 * u64::try_from(period.as_millis()).unwrap_or(u64::MAX / 3);
    usize::try_from(periods.div_ceil(column_ms)).unwrap_or(COLUMNS)
}

/// One rectangle per gap, as far as the day has `passed`.
fn gaps(columns: &[Column], gap_min: usize, passed: usize) -> String {
    let mut path = String::new();
    let mut x = 0;
    for run in columns
        .get(..passed)
        .unwrap_or(columns)
        .chunk_by(|a, b| a.is_empty() == b.is_empty())
    {
        let width = run.len();
        if width >= gap_min && run.first().is_some_and(Column::is_empty) {
            put(&mut path, format_args!("M{x} 0h{width}v{HEIGHT}h-{width}z"));
        }
        x += width;
    }
    path
}

/// One rectangle per run of columns that `is_in`, from the top `high` down.
fn shade(columns: &[Column], high: u32, is_in: impl Fn(&Column) -> bool) -> String {
    let mut path = String::new();
    let mut x = 0;
    for run in columns.chunk_by(|a, b| is_in(a) == is_in(b)) {
        if run.first().is_some_and(&is_in) {
            put(
                &mut path,
                format_args!("M{x} 0h{}v{high}h-{}z", run.len(), run.len()),
            );
        }
        x += run.len();
    }
    path
}

fn marks(columns: &[Column], high: u32, is_in: impl Fn(&Column) -> bool) -> String {
    let mut path = String::new();
    for (x, _) in columns
        .iter()
        .enumerate()
        .filter(|(_, column)| is_in(column))
    {
        put(&mut path, format_args!("M{x} {HEIGHT}v-{high}"));
    }
    path
}

fn words(columns: &[Column], day: Day) -> String {
    let answered = || columns.iter().filter(|column| column.replies > 0);
    let replies: u64 = columns.iter().map(|column| u64::from(column.replies)).sum();
    let misses: u64 = columns.iter().map(|column| u64::from(column.misses)).sum();
    let range = match (
        answered().map(|column| column.rtt_us_min).min(),
        answered().map(|column| column.rtt_us_max).max(),
    ) {
        (Some(low), Some(high)) => format!(", {} to {} ms", rtt(low), rtt(high)),
        _ => String::new(),
    };
    let without: u64 = columns.iter().map(|column| u64::from(column.no_data)).sum();
    let without = match without {
        0 => String::new(),
        n => format!(", {} without data", count(n)),
    };
    format!(
        "{day} UTC: {} replied{range}, {} missed{without}",
        count(replies),
        count(misses)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::heartbeat::{Miss, NoData, Occasion};

    fn day() -> Day {
        "2026-03-12".parse().unwrap()
    }

    fn sample(second: u64, outcome: Outcome, status: Status) -> Sample {
        Sample {
            device: "a".parse().unwrap(),
            at: day().start().plus(Duration::from_secs(second)),
            outcome,
            occasion: Occasion::Scheduled,
            status,
        }
    }

    fn terms(degraded_rtt_us: u32) -> Terms {
        Terms {
            degraded_rtt_us,
            period: Duration::from_mins(1),
            now: day().start().plus(Duration::from_hours(12)),
        }
    }

    #[test]
    fn a_gap_cuts_the_line_and_what_lies_ahead_is_none() {
        let reply = |second| sample(second, Outcome::Replied { rtt_us: 5 }, Status::Online);
        // A minute late is no gap; two empty columns are, at a period of a minute.
        let samples = [reply(0), reply(250), reply(600), reply(720)];
        let chart = Chart::of(&samples, day(), terms(500));
        assert_eq!(chart.line, "M0 239L2 239M5 239L6 239");
        assert_eq!(chart.gaps, "M3 0h2v240h-2zM7 0h353v240h-353z");
        assert_eq!(chart.now_x, Some(360));
        let slow = Terms {
            period: Duration::from_mins(5),
            ..terms(500)
        };
        let chart = Chart::of(&samples, day(), slow);
        assert_eq!(chart.line, "M0 239L2 239L5 239L6 239");
        assert_eq!(chart.gaps, "M7 0h353v240h-353z");
        let past = Chart::of(&[], day().previous(), slow);
        assert_eq!(
            (past.gaps.as_str(), past.now_x),
            ("M0 0h720v240h-720z", None)
        );
        assert_eq!(Chart::of(&[], day().next(), slow).gaps, "");
    }

    #[test]
    fn where_nothing_was_answered_the_threshold_gives_the_scale() {
        let miss = sample(0, Outcome::Missed(Miss::Timeout), Status::Offline);
        let chart = Chart::of(&[miss], day(), terms(1_500_000));
        assert_eq!(chart.scale, ["2000", "1500", "1000", "500", "0"]);
        assert_eq!(chart.threshold_y, Some(60));
    }

    #[test]
    fn scales_are_round_and_leave_room() {
        assert_eq!(scale_top(0), 1_000);
        assert_eq!(scale_top(900), 1_000);
        assert_eq!(scale_top(1_000), 2_000);
        assert_eq!(scale_top(43_000), 80_000);
        assert_eq!(scale_top(1_400_000), 2_000_000);
        assert!(scale_top(u32::MAX) >= 4_000_000_000);
    }

    #[test]
    fn a_column_spans_from_its_smallest_to_its_largest_rtt() {
        let reply = |second, rtt_us| sample(second, Outcome::Replied { rtt_us }, Status::Online);
        let samples = [reply(0, 20_000), reply(60, 60_000), reply(120, 40_000)];
        let chart = Chart::of(&samples, day(), terms(1_500_000));
        assert_eq!(chart.scale, ["80", "60", "40", "20", "0"]);
        assert_eq!(chart.spread, "M0 180V60M1 120V120");
        assert_eq!(chart.line, "M0 120L1 120");
        assert_eq!(chart.threshold_y, None);
        assert_eq!(
            chart.words,
            "2026-03-12 UTC: 3 replied, 20.0 to 60.0 ms, 0 missed"
        );
    }

    #[test]
    fn misses_cut_the_line_and_offline_is_shaded() {
        let miss = Outcome::Missed(Miss::Timeout);
        let samples = [
            sample(0, Outcome::Replied { rtt_us: 5 }, Status::Online),
            sample(120, miss, Status::Offline),
            sample(240, miss, Status::Offline),
            sample(360, Outcome::Replied { rtt_us: 5 }, Status::Online),
        ];
        let chart = Chart::of(&samples, day(), terms(500));
        assert_eq!(chart.line, "M0 239M3 239");
        assert_eq!(chart.misses, "M1 240v-14M2 240v-14");
        assert_eq!(chart.offline, "M1 0h2v240h-2z");
        assert_eq!(chart.threshold_y, Some(120));
    }

    #[test]
    fn samples_of_other_days_are_left_out() {
        let reply = Outcome::Replied { rtt_us: 5 };
        let samples = [sample(86_400, reply, Status::Online)];
        assert_eq!(Chart::of(&samples, day(), terms(500)).line, "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_day_is_drawn_in_bounded_bytes(
            facts in prop::collection::vec((0..86_400_u64, any::<u32>(), 0..4_usize, 0..3), 0..6_000),
        ) {
            let samples: Vec<Sample> = facts
                .into_iter()
                .map(|(second, rtt_us, status, outcome)| {
                    let outcome = match outcome {
                        0 => Outcome::Replied { rtt_us },
                        1 => Outcome::Missed(Miss::Timeout),
                        _ => Outcome::NoData(NoData::SendFailed),
                    };
                    sample(second, outcome, Status::ALL[status])
                })
                .collect();
            let chart = Chart::of(&samples, day(), terms(1_500_000));
            let bytes = [
                &chart.gaps, &chart.offline, &chart.degraded, &chart.spread,
                &chart.line, &chart.misses, &chart.no_data,
            ].map(String::len).iter().sum::<usize>();
            prop_assert!(bytes < 50_000, "{bytes}");
        }
    }
}
