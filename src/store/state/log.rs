//! The event log within the state database: its checks and its reading.

use super::{StateDatabase, gap, seq_of};
use crate::domain::device::DeviceId;
use crate::store::database::{self, Fault};
use crate::store::{EventPage, LoggedEvent};
use crate::wire::record::logged;

/// Entries at the end of the log that are read when it is opened.
const CHECKED_ENTRIES: usize = 64;

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
            let json = logged::unpack_event(&bytes)?.json.to_owned();
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
                let json = logged::unpack_event(&value)?.json;
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
                let json = logged::unpack_event(&value)?.json;
                events.push(LoggedEvent {
                    seq: seq_of(&key)?,
                    json: json.to_owned(),
                });
            }
            Ok(events)
        })
    }
}
