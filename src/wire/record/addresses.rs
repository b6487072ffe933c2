//! Where devices were last watched, packed.
//!
//! Floor 1. A device that is found at another address after a restart is
//! another device to the verdict; this is how the restart knows.

use std::net::IpAddr;

use super::{BadRecord, Packer, Unpacker};
use crate::domain::device::DeviceId;

const VERSION: u8 = 1;
const V4: u8 = 4;
const V6: u8 = 6;

/// The list as records of about `bytes_max` bytes or less.
#[must_use]
pub fn to_chunks(addresses: &[(DeviceId, IpAddr)], bytes_max: usize) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let mut open = Packer::new(VERSION);
    for (device, address) in addresses {
        let mut entry = Packer(Vec::new());
        entry.text(device.as_str());
        match address {
            IpAddr::V4(v4) => {
                entry.byte(V4);
                entry.0.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                entry.byte(V6);
                entry.0.extend(v6.octets());
            }
        }
        if open.len() + entry.len() > bytes_max {
            chunks.push(std::mem::replace(&mut open, Packer::new(VERSION)).seal());
        }
        open.0.extend_from_slice(&entry.0);
    }
    chunks.push(open.seal());
    chunks
}

/// Reads one of the records.
pub fn from_chunk(bytes: &[u8]) -> Result<Vec<(DeviceId, IpAddr)>, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let mut addresses = Vec::new();
    while !unpacker.is_empty() {
        let device = unpacker.device()?;
        let address = match unpacker.byte()? {
            V4 => IpAddr::from(octets::<4>(&mut unpacker)?),
            V6 => IpAddr::from(octets::<16>(&mut unpacker)?),
            _ => return Err(BadRecord("holds an address of no known family")),
        };
        addresses.push((device, address));
    }
    Ok(addresses)
}

fn octets<const N: usize>(unpacker: &mut Unpacker<'_>) -> Result<[u8; N], BadRecord> {
    let mut octets = [0; N];
    for octet in &mut octets {
        *octet = unpacker.byte()?;
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_come_back_in_order_from_chunks_within_the_limit() {
        let addresses: Vec<(DeviceId, IpAddr)> = (0..1_000_u32)
            .map(|n| {
                let device = format!("meter-{n}").parse().unwrap();
                let v4 = IpAddr::from(n.to_be_bytes());
                let v6 = IpAddr::from((u128::from(n) << 64).to_be_bytes());
                (device, if n % 2 == 0 { v4 } else { v6 })
            })
            .collect();
        let chunks = to_chunks(&addresses, 500);
        assert!(chunks.len() > 10 && chunks.iter().all(|chunk| chunk.len() <= 504));
        let read: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| from_chunk(chunk).unwrap())
            .collect();
        assert_eq!(read, addresses);
        assert_eq!(from_chunk(&to_chunks(&[], 500)[0]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn bytes_from_outside_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let sealed = { let mut packer = Packer::new(VERSION); packer.0.extend(&bytes); packer.seal() };
            for bytes in [bytes, sealed] {
                drop(from_chunk(&bytes));
            }
        }
    }
}
