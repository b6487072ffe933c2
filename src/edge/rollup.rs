//! Turns each day into summary rows and lets go of what is past its retention.
//!
//! Floor 3. `app` runs one. Looks at the wall clock every ten seconds, so that it
//! does not matter how the clock came to stand where it does: set, slept through,
//! or right. The work blocks and runs on a blocking thread, one job at a time;
//! asking and keeping go on meanwhile.
//!
//! # Invariants
//!
//! - A day's raw is removed only when its last word is durable and its retention
//!   is over, and not while the clock may have leapt ahead.
//! - A job that fails is tried again as `rollup.retry_ms` says, then with the next
//!   run, and that is told.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, info, warn};

pub mod plan;
mod retention;
pub mod work;

use plan::{After, Depth, Job, Plan, by_hand};
use retention::{Calm, Kept};
use work::{RollupError, Summarised, summarise};

use crate::board::command::{NotRolledUp, RolledUp};
use crate::board::{self, Board, Progress};
use crate::clock::Clock;
use crate::config::settings::{History, Rollup as Rule};
use crate::domain::day::Day;
use crate::domain::event::{Change, Event, Failure, FailureCode, News, Stage};
use crate::domain::instant::Wall;
use crate::fault::chain;
use crate::store::Store;

/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Time between two looks at what may go.
const RETENTION_EVERY: Duration = Duration::from_mins(10);

/// The rules in force; a reload may change them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `[rollup]`
    pub rollup: Rule,
    /// `[history]`
    pub history: History,
    /// `store.raw_retention_hours`
    pub raw_retention: Duration,
}

/// A day to summarise now, asked for by a person.
#[derive(Debug)]
pub struct Wish {
    /// Which.
    pub day: Day,
    /// What came of it.
    pub answer: oneshot::Sender<Result<RolledUp, NotRolledUp>>,
}

/// The links of the rollup.
#[derive(Debug)]
pub struct Links {
    /// What is summarised, and where rows go.
    pub store: Arc<Store>,
    /// Where its progress is shown.
    pub board: Arc<Board>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The rules in force.
    pub rules: watch::Receiver<Rules>,
    /// Days to summarise at once, asked for by people.
    pub wishes: mpsc::Receiver<Wish>,
}

/// The task.
#[derive(Debug)]
pub struct Rollup {
    links: Links,
    plan: Option<Plan>,
    /// Nothing is due before this, and the clock was not behind it.
    idle: Option<(Wall, Wall)>,
    retention_due: Option<Wall>,
    calm: Calm,
}

impl Rollup {
    /// A rollup that has not looked at anything yet.
    #[must_use]
    pub const fn new(links: Links) -> Self {
        Self {
            links,
            plan: None,
            idle: None,
            retention_due: None,
            calm: Calm::new(),
        }
    }

