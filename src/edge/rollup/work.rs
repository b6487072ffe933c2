//! Summarises one day: reads its raw, counts, keeps the rows, tells of them.
//!
//! Floor 3. Blocks: `edge::rollup` calls it on a blocking thread, `app::rollup`
//! on a store that no process runs on.
//!
//! # Invariants
//!
//! - Events are told only of rows that are durable, and the site's last: a day
//!   that has the site's event is final.
//! - A row rests on raw, on the row of the day before and on the terms: doing it
//!   again gives the same, and a poorer row never takes the place of a fuller.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{Depth, Job};
use crate::domain::daily::{Account, CALC_VERSION, Carry, Figures, SiteSummary, Summary};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event, News};
use crate::domain::instant::Wall;
use crate::domain::phase::hash;
use crate::domain::terms::Terms;
use crate::store::daily::{DeviceDay, Upserted};
use crate::store::{ReadError, Store, WriteError};

/// Days looked back for the state to carry in.
const CARRY_DAYS_MAX: usize = 40;
/// Announcements made and committed together.
const GROUP_MAX: usize = 512;
/// The period of a device whose terms nobody knows.
const PERIOD_UNKNOWN: Duration = Duration::from_mins(1);

/// Why a day could not be summarised.
#[derive(Debug, thiserror::Error)]
pub enum RollupError {
    /// Heartbeats, rows or terms could not be read.
    #[error("summarise {day}: its heartbeats or what they count from cannot be read")]
    Read {
        /// The day.
        day: Day,
        /// Why.
        source: ReadError,
    },
    /// Heartbeats, rows or events could not be kept.
    #[error("summarise {day}: its rows or events cannot be kept")]
    Write {
        /// The day.
        day: Day,
        /// Why.
        source: WriteError,
    },
}

/// What a summary did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summarised {
    /// Rows written and rows kept.
    pub rows: Upserted,
    /// Events told.
    pub told: usize,
}

/// Does a job; `now` stamps what is written.
///
/// A day of which nothing was heard and nothing is kept, as an empty folder among
/// those of raw makes one, has no rows and no event.
///
/// # Errors
///
/// [`RollupError`]; doing the job again then takes up where it failed.
pub fn summarise(store: &Store, job: Job, now: Wall) -> Result<Summarised, RollupError> {
    let day = job.day;
    let unread = |source| RollupError::Read { day, source };
    let unkept = |source| RollupError::Write { day, source };
    match store.flush_raw(now) {
        // A store that takes no more raw takes summaries all the same.
        Ok(()) | Err(WriteError::Full { .. } | WriteError::DiskLow { .. }) => {}
        Err(source) => return Err(unkept(source)),
    }
    let terms = store.terms().map_err(unread)?;
    let before = carried_in(store, day).map_err(unread)?;
    let mut rows = Rows {
        day,
        now,
        terms: &terms,
        before: &before,
        made: Vec::new(),
    };
    store
        .read_day(day, &mut |devices| rows.add(devices))
        .map_err(unread)?;
    if rows.made.is_empty() && !has_rows(store, day).map_err(unread)? {
        return Ok(Summarised::default());
    }
    let written = store
        .upsert_summaries(day, &rows.finish())
        .map_err(unkept)?;
    let told = match job.depth {
        Depth::First => 0,
        Depth::Final => announce(store, day, now)?,
    };
    Ok(Summarised {
        rows: written,
        told,
    })
}

/// Whether the day has rows already.
fn has_rows(store: &Store, day: Day) -> Result<bool, ReadError> {
    let mut has_rows = false;
    store.summaries(day, day, None, &mut |_| {
        has_rows = true;
        false
    })?;
    Ok(has_rows)
}

/// The state that each device carries into `day`: that of the newest day before
/// with rows, since a day without raw has none and changes nothing.
fn carried_in(store: &Store, day: Day) -> Result<BTreeMap<DeviceId, Carry>, ReadError> {
    let mut carried = BTreeMap::new();
    let mut before = day;
    for _ in 0..CARRY_DAYS_MAX {
        before = before.previous();
        store.summaries(before, before, None, &mut |row| {
            carried.insert(row.device, row.figures.carry);
            true
        })?;
        if !carried.is_empty() {
            break;
        }
    }
    Ok(carried)
}

/// The rows of a day while they are counted.
struct Rows<'a> {
    day: Day,
    now: Wall,
    terms: &'a BTreeMap<DeviceId, Terms>,
    before: &'a BTreeMap<DeviceId, Carry>,
    made: Vec<Summary>,
}

