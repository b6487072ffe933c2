//! Lists of device ids, packed.
//!
//! Floor 1.

use super::{BadRecord, Packer, Unpacker};
use crate::domain::device::DeviceId;

const VERSION: u8 = 1;

/// Some of the ids, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The record.
    pub bytes: Vec<u8>,
    /// How many ids it holds.
    pub count: usize,
}

/// The list as records of about `bytes_max` bytes or less.
#[must_use]
pub fn to_chunks(devices: &[DeviceId], bytes_max: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut rest = devices;
    while !rest.is_empty() {
        let mut packer = Packer::new(VERSION);
        let mut count = 0;
        for device in rest {
            if count > 0 && packer.len() + device.as_str().len() >= bytes_max {
                break;
            }
            packer.text(device.as_str());
            count += 1;
        }
        chunks.push(Chunk {
            bytes: packer.seal(),
            count,
        });
        rest = rest.get(count..).unwrap_or_default();
    }
    chunks
}

/// Reads one of the records.
pub fn from_chunk(bytes: &[u8]) -> Result<Vec<DeviceId>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let mut devices = Vec::new();
    while !unpacker.is_empty() {
        devices.push(unpacker.device()?);
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_in_order_from_chunks_within_the_limit() {
        let devices: Vec<DeviceId> = (0..1_000)
            .map(|n| format!("meter-{n}").parse().unwrap())
            .collect();
        let chunks = to_chunks(&devices, 500);
        let mut read = Vec::new();
        for chunk in &chunks {
            assert!(chunk.bytes.len() <= 504);
            let part = from_chunk(&chunk.bytes).unwrap();
            assert_eq!(part.len(), chunk.count);
            read.extend(part);
        }
        assert_eq!(read, devices);
        assert!(to_chunks(&[], 500).is_empty());
        assert!(from_chunk(b"nonsense").is_err());
    }
}