    /// Runs until `stop` turns true; a job under way is finished before that.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            self.look(&stop).await;
            let clock = &self.links.clock;
            let wake_at = clock.wake_for(clock.mono().plus(LOOK_EVERY), LOOK_EVERY);
            let wish = tokio::select! {
                biased;
                _ = stop.wait_for(|&stop| stop) => return,
                Some(wish) = self.links.wishes.recv() => Some(wish),
                changed = self.links.rules.changed() => {
                    self.idle = None;
                    if changed.is_err() { return; }
                    None
                }
                () = tokio::time::sleep_until(wake_at) => None,
            };
            if let Some(wish) = wish {
                self.grant(wish).await;
            }
        }
    }

    /// Does all that is due.
    async fn look(&mut self, stop: &watch::Receiver<bool>) {
        if self.links.clock.distrust().is_some() {
            return;
        }
        let (mono, now) = (self.links.clock.mono(), self.links.clock.wall());
        self.calm.note(mono, now);
        if !self.is_idle(now) {
            self.catch_up(stop).await;
        }
        let is_due = self
            .retention_due
            .is_none_or(|due| now >= due || due.since(now) > RETENTION_EVERY);
        if is_due && !is_stopping(stop) {
            self.let_go().await;
        }
    }

    fn is_idle(&self, now: Wall) -> bool {
        self.idle
            .is_some_and(|(from, until)| (from..until).contains(&now))
    }

    async fn catch_up(&mut self, stop: &watch::Receiver<bool>) {
        let mut done = 0;
        while !is_stopping(stop) {
            let Some((job, waiting)) = self.next_job().await else {
                break;
            };
            self.show_run(Progress {
                day: job.day,
                done,
                of: done + waiting,
            });
            self.carry_out(job).await;
            done += 1;
        }
        self.show_idle();
    }

    /// The next job, and how many days wait with it.
    async fn next_job(&mut self) -> Option<(Job, usize)> {
        let days = self.raw_days().await?;
        let (now, rule) = (self.links.clock.wall(), self.rule());
        let plan = self.plan.as_mut()?;
        let job = plan.next(now, &rule, &days);
        self.idle = job.is_none().then(|| (now, plan.idle_until(now, &rule)));
        let waiting = plan.waiting(now, &rule, &days);
        let count = waiting.len();
        let open = plan.open(now, &rule, &days);
        self.draw(|shown| shown.waiting_days = open);
        job.map(|job| (job, count))
    }

    /// The days whose raw is there; makes the plan with the first look.
    async fn raw_days(&mut self) -> Option<Vec<Day>> {
        let is_new = self.plan.is_none();
        let read = self
            .blocking(move |store| {
                let finals = if is_new {
                    store.final_days()?
                } else {
                    Vec::new()
                };
                Ok((store.raw_days()?, finals))
            })
            .await;
        let read: Result<_, crate::store::ReadError> = read?;
        match read {
            Ok((days, finals)) => {
                if is_new {
                    let (mono, now) = (self.links.clock.mono(), self.links.clock.wall());
                    self.calm.note_newest(mono, now, days.last().copied());
                    self.draw(|shown| shown.last_final = finals.last().copied());
                    self.plan = Some(Plan::new(finals));
                }
                Some(days)
            }
            Err(fault) => {
                let sentence = format!("the days cannot be listed: {}", chain(&fault));
                self.draw(|shown| shown.failing = Some(sentence));
                None
            }
        }
    }

    async fn carry_out(&mut self, job: Job) {
        let now = self.links.clock.wall();
        let result = self.blocking(move |store| summarise(store, job, now)).await;
        self.conclude(job, result).await;
    }

    async fn conclude(&mut self, job: Job, result: Option<Result<Summarised, RollupError>>) {
        let rule = self.rule();
        let Some(plan) = &mut self.plan else { return };
        let now = self.links.clock.wall();
        match result {
            Some(Ok(done)) => {
                plan.done(job);
                self.retention_due = None;
                info!(
                    day = %job.day,
                    rows = done.rows.changed,
                    unchanged = done.rows.kept,
                    told = done.told,
                    "{}",
                    match job.depth {
                        Depth::First => "day summarised, late heartbeats may still come",
                        Depth::Final => "day summarised",
                    }
                );
                let is_well = !plan.is_failing();
                let has_rows = done.rows.changed + done.rows.kept > 0;
                self.draw(|shown| {
                    if job.depth == Depth::Final && has_rows {
                        shown.last_final = shown.last_final.max(Some(job.day));
                    }
                    if is_well {
                        shown.failing = None;
                    }
                });
            }
            Some(Err(fault)) => {
                let after = plan.failed(job, now, &rule);
                self.tell_failure(job, &chain(&fault), after).await;
            }
            None => {
                let after = plan.failed(job, now, &rule);
                self.tell_failure(job, "it broke off, see the log", after)
                    .await;
            }
        }
    }

    async fn tell_failure(&self, job: Job, reason: &str, after: After) {
        let next = match after {
            After::Retry(at) => format!("next try at {at}"),
            After::GivenUp => "next try with the next day's".to_owned(),
        };
        let message = format!("{reason}; {next}");
        let shown = message.clone();
        self.draw(|state| state.failing = Some(shown));
        if after != After::GivenUp {
            warn!(day = %job.day, "{message}");
            return;
        }
        error!(day = %job.day, "{message}");
        let now = self.links.clock.wall();
        let event = Event {
            device: None,
            produced_at: now,
            process_ms: 0,
            news: News::Failed(Failure {
                stage: Stage::Rollup,
                code: FailureCode::RollupFailed,
                message,
                retryable: true,
                failed_at: now,
            }),
        };
        self.blocking(move |store| {
            let told = Change::Notice(event);
            if store.commit(std::slice::from_ref(&told), now).is_err() {
                // The disk that failed the summary fails this too: it waits.
                store.push_notices(vec![told.event().clone()]);
            }
        })
        .await;
    }

    /// Carries out what a person asked for and answers.
    async fn grant(&mut self, wish: Wish) {
        let Wish { day, answer } = wish;
        let outcome = self.by_hand(day).await;
        if answer.send(outcome).is_err() {
            info!(%day, "nobody waits for the summary asked for any more");
        }
    }

    async fn by_hand(&mut self, day: Day) -> Result<RolledUp, NotRolledUp> {
        let failed = |reason| NotRolledUp::Failed { day, reason };
        let now = self.links.clock.wall();
        let job = by_hand(day, now, &self.rule()).ok_or(NotRolledUp::NotOver { day })?;
        let days = self.raw_days().await;
        let days = days.ok_or_else(|| failed("the days cannot be listed".into()))?;
        if !days.contains(&day) {
            return Err(NotRolledUp::NoRaw { day });
        }
        self.show_run(Progress {
            day,
            done: 0,
            of: 1,
        });
        let result = self.blocking(move |store| summarise(store, job, now)).await;
        self.show_idle();
        match result {
            Some(Ok(done)) => {
                self.conclude(job, Some(Ok(done))).await;
                Ok(RolledUp {
                    rows_changed: done.rows.changed,
                    rows_kept: done.rows.kept,
                })
            }
            Some(Err(fault)) => Err(failed(chain(&fault))),
            None => Err(failed("it broke off, see the log".into())),
        }
    }

    /// Removes what is past its retention.
    async fn let_go(&mut self) {
        let (mono, now) = (self.links.clock.mono(), self.links.clock.wall());
        let Some(days) = self.raw_days().await else {
            return;
        };
        self.retention_due = Some(now.plus(RETENTION_EVERY));
        let Some(plan) = &self.plan else { return };
        if !self.calm.is_calm(mono) {
            return;
        }
        let rules = self.links.rules.borrow().clone();
        let kept = Kept::of(&rules, now, plan.lived(&days));
        let gone: Vec<Day> = days
            .into_iter()
            .filter(|&day| plan.is_settled(day) && kept.is_raw_past(day))
            .collect();
        let removed = self
            .blocking(move |store| retention::let_go(store, &gone, &kept))
            .await;
        if let Some(Err(fault)) = removed {
            warn!(error = %chain(&fault), "what is past its retention cannot be removed");
        }
    }

    fn rule(&self) -> Rule {
        self.links.rules.borrow().rollup.clone()
    }

    /// Runs this on a blocking thread; `None`: it panicked.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Option<T> {
        let store = Arc::clone(&self.links.store);
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => Some(done),
            Err(broken) => {
                error!(%broken, "the rollup's work broke off");
                None
            }
        }
    }

    fn show_run(&self, progress: Progress) {
        if progress.of > 1 {
            info!(day = %progress.day, "summarising day {} of {}", progress.done + 1, progress.of);
        }
        self.draw(|shown| shown.running = Some(progress));
    }

    fn show_idle(&self) {
        self.draw(|shown| shown.running = None);
    }

    fn draw(&self, change: impl FnOnce(&mut board::Rollup)) {
        self.links
            .board
            .draw(|picture| change(&mut picture.gateway.rollup));
    }
}

fn is_stopping(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow()
}
