//! The outbox: what the state database keeps for the uplink.
//!
//! The cursor lives in memory and is written with each next step; a kill in between
//! sends some events twice, which their numbers show.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::Keeper;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::outbox::{Backlog, Class};
use crate::domain::status::Track;
use crate::store::database::Fault;
use crate::store::fair::lock;
use crate::store::outbox::{Outbox, UplinkMarks};
use crate::store::state::{Reading, StateDatabase};
use crate::wire::record::standing::Standing;
use crate::wire::record::uplink::{DeadLetter, UplinkPlace};

/// What a keeper knows of the uplink whether its database is open or not.
pub(super) struct Forward {
    news: watch::Sender<u64>,
    /// How the outbox stands, for those who do not wait for the disk.
    shown: Arc<Mutex<Outbox>>,
    /// How far the uplink is; on disk the cursor may be further back.
    cursor: u64,
    /// Bytes of JSON logged for MQTT since the start.
    pub(super) logged_bytes: u64,
    pub(super) addresses_misses: bool,
    pub(super) holds_for_uplink: bool,
}

impl Default for Forward {
    /// Everything is addressed, and nothing held, until it is said otherwise.
    fn default() -> Self {
        Self {
            news: watch::Sender::new(0),
            shown: Arc::default(),
            cursor: 0,
            logged_bytes: 0,
            addresses_misses: true,
            holds_for_uplink: false,
        }
    }
}

/// How much is passed over beyond what must be, as a part of the limit: failures come
/// in great numbers, of all else as little as can be is given up.
const fn slack(class: Class, bytes_max: u64) -> u64 {
    match class {
        Class::Failed => bytes_max / 20,
        Class::Status | Class::Alarm | Class::Daily => bytes_max / 100,
    }
}

impl Keeper {
    /// Where the number is told below which everything is durable.
    pub(in crate::store) fn news(&self) -> watch::Receiver<u64> {
        self.forward.news.subscribe()
    }

    /// Where it is shown how the outbox stands.
    pub(in crate::store) fn shown(&self) -> Arc<Mutex<Outbox>> {
        Arc::clone(&self.forward.shown)
    }

    /// Whether events about failed heartbeats are addressed to MQTT from now on.
    pub(in crate::store) const fn address_misses(&mut self, is_on: bool) {
        self.forward.addresses_misses = is_on;
    }

    /// Whether what waits for the uplink is kept however old it is.
    pub(in crate::store) fn hold_for_uplink(&mut self, is_on: bool) {
        if self.forward.holds_for_uplink != is_on
            && let Some(database) = &mut self.open
        {
            database.sweep_again();
        }
        self.forward.holds_for_uplink = is_on;
    }

    /// One slice of a reading of the outbox; tells whether it is at its end.
    pub(in crate::store) fn read_outbox(
        &mut self,
        reading: &mut Reading,
        now: Wall,
    ) -> Result<bool, Fault> {
        self.database(now)?;
        let (end, voice) = (self.durable_below, self.voice.clone());
        self.try_on(|database| database.read_outbox(reading, end, (&voice, now)))
    }

    /// Moves the cursor some way forward to `to`; tells whether it is there.
    pub(in crate::store) fn move_cursor(&mut self, to: u64, now: Wall) -> Result<bool, Fault> {
        self.database(now)?;
        let to = to.min(self.durable_below.saturating_sub(1));
        let is_there = self.try_on(|database| database.move_cursor(to))?;
        self.show();
        Ok(is_there)
    }

    /// Writes and flushes cursor and marks.
    pub(in crate::store) fn keep_uplink(
        &mut self,
        marks: &UplinkMarks,
        now: Wall,
    ) -> Result<(), Fault> {
        let uplink = UplinkPlace {
            metrics_from: marks.metrics_from,
            traffic: marks.traffic,
            ..self.database(now)?.uplink().clone()
        };
        self.try_on(|database| database.keep_uplink(uplink))
    }

    /// What was last remembered.
    pub(in crate::store) fn uplink_marks(&mut self, now: Wall) -> Result<UplinkMarks, Fault> {
        let uplink = self.database(now)?.uplink();
        Ok(UplinkMarks {
            metrics_from: uplink.metrics_from,
            traffic: uplink.traffic,
        })
    }

    /// Passes over some events of a class, if too much waits, or, once it has
    /// `begun`, if there is not yet some room. Tells how many; `None`: there is
    /// nothing to do, or nothing more that can be done.
    pub(in crate::store) fn pass_over(
        &mut self,
        (class, has_begun): (Class, bool),
        (bytes_max, spared): (u64, u64),
        now: Wall,
    ) -> Result<Option<u64>, Fault> {
        let loads = self.database(now)?.uplink().loads;
        let waiting: u64 = loads.iter().map(|load| load.bytes).sum();
        let goal = bytes_max - slack(class, bytes_max);
        if waiting <= if has_begun { goal } else { bytes_max } {
            return Ok(None);
        }
        let (end, wanted) = (self.durable_below, waiting - goal);
        let (passed, is_end) =
            self.try_on(|database| database.pass_over((class, wanted), (spared, end), now))?;
        self.show();
        Ok((passed > 0 || !is_end).then_some(passed))
    }

