//! Floor 2: the embedded store, everything that must survive a power cut.
//!
//! All calls block: on an async runtime go through `spawn_blocking`. One
//! [`Store`] per process, shared by `Arc`.
//!
//! # On disk
//!
//! | in the folder | what |
//! |---|---|
//! | `FORMAT` | one line with the schema number, read before anything is touched |
//! | `LOCK` | held by the running process; the kernel lets go of it when that dies |
//! | `state/` | sled database: standings, event log, how far the uplink is in it, what was announced, terms, checkpoint, numbers |
//! | `raw/2026-03-12/` | sled database: the heartbeats of one UTC day, packed, and counts of late replies |
//! | `daily/2026-03/` | sled database: the summary rows of one month, packed |
//! | `*.damaged-TIME` | what could not be read and was moved aside; never touched again |
//! | `raw/*.removing`, `daily/*.removing` | what is being removed; a crash leaves it for the next start |
//!
//! sled gives no space back, so a day of raw and a month of rows are folders that go
//! as a whole; in `state/`, the room of events that went is used again. Every value
//! on disk is a sealed record of [`wire::record`](crate::wire::record).
//!
//! # When things break
//!
//! - Disk full or failing: the call errs, what it was to keep stays with the
//!   caller (changes) or in memory (heartbeats, notices), the database is closed
//!   and opened again at the next call.
//! - Files damaged: opened without sled's spare files; else moved aside and begun
//!   anew, standings saved from what can still be read and from raw. Where events
//!   are missing that had a number, a new log begins: (`log_id`, `seq`) names one
//!   event for ever.
//!   [`Opened::mended`] and [`Store::take_mended`] tell of it. Lost unseen is only
//!   the end of a day's raw that sled itself cuts off as torn.
//!
//! # Invariants
//!
//! - [`Store::commit`] returns only when standing and event are both on disk;
//!   neither is there without the other.
//! - Event numbers grow by one, across restarts and kills, and whatever was removed.
//! - Every event addressed to MQTT comes out of [`Store::read_outbox`] itself or in
//!   exactly one gap, and never two contents under one number.
//! - A row of a final day is announced once per content: its mark is written with
//!   the event.
//! - Raw heartbeats are written by [`Store::flush_raw`] alone, one batch and one
//!   flush a call; nothing already written is ever overwritten.
//! - Nothing is deleted that could not be read: it is moved aside and reported.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use self::database::Fault;
pub use self::errors::{OpenError, ReadError, WriteError};
use self::fair::{Fair, lock};
use self::keeper::Keeper;
use self::months::Months;
use self::open_frame::OpenFrame;
use self::outbox::Outbox;
use self::raw::RawDays;
pub use self::reader::Reader;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event};
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::domain::size::Bytes;
use crate::domain::status::Liveness;
use crate::wire::record::frame::Head;

pub mod daily;
mod database;
mod day;
mod disk;
mod errors;
mod fair;
mod folder;
pub mod inspect;
mod keeper;
mod ladder;
mod month;
mod months;
mod open_frame;
mod opening;
pub mod outbox;
mod pruning;
mod raw;
mod reader;
mod reading;
mod recall;
mod span;
mod state;
mod step;
mod threads;
mod witness;

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder; made where it is not there.
    pub path: PathBuf,
    /// Site id, for the envelope of events.
    pub site: String,
    /// Node name, for the envelope of events.
    pub node: String,
    /// Beyond this size no more raw is taken.
    pub max_bytes: u64,
    /// Below this much free disk no more raw is taken.
    pub min_free_bytes: u64,
}

/// A store that has been opened, and what was found in it.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Number of this start, from 1; part of every raw key.
    pub boot: u32,
    /// Every device's standing, with the raw heartbeats since it was written
    /// taken in: misses, last reply and last probe go on where they were.
    pub standings: Vec<Liveness>,
    /// Where each device was last watched.
    pub addresses: BTreeMap<DeviceId, IpAddr>,
    /// What had to be repaired or moved aside, one sentence each, with paths, to
    /// be logged by the caller.
    pub mended: Vec<String>,
}

