//! The days of raw heartbeats: a folder each, few of them open at once.
//!
//! # Invariants
//!
//! - At most [`OPEN_MAX`] databases are open, and one that has not been used over
//!   [`IDLE_WRITES_MAX`] writes is closed: each costs some megabytes.
//! - A day that cannot be opened is moved aside alone and reported.
//! - A day is removed by renaming it first, so that a crash leaves no half day.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::database::{self, Fault};
use super::day::{DayDatabase, Visit};
use super::folder;
use super::ladder::{Ladder, Rung};
use super::open_frame::Parcel;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::wire::record::frame::{Beat, Head};

const OPEN_MAX: usize = 3;

/// Opening a day rewrites up to one segment of it, so it is not closed at once.
const IDLE_WRITES_MAX: u8 = 2;

/// Heartbeats read before a day is closed and opened again: sled keeps every page
/// in memory that it has read once, 2 MB for a shard asked once a minute.
const BEATS_AN_OPENING: usize = 750_000;

/// All days.
pub(super) struct RawDays {
    folder: PathBuf,
    /// Least recently used first.
    open: Vec<OpenDay>,
    /// For the names of what is moved aside; kept here because readers have no
    /// time of their own.
    pub(super) now: Wall,
    /// What was moved aside since this was last taken, one sentence each; who
    /// takes it logs it.
    pub(super) mended: Vec<String>,
    /// Whether it may move aside what is damaged.
    may_mend: bool,
    is_closed: bool,
}

/// What is to be written into one day.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Its heartbeats.
    pub(super) samples: Vec<Sample>,
    /// Its late counts.
    pub(super) late: Vec<Parcel>,
}

/// One open day.
struct OpenDay {
    day: Day,
    database: DayDatabase,
    /// Writes since it was last used.
    idle_writes: u8,
    /// Frames read since it was opened, by those who count them.
    frames: usize,
}

impl RawDays {
    /// Makes the folder and removes what a crash in a removal left.
    pub(super) fn open(folder: PathBuf, now: Wall) -> io::Result<Self> {
        let mended = folder::make_part(&folder, "raw heartbeats are gone", now)?;
        Ok(Self {
            now,
            mended,
            may_mend: true,
            ..Self::to_read(folder)
        })
    }

    /// The days as they are; mends nothing.
    pub(super) const fn to_read(folder: PathBuf) -> Self {
        Self {
            folder,
            open: Vec::new(),
            now: Wall::from_millis(0),
            mended: Vec::new(),
            may_mend: false,
            is_closed: false,
        }
    }

    /// The days that are there, ascending.
    pub(super) fn days(&self) -> io::Result<Vec<Day>> {
        folder::parts(&self.folder, |name| name.parse().ok())
    }

    /// Writes heartbeats into their days, one batch and one flush a day. Tells
    /// those that could not be written, with the first reason.
    pub(super) fn write(
        &mut self,
        by_day: BTreeMap<Day, Load>,
        head: Head,
    ) -> Result<(), (Load, Fault)> {
        let mut unwritten = Load::default();
        let mut reason = None;
        for (day, mut load) in by_day {
            if let Err(fault) = self.write_day(day, &mut load, head) {
                unwritten.samples.extend(load.samples);
                unwritten.late.extend(load.late);
                reason.get_or_insert(fault);
            }
        }
        self.close_idle();
        match reason {
            None => Ok(()),
            Some(fault) => Err((unwritten, fault)),
        }
    }

    fn write_day(&mut self, day: Day, load: &mut Load, head: Head) -> Result<(), Fault> {
        let Load { samples, late } = load;
        let first_try = self.day(day, true)?.write(samples, late, head);
        let Err(fault) = first_try else {
            return Ok(());
        };
        self.close_day(day);
        if !fault.is_damage() {
            return Err(fault);
        }
        // Either the files are damaged, then a new database takes the day on,
        // or sled stumbled over an error of the disk, then opening again shows.
        self.check_day(day);
        let written = self.day(day, true)?.write(samples, late, head);
        if written.is_err() {
            self.close_day(day);
        }
        written
    }

    /// One device's heartbeats of one day, in no particular order.
    pub(super) fn read(
        &mut self,
        device: DeviceId,
        day: Day,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        self.on_day(day, |database| database.read(device, visit))
            .map(|_| ())
    }

    /// Runs work on a day, if it is there.
    pub(super) fn on_day<T>(
        &mut self,
        day: Day,
        work: impl FnOnce(&DayDatabase) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        if !self.path(day).exists() {
            return Ok(None);
        }
        let done = work(self.day(day, false)?);
        if done.is_err() {
            self.close_day(day);
        }
        done.map(Some)
    }

    /// All heartbeats of one day in frames not before `since`, shard by shard;
    /// `shard_done` is called after each.
    pub(super) fn read_all(
        &mut self,
        day: Day,
        since: Option<Wall>,
        visit: &mut Visit<'_>,
        shard_done: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        let mut beats = 0_usize;
        for shard in 0..u16::MAX {
            let mut counted = |device, beat: &Beat, head| {
                beats += 1;
                visit(device, beat, head);
            };
            let read = self.on_day(day, |database| {
                database.read_shard(shard, since, &mut counted)
            })?;
            if read != Some(true) {
                break;
            }
            shard_done();
            if beats >= BEATS_AN_OPENING {
                self.close_day(day);
                beats = 0;
            }
        }
        Ok(())
    }

    /// Removes a day; one that is not there is removed already.
    pub(super) fn remove(&mut self, day: Day) -> io::Result<()> {
        self.close_day(day);
        folder::remove_part(&self.folder, &day.to_string())
    }