    /// Makes all that was written durable.
    pub(in crate::store) fn flush(&mut self) -> Result<(), Fault> {
        self.try_on(|database| database.flush())
    }

    /// Keeps an event aside, with a gap in its place and an event that tells of it.
    pub(in crate::store) fn set_aside(
        &mut self,
        seq: u64,
        reason: &str,
        now: Wall,
    ) -> Result<(), Fault> {
        self.database(now)?;
        if seq >= self.durable_below {
            return Ok(());
        }
        let voice = self.voice.clone();
        let found = self.try_on(|database| database.aside(seq, (reason, now), &voice))?;
        let Some((aside, telling)) = found else {
            return Ok(());
        };
        let Some(telling) = telling else {
            self.try_on(|database| {
                database.write_aside(&aside)?;
                database.flush()
            })?;
            self.show();
            return Ok(());
        };
        let change = Change::Notice(telling);
        let mut steps = self.number(&[&change])?;
        for step in &mut steps {
            step.aside = Some(Box::new(aside.clone()));
        }
        self.write_steps([change].into_iter().zip(steps).collect())
    }

    /// The newest messages kept aside, newest first.
    pub(in crate::store) fn dead_letters(
        &mut self,
        limit: usize,
        now: Wall,
    ) -> Result<Vec<(u64, DeadLetter)>, Fault> {
        self.database(now)?;
        self.try_on(|database| database.dead_letters(limit))
    }

    /// Standings that became true with a durable event after number `after`,
    /// ascending by it.
    pub(in crate::store) fn standings_after(
        &mut self,
        after: u64,
        now: Wall,
    ) -> Result<Vec<(u64, DeviceId, Option<Track>)>, Fault> {
        self.database(now)?;
        let standings = self.try_on(|database| database.standings())?;
        let numbered = standings
            .into_iter()
            .map(|(device, standing)| match standing {
                Standing::Watched { seq, track } => (seq, device, Some(track)),
                Standing::Gone { seq, .. } => (seq, device, None),
            });
        let mut newer: Vec<_> = numbered
            // Without a number are those that were saved from a damaged store.
            .filter(|(seq, ..)| (*seq > after || after == 0) && *seq < self.durable_below)
            .collect();
        newer.sort_unstable_by_key(|(seq, ..)| *seq);
        Ok(newer)
    }

    /// The standing of one device: the number of its event, `None` where it left.
    pub(in crate::store) fn standing_of(
        &mut self,
        device: DeviceId,
        now: Wall,
    ) -> Result<Option<(u64, Option<Track>)>, Fault> {
        self.database(now)?;
        let standing = self.try_on(|database| database.standing_of(device))?;
        Ok(standing.map(|standing| match standing {
            Standing::Watched { seq, track } => (seq, Some(track)),
            Standing::Gone { seq, .. } => (seq, None),
        }))
    }

    /// After a reopening: counts what waits where nobody did, and puts the cursor
    /// where it was.
    pub(super) fn resume_uplink(&mut self) -> Result<(), Fault> {
        if !self.may_mend {
            return Ok(());
        }
        let cursor = self.forward.cursor;
        self.try_on(|database| {
            database.begin_uplink()?;
            while !database.move_cursor(cursor)? {}
            Ok(())
        })
    }

    /// Notes that everything below this number is durable.
    pub(super) fn note_durable(&mut self, below: u64) {
        self.durable_below = below;
        self.show();
        // Last: who wakes finds it shown already.
        self.forward.news.send_if_modified(|told| {
            let is_news = *told < below;
            *told = below.max(*told);
            is_news
        });
    }

    /// Shows how the outbox stands.
    pub(super) fn show(&mut self) {
        let end = self.durable_below;
        let Some(database) = self.open.as_mut() else {
            return;
        };
        self.forward.cursor = self.forward.cursor.max(database.uplink().cursor);
        let shown = stands(database, end, self.forward.logged_bytes);
        *lock(&self.forward.shown) = shown;
    }
}

fn stands(database: &mut StateDatabase, end: u64, logged_bytes: u64) -> Outbox {
    let loads = database.uplink().loads;
    // Only its age is read from the disk; who reads next finds the fault.
    let backlog = database.backlog(end).unwrap_or(Backlog {
        loads,
        oldest_at: None,
    });
    let uplink = database.uplink();
    Outbox {
        log_id: database.place().log_id.clone(),
        cursor: uplink.cursor,
        last: uplink.last,
        backlog,
        logged_bytes,
        passed_over: uplink.passed_over,
        dead_letters: uplink.dead_letters,
    }
}
