//! Keeps what the monitor reports, then shows it.
//!
//! Floor 3. `app` runs one. Raw heartbeats join the store's open frame and are
//! written once per `store.flush_every_ms`; a change of verdict is committed at
//! once, those of a tenth of a second together, and stands on the board only
//! after the disk has it. One write runs at a time, on a blocking thread, while
//! this task goes on receiving: a slow disk delays nobody.
//!
//! # Invariants
//!
//! - A device's status on the board is durable, or the store is shown as failing.
//! - Changes are committed in the order in which they happened, and kept until
//!   they are, within a bound: see `pending`.
//! - At the end everything held is written before [`Recorder::run`] returns, or
//!   the reason is logged.

use std::collections::BTreeMap;
use std::future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tracing::{error, info, warn};

mod pending;
mod trouble;
mod writing;

use pending::{Pending, Show};
use trouble::{Kind, Trouble};
use writing::{Deed, Work, Written};

use super::report::{Entry, Member, Report};
use crate::board::{Board, Picture, Row};
use crate::clock::Clock;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event, Failure, FailureCode, News, Stage};
use crate::domain::instant::Mono;
use crate::domain::status::Liveness;
use crate::fault::chain;
use crate::store::{Store, WriteError};

/// Changes of this long are committed together.
const GROUP: Duration = Duration::from_millis(100);
/// Wait after a failed write.
const RETRY: Duration = Duration::from_secs(5);
/// Time between two checkpoints of all standings.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(3_600);

/// Repairs shown; a disk that fails again and again would add to them for ever.
const MENDED_MAX: usize = 100;

/// The links of a recorder to its neighbours.
#[derive(Debug)]
pub struct Links {
    /// Reports in; when the monitor is gone, the recorder writes and ends.
    pub reports: mpsc::Receiver<Report>,
    /// Where things are kept.
    pub store: Arc<Store>,
    /// Where they are shown.
    pub board: Arc<Board>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How heartbeats are kept; a reload may change it.
    pub keeping: watch::Receiver<Keeping>,
}

/// How raw heartbeats are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// `store.flush_every_ms`
    pub flush_every: Duration,
    /// `store.raw_retention_hours`
    pub raw_retention: Duration,
}

/// The recorder.
#[derive(Debug)]
pub struct Recorder {
    links: Links,
    /// Changes the disk does not have yet, and what is shown after them.
    pending: Pending,
    writing: Option<JoinHandle<Written>>,
    /// When the next of each kind of write starts; `None`: nothing to commit.
    commit_at: Option<Mono>,
    flush_at: Mono,
    checkpoint_at: Mono,
    /// When it is written where the devices are watched; `None`: it stands.
    roster_at: Option<Mono>,
    trouble: Trouble,
}

impl Recorder {
    /// A recorder with nothing held but the news of what the store had to repair
    /// when it was opened.
    #[must_use]
    pub fn new(links: Links, mended: &[String]) -> Self {
        let now = links.clock.mono();
        let flush_at = now.plus(links.keeping.borrow().flush_every);
        let mut recorder = Self {
            links,
            pending: Pending::default(),
            writing: None,
            commit_at: None,
            flush_at,
            checkpoint_at: now.plus(CHECKPOINT_EVERY),
            roster_at: None,
            trouble: Trouble::default(),
        };
        for what in mended {
            recorder.tell_damage(what.clone());
        }
        recorder
    }

    /// Runs until the monitor is gone and everything held is written; tells
    /// whether it is.
    pub async fn run(mut self) -> bool {
        loop {
            self.start_due_write();
            let wake_at = self.next_wake();
            tokio::select! {
                report = self.links.reports.recv() => match report {
                    Some(report) => self.take(report),
                    None => break,
                },
                ended = ended(&mut self.writing) => {
                    self.writing = None;
                    self.conclude(ended);
                }
                changed = self.links.keeping.changed() => {
                    let every = self.links.keeping.borrow_and_update().flush_every;
                    self.flush_at = self.flush_at.min(self.links.clock.mono().plus(every));
                    if changed.is_err() { break; }
                }
                () = tokio::time::sleep_until(wake_at), if self.writing.is_none() => {}
            }
        }
        self.finish().await
    }

    fn take(&mut self, report: Report) {
        let mut samples = Vec::with_capacity(report.entries.len());
        let mut notices = Vec::new();
        // One look at the board for the whole report, and nothing in it waits.
        let board = Arc::clone(&self.links.board);
        board.draw(|picture| {
            for entry in report.entries {
                match entry {
                    Entry::Beat(beat) => {
                        samples.push(beat.sample);
                        notices.extend(beat.notice.map(|event| *event));
                        let show = Show {
                            device: beat.sample.device,
                            place: beat.place,
                            sample: Some(beat.sample),
                            track: beat.track,
                        };
                        self.admit(beat.change, show, picture);
                    }
                    Entry::Change(change) => self.take_change(change, picture),
                    Entry::Roster(members) => {
                        seat(members, picture);
                        self.roster_at = Some(self.links.clock.mono());
                    }
                }
            }
        });
        self.links.store.push_raw(&samples);
        if !notices.is_empty() {
            self.links.store.push_notices(notices);
        }
    }