    /// Closes all days for good.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for open in self.open.drain(..) {
            database::close(open.database);
        }
    }

    fn path(&self, day: Day) -> PathBuf {
        self.folder.join(day.to_string())
    }

    /// Closes a day, if it is open; the next one who asks opens it again.
    pub(super) fn close_day(&mut self, day: Day) {
        if let Some(index) = self.open.iter().position(|open| open.day == day) {
            database::close(self.open.remove(index).database);
        }
    }

    /// Counts frames read of a day, and closes it after `frames_max` of them.
    pub(super) fn count_frames(&mut self, day: Day, frames: usize, frames_max: usize) {
        let open = self.open.iter_mut().find(|open| open.day == day);
        let Some(open) = open else { return };
        open.frames += frames;
        if open.frames >= frames_max {
            self.close_day(day);
        }
    }

    fn close_idle(&mut self) {
        for open in &mut self.open {
            open.idle_writes += 1;
        }
        let is_idle = |open: &mut OpenDay| open.idle_writes > IDLE_WRITES_MAX;
        for idle in self.open.extract_if(.., is_idle) {
            database::close(idle.database);
        }
    }

    /// The day's database; the most recently used afterwards. With `renew` one
    /// that had to be moved aside gives way to an empty one.
    fn day(&mut self, day: Day, renew: bool) -> Result<&mut DayDatabase, Fault> {
        if self.is_closed {
            return Err(Fault::Closed);
        }
        if let Some(lost) = self.open.iter().position(|open| open.day == day)
            && self
                .open
                .get(lost)
                .is_some_and(|open| !open.database.is_whole())
        {
            database::close(self.open.remove(lost).database);
            let path = self.path(day);
            self.mended.push(format!(
                "{} was removed or replaced while it was in use: its heartbeats are lost",
                path.display()
            ));
        }
        let (database, frames) = match self.open.iter().position(|open| open.day == day) {
            Some(index) => {
                let open = self.open.remove(index);
                (open.database, open.frames)
            }
            None => (self.open_day(day, renew)?, 0),
        };
        while self.open.len() >= OPEN_MAX {
            database::close(self.open.remove(0).database);
        }
        let open = self.open.push_mut(OpenDay {
            day,
            database,
            idle_writes: 0,
            frames,
        });
        Ok(&mut open.database)
    }

    fn open_day(&mut self, day: Day, renew: bool) -> Result<DayDatabase, Fault> {
        let ladder = self.ladder(day);
        let is_new = !ladder.path.exists();
        match ladder.climb(DayDatabase::open)? {
            Rung::Whole(mut database) => {
                if is_new {
                    folder::sync(&self.folder)?;
                }
                if self.may_mend && database.has_lost_all() {
                    self.mended.push(format!(
                        "raw of {day} is damaged and holds nothing that can be read: its \
                         heartbeats are missing from that day's summary"
                    ));
                }
                Ok(database)
            }
            Rung::Repaired(database, outcome) => {
                self.mended.push(format!("raw of {day} {outcome}"));
                Ok(database)
            }
            Rung::Broken(fault) => {
                self.move_aside(day, &fault)?;
                if renew {
                    DayDatabase::open(&ladder.path)
                } else {
                    Err(fault)
                }
            }
        }
    }

    fn ladder(&self, day: Day) -> Ladder {
        Ladder {
            path: self.path(day),
            now: self.now,
            may_mend: self.may_mend,
        }
    }

    /// Reads all of a day that failed to take a write; moves it aside where it
    /// cannot be read.
    fn check_day(&mut self, day: Day) {
        let checked = self.read_all(day, None, &mut |_, _, _| {}, &mut || {});
        let Err(fault) = checked else { return };
        self.close_day(day);
        if self.ladder(day).is_mendable(&fault)
            && let Err(error) = self.move_aside(day, &fault)
        {
            tracing::error!(%day, %error, "a damaged day of raw could not be moved aside");
        }
    }

    fn move_aside(&mut self, day: Day, fault: &Fault) -> io::Result<()> {
        if let Some(aside) = self.ladder(day).move_aside()? {
            self.mended.push(format!(
                "raw of {day} could not be read ({fault}) and was moved to {}: \
                 its heartbeats are missing from that day's summary",
                aside.display()
            ));
        }
        Ok(())
    }
}

impl std::fmt::Debug for RawDays {
    /// Without the databases: sled would print all they hold.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawDays")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// The heartbeat of a frame as a sample.
pub(super) fn sample_of(device: DeviceId, beat: &Beat) -> Sample {
    Sample {
        device,
        at: beat.at,
        outcome: beat.outcome,
        occasion: beat.occasion,
        status: beat.status,
    }
}

/// Heartbeats and late counts by the day they belong to, and how many heartbeats
/// belong to none because only a broken clock could have dated them so.
pub(super) fn by_day(samples: Vec<Sample>, late: Vec<Parcel>) -> (BTreeMap<Day, Load>, u64) {
    let mut by_day: BTreeMap<Day, Load> = BTreeMap::new();
    let mut undated = 0;
    for sample in samples {
        match Day::of(sample.at) {
            Some(day) => by_day.entry(day).or_default().samples.push(sample),
            None => undated += 1,
        }
    }
    for parcel in late {
        by_day.entry(parcel.day).or_default().late.push(parcel);
    }
    (by_day, undated)
}

/// By time, and of equals of one time only one: after an error a heartbeat may
/// have been written twice.
pub(super) fn in_order<T: PartialEq>(mut all: Vec<T>, at: impl Fn(&T) -> Wall) -> Vec<T> {
    all.sort_by_key(|one| at(one));
    let mut kept: Vec<T> = Vec::with_capacity(all.len());
    for one in all {
        let mut same_time = kept.iter().rev().take_while(|held| at(held) == at(&one));
        if !same_time.any(|held| *held == one) {
            kept.push(one);
        }
    }
    kept
}
