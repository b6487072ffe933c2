//! The event log within the state database: its checks, its reading, and the
//! removal of entries whose time is up.

use std::ops::ControlFlow;

use sled::Transactional as _;
use sled::transaction::ConflictableTransactionError;

use super::{PLACE, StateDatabase, fault_of, gap, seq_of};
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::store::database::{self, Fault};
use crate::store::{EventPage, LoggedEvent};
use crate::wire::record::logged::{self, Kind};

/// Entries at the end of the log that are read when it is opened.
const CHECKED_ENTRIES: usize = 64;

/// Entries removed in one transaction at most.
const REMOVED_MAX: usize = 512;

/// Entries looked at in one step of a removal at most.
const LOOKED_AT_MAX: usize = 4_096;

/// So many entries in a row that are to stay end the look for old ones. Not the
/// first one: a clock that was wrong for a while may have dated it.
const YOUNG_MAX: usize = 64;

impl StateDatabase {
    pub(super) fn check_end_of_log(&self) -> Result<(), Fault> {
        let held = self.place.whole_from()..self.place.next_seq;
        let mut entries = self.log.iter().rev();
        for seq in held.rev().take(CHECKED_ENTRIES) {
            let entry = entries.next().transpose()?;
            let (key, value) = entry.ok_or_else(gap)?;
            logged::unpack_event(&value)?;
            if seq_of(&key)? != seq {
                return Err(gap());
            }
        }
        Ok(())
    }

    /// Reads the whole log, to find damage.
    pub(in crate::store) fn check_all(&self) -> Result<(), Fault> {
        database::guarded(|| {
            let mut expected = self.place.whole_from();
            for entry in self.log.range(self.place.base_seq.to_be_bytes()..) {
                let (key, value) = entry?;
                logged::unpack_event(&value)?;
                let seq = seq_of(&key)?;
                if seq < self.place.whole_from() {
                    continue;
                }
                if seq != expected {
                    return Err(gap());
                }
                expected += 1;
            }
            if expected == self.place.next_seq {
                Ok(())
            } else {
                Err(gap())
            }
        })
    }

    /// The entry with this number.
    pub(in crate::store) fn event(&self, seq: u64) -> Result<Option<LoggedEvent>, Fault> {
        database::guarded(|| {
            let Some(bytes) = self.log.get(seq.to_be_bytes())? else {
                return Ok(None);
            };
            let (_, json) = logged::unpack_event(&bytes)?;
            let json = json.to_owned();
            Ok(Some(LoggedEvent { seq, json }))
        })
    }

    /// The newest `limit` entries with numbers below `before`, newest first, of
    /// all devices or one; no more than `scan_max` entries are looked at.
    pub(in crate::store) fn events(
        &self,
        device: Option<DeviceId>,
        before: u64,
        limit: usize,
        scan_max: usize,
    ) -> Result<EventPage, Fault> {
        let needle = device.map(|device| logged::needle_of(&device));
        database::guarded(|| {
            let mut page = EventPage {
                older: Some(before),
                ..EventPage::default()
            };
            let mut entries = self.log.range(..before.to_be_bytes()).rev();
            for _ in 0..scan_max {
                if page.events.len() >= limit {
                    return Ok(page);
                }
                let Some(entry) = entries.next() else {
                    page.older = None;
                    return Ok(page);
                };
                let (key, value) = entry?;
                let (_, json) = logged::unpack_event(&value)?;
                let seq = seq_of(&key)?;
                if needle.as_ref().is_none_or(|needle| json.contains(needle)) {
                    let json = json.to_owned();
                    page.events.push(LoggedEvent { seq, json });
                }
                page.older = Some(seq);
            }
            Ok(page)
        })
    }

