//! Keeps the state database usable: numbers changes, survives failing disks,
//! climbs the repair ladder.
//!
//! After an error the database is closed and opened again at the next call.
//! What had been written but not proven durable is looked for then: if it is
//! there, a retry of the same change gets the number it has, and nothing is
//! told twice.

use std::net::IpAddr;
use std::path::PathBuf;

use super::database::{self, Fault};
use super::ladder::{Ladder, Rung};
use super::state::{self, StateDatabase};
use super::step::{Seat, Step, Voice, is_miss, new_log_id};
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::status::Liveness;
use crate::wire::record::logged::LogPlace;
use crate::wire::record::standing::{Checkpoint, Standing};

/// Changes that may wait for a retry to claim their numbers. A caller retries
/// what failed, so more than these are not waiting.
const UNCLAIMED_MAX: usize = 4_096;

/// The state database and what is needed to get it back.
pub(super) struct Keeper {
    path: PathBuf,
    voice: Voice,
    open: Option<StateDatabase>,
    /// Written, but an error came before it was proven durable.
    uncertain: Vec<(Change, Step)>,
    /// Proven durable after an error, not yet told to anyone.
    unclaimed: Vec<(Change, u64)>,
    /// Below this number everything is durable.
    durable_below: u64,
    forward: Forward,
    /// What was repaired since this was last taken, one sentence each; who takes
    /// it logs it.
    pub(super) mended: Vec<String>,
    must_check: bool,
    /// Whether it may move aside what is damaged and begin anew.
    may_mend: bool,
    is_closed: bool,
}

impl Keeper {
    /// Opens the database, climbing the ladder where it must.
    pub(super) fn open(path: PathBuf, voice: Voice, now: Wall) -> Result<Self, Fault> {
        let mut keeper = Self {
            may_mend: true,
            ..Self::to_read(path, voice)
        };
        keeper.database(now)?;
        Ok(keeper)
    }

    /// Opens the database when it is first asked, and mends nothing.
    pub(super) fn to_read(path: PathBuf, voice: Voice) -> Self {
        Self {
            path,
            voice,
            open: None,
            uncertain: Vec::new(),
            unclaimed: Vec::new(),
            durable_below: 0,
            forward: Forward::default(),
            mended: Vec::new(),
            must_check: false,
            may_mend: false,
            is_closed: false,
        }
    }

    /// Makes changes durable in one transaction and one flush; tells the
    /// numbers of their events.
    pub(super) fn commit(&mut self, changes: &[Change], now: Wall) -> Result<Vec<u64>, Fault> {
        self.database(now)?;
        let mut seqs = self.claims(changes);
        let unnumbered = changes.iter().zip(&seqs);
        let new: Vec<&Change> = unnumbered
            .filter(|(_, seq)| seq.is_none())
            .map(|(change, _)| change)
            .collect();
        if !new.is_empty() {
            let mut next = self.write(&new, now)?..;
            for seq in seqs.iter_mut().filter(|seq| seq.is_none()) {
                *seq = next.next();
            }
        }
        let seqs: Vec<u64> = seqs.into_iter().flatten().collect();
        self.unclaimed.retain(|(_, seq)| !seqs.contains(seq));
        Ok(seqs)
    }

    /// Writes and flushes a checkpoint of these standings.
    pub(super) fn checkpoint(&mut self, standings: Vec<Liveness>, now: Wall) -> Result<(), Fault> {
        let checkpoint = Checkpoint {
            at: now,
            next_seq: self.database(now)?.place().next_seq,
            standings,
        };
        self.try_on(|database| database.write_checkpoint(&checkpoint))
    }

    /// Remembers where the devices are watched.
    pub(super) fn remember_addresses(
        &mut self,
        addresses: &[(DeviceId, IpAddr)],
        now: Wall,
    ) -> Result<(), Fault> {
        self.database(now)?;
        self.try_on(|database| database.write_addresses(addresses))
    }

    /// Begins another log above `next_seq`, because numbers up to there are
    /// known to have been given out and are not in this one.
    pub(super) fn begin_log(&mut self, next_seq: u64, now: Wall) -> Result<String, Fault> {
        let log_id = new_log_id();
        self.database(now)?;
        self.try_on(|database| database.begin_log(log_id.clone(), next_seq))?;
        self.note_durable(next_seq);
        Ok(log_id)
    }

