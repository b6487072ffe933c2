//! The summary rows: a folder each month, few of them open at once.
//!
//! # Invariants
//!
//! - At most [`OPEN_MAX`] databases are open, and one that has not been used over
//!   [`IDLE_FLUSHES_MAX`] flushes is closed: each costs some MB.
//! - Reading makes no month; one that is not there reads as nothing.
//! - A month that is damaged is moved aside alone and reported; the rows that can
//!   be read are copied into a new one, for there may be no raw to make them anew.
//! - What a failed write left in doubt is written again by the next one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::daily::Upserted;
use super::database::{self, Fault};
use super::folder;
use super::ladder::{Ladder, Rung};
use super::month::MonthDatabase;
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;

const OPEN_MAX: usize = 4;

/// Opening a month rewrites up to one segment of it, so it is not closed at once.
const IDLE_FLUSHES_MAX: u8 = 10;

/// A month of the calendar, known by its first day; written `2026-03`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Month(Day);

impl Month {
    /// The month of this day.
    pub(super) fn of(day: Day) -> Self {
        let text = day.to_string();
        let month = text.rsplit_once('-').map(|(month, _)| month);
        month.and_then(Self::parse).unwrap_or(Self(day))
    }

    /// Its first day.
    pub(super) const fn first_day(self) -> Day {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        format!("{text}-01").parse().ok().map(Self)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.rsplit_once('-').map_or(&text, |(month, _)| month))
    }
}

/// One open month.
struct OpenMonth {
    month: Month,
    database: MonthDatabase,
    /// Flushes since it was last used.
    idle_flushes: u8,
}

/// All months.
pub(super) struct Months {
    folder: PathBuf,
    /// What tells the folder from one that somebody put in its place; `None`: it is
    /// not there, or was not looked at.
    folder_is: Option<(u64, u64)>,
    /// Whether there are rows that could be lost with it.
    has_rows: bool,
    /// Least recently used first.
    open: Vec<OpenMonth>,
    /// Days whose last write failed.
    doubtful: BTreeSet<Day>,
    /// For the names of what is moved aside.
    pub(super) now: Wall,
    /// What was moved aside since this was last taken, one sentence each; who
    /// takes it logs it.
    pub(super) mended: Vec<String>,
    may_mend: bool,
    is_closed: bool,
}

impl Months {
    /// Makes the folder and removes what a crash in a removal left.
    pub(super) fn open(folder: PathBuf, now: Wall) -> io::Result<Self> {
        let mended = folder::make_part(&folder, "summary rows are gone", now)?;
        let mut months = Self {
            folder_is: database::file_at(&folder),
            now,
            mended,
            may_mend: true,
            ..Self::to_read(folder)
        };
        months.has_rows = !months.months()?.is_empty();
        Ok(months)
    }

    /// The months as they are; mends nothing.
    pub(super) const fn to_read(folder: PathBuf) -> Self {
        Self {
            folder,
            folder_is: None,
            has_rows: false,
            open: Vec::new(),
            doubtful: BTreeSet::new(),
            now: Wall::from_millis(0),
            mended: Vec::new(),
            may_mend: false,
            is_closed: false,
        }
    }

    /// The months that are there, ascending.
    pub(super) fn months(&self) -> io::Result<Vec<Month>> {
        folder::parts(&self.folder, Month::parse)
    }

    /// Takes rows of one day in: those that say something new.
    pub(super) fn upsert(&mut self, day: Day, rows: &[Summary]) -> Result<Upserted, Fault> {
        let first_try = self.try_upsert(day, rows);
        let Err(fault) = first_try else {
            return first_try;
        };
        if !fault.is_damage() {
            return Err(fault);
        }
        // Either the files are damaged, then a new database takes the month on,
        // or sled stumbled over an error of the disk, then opening again shows.
        self.check(Month::of(day));
        self.try_upsert(day, rows)
    }

    fn try_upsert(&mut self, day: Day, rows: &[Summary]) -> Result<Upserted, Fault> {
        let month = Month::of(day);
        let in_doubt = self.doubtful.contains(&day);
        let database = self.month(month, true)?;
        let done = database.rows(day).and_then(|held| {
            let (merged, upserted) = merge(held, rows);
            if upserted.changed > 0 || in_doubt {
                database.write(day, &merged, in_doubt)?;
            }
            Ok(upserted)
        });
        if done.is_ok() {
            self.has_rows = true;
            self.doubtful.remove(&day);
        } else {
            self.doubtful.insert(day);
            self.close_month(month);
        }
        done
    }

