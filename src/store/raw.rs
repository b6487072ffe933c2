//! The days of raw heartbeats: a folder each, few of them open at once.
//!
//! # Invariants
//!
//! - At most [`OPEN_MAX`] databases are open, and one that has not been used over
//!   [`IDLE_WRITES_MAX`] writes is closed: each costs some megabytes.
//! - A day that cannot be opened is moved aside alone and reported.
//! - A day is removed by renaming it first, so that a crash leaves no half day.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::database::{self, Fault};
use super::day::{DayDatabase, Visit};
use super::folder;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::wire::record::frame::{Beat, Head};

const OPEN_MAX: usize = 3;

/// Opening a day rewrites up to one segment of it, so it is not closed at once.
const IDLE_WRITES_MAX: u8 = 2;

/// Ends the name of a day that is being removed.
const REMOVING: &str = ".removing";

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
    is_closed: bool,
}

/// One open day.
struct OpenDay {
    day: Day,
    database: DayDatabase,
    /// Writes since it was last used.
    idle_writes: u8,
}

impl RawDays {
    /// Makes the folder and removes what a crash in a removal left.
    pub(super) fn open(folder: PathBuf, now: Wall) -> io::Result<Self> {
        let mended = make_folder(&folder, now)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(REMOVING) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self {
            folder,
            open: Vec::new(),
            now,
            mended,
            is_closed: false,
        })
    }

    /// The days that are there, ascending.
    pub(super) fn days(&self) -> io::Result<Vec<Day>> {
        let mut days = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            // Removed while in use; the next write makes it again.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(days),
            Err(error) => return Err(error),
        };
        for entry in entries {
            if let Some(day) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                days.push(day);
            }
        }
        days.sort_unstable();
        Ok(days)
    }

    /// Writes heartbeats into their days, one batch and one flush a day. Tells
    /// those that could not be written, with the first reason.
    pub(super) fn write(
        &mut self,
        by_day: BTreeMap<Day, Vec<Sample>>,
        head: Head,
    ) -> Result<(), (Vec<Sample>, Fault)> {
        let mut unwritten = Vec::new();
        let mut reason = None;
        for (day, samples) in by_day {
            if let Err(fault) = self.write_day(day, &samples, head) {
                unwritten.extend(samples);
                reason.get_or_insert(fault);
            }
        }
        self.close_idle();
        match reason {
            None => Ok(()),
            Some(fault) => Err((unwritten, fault)),
        }
    }

    fn write_day(&mut self, day: Day, samples: &[Sample], head: Head) -> Result<(), Fault> {
        let first_try = self.day(day, true)?.write(samples, head);
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
        let written = self.day(day, true)?.write(samples, head);
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
        if !self.path(day).exists() {
            return Ok(());
        }
        let read = self.day(day, false)?.read(device, visit);
        self.close_if_failed(day, read)
    }

    /// All heartbeats of one day in frames not before `since`.
    pub(super) fn read_all(
        &mut self,
        day: Day,
        since: Option<Wall>,
        visit: &mut Visit<'_>,
        shard_done: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        if !self.path(day).exists() {
            return Ok(());
        }
        let read = self.day(day, false)?.read_all(since, visit, shard_done);
        self.close_if_failed(day, read)
    }

    /// Removes a day; one that is not there is removed already.
    pub(super) fn remove(&mut self, day: Day) -> io::Result<()> {
        self.close_day(day);
        let path = self.path(day);
        let doomed = self.folder.join(format!("{day}{REMOVING}"));
        if doomed.exists() {
            fs::remove_dir_all(&doomed)?;
        }
        match fs::rename(&path, &doomed) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        folder::sync(&self.folder)?;
        fs::remove_dir_all(&doomed)
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

    fn close_if_failed(&mut self, day: Day, read: Result<(), Fault>) -> Result<(), Fault> {
        if read.is_err() {
            self.close_day(day);
        }
        read
    }

    fn close_day(&mut self, day: Day) {
        if let Some(index) = self.open.iter().position(|open| open.day == day) {
            database::close(self.open.remove(index).database);
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
        let database = match self.open.iter().position(|open| open.day == day) {
            Some(index) => self.open.remove(index).database,
            None => self.open_day(day, renew)?,
        };
        while self.open.len() >= OPEN_MAX {
            database::close(self.open.remove(0).database);
        }
        let open = self.open.push_mut(OpenDay {
            day,
            database,
            idle_writes: 0,
        });
        Ok(&mut open.database)
    }

    fn open_day(&mut self, day: Day, renew: bool) -> Result<DayDatabase, Fault> {
        let path = self.path(day);
        let is_new = !path.exists();
        let fault = match DayDatabase::open(&path) {
            Ok(mut database) => {
                if is_new {
                    folder::sync(&self.folder)?;
                }
                if database.has_lost_all() {
                    self.mended.push(format!(
                        "raw of {day} is damaged and holds nothing that can be read: its \
                         heartbeats are missing from that day's summary"
                    ));
                }
                return Ok(database);
            }
            Err(fault) => fault,
        };
        if !fault.is_damage() || !database::is_writable(&self.folder) {
            return Err(fault);
        }
        let set_aside = folder::damaged_name(&path, self.now);
        if database::move_spare_files(&path, &set_aside)?
            && let Ok(database) = DayDatabase::open(&path)
        {
            let outcome = database::repair_report(&path, &set_aside);
            self.mended.push(format!("raw of {day} {outcome}"));
            return Ok(database);
        }
        self.move_aside(day, &fault)?;
        if !renew {
            return Err(fault);
        }
        DayDatabase::open(&path)
    }

    /// Reads all of a day that failed to take a write; moves it aside where it
    /// cannot be read.
    fn check_day(&mut self, day: Day) {
        let checked = self.read_all(day, None, &mut |_, _, _| {}, &mut || {});
        let Err(fault) = checked else { return };
        self.close_day(day);
        if fault.is_damage()
            && database::is_writable(&self.folder)
            && let Err(error) = self.move_aside(day, &fault)
        {
            tracing::error!(%day, %error, "a damaged day of raw could not be moved aside");
        }
    }

    fn move_aside(&mut self, day: Day, fault: &Fault) -> io::Result<()> {
        let path = self.path(day);
        let aside = folder::damaged_name(&path, self.now);
        fs::rename(&path, &aside)?;
        folder::sync(&self.folder)?;
        let sentence = format!(
            "raw of {day} could not be read ({fault}) and was moved to {}: \
             its heartbeats are missing from that day's summary",
            aside.display()
        );
        self.mended.push(sentence);
        Ok(())
    }
}

/// Makes the folder; what stands in its place and is none is moved aside.
fn make_folder(folder: &Path, now: Wall) -> io::Result<Vec<String>> {
    let mut mended = Vec::new();
    if fs::symlink_metadata(folder).is_ok_and(|found| found.is_file()) {
        let aside = folder::damaged_name(folder, now);
        fs::rename(folder, &aside)?;
        let sentence = format!(
            "{} was a file and was moved to {}: raw heartbeats are gone",
            folder.display(),
            aside.display()
        );
        mended.push(sentence);
    }
    fs::create_dir_all(folder)?;
    Ok(mended)
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

/// Heartbeats by the day they belong to, and how many belong to none because
/// only a broken clock could have dated them so.
pub(super) fn by_day(samples: Vec<Sample>) -> (BTreeMap<Day, Vec<Sample>>, u64) {
    let mut by_day: BTreeMap<Day, Vec<Sample>> = BTreeMap::new();
    let mut undated = 0;
    for sample in samples {
        match Day::of(sample.at) {
            Some(day) => by_day.entry(day).or_default().push(sample),
            None => undated += 1,
        }
    }
    (by_day, undated)
}
