//! What the store tells of heartbeats and events.
//!
//! Floor 2. A whole day is read in slices, so that who writes waits for a slice at
//! most, and in groups of devices, so that it takes a few megabytes however many
//! devices there are.

use std::collections::HashMap;

use super::daily::DeviceDay;
use super::database::Fault;
use super::day::DayDatabase;
use super::{EventPage, LoggedEvent, ReadError, Store, lock, raw, unread};
use crate::domain::daily::Beat;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::wire::record::frame;

/// Heartbeats of a group of devices at most, but for a single device that has
/// more: 5 MB.
const GROUP_BEATS_MAX: usize = 200_000;

/// Shards read before the day is closed and opened again: sled keeps every page
/// in memory that it has read once, 2 MB a shard.
const SHARDS_AN_OPENING: u16 = 2;

/// Entries of the log looked at for the events of one device.
const SCAN_MAX: usize = 20_000;

/// Of these, so many at a time; then others may write.
const SCAN_SLICE: usize = 2_000;

impl Store {
    /// One device's heartbeats of one day, ascending, the open frame included.
    /// Where the disk cannot be read, the error holds those of the open frame.
    pub fn heartbeats(&self, device: DeviceId, day: Day) -> Result<Vec<Sample>, ReadError> {
        let mut samples = Vec::new();
        // Held over both, so that a flush in between hides nothing.
        let mut raw = self.raw.lock();
        let read = raw.read(device, day, &mut |device, beat, _| {
            samples.push(raw::sample_of(device, beat));
        });
        if read.is_err() {
            samples.clear();
        }
        let frame = lock(&self.frame);
        let is_asked = |one: &&Sample| one.device == device && Day::of(one.at) == Some(day);
        samples.extend(frame.samples().filter(is_asked));
        let samples = raw::in_order(samples, |sample| sample.at);
        match read {
            Ok(()) => Ok(samples),
            Err(fault) => Err(ReadError {
                in_memory: samples,
                ..unread(format!("read the heartbeats of {device} on {day}"), fault)
            }),
        }
    }

    /// All raw of one day, the open frame not included, a group of devices at a
    /// time, in no particular order: at most some MB in memory. A day without raw
    /// is no call. After an error what was handed on already is only a part.
    pub fn read_day(
        &self,
        day: Day,
        each: &mut dyn FnMut(Vec<DeviceDay>),
    ) -> Result<(), ReadError> {
        self.read_shards(day, each)
            .map_err(|fault| unread(format!("read the heartbeats of {day}"), fault))
    }

    fn read_shards(&self, day: Day, each: &mut dyn FnMut(Vec<DeviceDay>)) -> Result<(), Fault> {
        let Some(late) = self.on_day(day, DayDatabase::late)? else {
            return Ok(());
        };
        for shard in 0..u16::MAX {
            let devices = self.on_day(day, |database| Ok(database.devices_of(shard).to_vec()))?;
            let devices = devices.unwrap_or_default();
            if devices.is_empty() {
                break;
            }
            self.read_shard(day, shard, (&devices, &late), each)?;
            if shard % SHARDS_AN_OPENING == SHARDS_AN_OPENING - 1 {
                self.raw.lock().close_day(day);
            }
        }
        Ok(())
    }

    fn read_shard(
        &self,
        day: Day,
        shard: u16,
        (devices, late): (&[DeviceId], &HashMap<DeviceId, u32>),
        each: &mut dyn FnMut(Vec<DeviceDay>),
    ) -> Result<(), Fault> {
        // Counted first: devices asked five times a second fill no memory, and
        // lists that need not grow take half as much.
        let mut counts = vec![0_usize; devices.len()];
        self.scan(day, shard, &mut |beat| {
            if let Some(count) = counts.get_mut(usize::from(beat.place)) {
                *count += 1;
            }
        })?;
        let mut first = 0;
        for group in groups(&counts) {
            let mut lists: Vec<Vec<Beat>> = group.iter().map(|&n| Vec::with_capacity(n)).collect();
            if group.iter().any(|&count| count > 0) {
                self.scan(day, shard, &mut |beat| {
                    let place = usize::from(beat.place).checked_sub(first);
                    if let Some(list) = place.and_then(|place| lists.get_mut(place)) {
                        list.push(beat_of(beat));
                    }
                })?;
            }
            let devices = devices.get(first..).unwrap_or_default();
            let days = devices.iter().zip(lists).map(|(&device, beats)| DeviceDay {
                device,
                beats: raw::in_order(beats, |beat| beat.at),
                late: late.get(&device).copied().unwrap_or(0),
            });
            each(
                days.filter(|day| !day.beats.is_empty() || day.late > 0)
                    .collect(),
            );
            first += group.len();
        }
        Ok(())
    }