    /// The rows, of all devices or one, of the first day of `month` from `day` on
    /// that has any.
    pub(super) fn rows_from(
        &mut self,
        month: Month,
        day: Day,
        device: Option<&DeviceId>,
    ) -> Result<Option<(Day, Vec<Summary>)>, Fault> {
        if !self.path(month).exists() {
            return Ok(None);
        }
        let database = self.month(month, false)?;
        let read = match device {
            None => database.rows_from(day),
            Some(device) => database.row_from(day, device),
        };
        if let Err(fault) = &read {
            self.close_month(month);
            if fault.is_damage() {
                self.check(month);
            }
        }
        read
    }

    /// Removes all months before this one that have so many later ones, as folders.
    pub(super) fn remove_before(&mut self, month: Month, later: usize) -> io::Result<()> {
        let months = self.months()?;
        let lived_past = months.len().saturating_sub(later);
        let old = months.into_iter().take(lived_past);
        for old in old.filter(|old| *old < month) {
            self.close_month(old);
            folder::remove_part(&self.folder, &old.to_string())?;
            tracing::info!(month = %old, "a month of summary rows is past its retention and was removed");
        }
        Ok(())
    }

    /// Closes months that have not been used for a while; called once a flush.
    pub(super) fn close_idle(&mut self) {
        self.note_lost_folder();
        for open in &mut self.open {
            open.idle_flushes += 1;
        }
        let is_idle = |open: &mut OpenMonth| open.idle_flushes > IDLE_FLUSHES_MAX;
        for idle in self.open.extract_if(.., is_idle) {
            database::close(idle.database);
        }
    }

    /// Closes all months for good.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for open in self.open.drain(..) {
            database::close(open.database);
        }
    }

    /// Whether it is open.
    pub(super) fn is_open(&self, month: Month) -> bool {
        self.open.iter().any(|open| open.month == month)
    }

    /// Notes it where the folder of all months was removed or replaced. Asked with
    /// each flush: months are seldom open, and one that is not there reads as nothing.
    fn note_lost_folder(&mut self) {
        let found = database::file_at(&self.folder);
        let known = std::mem::replace(&mut self.folder_is, found);
        if !self.may_mend || known.is_none() || known == found {
            return;
        }
        for open in self.open.drain(..) {
            database::close(open.database);
        }
        if std::mem::take(&mut self.has_rows) {
            self.mended.push(format!(
                "{} was removed or replaced while it was in use: its summary rows are lost",
                self.folder.display()
            ));
        }
        if let Err(error) = fs::create_dir_all(&self.folder) {
            tracing::warn!(%error, "the folder of the summary rows cannot be made again");
        }
        self.folder_is = database::file_at(&self.folder);
    }

    fn path(&self, month: Month) -> PathBuf {
        self.folder.join(month.to_string())
    }

    /// Closes it, if it is open.
    pub(super) fn close_month(&mut self, month: Month) {
        if let Some(index) = self.open.iter().position(|open| open.month == month) {
            database::close(self.open.remove(index).database);
        }
    }

    /// The month's database; the most recently used afterwards. With `renew` one
    /// that had to be moved aside gives way to a new one.
    fn month(&mut self, month: Month, renew: bool) -> Result<&mut MonthDatabase, Fault> {
        if self.is_closed {
            return Err(Fault::Closed);
        }
        self.note_lost_folder();
        let is_gone = |open: &OpenMonth| open.month == month && !open.database.is_whole();
        if self.open.iter().any(is_gone) {
            self.close_month(month);
            self.mended.push(format!(
                "{} was removed or replaced while it was in use: its summary rows are lost",
                self.path(month).display()
            ));
        }
        let database = match self.open.iter().position(|open| open.month == month) {
            Some(index) => self.open.remove(index).database,
            None => self.open_month(month, renew)?,
        };
        while self.open.len() >= OPEN_MAX {
            database::close(self.open.remove(0).database);
        }
        let open = self.open.push_mut(OpenMonth {
            month,
            database,
            idle_flushes: 0,
        });
        Ok(&mut open.database)
    }

    fn open_month(&mut self, month: Month, renew: bool) -> Result<MonthDatabase, Fault> {
        let ladder = self.ladder(month);
        let is_new = !ladder.path.exists();
        if is_new {
            fs::create_dir_all(&self.folder)?;
        }
        let may_mend = self.may_mend;
        let open = |path: &Path| open_looking(path, may_mend);
        let (database, has_lost_all) = match ladder.climb(open)? {
            Rung::Whole(opened) => {
                if is_new {
                    folder::sync(&self.folder)?;
                }
                opened
            }
            Rung::Repaired(opened, outcome) => {
                self.mended
                    .push(format!("the summary rows of {month} {outcome}"));
                opened
            }
            Rung::Broken(fault) => {
                self.move_aside(month, &fault)?;
                if !renew {
                    return Err(fault);
                }
                open(&ladder.path)?
            }
        };
        if has_lost_all {
            self.mended.push(format!(
                "the summary rows of {month} are damaged and nothing can be read of them"
            ));
        }
        Ok(database)
    }

    fn ladder(&self, month: Month) -> Ladder {
        Ladder {
            path: self.path(month),
            now: self.now,
            may_mend: self.may_mend,
        }
    }

    /// Reads all of a month that failed; moves it aside where it cannot be read.
    fn check(&mut self, month: Month) {
        let checked = match self.month(month, true) {
            Ok(database) => database.check(month.0),
            Err(fault) => Err(fault),
        };
        let Err(fault) = checked else { return };
        self.close_month(month);
        if self.ladder(month).is_mendable(&fault)
            && let Err(fault) = self.move_aside(month, &fault)
        {
            tracing::error!(%month, %fault, "damaged summary rows could not be moved aside");
        }
    }

    /// Moves a month aside and copies what can be read of it into a new one.
    fn move_aside(&mut self, month: Month, fault: &Fault) -> Result<(), Fault> {
        let path = self.path(month);
        let Some(aside) = self.ladder(month).move_aside()? else {
            return Ok(());
        };
        let mut saved = 0;
        let copied = MonthDatabase::open(&aside).and_then(|old| {
            let copied = MonthDatabase::open(&path).and_then(|mut new| {
                let copied = old.salvage(&mut |day, rows| {
                    let (merged, upserted) = merge(new.rows(day)?, &rows);
                    saved += upserted.changed;
                    new.write(day, &merged, false)
                });
                database::close(new);
                copied
            });
            database::close(old);
            copied
        });
        if let Err(fault) = copied {
            tracing::warn!(%month, %fault, "damaged summary rows gave up only a part");
        }
        self.mended.push(format!(
            "the summary rows of {month} could not be read ({fault}) and were moved to {}: {saved} \
             rows were saved, others come back only where raw is still there",
            aside.display()
        ));
        Ok(())
    }
}

