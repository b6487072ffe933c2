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
//! - A device's status on the board is durable, or the store is shown as failing,
//!   or the clock as not trusted.
//! - What cannot be dated reaches neither the store nor a write: see `undated`.
//! - Changes are committed in the order in which they happened, and kept until
//!   they are, within a bound: see `pending`.
//! - At the end everything held is written before [`Recorder::run`] returns, or
//!   the reason is logged.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tracing::{error, info, warn};

mod dating;
mod drawing;
mod pending;
mod telling;
mod trouble;
mod undated;
mod underway;
mod writing;

use drawing::{draw, seat};
use pending::{Pending, Show};
use trouble::{Kind, Trouble};
use undated::Undated;
use underway::{Underway, ended};
use writing::{Deed, Work, Written};

use super::report::{Beat, Entry, Report};
use super::uplink::tap::Tap;
use crate::board::{Board, Picture};
use crate::clock::Clock;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event, News};
use crate::domain::heartbeat::Sample;
use crate::domain::instant::{Mono, Wall};
use crate::domain::status::Liveness;
use crate::fault::chain;
use crate::store::{Store, WriteError};
use crate::wire::message::Metrics;

/// Changes of this long are committed together.
const GROUP: Duration = Duration::from_millis(100);
/// Wait after a failed write.
const RETRY: Duration = Duration::from_secs(5);
/// Time between two checkpoints of all standings.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(3_600);
/// Time from a step of the clock to the checkpoint that no wrong date outlives.
const CHECKPOINT_AFTER_STEP: Duration = Duration::from_mins(5);

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
    /// Heartbeats as they happen, to the uplink.
    pub tap: Tap,
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
    writing: Option<Underway>,
    /// When the next of each kind of write starts; `None`: nothing to commit.
    commit_at: Option<Mono>,
    flush_at: Mono,
    checkpoint_at: Mono,
    /// When it is written where the devices are watched; `None`: it stands.
    roster_at: Option<Mono>,
    /// When the newest roster came.
    roster_came: Mono,
    trouble: Trouble,
    /// What waits for a date; `None` while the clock is trusted.
    undated: Option<Undated>,
}

/// What a report brings for the open frame.
#[derive(Debug, Default)]
struct Fresh {
    samples: Vec<Sample>,
    notices: Vec<Event>,
    late: Vec<(DeviceId, Wall)>,
    metrics: Vec<Metrics>,
}

