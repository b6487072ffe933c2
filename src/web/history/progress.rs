//! How far the daily summaries are, in words.
//!
//! Floor 3. Pages that show summaries say what is being made, what failed, and
//! when the first is to be expected.

use std::time::Duration;

use super::super::frame::Banner;
use super::super::text::{long_stamp, several};
use crate::board::{Gateway, Progress, Rollup};
use crate::domain::day::Day;
use crate::domain::instant::Wall;

/// What is said while nobody knows which day it is.
const UNDATED: &str = "Which days these are is not known until the clock of this gateway is \
                       set; then its summaries are shown.";

/// Days named of those that wait.
const DAYS_NAMED: usize = 5;

/// What has to be said before the rows.
pub(super) fn banners(rollup: &Rollup) -> Vec<Banner> {
    let mut banners = Vec::new();
    if let Some(failing) = &rollup.failing {
        banners.push(Banner {
            class: "bad",
            title: "A day could not be summarised:".into(),
            text: failing.clone(),
            items: Vec::new(),
        });
    }
    if let Some(run) = rollup.running {
        let (place, of) = place_of(run);
        banners.push(Banner {
            class: "info",
            title: format!("Summarising {},", run.day),
            text: format!("day {place} of {of}."),
            items: Vec::new(),
        });
    } else if !rollup.waiting_days.is_empty() {
        banners.push(Banner {
            class: "warn",
            title: waiting(&rollup.waiting_days),
            text: named(&rollup.waiting_days),
            items: Vec::new(),
        });
    }
    banners.into_iter().map(Banner::ended).collect()
}

/// The same as terms and values, for the page of the node.
pub(in crate::web) fn facts(rollup: &Rollup) -> Vec<(&'static str, String)> {
    let none = || "none".to_owned();
    let running = rollup.running.map(|run| {
        let (place, of) = place_of(run);
        format!("{}, day {place} of {of}", run.day)
    });
    let waiting = match rollup.waiting_days.as_slice() {
        [] => none(),
        days => named(days),
    };
    let last = rollup.last_final.map(|day| format!("{day} UTC"));
    vec![
        (
            "Last final day",
            last.unwrap_or_else(|| "none yet".to_owned()),
        ),
        ("Being summarised", running.unwrap_or_else(none)),
        ("Days that wait", waiting),
        ("Last failure", rollup.failing.clone().unwrap_or_else(none)),
    ]
}

/// Which day of how many a run is at.
fn place_of(run: Progress) -> (usize, usize) {
    let of = run.of.max(1);
    ((run.done + 1).min(of), of)
}

/// How far the summaries are.
#[derive(Debug)]
pub(super) struct Newest {
    /// The newest final day; empty where there is none.
    pub(super) last: String,
    /// The same where no row is found, or when the first will be there.
    pub(super) instead: String,
}

impl Newest {
    pub(super) fn of(gateway: &Gateway, at_utc: Duration, now: Wall) -> Self {
        if gateway.clock.distrust.is_some() {
            return Self {
                last: String::new(),
                instead: UNDATED.to_owned(),
            };
        }
        if let Some(day) = gateway.rollup.last_final {
            let last = format!("Final up to {day}.");
            let instead = last.clone();
            return Self { last, instead };
        }
        Self {
            last: String::new(),
            instead: first_one(gateway.started_at, at_utc, now),
        }
    }
}

/// When the first summary of a fresh install will be there. Before that hour of
/// a day, yesterday's is the next, if the program has seen any of it.
fn first_one(started_at: Wall, at_utc: Duration, now: Wall) -> String {
    let Some(today) = Day::of(now) else {
        return "No summary yet.".into();
    };
    let is_still_due = now < today.start().plus(at_utc) && started_at < today.start();
    let day = if is_still_due {
        today.previous()
    } else {
        today
    };
    let due = long_stamp(day.end().plus(at_utc));
    format!("The first summary will be there shortly after {due}, for {day}.")
}

fn waiting(days: &[Day]) -> String {
    let verb = if days.len() == 1 { "waits" } else { "wait" };
    let days = several(days.len(), "day", "days");
    format!("{days} {verb} to be summarised:")
}

fn named(days: &[Day]) -> String {
    let mut names: Vec<String> = days.iter().take(DAYS_NAMED).map(Day::to_string).collect();
    if days.len() > DAYS_NAMED {
        names.push(format!("and {} more", days.len() - DAYS_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_summary_is_of_the_first_day_that_ends() {
        let said = |started: &str, now: &str| {
            let [started, now] = [started, now].map(|at| Wall::parse(at).unwrap());
            first_one(started, Duration::from_mins(5), now)
        };
        assert_eq!(
            said("2026-03-12T13:00:00Z", "2026-03-12T14:00:00Z"),
            "The first summary will be there shortly after 2026-03-13 00:05:00 UTC, for 2026-03-12."
        );
        let after_midnight = "shortly after 2026-03-12 00:05:00 UTC, for 2026-03-11.";
        assert!(said("2026-03-11T23:00:00Z", "2026-03-12T00:04:59Z").contains(after_midnight));
        assert!(said("2026-03-12T00:01:00Z", "2026-03-12T00:02:00Z").contains("for 2026-03-12."));
    }
}