impl Rows<'_> {
    fn add(&mut self, devices: Vec<DeviceDay>) {
        for device_day in devices {
            let device = device_day.device;
            let terms = self.terms.get(&device);
            let terms = terms.filter(|terms| terms.touches(self.day));
            let period = terms
                .and_then(|terms| terms.longest_period(self.day))
                .unwrap_or(PERIOD_UNKNOWN);
            let carry = self.before.get(&device).copied().unwrap_or_default();
            let mut account = Account::new(self.day, carry, period);
            for beat in &device_day.beats {
                account.take(beat);
            }
            let expected = terms.map(|terms| terms.expected(&device, self.day));
            let figures = account.close(expected.unwrap_or(0), device_day.late);
            let row = self.row(
                device,
                Figures {
                    // Of a device that nobody remembers, what was sent was to be sent.
                    expected: expected.unwrap_or_else(|| figures.probed()),
                    ..figures
                },
            );
            self.made.push(row);
        }
    }

    /// All rows, ascending, with those of devices that were to be asked and of
    /// which nothing was heard.
    fn finish(mut self) -> Vec<Summary> {
        self.made.sort_by_key(|row| row.device);
        let silent = self.terms.iter().filter(|(device, terms)| {
            terms.touches(self.day)
                && self
                    .made
                    .binary_search_by_key(*device, |row| row.device)
                    .is_err()
        });
        let silent: Vec<Summary> = silent
            .map(|(&device, terms)| {
                let figures = Figures {
                    expected: terms.expected(&device, self.day),
                    carry: self.before.get(&device).copied().unwrap_or_default(),
                    ..Figures::default()
                };
                self.row(device, figures)
            })
            .collect();
        self.made.extend(silent);
        self.made.sort_by_key(|row| row.device);
        self.made
    }

    const fn row(&self, device: DeviceId, figures: Figures) -> Summary {
        Summary {
            day: self.day,
            device,
            figures,
            calc_version: CALC_VERSION,
            created_at: self.now,
            updated_at: self.now,
        }
    }
}

/// Tells of the rows as they are kept, then of the site.
fn announce(store: &Store, day: Day, now: Wall) -> Result<usize, RollupError> {
    let mut rows = Vec::new();
    let read = store.summaries(day, day, None, &mut |row| {
        rows.push(*row);
        true
    });
    read.map_err(|source| RollupError::Read { day, source })?;
    let mut told = 0;
    let site = SiteSummary::of(day, &rows);
    for group in rows.chunks(GROUP_MAX) {
        let changes: Vec<Change> = group.iter().map(|row| row_told(row, now)).collect();
        told += commit(store, day, &changes, now)?;
    }
    told += commit(store, day, &[site_told(site, now)], now)?;
    Ok(told)
}

fn commit(store: &Store, day: Day, changes: &[Change], now: Wall) -> Result<usize, RollupError> {
    store
        .announce(changes, now)
        .map_err(|source| RollupError::Write { day, source })
}

fn row_told(row: &Summary, now: Wall) -> Change {
    Change::Announcement {
        day: row.day,
        content: content(&row.figures, row.calc_version),
        event: event(Some(row.device), News::DaySummarised(Box::new(*row)), now),
    }
}

fn site_told(site: SiteSummary, now: Wall) -> Change {
    // The worst follow from the rows; which they are may change alone.
    let worst: Vec<String> = site
        .worst
        .iter()
        .map(|worst| format!("{} {} {}", worst.device, worst.online, worst.counted))
        .collect();
    let text = format!(
        "{} {} {}",
        content(&site.sum, CALC_VERSION),
        site.devices,
        worst.join(" ")
    );
    Change::Announcement {
        day: site.day,
        content: hash(&text),
        event: event(None, News::SiteSummarised(Box::new(site)), now),
    }
}

const fn event(device: Option<DeviceId>, news: News, now: Wall) -> Event {
    Event {
        device,
        produced_at: now,
        process_ms: 0,
        news,
    }
}

/// A number for what a row says; kept on disk, so the text it is made of must
/// not change.
fn content(figures: &Figures, calc_version: u32) -> u64 {
    let optional = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |us| us.to_string());
    hash(&format!(
        "{calc_version} {} {} {} {} {} {} {} {} {} {} {} {}",
        figures.expected,
        figures.replied,
        figures.missed,
        figures.late,
        figures.no_data,
        figures.online,
        figures.degraded,
        figures.offline,
        optional(figures.avg_rtt_us),
        optional(figures.p95_rtt_us),
        figures.max_missed_count,
        figures.longest_offline_ms,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_a_row_is_the_same_for_ever_and_differs_with_what_it_says() {
        let figures = Figures {
            expected: 1_440,
            replied: 1_439,
            missed: 1,
            online: 1_440,
            avg_rtt_us: Some(7),
            ..Figures::default()
        };
        assert_eq!(content(&figures, 1), 11_784_114_798_220_354_060);
        let other = Figures { late: 1, ..figures };
        assert_ne!(content(&other, 1), content(&figures, 1));
    }
}
