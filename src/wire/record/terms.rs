//! Since when and how often devices were to be asked, packed.
//!
//! Floor 1. Body, per device: id, how many terms, then per term the time minus
//! that of the term before, in ms (signed varint), and 0 for "not at all" or 1
//! and the period in whole seconds and the nanoseconds of the rest.

use std::time::Duration;

use super::{BadRecord, Packer, Unpacker};
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::domain::terms::{TERMS_MAX, Term, Terms};

const VERSION: u8 = 1;
const PAUSE: u8 = 0;
const PERIOD: u8 = 1;

/// The list as records of about `bytes_max` bytes or less; no device is split.
#[must_use]
pub fn to_chunks<'a>(
    terms: impl IntoIterator<Item = (&'a DeviceId, &'a Terms)>,
    bytes_max: usize,
) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let mut open = Packer::new(VERSION);
    for (device, terms) in terms {
        let entry = entry(device, terms);
        if open.len() + entry.len() > bytes_max {
            chunks.push(std::mem::replace(&mut open, Packer::new(VERSION)).seal());
        }
        open.0.extend_from_slice(&entry.0);
    }
    chunks.push(open.seal());
    chunks
}

fn entry(device: &DeviceId, terms: &Terms) -> Packer {
    let terms = terms.as_slice();
    let mut entry = Packer(Vec::new());
    entry.text(device.as_str());
    entry.number(u64::try_from(terms.len()).unwrap_or(u64::MAX));
    let mut last = 0_i64;
    for term in terms {
        // Wrapping, so that even the two ends of the range are a difference.
        entry.signed(term.from.millis().wrapping_sub(last));
        last = term.from.millis();
        match term.period {
            None => entry.byte(PAUSE),
            Some(period) => {
                entry.byte(PERIOD);
                entry.number(period.as_secs());
                entry.number(period.subsec_nanos().into());
            }
        }
    }
    entry
}

/// Reads one of the records.
pub fn from_chunk(bytes: &[u8]) -> Result<Vec<(DeviceId, Terms)>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let mut all = Vec::new();
    while !unpacker.is_empty() {
        let device = unpacker.device()?;
        let count = unpacker.small::<usize>()?;
        if count > TERMS_MAX {
            return Err(BadRecord("holds more terms than a device has"));
        }
        let mut last = 0_i64;
        let mut terms = Vec::with_capacity(count);
        for _ in 0..count {
            last = last.wrapping_add(unpacker.signed()?);
            let from = Wall::from_millis(last);
            let period = period(&mut unpacker)?;
            terms.push(Term { from, period });
        }
        all.push((device, Terms::restored(terms)));
    }
    Ok(all)
}

fn period(unpacker: &mut Unpacker<'_>) -> Result<Option<Duration>, BadRecord> {
    match unpacker.byte()? {
        PAUSE => Ok(None),
        PERIOD => {
            let (seconds, nanos) = (unpacker.number()?, unpacker.small::<u32>()?);
            if nanos >= 1_000_000_000 {
                return Err(BadRecord("holds a number out of its range"));
            }
            Ok(Some(Duration::new(seconds, nanos)))
        }
        _ => Err(BadRecord("holds a term of no known kind")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn term()(
            from: i64,
            period in proptest::option::of((any::<u64>(), 0..1_000_000_000_u32)),
        ) -> Term {
            let period = period.map(|(seconds, nanos)| Duration::new(seconds, nanos));
            Term { from: Wall::from_millis(from), period }
        }
    }

    proptest! {
        #[test]
        fn terms_come_back_from_chunks_within_the_limit(
            terms in prop::collection::vec(prop::collection::vec(term(), 0..=TERMS_MAX), 0..40),
        ) {
            let terms: Vec<(DeviceId, Terms)> = (0..)
                .zip(terms)
                .map(|(n, terms)| {
                    (format!("a-meter-of-the-site{n}").parse().unwrap(), Terms::restored(terms))
                })
                .collect();
            let chunks = to_chunks(terms.iter().map(|(device, terms)| (device, terms)), 1_500);
            prop_assert!(chunks.iter().all(|chunk| chunk.len() <= 1_504));
            let read: Vec<_> = chunks
                .iter()
                .flat_map(|chunk| from_chunk(chunk).unwrap())
                .collect();
            prop_assert_eq!(read, terms);
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let sealed = { let mut packer = Packer::new(VERSION); packer.0.extend(&bytes); packer.seal() };
            for bytes in [bytes, sealed] {
                drop(from_chunk(&bytes));
            }
        }
    }
}
