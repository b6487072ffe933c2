//! One day's raw heartbeats: a small sled database of its own.
//!
//! Three kinds of keys in one tree, so that one batch writes both:
//!
//! | key | value |
//! |---|---|
//! | `d`, number of the first (u32) | ids of devices numbered from there on, in the order in which the day first saw them |
//! | `f`, shard (u16), time of the first heartbeat (i64), boot (u32), n (u32) | a [`frame`](crate::wire::record::frame) |
//! | `l`, boot (u32), n (u32) | a count of [late replies](crate::wire::record::late), to be added to the others |
//!
//! Numbers are big-endian, the time with its sign bit flipped, so keys sort as
//! their numbers do. A shard is 256 devices: one device's day is one short scan.
//! Shard before time costs 6 % more bytes written than the other order and
//! makes that scan four times shorter at 1,000 devices.
//!
//! # Invariants
//!
//! - A key that is there is never written again, but for a count of late replies
//!   whose writing failed: under its old key it cannot be there twice.
//! - A value stays below [`VALUE_BYTES_MAX`]: sled puts pages above 128 KiB, that
//!   is 16 such values, into files that it never removes.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use super::database::{self, Fault, Site};
use super::open_frame::Parcel;
use super::witness::Witness;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::wire::record::frame::{BEAT_BYTES_MAX, Beat, FrameReader, FrameWriter, Head, PLACES};
use crate::wire::record::{late, names};

/// The largest value, in bytes.
pub(super) const VALUE_BYTES_MAX: usize = 3_500;

const WITNESS_TEXT: &str = "heartbeats have been written here\n";

/// From the first heartbeat of a frame to its last: who looks for a time need not
/// look far before it.
const FRAME_SPAN_MAX: Duration = Duration::from_mins(10);

/// Frames read at a time by one who lets others in between.
const SLICE_FRAMES: usize = 256;

const DEVICES: u8 = b'd';
const FRAMES: u8 = b'f';
const LATE: u8 = b'l';
const FRAME_KEY_BYTES: usize = 1 + 2 + 8 + 4 + 4;

/// The open database of one day.
pub(super) struct DayDatabase {
    database: sled::Db,
    site: Site,
    numbers: HashMap<DeviceId, u32>,
    devices: Vec<DeviceId>,
    /// Distinguishes frames of one shard, time and boot.
    next_n: u32,
    witness: Witness,
}

/// What a scan hands on: the device, the heartbeat, the frame's head.
pub(super) type Visit<'a> = dyn FnMut(DeviceId, &Beat, Head) + 'a;

impl DayDatabase {
    /// Whether its files are still there under their name.
    pub(super) fn is_whole(&self) -> bool {
        self.site.is_whole()
    }