/// An event in its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its number.
    pub seq: u64,
    /// The envelope as JSON text, exactly as it goes upstream.
    pub json: String,
}

/// Some events, newest first, and where older ones may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The events.
    pub events: Vec<LoggedEvent>,
    /// Ask for those before this number to go on; `None`: there are no older ones.
    pub older: Option<u64>,
}

/// Sizes and times of the store, for page and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of all files in the folder, when last counted.
    pub bytes: u64,
    /// Bytes this process has caused to be written since it started.
    pub bytes_written: u64,
    /// Free bytes on the disk, when last counted.
    pub free_bytes: u64,
    /// When raw or a change was last made durable.
    pub last_flush: Option<Wall>,
    /// Heartbeats in the open frame, not yet on disk.
    pub open_samples: usize,
    /// Heartbeats given up since the start because they could not be kept.
    pub lost_samples: u64,
    /// Events in the log.
    pub events: u64,
    /// `store.max_bytes` in force.
    pub max_bytes: u64,
    /// `store.min_free_bytes` in force.
    pub min_free_bytes: u64,
}

impl Figures {
    /// Which limit is near, in one sentence that ends with the cure: before raw
    /// heartbeats are refused, somebody should know.
    #[must_use]
    pub fn nears_limit(&self) -> Option<String> {
        let Self {
            bytes,
            max_bytes,
            free_bytes,
            min_free_bytes,
            ..
        } = *self;
        if bytes > max_bytes / 5 * 4 {
            return Some(format!(
                "the store holds {} of the {} that store.max_bytes allows: raise it, or watch fewer \
                 devices",
                Bytes(bytes),
                Bytes(max_bytes),
            ));
        }
        (free_bytes < min_free_bytes.saturating_mul(2)).then(|| {
            format!(
                "the disk has {} free; below the {} that store.min_free_bytes asks for, heartbeats \
                 are refused: free some disk",
                Bytes(free_bytes),
                Bytes(min_free_bytes),
            )
        })
    }
}

/// The open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    boot: u32,
    /// Bytes this process had written when the store was opened.
    written_before: u64,
    limits: Mutex<Limits>,
    figures: Mutex<Figures>,
    // Locked in this order where more than one is needed.
    keeper: Fair<Keeper>,
    raw: Fair<RawDays>,
    months: Fair<Months>,
    frame: Mutex<OpenFrame>,
    /// How the outbox stands; the keeper writes it.
    outbox: Arc<Mutex<Outbox>>,
    news: watch::Receiver<u64>,
    /// Held as long as the store is open.
    lock: Mutex<Option<File>>,
}

/// From where on raw is refused.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_bytes: u64,
    min_free_bytes: u64,
}

impl Store {
    /// Opens the folder: schema, lock, repair ladder, standings.
    ///
    /// A folder that is missing or empty becomes a store; one that holds
    /// anything else is refused. Waits up to 3 s for the process that still
    /// holds the lock, and as long for one that holds the state without it.
    pub fn open(options: &Options, now: Wall) -> Result<Opened, OpenError> {
        opening::open(options, now)
    }

    /// Opens the store of a program that does not run, to read it: see [`Reader`].
    pub fn open_to_read(path: &Path) -> Result<Reader, OpenError> {
        opening::open_to_read(path).map(Reader::new)
    }