    fn take_change(&mut self, change: Box<Change>, picture: &mut Picture) {
        match *change {
            Change::Standing { liveness, .. } => {
                let Liveness { device, track } = liveness;
                let show = Show {
                    device,
                    place: 0,
                    sample: None,
                    track,
                };
                self.admit(Some(change), show, picture);
            }
            Change::Removal { .. } | Change::Notice(_) => {
                self.pending.add(*change);
                self.commit_soon();
            }
        }
    }

    /// Shows a beat at once, or after the changes that came with or before it.
    fn admit(&mut self, change: Option<Box<Change>>, show: Show, picture: &mut Picture) {
        if let Some(change) = change {
            self.pending.add_standing(show.device, *change);
            self.commit_soon();
        }
        // While nothing can be made durable a page that shows yesterday's status
        // would help nobody; it then says that the store is failing.
        let is_held = !self.trouble.holds_up_changes() && self.pending.hold(&show);
        if !is_held {
            draw(&show, picture);
        }
    }

    fn commit_soon(&mut self) {
        let soon = self.links.clock.mono().plus(GROUP);
        self.commit_at.get_or_insert(soon);
    }

    fn show(&self, shown: &[Show]) {
        if shown.is_empty() {
            return;
        }
        self.links
            .board
            .draw(|picture| shown.iter().for_each(|show| draw(show, picture)));
    }

    fn next_wake(&self) -> Instant {
        let clock = &self.links.clock;
        let every = self.links.keeping.borrow().flush_every;
        let regular = clock.wake_for(self.flush_at.min(self.checkpoint_at), every);
        let soon = self.commit_at.or(self.roster_at);
        soon.map_or(regular, |soon| clock.wake_at(soon).min(regular))
    }

    fn start_due_write(&mut self) {
        if self.writing.is_some() {
            return;
        }
        let now = self.links.clock.mono();
        let due = |at: Mono| at <= now;
        let deed = if self.commit_at.is_some_and(due) {
            Deed::Commit {
                changes: self.pending.next_group(),
            }
        } else if due(self.flush_at) {
            Deed::Flush
        } else if due(self.checkpoint_at) {
            Deed::Checkpoint
        } else if self.commit_at.is_none() && self.roster_at.is_some_and(due) {
            // After the changes that the roster brought: what is told of a
            // device that moved must not hang on this.
            self.roster_at = None;
            Deed::Roster
        } else {
            return;
        };
        self.writing = Some(self.start(deed));
    }

    fn start(&self, deed: Deed) -> JoinHandle<Written> {
        let work = match deed {
            Deed::Commit { changes } => Work::Commit(self.pending.first(changes)),
            Deed::Flush => Work::Flush {
                raw_retention: self.links.keeping.borrow().raw_retention,
            },
            Deed::Checkpoint => Work::Checkpoint(self.standings()),
            Deed::Roster => Work::Roster(self.addresses()),
            Deed::Close => Work::Close,
        };
        writing::begin(work, &self.links.store, self.links.clock.wall())
    }

    /// The standings that the board shows; those are durable.
    fn standings(&self) -> Vec<Liveness> {
        let picture = self.links.board.look();
        let probed = picture
            .devices
            .values()
            .filter(|row| row.track.last_ping_at.is_some());
        probed
            .map(|row| Liveness {
                device: row.device.id,
                track: row.track,
            })
            .collect()
    }

    fn addresses(&self) -> Vec<(DeviceId, IpAddr)> {
        let picture = self.links.board.look();
        let watched = picture.devices.values().filter(|row| row.device.enabled);
        watched
            .map(|row| (row.device.id, row.device.address))
            .collect()
    }

    fn conclude(&mut self, ended: Result<Written, JoinError>) {
        let now = self.links.clock.mono();
        match ended {
            Ok(written) => {
                written
                    .lost_days
                    .iter()
                    .for_each(|day| self.tell_lost_day(*day));
                self.show_mended(written.mended);
                self.conclude_deed(written.deed, &written.result, now);
            }
            Err(broken) => {
                // A panic inside the database: which write it was is lost with
                // it, so all are tried again.
                let wall = self.links.clock.wall();
                self.trouble.note_break(&broken.to_string(), wall);
                self.roster_at = Some(now.plus(RETRY));
                self.flush_at = now.plus(RETRY);
                self.commit_at = (!self.pending.is_empty()).then(|| now.plus(RETRY));
            }
        }
        self.show_store();
    }