    /// At most `limit` entries with numbers above `after`, oldest first.
    pub(in crate::store) fn events_after(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, Fault> {
        database::guarded(|| {
            let newer = self.log.range(after.saturating_add(1).to_be_bytes()..);
            let mut events = Vec::new();
            for entry in newer.take(limit) {
                let (key, value) = entry?;
                let (_, json) = logged::unpack_event(&value)?;
                events.push(LoggedEvent {
                    seq: seq_of(&key)?,
                    json: json.to_owned(),
                });
            }
            Ok(events)
        })
    }

    /// Removes some of the entries below `end` at the front of the log that were
    /// produced before `from`; says whether to call it again.
    pub(in crate::store) fn remove_old(
        &mut self,
        (from, now): (Wall, Wall),
        end: u64,
    ) -> Result<ControlFlow<()>, Fault> {
        self.sweep(0..end, (from, now), |_, _| true)
    }

    /// Removes some of the entries below `end` about failed heartbeats that were
    /// produced before `from`; says whether to call it again. What was looked at
    /// is not looked at again.
    pub(in crate::store) fn remove_failed_heartbeats(
        &mut self,
        (from, now): (Wall, Wall),
        end: u64,
    ) -> Result<ControlFlow<()>, Fault> {
        let begin = self.place.pruned_below;
        self.sweep(begin..end, (from, now), logged::is_failed_heartbeat)
    }

    fn sweep(
        &mut self,
        seqs: std::ops::Range<u64>,
        (from, now): (Wall, Wall),
        is_doomed: impl Fn(Kind, &str) -> bool,
    ) -> Result<ControlFlow<()>, Fault> {
        if seqs.is_empty() {
            return Ok(ControlFlow::Break(()));
        }
        let mut doomed = Vec::new();
        let mut swept_below = 0;
        let mut young = 0;
        let mut flow = ControlFlow::Break(());
        database::guarded(|| {
            let range = seqs.start.to_be_bytes()..seqs.end.to_be_bytes();
            for (looked_at, entry) in self.log.range(range).enumerate() {
                if doomed.len() >= REMOVED_MAX || looked_at >= LOOKED_AT_MAX {
                    flow = ControlFlow::Continue(());
                    break;
                }
                let (key, value) = entry?;
                let (kind, json) = logged::unpack_event(&value)?;
                let produced_at = logged::produced_at(json);
                if produced_at.is_some_and(|at| at > now) {
                    // Of a clock that was ahead: neither old nor young.
                    continue;
                }
                if produced_at.is_none_or(|at| at >= from) {
                    young += 1;
                    if young >= YOUNG_MAX {
                        break;
                    }
                    continue;
                }
                young = 0;
                let seq = seq_of(&key)?;
                swept_below = seq + 1;
                if is_doomed(kind, json) {
                    doomed.push(seq);
                }
            }
            Ok(())
        })?;
        self.remove(&doomed, swept_below)?;
        Ok(if swept_below == 0 {
            ControlFlow::Break(())
        } else {
            flow
        })
    }

    /// Removes entries and notes that the log may have holes below `below`, in one
    /// transaction, without flushing it.
    fn remove(&mut self, doomed: &[u64], below: u64) -> Result<(), Fault> {
        let mut place = self.place.clone();
        place.pruned_below = place.pruned_below.max(below);
        if place.pruned_below == self.place.pruned_below && doomed.is_empty() {
            return Ok(());
        }
        let own = doomed.iter().filter(|&&seq| seq >= place.base_seq).count();
        let older = doomed.len() - own;
        place.pruned_count += u64::try_from(own).unwrap_or(u64::MAX);
        let place_bytes = place.to_bytes();
        database::guarded(|| {
            let result = (&self.log, &self.meta).transaction(|(log, meta)| {
                for seq in doomed {
                    log.remove(&seq.to_be_bytes())?;
                }
                meta.insert(PLACE, place_bytes.as_slice())?;
                Ok::<(), ConflictableTransactionError<()>>(())
            });
            result.map_err(|error| fault_of(&error))
        })?;
        self.place = place;
        let older = u64::try_from(older).unwrap_or(u64::MAX);
        self.older_count = self.older_count.saturating_sub(older);
        Ok(())
    }
}
