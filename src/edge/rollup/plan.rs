//! Which day is to be summarised next.
//!
//! Floor 3, pure. `edge::rollup` asks with every look at the wall clock, so a
//! trigger that was slept through, stepped over or missed while the process was
//! down is due all the same.
//!
//! # Invariants
//!
//! - A day is summarised only when it is over and `rollup.at_utc` has come.
//! - Oldest first. A day that failed waits for its next try and holds up no other.
//! - Between two runs nothing is done twice, however often the clock is set.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::settings::Rollup;
use crate::domain::day::{DAY_MILLIS, Day};
use crate::domain::instant::Wall;

/// How far a summary goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Rows alone: heartbeats may still come.
    First,
    /// The last word: rows, and their events.
    Final,
}

/// A day to summarise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which.
    pub day: Day,
    /// How far.
    pub depth: Depth,
}

/// What has been done and tried.
#[derive(Debug, Default)]
pub struct Plan {
    /// Days with a first summary by this process.
    firsts: BTreeSet<Day>,
    /// Days with a final summary.
    finals: BTreeSet<Day>,
    /// Days looked at again in this run: what came after their last word is in.
    reviewed: BTreeSet<Day>,
    failures: BTreeMap<Day, Failed>,
    /// The run that the above is of: one begins each day at `rollup.at_utc`.
    run: Option<i64>,
}

/// A day that could not be summarised.
#[derive(Clone, Copy, Debug)]
struct Failed {
    depth: Depth,
    tries: usize,
    /// `None`: not before the next run.
    next_at: Option<Wall>,
}

/// What a failure leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Another try at this time.
    Retry(Wall),
    /// None before the next run; somebody must be told.
    GivenUp,
}