    fn conclude_deed(&mut self, deed: Deed, result: &Result<(), WriteError>, now: Mono) {
        let (every, wall) = (
            self.links.keeping.borrow().flush_every,
            self.links.clock.wall(),
        );
        let is_done = result.is_ok();
        match deed {
            Deed::Commit { changes } => {
                self.trouble.note(Kind::Changes, result, wall);
                self.conclude_commit(is_done.then_some(changes), now);
            }
            Deed::Flush | Deed::Close => {
                self.trouble.note(Kind::Raw, result, wall);
                let wait = if is_done { every } else { RETRY.min(every) };
                self.flush_at = now.plus(wait);
            }
            Deed::Roster if is_done => {}
            Deed::Roster => self.roster_at = Some(now.plus(RETRY)),
            Deed::Checkpoint => {
                if let Err(fault) = result {
                    warn!(error = %chain(fault), "the standings could not be checkpointed");
                }
                self.checkpoint_at = now.plus(CHECKPOINT_EVERY);
            }
        }
    }

    /// So many changes are on disk; `None`: those of the group are not.
    fn conclude_commit(&mut self, settled: Option<usize>, now: Mono) {
        let mut shown = Vec::new();
        if let Some(changes) = settled {
            self.pending.settle(changes, &mut shown);
            self.commit_at = (!self.pending.is_empty()).then_some(now);
        } else {
            self.pending.release(&mut shown);
            self.commit_at = Some(now.plus(RETRY));
        }
        self.show(&shown);
        if settled.is_some() {
            self.tell_given_up();
        }
    }

    fn tell_given_up(&mut self) {
        let given_up = self.pending.take_given_up();
        if given_up == 0 {
            return;
        }
        let message = format!("{given_up} changes of status could not be kept");
        error!("{message}");
        self.tell_failure(FailureCode::RawLost, message);
    }

    fn show_store(&self) {
        let figures = self.links.store.figures();
        let failing = self.trouble.shown();
        self.links.board.draw(|picture| {
            picture.gateway.store.figures = figures;
            picture.gateway.store.failing = failing;
        });
    }

    fn show_mended(&mut self, mended: Vec<String>) {
        for what in &mended {
            self.tell_damage(what.clone());
        }
        if !mended.is_empty() {
            self.links.board.draw(|picture| {
                let shown = &mut picture.gateway.store.mended;
                shown.extend(mended);
                let excess = shown.len().saturating_sub(MENDED_MAX);
                shown.drain(..excess);
            });
        }
    }

    fn tell_damage(&mut self, message: String) {
        error!("{message}");
        self.tell_failure(FailureCode::StoreDamaged, message);
    }

    fn tell_lost_day(&mut self, day: Day) {
        let message = format!(
            "the store is full: the heartbeats of {day} were removed before they were summarised"
        );
        error!("{message}");
        self.tell_failure(FailureCode::RawLost, message);
    }

    fn tell_failure(&mut self, code: FailureCode, message: String) {
        let now = self.links.clock.wall();
        let failure = Failure {
            stage: Stage::Store,
            code,
            message,
            retryable: false,
            failed_at: now,
        };
        self.pending.add(Change::Notice(Event {
            device: None,
            produced_at: now,
            process_ms: 0,
            news: News::Failed(failure),
        }));
        self.commit_soon();
    }

    /// Writes everything held; what fails twice is logged and given up.
    async fn finish(mut self) -> bool {
        if let Some(writing) = self.writing.take() {
            let ended = writing.await;
            self.conclude(ended);
        }
        let mut is_kept = true;
        while is_kept && !self.pending.is_empty() {
            let changes = self.pending.next_group();
            is_kept = self.write_or_retry(Deed::Commit { changes }).await;
        }
        let roster = self.roster_at.take().map(|_due| Deed::Roster);
        for deed in roster.into_iter().chain([Deed::Checkpoint, Deed::Close]) {
            is_kept &= self.write_or_retry(deed).await;
        }
        if is_kept {
            info!("everything held is on disk");
        } else {
            let changes = self.pending.len();
            error!(
                changes,
                "stopped with heartbeats or changes of status not kept"
            );
        }
        is_kept
    }

    /// Writes now, and once more where it fails.
    async fn write_or_retry(&mut self, deed: Deed) -> bool {
        self.write_now(deed).await || self.write_now(deed).await
    }

    async fn write_now(&mut self, deed: Deed) -> bool {
        let ended = self.start(deed).await;
        let is_done = matches!(&ended, Ok(Written { result: Ok(()), .. }));
        self.conclude(ended);
        is_done
    }
}

async fn ended(writing: &mut Option<JoinHandle<Written>>) -> Result<Written, JoinError> {
    match writing {
        Some(writing) => writing.await,
        None => future::pending().await,
    }
}

fn seat(members: Vec<Member>, picture: &mut Picture) {
    let before = std::mem::take(&mut picture.devices).into_iter();
    let mut before: BTreeMap<DeviceId, Row> = before.map(|row| (row.device.id, row)).collect();
    let seated = members.into_iter().map(|member| {
        let known = before.remove(&member.device.id);
        member.row(known)
    });
    picture.devices = seated.collect();
}

fn draw(show: &Show, picture: &mut Picture) {
    let Some(row) = picture.devices.get_near(show.place, &show.device) else {
        return;
    };
    row.track = show.track;
    if let Some(sample) = show.sample {
        row.remember(sample);
    }
}