    /// Every heartbeat of a shard; lets others in after each slice.
    fn scan(&self, day: Day, shard: u16, visit: &mut dyn FnMut(&frame::Beat)) -> Result<(), Fault> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let slice = self.on_day(day, |database| {
                database.read_slice(shard, after.as_deref(), visit)
            })?;
            after = slice.flatten();
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn on_day<T>(
        &self,
        day: Day,
        work: impl FnOnce(&DayDatabase) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.raw.lock().on_day(day, work)
    }

    /// The newest `limit` events below `before` (all, if `None`), newest first, of
    /// all devices or one.
    ///
    /// Of one device, fewer than `limit` come where there are no more among 20,000
    /// entries of the log; [`Store::events_page`] tells how to go on.
    pub fn events(
        &self,
        device: Option<DeviceId>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, ReadError> {
        self.events_page(device, before, limit)
            .map(|page| page.events)
    }

    /// As [`Store::events`], with the number before which to ask for the next page.
    pub fn events_page(
        &self,
        device: Option<DeviceId>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<EventPage, ReadError> {
        let now = self.raw.lock().now;
        let read = |before, sizes| {
            self.keeper
                .lock()
                .events(device, before, sizes, now)
                .map_err(|fault| unread("read the event log".into(), fault))
        };
        if device.is_none() {
            return read(before, (limit, usize::MAX));
        }
        let mut whole = EventPage {
            older: before,
            ..EventPage::default()
        };
        for _ in 0..SCAN_MAX / SCAN_SLICE {
            let missing = limit.saturating_sub(whole.events.len());
            let page = read(whole.older, (missing, SCAN_SLICE))?;
            whole.events.extend(page.events);
            whole.older = page.older;
            if page.older.is_none() || whole.events.len() >= limit {
                break;
            }
        }
        Ok(whole)
    }

    /// At most `limit` events with numbers above `after`, oldest first.
    pub fn events_after(&self, after: u64, limit: usize) -> Result<Vec<LoggedEvent>, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .events_after(after, limit, now)
            .map_err(|fault| unread("read the event log".into(), fault))
    }

    /// The days whose raw is there, ascending.
    pub fn raw_days(&self) -> Result<Vec<Day>, ReadError> {
        self.raw
            .lock()
            .days()
            .map_err(|fault| unread("list the days of raw".into(), fault.into()))
    }
}

/// Neighbours that are read together, so that each group stays small.
fn groups(counts: &[usize]) -> impl Iterator<Item = &[usize]> {
    let mut rest = counts;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = rest.iter().take_while(|&&count| {
            let is_first = sum == 0;
            sum += count;
            is_first || sum <= GROUP_BEATS_MAX
        });
        let (group, others) = rest.split_at_checked(fits.count())?;
        rest = others;
        (!group.is_empty()).then_some(group)
    })
}

const fn beat_of(beat: &frame::Beat) -> Beat {
    Beat {
        at: beat.at,
        outcome: beat.outcome,
        occasion: beat.occasion,
        status: beat.status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_small_and_leave_nobody_out() {
        let most = GROUP_BEATS_MAX;
        let counts = [0, most - 1, 1, 1, most + 5, 0, 0, 7, most, 0];
        let groups: Vec<_> = groups(&counts).collect();
        assert_eq!(groups.concat(), counts);
        for group in &groups {
            let large = group.iter().filter(|&&count| count > 0).count();
            assert!(
                group.iter().sum::<usize>() <= most || large == 1,
                "{group:?}"
            );
        }
        assert!(groups.len() <= 6, "{groups:?}");
        assert_eq!(super::groups(&[]).count(), 0);
    }
}
