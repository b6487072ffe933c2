//! Late replies of a day, counted by device.
//!
//! Floor 1. Body: per device its number in the day and how many there were, both
//! varints.

use super::{BadRecord, Packer, Unpacker};

const VERSION: u8 = 1;

/// Devices in one record at most, so that it stays below 3 KB.
pub const DEVICES_MAX: usize = 256;

/// The record of these counts.
#[must_use]
pub fn pack(counts: &[(u32, u32)]) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    for &(number, count) in counts {
        packer.number(number.into());
        packer.number(count.into());
    }
    packer.seal()
}

/// Reads a record.
pub fn unpack(bytes: &[u8]) -> Result<Vec<(u32, u32)>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let mut counts = Vec::new();
    while !unpacker.is_empty() {
        counts.push((unpacker.small()?, unpacker.small()?));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_of_any_size_come_back(
            counts in prop::collection::vec(any::<(u32, u32)>(), 0..DEVICES_MAX),
        ) {
            let bytes = pack(&counts);
            prop_assert!(bytes.len() < 3_000);
            prop_assert_eq!(unpack(&bytes), Ok(counts));
        }

        #[test]
        fn bytes_from_outside_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let sealed = { let mut packer = Packer::new(VERSION); packer.0.extend(&bytes); packer.seal() };
            for bytes in [bytes, sealed] {
                drop(unpack(&bytes));
            }
        }
    }
}
