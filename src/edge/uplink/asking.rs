//! What the uplink asks of the store, and what it makes of the answers.
//!
//! Floor 3. One job at a time; the most urgent first.

use tokio::sync::watch;
use tracing::warn;

use super::desk::{Done, Found, Job};
use super::{Phase, RETRY, Uplink};
use crate::broker::Broker;
use crate::domain::instant::Mono;
use crate::store::outbox::UplinkMarks;

/// Parcels read ahead; below this more are read.
const READ_AHEAD: usize = 256;

impl<B: Broker> Uplink<B> {
    /// Reads what was remembered before anything else; `false`: it is time to stop.
    pub(super) async fn remember(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        loop {
            self.desk.start(Job::Marks, 0, self.links.clock.wall());
            let ended = tokio::select! {
                _ = stop.wait_for(|&stop| stop) => return false,
                ended = self.desk.ended() => ended,
            };
            let found = ended.map_err(|broken| broken.to_string()).and_then(|done| {
                self.outbox = done.outbox;
                done.found
            });
            match found {
                Ok(Found::Marks(marks)) => {
                    self.recall(&marks);
                    return true;
                }
                Ok(_) => return false,
                Err(fault) => {
                    warn!(error = %fault, "the uplink cannot read its place, it tries again");
                }
            }
            let again = self
                .links
                .clock
                .wake_at(self.links.clock.mono().plus(RETRY));
            tokio::select! {
                _ = stop.wait_for(|&stop| stop) => return false,
                () = tokio::time::sleep_until(again) => {}
            }
        }
    }

    fn recall(&mut self, marks: &UplinkMarks) {
        self.place.cursor = self.outbox.cursor;
        let now = self.links.clock.wall();
        let is_dated = self.links.clock.distrust().is_none();
        // Before the first connection of all nothing is owed.
        self.metrics
            .recall(marks.metrics_from.or_else(|| is_dated.then_some(now)));
        self.traffic.recall(marks.traffic);
    }

    /// Starts the most urgent job, if the desk is free.
    pub(super) fn ask(&mut self) {
        let now = self.links.clock.mono();
        if !self.desk.is_free() || self.todo.rest_until.is_some_and(|until| now < until) {
            return;
        }
        self.todo.rest_until = None;
        if let Some(job) = self.next_job(now) {
            self.desk
                .start(job, self.place.cursor, self.links.clock.wall());
        }
    }

    fn next_job(&mut self, now: Mono) -> Option<Job> {
        if std::mem::take(&mut self.todo.apply) {
            return Some(Job::Apply {
                miss_events: self.rules.uplink.miss_events,
                is_on: self.access.is_some(),
            });
        }
        self.access.as_ref()?;
        if let Some((seq, reason)) = self.todo.set_aside.take() {
            return Some(Job::SetAside(seq, reason));
        }
        if let Some(event) = self.trouble.take_event(self.links.clock.wall()) {
            return Some(Job::Tell(Box::new(event)));
        }
        if self.is_over_its_bound() {
            return Some(Job::PassOver(self.rules.uplink.outbox_max_bytes));
        }
        self.job_of_connection()
            .or_else(|| self.job_of_time(now))
            .or_else(|| {
                let is_open = matches!(self.phase, Phase::Open(_));
                let (from, to) = self.metrics.wants().filter(|_| is_open)?;
                Some(Job::Heartbeats(from, to))
            })
    }

    fn is_over_its_bound(&mut self) -> bool {
        let backlog = self.outbox.backlog.total();
        let is_over = backlog.bytes > self.rules.uplink.outbox_max_bytes;
        // What may have been sent stays; asked again only when there is more.
        let is_new = self.outbox.last > self.todo.passed_over_at;
        if is_over && is_new {
            self.todo.passed_over_at = self.outbox.last;
        }
        is_over && is_new
    }

    fn job_of_connection(&mut self) -> Option<Job> {
        let Phase::Open(session) = &self.phase else {
            return None;
        };
        if let Some(after) = session.standings_after {
            return Some(Job::Standings(after));
        }
        (self.todo.has_news && self.queue.len() < READ_AHEAD).then(|| {
            self.todo.has_news = false;
            Job::Read(self.place.read_to)
        })
    }

    fn job_of_time(&mut self, now: Mono) -> Option<Job> {
        if self.todo.keep_at.is_some_and(|at| at <= now) {
            self.todo.keep_at = None;
            return Some(Job::Keep(self.marks()));
        }
        let is_time = self.todo.look_at.is_some_and(|at| at <= now);
        is_time.then(|| {
            self.todo.look_at = None;
            Job::Look
        })
    }

    /// What is to be remembered.
    pub(super) fn marks(&self) -> UplinkMarks {
        let is_dated = self.links.clock.distrust().is_none();
        UplinkMarks {
            metrics_from: is_dated.then(|| self.metrics.mark(self.links.clock.wall())),
            traffic: self.traffic.of_day(),
        }
    }

    /// Forgets what was read ahead and reads it again.
    fn read_anew(&mut self) {
        self.queue.clear();
        self.place.read_to = self.place.sent_to;
        self.todo.has_news = true;
    }

    /// Takes in what the store said.
    pub(super) fn conclude(&mut self, ended: Result<Done, String>) {
        let now = self.links.clock.mono();
        let found = ended.and_then(|done| {
            self.outbox = done.outbox;
            done.found
        });
        self.draw_soon(now);
        match found {
            Ok(found) => self.take_found(found, now),
            Err(fault) => {
                warn!(error = %fault, "the uplink cannot use the store, it tries again");
                self.todo.rest_until = Some(now.plus(RETRY));
                self.todo.has_news = true;
            }
        }
    }

    fn take_found(&mut self, found: Found, now: Mono) {
        match found {
            Found::Nothing | Found::Marks(_) => {}
            // Something else stands in its place now.
            Found::SetAside { seq, is_kept } => {
                if !is_kept && seq > self.place.cursor {
                    warn!(
                        seq,
                        "the broker does not take the word of a gap either: it is left out"
                    );
                    self.place.leave_out(seq);
                    self.keep_soon(now);
                }
                self.read_anew();
            }
            Found::Standings(after, standings) => {
                // What was asked for another connection is not for this one.
                if let Phase::Open(session) = &mut self.phase
                    && session.standings_after == Some(after)
                {
                    session.standings_after = None;
                    self.liveness.extend(standings);
                }
            }
            Found::Parcels(after, ready) => {
                let is_next = after == self.place.read_to && matches!(self.phase, Phase::Open(_));
                if let Some(last) = ready.last().filter(|_| is_next) {
                    self.place.read_to = last.parcel.seq;
                    self.queue.extend(ready);
                    self.todo.has_news = true;
                }
                self.todo.has_news |= !is_next;
            }
            Found::Heartbeats(from, samples, until) => self.metrics.take(from, &samples, until),
        }
        self.draw_soon(now);
    }
}