    /// Makes these standings those of the last durable steps, because steps were
    /// lost.
    pub(super) fn restore(&mut self, standings: &[Liveness], now: Wall) -> Result<(), Fault> {
        self.database(now)?;
        let watched = |one: &Liveness| {
            let (seq, track) = (0, one.track);
            (one.device, Standing::Watched { seq, track })
        };
        let standings: Vec<_> = standings.iter().map(watched).collect();
        self.try_on(|database| {
            database.restore(&standings)?;
            database.end_rebuild()
        })
    }

    /// The open database; opens it where an error closed it.
    pub(super) fn database(&mut self, now: Wall) -> Result<&mut StateDatabase, Fault> {
        if self.is_closed {
            return Err(Fault::Closed);
        }
        if let Some(lost) = self.open.take_if(|open| !open.is_whole()) {
            database::close(lost);
            self.mended.push(format!(
                "{} was removed or replaced while it was in use: the events in it are lost, and a \
                 new event log begins",
                self.path.display()
            ));
        }
        if self.open.is_none() {
            let database = self.climb(now)?;
            let (ends_at, known) = (database.place().next_seq, self.durable_below);
            self.open = Some(database);
            self.resume_uplink()?;
            if ends_at < known {
                self.mended.push(format!(
                    "the event log ends at number {}, but events up to {} had been written: what \
                     is missing is lost, and a new event log begins",
                    ends_at.saturating_sub(1),
                    known - 1,
                ));
                self.uncertain.clear();
                self.try_on(|database| database.begin_log(new_log_id(), known))?;
            }
            self.settle()?;
            self.must_check = false;
        }
        self.open.as_mut().ok_or(Fault::Closed)
    }

    /// Below this number every event is durable.
    pub(super) const fn durable_below(&self) -> u64 {
        self.durable_below
    }

    /// Events in the log, as far as the database is open.
    pub(super) fn events_count(&self) -> Option<u64> {
        self.open.as_ref().map(StateDatabase::events_count)
    }

