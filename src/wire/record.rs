//! Bytes on disk: one versioned, sealed form per kind of record.
//!
//! Floor 1. `store` writes and reads these; nobody else sees them.
//!
//! Every record is `version (1 byte) | body | CRC-32 of both (4 bytes, little
//! endian)`. Numbers are LEB128 varints, signed ones zigzag-folded, times the
//! difference to a base time of the record, so that any `i64` fits and common
//! ones take a byte or three.
//!
//! # Invariants
//!
//! - What was written reads back equal, for every value its types can hold.
//! - Bytes from outside never panic: whatever is not exactly a record of a
//!   version known here is a [`BadRecord`].

use crate::domain::device::DeviceId;
use crate::domain::heartbeat::{Miss, NoData, Occasion};
use crate::domain::status::Status;

pub mod addresses;
pub mod frame;
pub mod late;
pub mod logged;
pub mod names;
pub mod standing;
pub mod summary;
pub mod terms;
pub mod uplink;

/// Bytes that are no record of the kind asked for, and what is wrong with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record {0}")]
pub struct BadRecord(pub &'static str);

const SEAL_BYTES: usize = 4;

/// Builds one record.
#[derive(Clone, Debug)]
struct Packer(Vec<u8>);

impl Packer {
    fn new(version: u8) -> Self {
        Self(vec![version])
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(low_byte(value) | 0x80);
            value >>= 7;
        }
        self.0.push(low_byte(value));
    }

    /// Small for values near zero, whatever their sign.
    fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn text(&mut self, text: &str) {
        self.number(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(text.as_bytes());
    }

    fn seal(mut self) -> Vec<u8> {
        let sum = crc32fast::hash(&self.0);
        self.0.extend_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// Takes one record apart.
#[derive(Clone, Debug)]
struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    /// Checks seal and version and stands before the body.
    fn open(bytes: &'a [u8], version: u8) -> Result<Self, BadRecord> {
        let body = bytes
            .len()
            .checked_sub(SEAL_BYTES)
            .and_then(|length| bytes.split_at_checked(length));
        let (body, seal) = body.ok_or(BadRecord("is cut short"))?;
        if crc32fast::hash(body).to_le_bytes() != seal {
            return Err(BadRecord("does not match its check sum"));
        }
        let mut unpacker = Self(body);
        if unpacker.byte()? != version {
            return Err(BadRecord("has a version this program does not read"));
        }
        Ok(unpacker)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn end(&self) -> Result<(), BadRecord> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(BadRecord("is longer than its content"))
        }
    }

    fn byte(&mut self) -> Result<u8, BadRecord> {
        let (&first, rest) = self.0.split_first().ok_or(BadRecord("is cut short"))?;
        self.0 = rest;
        Ok(first)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part.leading_zeros() < shift {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadRecord("holds a number of more than 64 bits"))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, BadRecord> {
        T::try_from(self.number()?).map_err(|_| BadRecord("holds a number out of its range"))
    }

    fn signed(&mut self) -> Result<i64, BadRecord> {
        let folded = self.number()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    fn text(&mut self) -> Result<&'a str, BadRecord> {
        let length = self.small::<usize>()?;
        let split = self.0.split_at_checked(length);
        let (text, rest) = split.ok_or(BadRecord("is cut short"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| BadRecord("holds text that is not UTF-8"))
    }

    fn device(&mut self) -> Result<DeviceId, BadRecord> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| BadRecord("holds a text that is no device id"))
    }
}

/// The lowest eight bits.
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

// The numbers below are on disk: never change one, only add.

const fn status_code(status: Status) -> u8 {
    match status {
        Status::Unknown => 0,
        Status::Online => 1,
        Status::Degraded => 2,
        Status::Offline => 3,
    }
}

const fn status_of(code: u8) -> Option<Status> {
    Some(match code {
        0 => Status::Unknown,
        1 => Status::Online,
        2 => Status::Degraded,
        3 => Status::Offline,
        _ => return None,
    })
}

const fn occasion_code(occasion: Occasion) -> u8 {
    match occasion {
        Occasion::Scheduled => 0,
        Occasion::Recheck => 1,
        Occasion::FirstLook => 2,
        Occasion::OnDemand => 3,
    }
}

const fn occasion_of(code: u8) -> Option<Occasion> {
    Some(match code {
        0 => Occasion::Scheduled,
        1 => Occasion::Recheck,
        2 => Occasion::FirstLook,
        3 => Occasion::OnDemand,
        _ => return None,
    })
}

/// Outcomes without a reply; 0 is the reply.
const fn miss_code(miss: Miss) -> u8 {
    match miss {
        Miss::Timeout => 1,
        Miss::Unreachable => 2,
        Miss::TtlExceeded => 3,
        Miss::OtherError => 4,
    }
}

const fn no_data_code(no_data: NoData) -> u8 {
    match no_data {
        NoData::SendFailed => 8,
        NoData::PathDown => 9,
        NoData::Maintenance => 10,
        NoData::ClockUntrusted => 11,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_of_any_size_come_back(value: u64, signed: i64, text in ".{0,40}") {
            let mut packer = Packer::new(7);
            packer.number(value);
            packer.signed(signed);
            packer.text(&text);
            let bytes = packer.seal();
            let mut unpacker = Unpacker::open(&bytes, 7).unwrap();
            prop_assert_eq!(unpacker.number(), Ok(value));
            prop_assert_eq!(unpacker.signed(), Ok(signed));
            prop_assert_eq!(unpacker.text(), Ok(text.as_str()));
            prop_assert!(unpacker.end().is_ok());
        }
    }

    #[test]
    fn a_number_past_64_bits_is_refused() {
        let mut unpacker = Unpacker(&[0xff; 12]);
        assert!(unpacker.number().is_err());
        let mut unpacker = Unpacker(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]);
        assert!(unpacker.number().is_err());
    }

    #[test]
    fn a_flipped_bit_a_cut_or_another_version_is_no_record() {
        let mut packer = Packer::new(1);
        packer.text("some content");
        let whole = packer.seal();
        for length in 0..whole.len() {
            assert!(
                Unpacker::open(&whole[..length], 1).is_err(),
                "cut to {length}"
            );
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Unpacker::open(&bytes, 1).is_err(), "bit {bit}");
        }
        assert_eq!(
            Unpacker::open(&whole, 2).err(),
            Some(BadRecord("has a version this program does not read"))
        );
    }
}