impl Recorder {
    /// A recorder with nothing held but the news of what the store had to repair
    /// when it was opened.
    #[must_use]
    pub fn new(links: Links, mended: &[String]) -> Self {
        let now = links.clock.mono();
        let flush_at = now.plus(links.keeping.borrow().flush_every);
        let undated = links.clock.distrust().map(|_| Undated::default());
        let mut recorder = Self {
            links,
            pending: Pending::default(),
            writing: None,
            commit_at: None,
            flush_at,
            checkpoint_at: now.plus(CHECKPOINT_EVERY),
            roster_at: None,
            roster_came: now,
            trouble: Trouble::default(),
            undated,
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
                () = tokio::time::sleep_until(wake_at) => self.look_at_writing(),
            }
        }
        self.finish().await
    }

    fn take(&mut self, report: Report) {
        let mut fresh = Fresh::default();
        // One look at the board for the whole report, and nothing in it waits.
        let board = Arc::clone(&self.links.board);
        board.draw(|picture| {
            for entry in report.entries {
                match entry {
                    Entry::Beat(beat) => self.take_beat(beat, &mut fresh, picture),
                    Entry::Change(change) => self.take_change(change, picture),
                    Entry::Roster(members) => {
                        seat(members, picture);
                        self.roster_came = self.links.clock.mono();
                        self.roster_at = Some(self.roster_came);
                    }
                    // Where there are no dates yet the engine's counter alone knows.
                    Entry::Late { device, at } if self.undated.is_none() => {
                        fresh.late.push((device, at));
                    }
                    Entry::Late { .. } => {}
                    Entry::Times(times) => self.take_times(times, &mut fresh, picture),
                }
            }
        });
        let Fresh {
            samples,
            notices,
            late,
            metrics,
        } = fresh;
        self.links.tap.offer(metrics);
        self.links.store.push_raw(&samples);
        if !late.is_empty() {
            self.links.store.push_late(&late);
        }
        if !notices.is_empty() {
            self.links.store.push_notices(notices);
        }
    }

    fn take_beat(&mut self, beat: Beat, fresh: &mut Fresh, picture: &mut Picture) {
        if self.undated.is_none() {
            fresh.metrics.extend(self.links.tap.wish(&beat));
        }
        let notice = beat.notice.map(|event| *event);
        if let Some(undated) = &mut self.undated {
            undated.add_beat(beat.sample, notice);
        } else {
            fresh.samples.push(beat.sample);
            fresh.notices.extend(notice);
        }
        let show = Show {
            device: beat.sample.device,
            place: beat.place,
            sample: Some(beat.sample),
            track: beat.track,
        };
        self.admit(beat.change, &show, picture);
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
                self.admit(Some(change), &show, picture);
            }
            Change::Removal { .. } | Change::Notice(_) | Change::Announcement { .. } => {
                if matches!(change.event().news, News::ClockStepped { .. }) {
                    // A start reads counts by their times.
                    let soon = self.links.clock.mono().plus(CHECKPOINT_AFTER_STEP);
                    self.checkpoint_at = self.checkpoint_at.min(soon);
                    // Since when devices are watched was noted by the old clock.
                    self.roster_came = self.links.clock.mono();
                    self.roster_at = Some(self.roster_came);
                }
                self.keep(*change);
            }
        }
    }

    /// Shows a beat at once, or after the changes that came with or before it.
    fn admit(&mut self, change: Option<Box<Change>>, show: &Show, picture: &mut Picture) {
        if let Some(change) = change {
            self.keep(*change);
        }
        // While nothing can be made durable a page that shows yesterday's status
        // would help nobody; it then says that the store is failing, or that the
        // clock is not trusted.
        let shows_at_once = self.undated.is_some() || self.trouble.holds_up_changes();
        let is_held = !shows_at_once && self.pending.hold(show);
        if !is_held {
            draw(show, picture);
        }
    }

    /// Puts a change on its way to the disk, or where it waits for a date.
    fn keep(&mut self, change: Change) {
        if let Some(undated) = &mut self.undated {
            return undated.add_change(change);
        }
        match change {
            Change::Standing { liveness, .. } => self.pending.add_standing(liveness.device, change),
            Change::Removal { .. } | Change::Notice(_) | Change::Announcement { .. } => {
                self.pending.add(change);
            }
        }
        self.commit_soon();
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
        if let Some(writing) = &self.writing {
            return writing.wake(&**clock);
        }
        let every = self.links.keeping.borrow().flush_every;
        let regular = match self.undated {
            None => self.flush_at.min(self.checkpoint_at),
            Some(_) => self.flush_at,
        };
        let regular = clock.wake_for(regular, every);
        let soon = self.commit_at.or(self.roster_due());
        soon.map_or(regular, |soon| clock.wake_at(soon).min(regular))
    }

    /// When the roster is written. Not before there are dates: the removals that
    /// came with it could not be written.
    fn roster_due(&self) -> Option<Mono> {
        self.roster_at.filter(|_| self.undated.is_none())
    }

    fn start_due_write(&mut self) {
        if self.writing.is_some() {
            return;
        }
        let now = self.links.clock.mono();
        let due = |at: Mono| at <= now;
        // Changes that never end on a slow disk must not hold up raw for ever.
        let every = self.links.keeping.borrow().flush_every;
        let deed = if due(self.flush_at.plus(every)) {
            Deed::Flush
        } else if self.commit_at.is_some_and(due) {
            Deed::Commit {
                changes: self.pending.next_group(),
            }
        } else if due(self.flush_at) {
            // Without dates too: what is in the open frame has them.
            Deed::Flush
        } else if due(self.checkpoint_at) && self.undated.is_none() {
            Deed::Checkpoint
        } else if self.commit_at.is_none() && self.roster_due().is_some_and(due) {
            // After the changes that the roster brought: what is told of a
            // device that moved must not hang on this.
            self.roster_at = None;
            Deed::Roster
        } else {
            return;
        };
        self.writing = Some(Underway::new(self.start(deed), now));
    }

    fn start(&self, deed: Deed) -> JoinHandle<Written> {
        let clock = &self.links.clock;
        let work = match deed {
            Deed::Commit { changes } => Work::Commit(self.pending.first(changes)),
            Deed::Flush => Work::Flush {
                raw_retention: self.links.keeping.borrow().raw_retention,
            },
            Deed::Checkpoint => Work::Checkpoint(writing::standings(&self.links.board)),
            Deed::Roster => Work::Roster {
                watched: writing::watched(&self.links.board),
                // Slots since then were to be asked, however late it is written.
                since: clock.wall().minus(clock.mono().since(self.roster_came)),
            },
            Deed::Close => Work::Close,
        };
        writing::begin(work, &self.links.store, clock.wall())
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
        self.trouble.end_stall(!self.pending.is_empty());
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

    fn show_store(&self) {
        let figures = self.links.store.figures();
        let failing = self.trouble.shown();
        self.links.board.draw(|picture| {
            picture.gateway.store.figures = figures;
            picture.gateway.store.failing = failing;
        });
    }

    /// Writes everything held; what fails twice is logged and given up.
    async fn finish(mut self) -> bool {
        if let Some(writing) = self.writing.take() {
            let ended = writing.ended().await;
            self.conclude(ended);
        }
        let mut is_kept = true;
        while is_kept && !self.pending.is_empty() {
            let changes = self.pending.next_group();
            is_kept = self.write_or_retry(Deed::Commit { changes }).await;
        }
        for deed in self.last_deeds() {
            is_kept &= self.write_or_retry(deed).await;
        }
        if is_kept && self.undated.as_ref().is_none_or(Undated::is_empty) {
            info!("everything held is on disk");
        } else if is_kept {
            info!("everything that has a date is on disk");
        } else {
            let changes = self.pending.len();
            error!(
                changes,
                "stopped with heartbeats or changes of status not kept"
            );
        }
        is_kept
    }

    /// What is written last. Without dates only what had one before.
    fn last_deeds(&mut self) -> Vec<Deed> {
        if let Some(undated) = &self.undated {
            undated.tell_given_up();
            return vec![Deed::Close];
        }
        let roster = self.roster_at.take().map(|_due| Deed::Roster);
        roster
            .into_iter()
            .chain([Deed::Checkpoint, Deed::Close])
            .collect()
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