impl Plan {
    /// A plan that knows which days are final.
    #[must_use]
    pub fn new(finals: impl IntoIterator<Item = Day>) -> Self {
        Self {
            finals: finals.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The next job of the days whose raw is there.
    pub fn next(&mut self, now: Wall, rule: &Rollup, raw_days: &[Day]) -> Option<Job> {
        self.begin_run(now, rule);
        raw_days.iter().find_map(|&day| self.job(day, now, rule))
    }

    /// Those of these days that [`next`](Self::next) would still name.
    #[must_use]
    pub fn waiting(&self, now: Wall, rule: &Rollup, raw_days: &[Day]) -> Vec<Day> {
        let is_due = |day: &Day| self.job(*day, now, rule).is_some();
        raw_days.iter().copied().filter(is_due).collect()
    }

    /// Days that are over and due, and have no last word.
    #[must_use]
    pub fn open(&self, now: Wall, rule: &Rollup, raw_days: &[Day]) -> Vec<Day> {
        let is_open = |day: &Day| {
            let final_at = day.end().plus(rule.at_utc + rule.late_tolerance);
            now >= final_at && !self.finals.contains(day)
        };
        raw_days.iter().copied().filter(is_open).collect()
    }

    /// Whether a day waits for another try.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Nothing can be due before this, unless the clock is set or a day comes
    /// back from the past.
    #[must_use]
    pub fn idle_until(&self, now: Wall, rule: &Rollup) -> Wall {
        let Some(today) = Day::of(now) else {
            return now;
        };
        let mut next = today.end().plus(rule.at_utc);
        for at in [
            today.start().plus(rule.at_utc),
            today.start().plus(rule.at_utc + rule.late_tolerance),
        ]
        .into_iter()
        .chain(self.failures.values().filter_map(|failed| failed.next_at))
        {
            if at > now {
                next = next.min(at);
            }
        }
        next
    }

    /// A job was done.
    pub fn done(&mut self, job: Job) {
        self.failures.remove(&job.day);
        match job.depth {
            Depth::First => {
                self.firsts.insert(job.day);
            }
            Depth::Final => {
                self.finals.insert(job.day);
                self.reviewed.insert(job.day);
            }
        }
    }

    /// A job failed.
    pub fn failed(&mut self, job: Job, now: Wall, rule: &Rollup) -> After {
        let failed = self.failures.entry(job.day).or_insert(Failed {
            depth: job.depth,
            tries: 0,
            next_at: None,
        });
        failed.depth = job.depth;
        failed.next_at = rule.retry.get(failed.tries).map(|&wait| now.plus(wait));
        failed.tries += 1;
        failed.next_at.map_or(After::GivenUp, After::Retry)
    }

    /// The days that this gateway has lived through, as far as is known.
    #[must_use]
    pub fn lived(&self, raw_days: &[Day]) -> BTreeSet<Day> {
        self.finals.iter().chain(raw_days).copied().collect()
    }

    /// Whether the last word on this day is said, and looked at again in this run:
    /// what came after it is in.
    #[must_use]
    pub fn is_settled(&self, day: Day) -> bool {
        self.finals.contains(&day) && self.reviewed.contains(&day)
    }

    fn begin_run(&mut self, now: Wall, rule: &Rollup) {
        let run = now.minus(rule.at_utc).millis().div_euclid(DAY_MILLIS);
        if self.run != Some(run) {
            self.run = Some(run);
            self.reviewed.clear();
            self.failures.clear();
            self.firsts.retain(|day| day.end() > now);
        }
    }

    fn job(&self, day: Day, now: Wall, rule: &Rollup) -> Option<Job> {
        let first_at = day.end().plus(rule.at_utc);
        let depth = if now < first_at.plus(rule.late_tolerance) {
            Depth::First
        } else {
            Depth::Final
        };
        // A first summary that was given up does not stand in the way of the last word.
        let is_blocked = self
            .failures
            .get(&day)
            .is_some_and(|failed| match failed.next_at {
                Some(next_at) => now < next_at,
                None => failed.depth == depth,
            });
        if now < first_at || is_blocked {
            return None;
        }
        let depth = if depth == Depth::First {
            (!self.firsts.contains(&day) && !self.finals.contains(&day)).then_some(Depth::First)
        } else {
            (!self.reviewed.contains(&day)).then_some(Depth::Final)
        };
        depth.map(|depth| Job { day, depth })
    }
}

/// How far a summary asked for by hand goes; `None`: the day is not over.
#[must_use]
pub fn by_hand(day: Day, now: Wall, rule: &Rollup) -> Option<Job> {
    let final_at = day.end().plus(rule.at_utc + rule.late_tolerance);
    let depth = if now < final_at {
        Depth::First
    } else {
        Depth::Final
    };
    (now >= day.end()).then_some(Job { day, depth })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rule() -> Rollup {
        Rollup::default()
    }

    fn day(n: u32) -> Day {
        format!("2026-03-{n:02}").parse().unwrap()
    }

    fn at(text: &str) -> Wall {
        Wall::parse(&format!("2026-03-{text}Z")).unwrap()
    }

    /// Does all that is due; one word a job.
    fn run(plan: &mut Plan, now: &str, raw: &[u32]) -> Vec<String> {
        let raw: Vec<Day> = raw.iter().map(|&n| day(n)).collect();
        let mut done = Vec::new();
        while let Some(job) = plan.next(at(now), &rule(), &raw) {
            plan.done(job);
            let depth = format!("{:?}", job.depth).to_lowercase();
            done.push(format!("{} {depth}", job.day.to_string().split_off(8)));
            assert!(done.len() < 100, "it ends");
        }
        done
    }

    #[test]
    fn yesterday_is_summarised_at_five_past_and_final_at_a_quarter_past() {
        let mut plan = Plan::default();
        assert!(run(&mut plan, "13T00:04:59.999", &[12, 13]).is_empty());
        assert_eq!(run(&mut plan, "13T00:05:00", &[12, 13]), ["12 first"]);
        assert!(run(&mut plan, "13T00:14:59.999", &[12, 13]).is_empty());
        assert_eq!(run(&mut plan, "13T00:15:00", &[12, 13]), ["12 final"]);
        assert!(run(&mut plan, "13T23:59:59", &[12, 13]).is_empty());
        // The next run looks at what is still there once more.
        assert_eq!(
            run(&mut plan, "14T00:15:00", &[12, 13]),
            ["12 final", "13 final"]
        );
    }

    #[test]
    fn days_missed_are_made_up_for_oldest_first() {
        let mut plan = Plan::new([day(8)]);
        assert_eq!(
            run(&mut plan, "12T14:00:00", &[8, 9, 10, 11, 12]),
            ["08 final", "09 final", "10 final", "11 final"]
        );
    }

    #[test]
    fn clock_set_back_over_the_trigger_runs_once_more_and_no_more() {
        let mut plan = Plan::default();
        assert_eq!(run(&mut plan, "13T00:06:00", &[12]), ["12 first"]);
        assert!(run(&mut plan, "12T23:58:00", &[12]).is_empty());
        assert_eq!(run(&mut plan, "13T00:05:00", &[12]), ["12 first"]);
        assert_eq!(run(&mut plan, "13T00:15:00", &[12]), ["12 final"]);
    }

    #[test]
    fn days_of_the_future_are_not_due() {
        let mut plan = Plan::default();
        assert!(run(&mut plan, "12T12:00:00", &[12, 13, 30]).is_empty());
        // 1970: a clock that is not set.
        assert_eq!(
            plan.next(Wall::from_millis(120_000), &rule(), &[day(12)]),
            None
        );
    }

    #[test]
    fn failure_is_tried_again_after_1_5_and_15_minutes_and_then_with_the_next_run() {
        let mut plan = Plan::default();
        let raw = [day(11), day(12)];
        let mut tries = Vec::new();
        for minute in 0..1_500_u64 {
            let now = at("13T00:05:00").plus(Duration::from_secs(minute * 60));
            while let Some(job) = plan.next(now, &rule(), &raw) {
                if job.day == day(12) {
                    plan.done(job);
                    continue;
                }
                let after = plan.failed(job, now, &rule());
                tries.push((now.to_string(), after == After::GivenUp));
            }
        }
        let tries: Vec<_> = tries.iter().map(|(at, up)| (at.as_str(), *up)).collect();
        assert_eq!(
            tries,
            [
                ("2026-03-13T00:05:00.000Z", false),
                ("2026-03-13T00:06:00.000Z", false),
                ("2026-03-13T00:11:00.000Z", false),
                ("2026-03-13T00:26:00.000Z", true),
                ("2026-03-14T00:05:00.000Z", false),
                ("2026-03-14T00:06:00.000Z", false),
                ("2026-03-14T00:11:00.000Z", false),
                ("2026-03-14T00:26:00.000Z", true),
            ]
        );
        assert!(plan.is_settled(day(12)) && !plan.is_settled(day(11)));
    }

    #[test]
    fn nothing_is_due_before_the_end_of_idleness() {
        let mut plan = Plan::default();
        let raw = [day(11), day(12)];
        let mut now = at("12T00:00:00");
        let end = at("14T00:00:00");
        while now < end {
            while let Some(job) = plan.next(now, &rule(), &raw) {
                plan.done(job);
            }
            let until = plan.idle_until(now, &rule());
            assert!(until > now);
            let before = until.minus(Duration::from_millis(1));
            assert!(plan.waiting(before, &rule(), &raw).is_empty(), "{before}");
            now = until;
        }
    }

    #[test]
    fn by_hand_only_a_day_that_is_over() {
        let job = |now| by_hand(day(12), at(now), &rule()).map(|job| job.depth);
        assert_eq!(job("12T23:59:59"), None);
        assert_eq!(job("13T00:00:00"), Some(Depth::First));
        assert_eq!(job("13T00:15:00"), Some(Depth::Final));
    }
}