    /// Opens or makes the database and reads its list of devices.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let database = database::open(path)?;
        let mut devices = Vec::new();
        let read = database::guarded(|| read_devices(&database, &mut devices));
        if let Err(fault) = read {
            database::close(database);
            return Err(fault);
        }
        let numbers = devices.iter().copied().zip(0..).collect();
        Ok(Self {
            database,
            site: Site::of(path),
            numbers,
            devices,
            next_n: 0,
            witness: Witness::of(path, WITNESS_TEXT),
        })
    }

    /// Whether nothing is left of what had been written; told once.
    pub(super) fn has_lost_all(&mut self) -> bool {
        self.witness.has_lost_all(self.devices.is_empty())
    }

    /// Writes heartbeats and late counts in one batch and one flush. After an error
    /// the caller closes the database: what it holds in memory may not be on disk.
    pub(super) fn write(
        &mut self,
        samples: &[Sample],
        late: &mut [Parcel],
        head: Head,
    ) -> Result<(), Fault> {
        let mut batch = sled::Batch::default();
        let known = self.devices.len();
        let mut beats: Vec<(u16, Beat)> = Vec::with_capacity(samples.len());
        for sample in samples {
            let number = self.number_of(sample.device)?;
            beats.push(placed(number, sample)?);
        }
        for parcel in late {
            self.write_late(parcel, head.boot, &mut batch)?;
        }
        self.write_devices(known, &mut batch);
        // Stable, so that equal times keep the order in which they came.
        beats.sort_by_key(|(shard, beat)| (*shard, beat.at));
        for shard in beats.chunk_by(|(one, _), (other, _)| one == other) {
            self.write_shard(shard, head, &mut batch)?;
        }
        let database = &self.database;
        database::guarded(|| {
            database.apply_batch(batch)?;
            database.flush()?;
            Ok(())
        })?;
        self.witness.note();
        Ok(())
    }

    /// Every heartbeat of one device, in no particular order.
    pub(super) fn read(&self, device: DeviceId, visit: &mut Visit<'_>) -> Result<(), Fault> {
        let Some(&number) = self.numbers.get(&device) else {
            return Ok(());
        };
        let (shard, wanted) = shard_and_place(number)?;
        let mut one = |other: DeviceId, beat: &Beat, head: Head| {
            if beat.place == wanted {
                visit(other, beat, head);
            }
        };
        self.scan_shard(shard, None, &mut one)
    }

    /// Every heartbeat of a shard in frames whose first one is not before `since`;
    /// tells whether there is such a shard.
    pub(super) fn read_shard(
        &self,
        shard: u16,
        since: Option<Wall>,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Fault> {
        if self.devices_of(shard).is_empty() {
            return Ok(false);
        }
        self.scan_shard(shard, since, visit)?;
        Ok(true)
    }

    /// The devices of a shard; none past the last.
    pub(super) fn devices_of(&self, shard: u16) -> &[DeviceId] {
        let first = usize::from(shard) * places();
        let rest = self.devices.get(first..).unwrap_or_default();
        rest.get(..places()).unwrap_or(rest)
    }

    /// Some frames of a shard, from the one after `after` on, in the order of
    /// their keys; tells the last key, if there may be more.
    pub(super) fn read_slice(
        &self,
        shard: u16,
        after: Option<&[u8]>,
        visit: &mut dyn FnMut(&Beat),
    ) -> Result<Option<Vec<u8>>, Fault> {
        let ever = (Wall::from_millis(i64::MIN), Wall::from_millis(i64::MAX));
        let (next, _) = self.read_span(shard, ever, after, visit)?;
        Ok(next)
    }

    /// The same, of frames that may hold heartbeats from `from` up to `to`; tells
    /// also how many frames it read.
    pub(super) fn read_span(
        &self,
        shard: u16,
        (from, to): (Wall, Wall),
        after: Option<&[u8]>,
        visit: &mut dyn FnMut(&Beat),
    ) -> Result<(Option<Vec<u8>>, usize), Fault> {
        let first = frame_key(shard, from.minus(FRAME_SPAN_MAX), 0, 0);
        let last = frame_key(shard, to, u32::MAX, u32::MAX);
        let from = after.map_or(Bound::Included(first.as_slice()), Bound::Excluded);
        let range = (from, Bound::Included(last.as_slice()));
        database::guarded(|| {
            let mut read = 0;
            for entry in self.database.range::<&[u8], _>(range) {
                let (key, value) = entry?;
                for beat in FrameReader::open(&value)? {
                    visit(&beat?);
                }
                read += 1;
                if read == SLICE_FRAMES {
                    return Ok((Some(key.to_vec()), read));
                }
            }
            Ok((None, read))
        })
    }

    /// How many late replies each device had, if any.
    pub(super) fn late(&self) -> Result<HashMap<DeviceId, u32>, Fault> {
        database::guarded(|| {
            let mut counts: HashMap<DeviceId, u32> = HashMap::new();
            for value in self.database.scan_prefix([LATE]).values() {
                for (number, count) in late::unpack(&value?)? {
                    let device = usize::try_from(number).ok();
                    let device = device.and_then(|number| self.devices.get(number));
                    let held = counts.entry(*device.ok_or_else(unlisted)?).or_default();
                    *held = held.saturating_add(count);
                }
            }
            Ok(counts)
        })
    }

    fn scan_shard(
        &self,
        shard: u16,
        since: Option<Wall>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        let first = usize::from(shard) * places();
        let from = since.map_or(Wall::from_millis(i64::MIN), |since| since);
        let range = frame_key(shard, from, 0, 0)
            ..=frame_key(shard, Wall::from_millis(i64::MAX), u32::MAX, u32::MAX);
        database::guarded(|| {
            for entry in self.database.range(range) {
                let (_, value) = entry?;
                let frame = FrameReader::open(&value)?;
                let head = frame.head;
                for beat in frame {
                    let beat = beat?;
                    let device = self.devices.get(first + usize::from(beat.place));
                    let &device = device.ok_or_else(unlisted)?;
                    visit(device, &beat, head);
                }
            }
            Ok(())
        })
    }

    fn number_of(&mut self, device: DeviceId) -> Result<u32, Fault> {
        if let Some(&number) = self.numbers.get(&device) {
            return Ok(number);
        }
        let number = u32::try_from(self.devices.len()).map_err(|_| too_many())?;
        self.devices.push(device);
        self.numbers.insert(device, number);
        Ok(number)
    }

    /// Lists the devices from `known` on.
    fn write_devices(&self, known: usize, batch: &mut sled::Batch) {
        let mut number = known;
        let new = self.devices.get(known..).unwrap_or_default();
        for chunk in names::to_chunks(new, VALUE_BYTES_MAX) {
            let first = u32::try_from(number).unwrap_or(u32::MAX);
            let mut key = vec![DEVICES];
            key.extend_from_slice(&first.to_be_bytes());
            batch.insert(key, chunk.bytes);
            number += chunk.count;
        }
    }

    fn write_late(
        &mut self,
        parcel: &mut Parcel,
        boot: u32,
        batch: &mut sled::Batch,
    ) -> Result<(), Fault> {
        let mut counts = Vec::with_capacity(parcel.counts.len());
        for &(device, count) in &parcel.counts {
            counts.push((self.number_of(device)?, count));
        }
        let key = match parcel.n {
            Some(n) => late_key(boot, n),
            None => self.free_late_key(parcel, boot)?,
        };
        batch.insert(&key, late::pack(&counts));
        Ok(())
    }

    fn free_late_key(&mut self, parcel: &mut Parcel, boot: u32) -> Result<[u8; 9], Fault> {
        loop {
            let n = self.next_n;
            self.next_n = n.wrapping_add(1);
            let key = late_key(boot, n);
            let database = &self.database;
            if !database::guarded(|| Ok(database.contains_key(key)?))? {
                parcel.n = Some(n);
                return Ok(key);
            }
        }
    }

    fn write_shard(
        &mut self,
        beats: &[(u16, Beat)],
        head: Head,
        batch: &mut sled::Batch,
    ) -> Result<(), Fault> {
        let mut rest = beats;
        while let Some((shard, first)) = rest.first() {
            let mut writer = FrameWriter::new(head, first.at);
            let mut taken = 0;
            for (_, beat) in rest {
                let is_full = writer.bytes() + BEAT_BYTES_MAX > VALUE_BYTES_MAX;
                if is_full || beat.at.since(first.at) > FRAME_SPAN_MAX {
                    break;
                }
                writer.push(beat);
                taken += 1;
            }
            let key = self.free_key(*shard, first.at, head.boot)?;
            batch.insert(&key, writer.finish());
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// A key that is not taken. Boot numbers alone would do, but for a state
    /// database that was lost and counts its starts anew.
    fn free_key(
        &mut self,
        shard: u16,
        at: Wall,
        boot: u32,
    ) -> Result<[u8; FRAME_KEY_BYTES], Fault> {
        loop {
            let key = frame_key(shard, at, boot, self.next_n);
            self.next_n = self.next_n.wrapping_add(1);
            let database = &self.database;
            if !database::guarded(|| Ok(database.contains_key(key)?))? {
                return Ok(key);
            }
        }
    }
}

fn read_devices(database: &sled::Db, devices: &mut Vec<DeviceId>) -> Result<(), Fault> {
    for entry in database.scan_prefix([DEVICES]) {
        let (key, value) = entry?;
        let expected = u32::try_from(devices.len()).map_err(|_| too_many())?;
        if key.get(1..) != Some(expected.to_be_bytes().as_slice()) {
            return Err(unlisted());
        }
        devices.extend(names::from_chunk(&value)?);
    }
    Ok(())
}

fn placed(number: u32, sample: &Sample) -> Result<(u16, Beat), Fault> {
    let (shard, place) = shard_and_place(number)?;
    let beat = Beat {
        place,
        at: sample.at,
        outcome: sample.outcome,
        occasion: sample.occasion,
        status: sample.status,
    };
    Ok((shard, beat))
}

fn shard_and_place(number: u32) -> Result<(u16, u8), Fault> {
    let shard = u16::try_from(number / PLACES).map_err(|_| too_many())?;
    let place = u8::try_from(number % PLACES).map_err(|_| too_many())?;
    Ok((shard, place))
}

fn places() -> usize {
    usize::try_from(PLACES).unwrap_or(usize::MAX)
}

fn frame_key(shard: u16, at: Wall, boot: u32, n: u32) -> [u8; FRAME_KEY_BYTES] {
    let mut key = [0; FRAME_KEY_BYTES];
    let time = at.millis().cast_unsigned() ^ (1 << 63);
    let parts = [FRAMES]
        .into_iter()
        .chain(shard.to_be_bytes())
        .chain(time.to_be_bytes())
        .chain(boot.to_be_bytes())
        .chain(n.to_be_bytes());
    for (slot, byte) in key.iter_mut().zip(parts) {
        *slot = byte;
    }
    key
}

fn late_key(boot: u32, n: u32) -> [u8; 9] {
    let mut key = [LATE; 9];
    let parts = boot.to_be_bytes().into_iter().chain(n.to_be_bytes());
    for (slot, byte) in key.iter_mut().skip(1).zip(parts) {
        *slot = byte;
    }
    key
}

fn too_many() -> Fault {
    Fault::Damaged("it numbers more devices than a day can hold".into())
}

fn unlisted() -> Fault {
    Fault::Damaged("its list of devices has a gap".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_keys_sort_by_shard_then_time_whatever_its_sign() {
        let times = [i64::MIN, -1, 0, 1, 1_773_273_900_000, i64::MAX];
        let keys: Vec<_> = [0, 1, 700]
            .into_iter()
            .flat_map(|shard| times.map(|at| frame_key(shard, Wall::from_millis(at), 1, 1)))
            .collect();
        assert!(keys.is_sorted());
    }
}
