//! One month's summary rows: a small sled database of its own.
//!
//! Key: day (u32, big-endian), n (u16, big-endian); value: up to [`ROWS_MAX`]
//! [rows](crate::wire::record::summary). A key a row takes three times the memory
//! and a third more disk.
//!
//! # Invariants
//!
//! - The rows of a day ascend by device over its values, which are numbered from 0
//!   without a gap.
//! - A day changes in one batch: what a crash leaves is the day before or after.

use std::path::Path;

use super::database::{self, Fault, Site};
use super::day::VALUE_BYTES_MAX;
use super::state::day_key;
use super::witness::Witness;
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::wire::record::summary::{self, ROW_BYTES_MAX};

/// Rows in one value.
const ROWS_MAX: usize = 16;

const _: () = assert!(ROWS_MAX * ROW_BYTES_MAX + 20 < VALUE_BYTES_MAX);

const WITNESS_TEXT: &str = "summary rows have been written here\n";

/// The open database of one month.
pub(super) struct MonthDatabase {
    database: sled::Db,
    site: Site,
    witness: Witness,
}

impl MonthDatabase {
    /// Opens or makes the database.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let database = database::open(path)?;
        Ok(Self {
            database,
            site: Site::of(path),
            witness: Witness::of(path, WITNESS_TEXT),
        })
    }

    /// Whether its files are still there under their name.
    pub(super) fn is_whole(&self) -> bool {
        self.site.is_whole()
    }

    /// Whether nothing is left of what had been written; told once.
    pub(super) fn has_lost_all(&mut self) -> Result<bool, Fault> {
        let database = &self.database;
        let is_empty = database::guarded(|| Ok(database.first()?.is_none()))?;
        Ok(self.witness.has_lost_all(is_empty))
    }

    /// The rows of the first day that has some from `day` on.
    pub(super) fn rows_from(&self, day: Day) -> Result<Option<(Day, Vec<Summary>)>, Fault> {
        let Some(day) = self.day_from(day)? else {
            return Ok(None);
        };
        Ok(Some((day, self.rows(day)?)))
    }

    /// One device's row of the first day from `day` on that has any rows.
    pub(super) fn row_from(
        &self,
        day: Day,
        device: &DeviceId,
    ) -> Result<Option<(Day, Vec<Summary>)>, Fault> {
        let Some(day) = self.day_from(day)? else {
            return Ok(None);
        };
        Ok(Some((day, self.row(day, device)?.into_iter().collect())))
    }

    /// All rows of a day, ascending by device.
    pub(super) fn rows(&self, day: Day) -> Result<Vec<Summary>, Fault> {
        let mut rows = Vec::new();
        database::guarded(|| {
            let values = self.database.scan_prefix(day_key(day));
            for (n, entry) in (0_u16..).zip(values) {
                let (key, value) = entry?;
                if key != key_of(day, n) {
                    return Err(disorder(day));
                }
                rows.extend(rows_of(day, &value)?);
            }
            Ok(())
        })?;
        if rows.is_sorted_by(|one, other| one.device < other.device) {
            Ok(rows)
        } else {
            Err(disorder(day))
        }
    }

    /// Puts `rows`, which are those of a whole day, in place of what is there, in one batch
    /// and one flush; only values that change are written, or `all`.
    pub(super) fn write(&mut self, day: Day, rows: &[Summary], all: bool) -> Result<(), Fault> {
        let database = &self.database;
        database::guarded(|| {
            let mut batch = sled::Batch::default();
            let mut count = 0_u16;
            for (n, part) in (0_u16..).zip(rows.chunks(ROWS_MAX)) {
                let (key, value) = (key_of(day, n), summary::pack(day, part));
                if all || database.get(key)?.is_none_or(|held| held != value) {
                    batch.insert(&key, value);
                }
                count = n + 1;
            }
            for key in database
                .range(key_of(day, count)..=key_of(day, u16::MAX))
                .keys()
            {
                batch.remove(key?);
            }
            database.apply_batch(batch)?;
            database.flush()?;
            Ok(())
        })?;
        self.witness.note();
        Ok(())
    }

    /// All that can be read of it, a day at a time.
    pub(super) fn salvage(
        &self,
        each: &mut dyn FnMut(Day, Vec<Summary>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        database::guarded(|| {
            let mut day_rows: Vec<Summary> = Vec::new();
            for entry in self.database.iter() {
                // Nothing can be read past a damaged page.
                let Ok((_, value)) = entry else { break };
                let Ok(rows) = summary::unpack(&value) else {
                    continue;
                };
                let Some(day) = rows.first().map(|row| row.day) else {
                    continue;
                };
                match day_rows.first().map(|row| row.day) {
                    Some(last) if last != day => {
                        each(last, std::mem::replace(&mut day_rows, rows))?;
                    }
                    _ => day_rows.extend(rows),
                }
            }
            match day_rows.first().map(|row| row.day) {
                Some(last) => each(last, day_rows),
                None => Ok(()),
            }
        })
    }

    /// Reads all of it, to find damage.
    pub(super) fn check(&self, first: Day) -> Result<(), Fault> {
        let mut day = first;
        while let Some((found, _)) = self.rows_from(day)? {
            day = found.next();
        }
        Ok(())
    }

    fn day_from(&self, day: Day) -> Result<Option<Day>, Fault> {
        database::guarded(|| {
            let Some(entry) = self.database.range(day_key(day).as_slice()..).next() else {
                return Ok(None);
            };
            let (_, value) = entry?;
            let rows = summary::unpack(&value)?;
            let found = rows.first().map(|row| row.day);
            found
                .filter(|found| *found >= day)
                .map(Some)
                .ok_or_else(|| disorder(day))
        })
    }

    /// Looks in few of the day's values: they are in order.
    fn row(&self, day: Day, device: &DeviceId) -> Result<Option<Summary>, Fault> {
        database::guarded(|| {
            let Some(last) = self.database.scan_prefix(day_key(day)).next_back() else {
                return Ok(None);
            };
            let (key, _) = last?;
            let last = key.last_chunk().map_or(0, |n| u16::from_be_bytes(*n));
            let (mut low, mut high) = (0, u32::from(last) + 1);
            while low < high {
                let middle = u16::midpoint(
                    u16::try_from(low).unwrap_or(u16::MAX),
                    u16::try_from(high).unwrap_or(u16::MAX),
                );
                let value = self.database.get(key_of(day, middle))?;
                let rows = rows_of(day, &value.ok_or_else(|| disorder(day))?)?;
                if rows.last().is_none_or(|row| row.device < *device) {
                    low = u32::from(middle) + 1;
                } else if rows.first().is_some_and(|row| row.device > *device) {
                    high = u32::from(middle);
                } else {
                    return Ok(rows.into_iter().find(|row| row.device == *device));
                }
            }
            Ok(None)
        })
    }
}

fn key_of(day: Day, n: u16) -> [u8; 6] {
    let mut key = [0; 6];
    let parts = day_key(day).into_iter().chain(n.to_be_bytes());
    for (slot, byte) in key.iter_mut().zip(parts) {
        *slot = byte;
    }
    key
}

fn rows_of(day: Day, value: &[u8]) -> Result<Vec<Summary>, Fault> {
    let rows = summary::unpack(value)?;
    if rows.first().is_some_and(|row| row.day == day) {
        Ok(rows)
    } else {
        Err(disorder(day))
    }
}

fn disorder(day: Day) -> Fault {
    Fault::Damaged(format!("its rows of {day} are out of order"))
}