    /// Closes the database for good.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if let Some(database) = self.open.take() {
            database::close(database);
        }
    }

    /// Writes and flushes changes as new events; tells the first number.
    fn write(&mut self, changes: &[&Change], now: Wall) -> Result<u64, Fault> {
        let first = self.database(now)?.place().next_seq;
        let steps = self.number(changes)?;
        let copies = changes.iter().map(|&change| change.clone());
        self.write_steps(copies.zip(steps).collect())?;
        Ok(first)
    }

    /// Gives changes their places in the log.
    fn number(&self, changes: &[&Change]) -> Result<Vec<Step>, Fault> {
        let database = self.open.as_ref().ok_or(Fault::Closed)?;
        let place = database.place();
        let mut last = database.uplink().last;
        let numbered = (place.next_seq..).zip(changes).map(|(seq, change)| {
            let seat = Seat {
                log_id: &place.log_id,
                seq,
                previous: (last >= place.base_seq).then_some(last),
                is_local: !self.forward.addresses_misses && is_miss(change.event()),
            };
            if !seat.is_local {
                last = seq;
            }
            Step::of(change, &seat, &self.voice)
        });
        Ok(numbered.collect())
    }

    /// Writes and flushes steps that are numbered.
    fn write_steps(&mut self, steps: Vec<(Change, Step)>) -> Result<(), Fault> {
        self.uncertain = steps;
        let steps: Vec<Step> = self
            .uncertain
            .iter()
            .map(|(_, step)| step.clone())
            .collect();
        self.try_on(|database| {
            database.write(&steps)?;
            database.flush()
        })?;
        self.uncertain.clear();
        let addressed = steps.iter().filter(|step| !step.is_local);
        self.forward.logged_bytes += addressed.map(Step::bytes).sum::<u64>();
        if let Some(last) = steps.last() {
            self.note_durable(last.seq + 1);
        }
        Ok(())
    }

    /// Runs work on the open database; an error closes it.
    fn try_on<T>(
        &mut self,
        work: impl FnOnce(&mut StateDatabase) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let database = self.open.as_mut().ok_or(Fault::Closed)?;
        let done = work(database);
        if let Err(fault) = &done {
            self.must_check |= fault.is_damage();
            if let Some(database) = self.open.take() {
                database::close(database);
            }
        }
        done
    }

    /// After a reopening: finds out what became of the steps in doubt.
    fn settle(&mut self) -> Result<(), Fault> {
        let uncertain = std::mem::take(&mut self.uncertain);
        let steps: Vec<Step> = uncertain.iter().map(|(_, step)| step.clone()).collect();
        let settled = self.try_on(|database| {
            let Some(first) = steps.first() else {
                return Ok(false);
            };
            let found = database.event(first.seq)?;
            let is_there = found.is_some_and(|event| event.json == first.json);
            if is_there {
                // Reading it back proves nothing: a failed sync may have left it
                // in the system's memory alone. Written anew, it is the same.
                database.write(&steps)?;
                database.flush()?;
            }
            Ok(is_there)
        });
        match settled {
            Ok(true) => {
                let told = uncertain
                    .into_iter()
                    .map(|(change, step)| (change, step.seq));
                self.unclaimed.extend(told);
                let excess = self.unclaimed.len().saturating_sub(UNCLAIMED_MAX);
                self.unclaimed.drain(..excess);
            }
            Ok(false) => {}
            Err(fault) => {
                self.uncertain = uncertain;
                return Err(fault);
            }
        }
        let place = self.open.as_ref().map(StateDatabase::place);
        self.note_durable(place.map_or(self.durable_below, |place| place.next_seq));
        Ok(())
    }

    /// The numbers that changes already have, because an earlier try of theirs
    /// turned out to be durable.
    fn claims(&self, changes: &[Change]) -> Vec<Option<u64>> {
        let mut free: Vec<&(Change, u64)> = self.unclaimed.iter().collect();
        let claim = |change: &Change| {
            let index = free.iter().position(|(held, _)| held == change)?;
            Some(free.remove(index).1)
        };
        changes.iter().map(claim).collect()
    }

    /// Opens the database: as it is, without its snapshots, or a new one in its
    /// place.
    fn climb(&mut self, now: Wall) -> Result<StateDatabase, Fault> {
        let ladder = Ladder {
            path: self.path.clone(),
            now,
            may_mend: self.may_mend,
        };
        match ladder.climb(|_| self.open_checked(false))? {
            Rung::Whole(database) => Ok(database),
            Rung::Repaired(database, outcome) => {
                self.mended.push(format!("state {outcome}"));
                Ok(database)
            }
            Rung::Broken(fault) => self.start_fresh(&ladder, &fault),
        }
    }

    fn start_fresh(&mut self, ladder: &Ladder, fault: &Fault) -> Result<StateDatabase, Fault> {
        let saved = state::salvage(&self.path);
        let aside = ladder.move_aside()?.unwrap_or_else(|| self.path.clone());
        let database = self.open_checked(true)?;
        let restored = database
            .restore(&saved.standings)
            .and_then(|()| database.write_terms(&saved.terms));
        if let Err(fault) = restored {
            database::close(database);
            return Err(fault);
        }
        self.mended.push(format!(
            "state could not be read ({fault}) and was moved to {}: its events are no longer \
             listed or sent, a new event log begins; the standings of {} devices were saved from \
             it, others come from raw heartbeats where there are any",
            aside.display(),
            saved.standings.len(),
        ));
        Ok(database)
    }

    fn open_checked(&self, is_rebuilt: bool) -> Result<StateDatabase, Fault> {
        let fresh = LogPlace {
            log_id: new_log_id(),
            // Above all that this process has given out.
            base_seq: self.durable_below.max(1),
            next_seq: self.durable_below.max(1),
            is_rebuilt: is_rebuilt || self.durable_below > 1,
            pruned_below: 0,
            pruned_count: 0,
        };
        let database = StateDatabase::open(&self.path, fresh)?;
        if self.must_check
            && let Err(fault) = database.check_all()
        {
            database::close(database);
            return Err(fault);
        }
        Ok(database)
    }
}

impl std::fmt::Debug for Keeper {
    /// Without the database: sled would print all it holds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper")
            .field("path", &self.path)
            .field("durable_below", &self.durable_below)
            .finish_non_exhaustive()
    }
}

mod forward;
mod upkeep;

use forward::Forward;
pub(super) use upkeep::{Reach, Removal};

#[cfg(test)]
mod tests;
