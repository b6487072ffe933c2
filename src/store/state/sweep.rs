//! The removal of entries and gaps whose time is up, in small steps.
//!
//! # Invariants
//!
//! - What waits for an uplink is not removed, nor what was handed out to it and is
//!   not acknowledged: its number would be sent with another content.
//! - What is removed though it waited, because there is no uplink, is counted no more
//!   from the same transaction on.

use sled::Transactional as _;
use sled::transaction::ConflictableTransactionError;

use super::{PLACE, StateDatabase, UPLINK, fault_of, seq_of};
use crate::domain::instant::Wall;
use crate::domain::outbox::{Class, Load};
use crate::store::database::{self, Fault};
use crate::store::step::bytes_of;
use crate::wire::record::logged::{self, Entry};
use crate::wire::record::uplink::Gap;

/// Entries removed in one transaction at most.
const REMOVED_MAX: usize = 512;

/// Entries looked at in one step of a removal at most.
const LOOKED_AT_MAX: usize = 4_096;

/// So many entries in a row that are to stay end the look for old ones. Not the
/// first one: a clock that was wrong for a while may have dated it.
const YOUNG_MAX: usize = 64;

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Rule {
    /// All entries that were produced before a time.
    Old,
    /// Those about failed heartbeats.
    FailedHeartbeats,
}

/// What is not removed.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Held {
    /// Whether what waits for the uplink stays.
    pub(in crate::store) for_uplink: bool,
    /// Entries from this number on stay.
    pub(in crate::store) end: u64,
    /// What was produced later than this was dated by a clock that was ahead, and is
    /// neither old nor young.
    pub(in crate::store) now: Wall,
}

/// What one step finds.
#[derive(Default)]
struct Found {
    begin: u64,
    doomed: Vec<Doomed>,
    /// Below this number everything was looked at.
    looked_below: u64,
    /// Everything below this number is old enough to have been decided on.
    decided_below: u64,
    /// The first entry that is old enough and stays because it waits.
    first_held: Option<u64>,
    is_long: bool,
}

/// An entry to be removed, and what it is to be counted for, if it waited.
struct Doomed {
    seq: u64,
    waited: Option<(Class, u64)>,
}

/// Tells of ascending numbers whether they are under a gap.
struct Cover {
    gaps: sled::Iter,
    gap: Option<(u64, Gap)>,
}

impl Rule {
    const fn index(self) -> usize {
        match self {
            Self::Old => 0,
            Self::FailedHeartbeats => 1,
        }
    }

    fn dooms(self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Old => true,
            Self::FailedHeartbeats => logged::is_failed_heartbeat(entry.kind, entry.json),
        }
    }
}

impl StateDatabase {
    /// Removes some of the entries that were produced before `from`, starting at
    /// number `at` or where there may be some; tells where to go on.
    pub(in crate::store) fn sweep(
        &mut self,
        (rule, at): (Rule, Option<u64>),
        from: Wall,
        held: &Held,
    ) -> Result<Option<u64>, Fault> {
        let begin = self.sweep_from(rule, at);
        if begin >= held.end {
            return Ok(None);
        }
        let found = self.find_doomed(rule, begin, from, held)?;
        self.note_swept(rule, &found)?;
        let next = found.looked_below;
        Ok((found.is_long && next < held.end).then_some(next))
    }

    /// Removes gaps that are acknowledged; tells whether there may be more.
    pub(in crate::store) fn sweep_gaps(&mut self) -> Result<bool, Fault> {
        let done = ..=self.uplink.cursor.to_be_bytes();
        let old = database::guarded(|| {
            let keys = self.gaps.range(done).keys().take(REMOVED_MAX);
            keys.map(|key| seq_of(&key?)).collect::<Result<Vec<_>, _>>()
        })?;
        if !old.is_empty() {
            // With the cursor: before it no gap may be missing that was told.
            self.write_uplink(self.uplink.clone(), &[], &old)?;
        }
        Ok(old.len() == REMOVED_MAX)
    }

    /// Forgets that entries from `seq` on were looked at: some of them wait no more.
    pub(super) fn sweep_again_from(&mut self, seq: u64) {
        for swept in &mut self.hints.swept {
            *swept = seq.min(*swept);
        }
    }

    /// Forgets it of all entries: they are held no more, or held from now on.
    pub(in crate::store) fn sweep_again(&mut self) {
        self.hints.swept = [0; 2];
    }

    /// Where to look for what may go.
    fn sweep_from(&self, rule: Rule, at: Option<u64>) -> u64 {
        let at = at.unwrap_or(match rule {
            Rule::Old => 0,
            Rule::FailedHeartbeats => self.uplink.swept_below,
        });
        if at <= self.uplink.cursor {
            return at;
        }
        let swept = self.hints.swept.get(rule.index()).copied();
        at.max(swept.unwrap_or_default())
    }