    /// Makes these changes durable in one step and returns the number given to
    /// each one's event, in order.
    ///
    /// Never refused for `store.max_bytes` or `store.min_free_bytes`. After an
    /// error the same changes may be given again, alone or among others: those
    /// that turn out to be durable already keep their number.
    pub fn commit(&self, changes: &[Change], now: Wall) -> Result<Vec<u64>, WriteError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.stand()?;
        let seqs = self
            .keeper
            .lock()
            .commit(changes, now)
            .map_err(|fault| failed("keep a change of status and its event", fault))?;
        self.count(now, true);
        Ok(seqs)
    }

    /// Adds heartbeats to the open frame, in memory. The frame is bounded: the
    /// oldest are given up and counted when it is full.
    pub fn push_raw(&self, samples: &[Sample]) {
        lock(&self.frame).push(samples);
    }

    /// Adds events that ride the next regular flush (stage heartbeat), in
    /// memory, bounded like the frame.
    pub fn push_notices(&self, events: Vec<Event>) {
        lock(&self.frame).push_notices(events);
    }

    /// Writes the open frame and the waiting notices, one flush a database.
    /// On error what could not be written stays in memory for the next try.
    ///
    /// Beyond `store.max_bytes` or below `store.min_free_bytes` the frame is
    /// refused, the notices are not.
    pub fn flush_raw(&self, now: Wall) -> Result<(), WriteError> {
        self.stand()?;
        let notices = self.write_notices(now);
        let frame = self.write_frame(now, true);
        self.count(now, notices.is_ok() && frame.is_ok());
        notices.and(frame)
    }

    /// Writes all standings, packed, so that a restart need not read more raw
    /// than what came since. About 35 bytes a device and several times that
    /// written: once an hour and at a clean stop is often enough.
    ///
    /// Verdicts that were never committed are not believed when it is read.
    pub fn checkpoint(&self, standings: &[Liveness], now: Wall) -> Result<(), WriteError> {
        self.keeper
            .lock()
            .checkpoint(standings.to_vec(), now)
            .map_err(|fault| failed("write the checkpoint of standings", fault))
    }

    /// Remembers where the devices are watched, for [`Opened::addresses`] of the
    /// next start.
    pub fn remember_addresses(
        &self,
        addresses: &[(DeviceId, IpAddr)],
        now: Wall,
    ) -> Result<(), WriteError> {
        self.keeper
            .lock()
            .remember_addresses(addresses, now)
            .map_err(|fault| failed("remember the devices' addresses", fault))
    }

    /// Removes a day's raw as a folder. The caller guarantees that its summary
    /// is durable.
    pub fn remove_raw_day(&self, day: Day) -> Result<(), WriteError> {
        self.raw
            .lock()
            .remove(day)
            .map_err(|fault| failed("remove a day of raw", fault.into()))
    }

    /// Puts other limits in force, at a reload of the configuration.
    pub fn set_limits(&self, max_bytes: u64, min_free_bytes: u64) {
        *lock(&self.limits) = Limits {
            max_bytes,
            min_free_bytes,
        };
    }

    /// Sizes and times; cheap, counted anew at each flush: sizes at those of raw,
    /// events and bytes written at each.
    pub fn figures(&self) -> Figures {
        let mut figures = *lock(&self.figures);
        let frame = lock(&self.frame);
        figures.open_samples = frame.len();
        figures.lost_samples = frame.lost_samples();
        let limits = *lock(&self.limits);
        (figures.max_bytes, figures.min_free_bytes) = (limits.max_bytes, limits.min_free_bytes);
        figures
    }

    /// What was repaired or moved aside since the last call, one sentence each, to
    /// be logged by the caller; what the opening mended is in [`Opened::mended`].
    pub fn take_mended(&self) -> Vec<String> {
        let mut mended = std::mem::take(&mut self.keeper.lock().mended);
        mended.append(&mut self.raw.lock().mended);
        mended.append(&mut self.months.lock().mended);
        mended
    }

    /// Writes what waits in memory, whatever the limits, closes the databases
    /// and lets go of the lock. All calls fail afterwards.
    ///
    /// On error all stays open, and what could not be written in memory: another
    /// call tries it again. A store that is dropped closes too, without writing.
    pub fn close(&self, now: Wall) -> Result<(), WriteError> {
        let stands = self.stand();
        let notices = self.write_notices(now);
        let frame = self.write_frame(now, false);
        self.count(now, notices.is_ok() && frame.is_ok());
        stands.and(notices).and(frame)?;
        self.shut();
        Ok(())
    }

    fn shut(&self) {
        self.keeper.lock().close();
        self.raw.lock().close();
        self.months.lock().close();
        *lock(&self.lock) = None;
    }

    /// Sees to it that the folder is still ours, before anything is written.
    fn stand(&self) -> Result<(), WriteError> {
        let Some(held) = &mut *lock(&self.lock) else {
            return Ok(());
        };
        folder::restore(&self.path, held).map_err(|lost| WriteError::Failed {
            deed: "keep anything: the store was removed or replaced while in use",
            source: lost.into(),
        })
    }

    fn write_notices(&self, now: Wall) -> Result<(), WriteError> {
        let mut keeper = self.keeper.lock();
        let notices = lock(&self.frame).take_notices();
        if notices.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = notices.into_iter().map(Change::Notice).collect();
        let done = keeper.commit(&changes, now);
        if done.is_err() {
            let notices = changes.into_iter().map(|change| change.event().clone());
            lock(&self.frame).put_back_notices(notices.collect());
        }
        done.map(drop)
            .map_err(|fault| failed("keep the waiting events", fault))
    }

    fn write_frame(&self, now: Wall, is_limited: bool) -> Result<(), WriteError> {
        let next_seq = self.keeper.lock().durable_below();
        let mut raw = self.raw.lock();
        raw.now = now;
        // Who reads or writes rows just now uses them; no flush waits for that.
        if let Some(mut months) = self.months.try_lock() {
            months.close_idle();
        }
        let limits = self.check_limits();
        if lock(&self.frame).is_empty() {
            return Ok(());
        }
        if is_limited {
            limits?;
        }
        let (samples, late) = {
            let mut frame = lock(&self.frame);
            (frame.take(), frame.take_late())
        };
        let head = Head {
            boot: self.boot,
            next_seq,
        };
        let (by_day, undated) = raw::by_day(samples, late);
        if undated > 0 {
            tracing::error!(
                samples = undated,
                "heartbeats dated past the end of the calendar were given up"
            );
        }
        let written = raw.write(by_day, head);
        let mut frame = lock(&self.frame);
        frame.give_up(undated);
        written.map_err(|(unwritten, fault)| {
            frame.put_back(unwritten.samples);
            frame.put_back_late(unwritten.late);
            failed("write the raw heartbeats", fault)
        })
    }

    /// Counts sizes; tells whether raw may be written.
    fn check_limits(&self) -> Result<(), WriteError> {
        let limits = *lock(&self.limits);
        let free = disk::free_bytes(&self.path).unwrap_or(u64::MAX);
        let bytes = disk::bytes_below(&self.path);
        let mut figures = lock(&self.figures);
        (figures.free_bytes, figures.bytes) = (free, bytes);
        if bytes > limits.max_bytes {
            let limit = limits.max_bytes;
            return Err(WriteError::Full { bytes, limit });
        }
        if free < limits.min_free_bytes {
            let limit = limits.min_free_bytes;
            return Err(WriteError::DiskLow { free, limit });
        }
        Ok(())
    }

    fn count(&self, now: Wall, is_flushed: bool) {
        let events = self.keeper.lock().events_count();
        let written = disk::written_bytes().unwrap_or(self.written_before);
        let mut figures = lock(&self.figures);
        figures.bytes_written = written.saturating_sub(self.written_before);
        figures.events = events.unwrap_or(figures.events);
        if is_flushed {
            figures.last_flush = Some(now);
        }
    }
}

impl Drop for Store {
    /// A database of sled may panic as it goes, so it goes guarded.
    fn drop(&mut self) {
        self.shut();
    }
}

fn failed(deed: &'static str, fault: Fault) -> WriteError {
    WriteError::Failed {
        deed,
        source: fault.into(),
    }
}

fn unread(deed: String, fault: Fault) -> ReadError {
    ReadError {
        deed,
        source: fault.into(),
        in_memory: Vec::new(),
    }
}
