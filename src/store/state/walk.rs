//! A walk over what is addressed to MQTT: entries of the log and the gaps between
//! them, in the order of their numbers.

use std::ops::ControlFlow;

use super::{StateDatabase, seq_of};
use crate::store::database::{self, Fault};
use crate::wire::record::logged::{self, Entry};
use crate::wire::record::uplink::Gap;

/// Entries and gaps looked at in one slice of a walk at most.
const LOOKED_AT_MAX: usize = 4_096;

/// A gap over more numbers than this is jumped over; entries under a smaller one are
/// passed by faster.
const JUMPED_MIN: u64 = 64;

/// What is met.
pub(super) enum Item<'a> {
    /// An entry that is addressed to MQTT and under no gap, with its number.
    Entry(u64, Entry<'a>),
    /// A gap, with its last number.
    Gap(u64, Gap),
}

/// What is done with what is met, and whether to go on.
pub(super) type Visit<'a> = dyn FnMut(Item<'_>) -> Result<ControlFlow<()>, Fault> + 'a;

/// How a slice of a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// There is nothing more.
    ToTheEnd,
    /// Who was walked for had enough.
    Enough,
    /// It is long: all up to this number was met.
    UpTo(u64),
}

impl StateDatabase {
    /// Walks from the number after `after` to that before `end`.
    pub(super) fn walk(
        &self,
        after: u64,
        end: u64,
        visit: &mut Visit<'_>,
    ) -> Result<Walked, Fault> {
        database::guarded(|| self.walk_on(after, end, visit))
    }

    fn walk_on(&self, after: u64, end: u64, visit: &mut Visit<'_>) -> Result<Walked, Fault> {
        let begin = after.saturating_add(1);
        if begin >= end {
            return Ok(Walked::ToTheEnd);
        }
        let mut gaps = self.gaps.range(begin.to_be_bytes()..);
        let mut next_gap = || gaps.next().map(|entry| gap_of(&entry?)).transpose();
        let mut gap = next_gap()?;
        let mut entries = self.log.range(begin.to_be_bytes()..end.to_be_bytes());
        let (mut looked_at, mut covered_to) = (0, 0);
        while let Some(entry) = entries.next() {
            let (key, value) = entry?;
            let seq = seq_of(&key)?;
            while let Some((to, met)) = gap.take_if(|(_, gap)| gap.from <= seq) {
                looked_at += 1;
                covered_to = to;
                if visit(Item::Gap(to, met))?.is_break() {
                    return Ok(Walked::Enough);
                }
                gap = next_gap()?;
            }
            if seq <= covered_to {
                if covered_to - seq > JUMPED_MIN {
                    let begin = covered_to.saturating_add(1).min(end);
                    entries = self.log.range(begin.to_be_bytes()..end.to_be_bytes());
                }
                continue;
            }
            if looked_at >= LOOKED_AT_MAX {
                return Ok(Walked::UpTo(seq - 1));
            }
            looked_at += 1;
            let entry = logged::unpack_event(&value)?;
            if !entry.is_local && visit(Item::Entry(seq, entry))?.is_break() {
                return Ok(Walked::Enough);
            }
        }
        while let Some((to, met)) = gap.take_if(|(to, _)| *to < end) {
            if visit(Item::Gap(to, met))?.is_break() {
                return Ok(Walked::Enough);
            }
            gap = next_gap()?;
        }
        Ok(Walked::ToTheEnd)
    }
}

/// A gap as it is kept, with its last number.
pub(super) fn gap_of((key, value): &(sled::IVec, sled::IVec)) -> Result<(u64, Gap), Fault> {
    Ok((seq_of(key)?, Gap::from_bytes(value)?))
}