    fn find_doomed(&self, rule: Rule, begin: u64, from: Wall, held: &Held) -> Result<Found, Fault> {
        let mut found = Found {
            begin,
            looked_below: begin,
            decided_below: begin,
            ..Found::default()
        };
        let mut young = 0;
        database::guarded(|| {
            let mut cover = self.cover(begin);
            let range = begin.to_be_bytes()..held.end.to_be_bytes();
            for (looked_at, entry) in self.log.range(range).enumerate() {
                if found.doomed.len() >= REMOVED_MAX || looked_at >= LOOKED_AT_MAX {
                    found.is_long = true;
                    return Ok(());
                }
                let (key, value) = entry?;
                let seq = seq_of(&key)?;
                let entry = logged::unpack_event(&value)?;
                found.looked_below = seq + 1;
                let produced_at = logged::produced_at(entry.json);
                if produced_at.is_some_and(|at| at > held.now) {
                    continue;
                }
                if produced_at.is_none_or(|at| at >= from) {
                    young += 1;
                    if young >= YOUNG_MAX {
                        return Ok(());
                    }
                    continue;
                }
                young = 0;
                found.decided_below = seq + 1;
                if !rule.dooms(&entry) {
                    continue;
                }
                let waits = !entry.is_local && seq > self.uplink.cursor && !cover.covers(seq)?;
                if waits && (held.for_uplink || seq <= self.told_to) {
                    found.first_held.get_or_insert(seq);
                    continue;
                }
                let waited = waits.then(|| (entry.kind.class(), bytes_of(entry.json)));
                found.doomed.push(Doomed { seq, waited });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Removes what was found and notes how far was looked, in one transaction,
    /// without flushing it.
    fn note_swept(&mut self, rule: Rule, found: &Found) -> Result<(), Fault> {
        let (mut place, mut uplink) = (self.place.clone(), self.uplink.clone());
        if let Some(last) = found.doomed.last() {
            place.pruned_below = place.pruned_below.max(last.seq + 1);
        }
        let is_own = |doomed: &&Doomed| doomed.seq >= place.base_seq;
        let own = found.doomed.iter().filter(is_own).count();
        let older = found.doomed.len() - own;
        place.pruned_count += u64::try_from(own).unwrap_or(u64::MAX);
        for (class, bytes) in found.doomed.iter().filter_map(|doomed| doomed.waited) {
            uplink.take_out(class, Load { events: 1, bytes });
        }
        if rule == Rule::FailedHeartbeats && found.begin <= uplink.swept_below {
            let swept_below = found.first_held.unwrap_or(found.decided_below);
            uplink.swept_below = uplink.swept_below.max(swept_below);
        }
        if found.doomed.is_empty() && uplink == self.uplink {
            self.note_hint(rule, found);
            return Ok(());
        }
        let (place_bytes, uplink_bytes) = (place.to_bytes(), uplink.to_bytes());
        database::guarded(|| {
            let result = (&self.log, &self.meta).transaction(|(log, meta)| {
                for doomed in &found.doomed {
                    log.remove(&doomed.seq.to_be_bytes())?;
                }
                meta.insert(PLACE, place_bytes.as_slice())?;
                meta.insert(UPLINK, uplink_bytes.as_slice())?;
                Ok::<(), ConflictableTransactionError<()>>(())
            });
            result.map_err(|error| fault_of(&error))
        })?;
        (self.place, self.uplink) = (place, uplink);
        let older = u64::try_from(older).unwrap_or(u64::MAX);
        self.older_count = self.older_count.saturating_sub(older);
        self.forget_first();
        self.note_hint(rule, found);
        Ok(())
    }

    fn note_hint(&mut self, rule: Rule, found: &Found) {
        if let Some(swept) = self.hints.swept.get_mut(rule.index())
            && found.decided_below > self.uplink.cursor
        {
            *swept = (*swept).max(found.decided_below);
        }
    }

    fn cover(&self, begin: u64) -> Cover {
        Cover {
            gaps: self.gaps.range(begin.to_be_bytes()..),
            gap: None,
        }
    }
}

impl Cover {
    fn covers(&mut self, seq: u64) -> Result<bool, Fault> {
        while self.gap.as_ref().is_none_or(|(to, _)| *to < seq) {
            let Some(entry) = self.gaps.next() else {
                return Ok(false);
            };
            self.gap = Some(super::walk::gap_of(&entry?)?);
        }
        Ok(self.gap.as_ref().is_some_and(|(_, gap)| gap.from <= seq))
    }
}
