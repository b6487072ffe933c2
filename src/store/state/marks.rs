//! What was announced, and the terms of the devices.

use std::collections::BTreeMap;

use super::{StateDatabase, VALUE_BYTES_MAX};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::terms::Terms;
use crate::store::database::{self, Fault};
use crate::store::step::Mark;
use crate::wire::record::{logged, summary, terms};

/// Marks removed in one batch at most.
const REMOVED_MAX: usize = 512;

/// Marks looked at in one step of a removal at most.
const LOOKED_AT_MAX: usize = 4_096;

/// The key of the site's mark of a day; those of its devices follow.
pub(in crate::store) fn day_key(day: Day) -> [u8; 4] {
    let number = i32::try_from(summary::number_of(day)).unwrap_or(i32::MAX);
    // The sign flipped, so that keys sort as days do.
    (number.cast_unsigned() ^ (1 << 31)).to_be_bytes()
}

fn day_of(key: &[u8]) -> Result<Day, Fault> {
    let number = key.first_chunk::<4>().map(|bytes| {
        let number = u32::from_be_bytes(*bytes) ^ (1 << 31);
        i64::from(number.cast_signed())
    });
    number
        .and_then(summary::day_of)
        .ok_or_else(|| Fault::Damaged("it marks a day that the calendar has not".into()))
}

impl StateDatabase {
    /// What was told of this row last.
    pub(in crate::store) fn told(&self, mark: &Mark) -> Result<Option<u64>, Fault> {
        database::guarded(|| {
            let Some(bytes) = self.announced.get(mark.key())? else {
                return Ok(None);
            };
            Ok(Some(logged::unpack_mark(&bytes)?))
        })
    }

    /// The days whose site has a mark, ascending.
    pub(in crate::store) fn final_days(&self) -> Result<Vec<Day>, Fault> {
        let mut days = Vec::new();
        database::guarded(|| {
            let mut from = Vec::new();
            // Skips from day to day: a day may have thousands of marks.
            while let Some(entry) = self.announced.range(from.as_slice()..).next() {
                let (key, _) = entry?;
                let day = day_of(&key)?;
                if key.len() == 4 {
                    days.push(day);
                }
                let next = day.next();
                if next == day {
                    break;
                }
                from = day_key(next).to_vec();
            }
            Ok(())
        })?;
        Ok(days)
    }

    /// The last day that has a mark.
    pub(in crate::store) fn last_marked_day(&self) -> Result<Option<Day>, Fault> {
        database::guarded(|| {
            let last = self.announced.last()?;
            last.map(|(key, _)| day_of(&key)).transpose()
        })
    }

    /// Removes some marks of days before `until` that are not among `kept`, from
    /// `from` on; tells where to go on, if there is more to do.
    pub(in crate::store) fn remove_marks(
        &self,
        from: &[u8],
        until: Day,
        kept: &[Day],
    ) -> Result<Option<Vec<u8>>, Fault> {
        database::guarded(|| {
            let mut batch = sled::Batch::default();
            let (mut removed, mut next) = (0, None);
            let until = day_key(until);
            let range = from..until.as_slice();
            if range.is_empty() {
                return Ok(None);
            }
            for (looked_at, key) in self.announced.range(range).keys().enumerate() {
                let key = key?;
                if removed >= REMOVED_MAX || looked_at >= LOOKED_AT_MAX {
                    next = Some(key.to_vec());
                    break;
                }
                if !kept.contains(&day_of(&key)?) {
                    batch.remove(key);
                    removed += 1;
                }
            }
            self.announced.apply_batch(batch)?;
            Ok(next)
        })
    }

    /// Remembers the terms of all devices, in place of what was remembered.
    pub(in crate::store) fn write_terms(
        &self,
        terms: &BTreeMap<DeviceId, Terms>,
    ) -> Result<(), Fault> {
        self.replace(&self.terms, terms::to_chunks(terms, VALUE_BYTES_MAX))
    }

    /// The terms of all devices.
    pub(in crate::store) fn terms(&self) -> Result<BTreeMap<DeviceId, Terms>, Fault> {
        database::guarded(|| {
            let mut whole = BTreeMap::new();
            for entry in &self.terms {
                let (_, value) = entry?;
                whole.extend(terms::from_chunk(&value)?);
            }
            Ok(whole)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_days_sort_as_days_and_read_back() {
        let days = ["0001-01-01", "1969-12-31", "1970-01-01", "2026-03-12"]
            .map(|day| day.parse::<Day>().unwrap());
        let keys = days.map(day_key);
        assert!(keys.is_sorted());
        assert_eq!(keys.map(|key| day_of(&key).unwrap()), days);
        assert!(day_of(&[0; 3]).is_err() && day_of(&[0; 4]).is_err());
    }
}