/// Opens a month and looks whether all that had been written into it is lost.
fn open_looking(path: &Path, may_mend: bool) -> Result<(MonthDatabase, bool), Fault> {
    let mut database = MonthDatabase::open(path)?;
    if !may_mend {
        return Ok((database, false));
    }
    match database.has_lost_all() {
        Ok(has_lost_all) => Ok((database, has_lost_all)),
        Err(fault) => {
            database::close(database);
            Err(fault)
        }
    }
}

/// A day's rows with new ones taken in: a row that was there keeps its
/// `created_at`, and stays as it is where it says the same or rests on more.
fn merge(held: Vec<Summary>, new: &[Summary]) -> (Vec<Summary>, Upserted) {
    let mut upserted = Upserted::default();
    let mut merged = held;
    let known = merged.len();
    for row in new {
        let place = merged
            .get(..known)
            .unwrap_or_default()
            .binary_search_by_key(&row.device, |held| held.device);
        match place.ok().and_then(|place| merged.get_mut(place)) {
            None => merged.push(*row),
            Some(held) if held.agrees_with(row) || row.is_poorer_than(held) => {
                upserted.kept += 1;
                continue;
            }
            Some(held) => {
                *held = Summary {
                    created_at: held.created_at,
                    // The clock may have been ahead when the row was made.
                    updated_at: row.updated_at.max(held.created_at),
                    ..*row
                }
            }
        }
        upserted.changed += 1;
    }
    // Stable, so that of two new rows of one device the last one is the last.
    merged.sort_by_key(|row| row.device);
    merged.dedup_by(|later, earlier| {
        let is_same = later.device == earlier.device;
        if is_same {
            *earlier = *later;
        }
        is_same
    });
    (merged, upserted)
}

impl fmt::Debug for Months {
    /// Without the databases: sled would print all they hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Months")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_sort_by_time_and_read_back() {
        let months = ["1999-12", "2025-12", "2026-01", "2026-03"];
        let parsed = months.map(|text| Month::parse(text).unwrap());
        assert!(parsed.is_sorted());
        assert_eq!(parsed.map(|month| month.to_string()), months);
        assert_eq!(Month::of("2026-03-31".parse().unwrap()), parsed[3]);
        for bad in ["2026-03.removing", "2026-3", "2026-13", "x", ""] {
            assert_eq!(Month::parse(bad), None, "{bad:?}");
        }
    }
}
