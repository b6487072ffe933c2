//! Summary rows, announcements, terms and late replies, in the words of callers.
//!
//! Floor 2. `edge::rollup` and `edge::recorder` write through this; pages and the
//! export read rows.

use std::collections::BTreeMap;

use super::months::Month;
use super::{ReadError, Store, WriteError, failed, lock, unread};
use crate::domain::daily::{Beat, Summary};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::domain::instant::Wall;
use crate::domain::terms::Terms;

/// Announcements written in one transaction; in between others may commit.
const ANNOUNCED_AT_ONCE: usize = 512;

/// Months of a reading that are left open after it: those of ninety days.
const STAY_OPEN_MAX: usize = 4;

/// Rows read of a month that is left open: sled keeps them in memory, 2 MB.
const STAY_OPEN_ROWS_MAX: usize = 50_000;

/// One device's raw day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDay {
    /// Whose.
    pub device: DeviceId,
    /// Its heartbeats, ascending, without repeats.
    pub beats: Vec<Beat>,
    /// Replies that came after their timeout.
    pub late: u32,
}

/// What an upsert did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upserted {
    /// Rows written, new or with another content.
    pub changed: usize,
    /// Rows that were there already, with this content or a fuller one.
    pub kept: usize,
}

impl Store {
    /// Makes these rows of one day durable; keeps `created_at` of a row that was
    /// there, and the row itself where it says the same or more. Rows of other
    /// days are left out.
    ///
    /// Best given all at once: a device that is new among others moves those after
    /// it. Never refused for `store.max_bytes` or `store.min_free_bytes`: raw goes
    /// only once its rows are here.
    pub fn upsert_summaries(&self, day: Day, rows: &[Summary]) -> Result<Upserted, WriteError> {
        debug_assert!(
            rows.iter().all(|row| row.day == day),
            "rows of another day are given to {day}"
        );
        let rows: Vec<Summary> = rows.iter().filter(|row| row.day == day).copied().collect();
        if rows.is_empty() {
            return Ok(Upserted::default());
        }
        self.stand()?;
        let now = self.raw.lock().now;
        let mut months = self.months.lock();
        months.now = now;
        months
            .upsert(day, &rows)
            .map_err(|fault| failed("keep the summary rows of a day", fault))
    }

    /// Rows of the days `from` to `to`, ascending by day and device, of all devices
    /// or one; `each` says whether to go on. A day at a time is in memory, and
    /// others may write while `each` runs. After an error what was handed on
    /// already is only a part.
    pub fn summaries(
        &self,
        from: Day,
        to: Day,
        device: Option<DeviceId>,
        each: &mut dyn FnMut(&Summary) -> bool,
    ) -> Result<(), ReadError> {
        let range = Month::of(from)..=Month::of(to);
        let mut months = self
            .months
            .lock()
            .months()
            .map_err(|fault| unread("list the months of summary rows".into(), fault.into()))?;
        months.retain(|month| range.contains(month));
        // What a page shows stays open for the next look, because opening it writes
        // half a megabyte; of a long reading only what was open before, and nothing
        // of many rows, or it would take tens of megabytes.
        let stay_open = months.len() <= STAY_OPEN_MAX;
        for month in months {
            let was_open = self.months.lock().is_open(month);
            let mut rows_read = 0;
            let mut next = from.max(month.first_day());
            loop {
                let found = self.months.lock().rows_from(month, next, device.as_ref());
                let found = found
                    .map_err(|fault| unread(format!("read the summary rows of {month}"), fault))?;
                let Some((day, rows)) = found.filter(|(day, _)| *day <= to) else {
                    break;
                };
                rows_read += rows.len();
                if !rows.iter().all(&mut *each) {
                    return Ok(());
                }
                if day == day.next() {
                    break;
                }
                next = day.next();
            }
            let is_large = rows_read > STAY_OPEN_ROWS_MAX;
            if is_large || (!stay_open && !was_open) {
                self.months.lock().close_month(month);
            }
        }
        Ok(())
    }

    /// Commits announcements whose content was not told before, in one step each
    /// group; returns how many were told.
    ///
    /// After an error the same ones may be given again: what turns out to be
    /// durable is not told twice.
    pub fn announce(&self, changes: &[Change], now: Wall) -> Result<usize, WriteError> {
        if changes.is_empty() {
            return Ok(0);
        }
        self.stand()?;
        let mut told = 0;
        for group in changes.chunks(ANNOUNCED_AT_ONCE) {
            told += self
                .keeper
                .lock()
                .announce(group, now)
                .map_err(|fault| failed("announce the summary rows of a day", fault))?;
        }
        self.count(now, told > 0);
        Ok(told)
    }

    /// The days whose site summary was announced, ascending: final, raw may go.
    /// Days long past whose raw went are forgotten.
    pub fn final_days(&self) -> Result<Vec<Day>, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .final_days(now)
            .map_err(|fault| unread("list the days that are final".into(), fault))
    }

    /// Since when and how often each device was to be asked.
    pub fn terms(&self) -> Result<BTreeMap<DeviceId, Terms>, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .terms(now)
            .map_err(|fault| unread("read the devices' terms".into(), fault))
    }

    /// Writes the terms in place of what was kept.
    pub fn keep_terms(
        &self,
        terms: &BTreeMap<DeviceId, Terms>,
        now: Wall,
    ) -> Result<(), WriteError> {
        self.stand()?;
        self.keeper
            .lock()
            .remember_terms(terms, now)
            .map_err(|fault| failed("remember the devices' terms", fault))
    }

    /// Counts late replies to heartbeats of these devices and times; rides the next
    /// flush. Bounded like the open frame.
    pub fn push_late(&self, late: &[(DeviceId, Wall)]) {
        lock(&self.frame).push_late(late);
    }
}
