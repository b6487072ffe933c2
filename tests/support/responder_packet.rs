//! The packets of `responder`: echo requests read, replies and errors made.

#![allow(
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    reason = "test code: each binary uses its part, and may panic"
)]

use std::net::IpAddr;

/// An echo request as it left the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) asker: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) payload: Vec<u8>,
    header: Vec<u8>,
    icmp: Vec<u8>,
}

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crooked {
    Nothing,
    Checksum,
}

/// An echo message to be made.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) is_request: bool,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) crooked: Crooked,
}

impl Asked {
    /// An echo request; `None` for any other packet.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let (header_bytes, asker, target): (_, IpAddr, IpAddr) = match packet.first()? >> 4 {
            4 if packet.get(9) == Some(&1) => (
                usize::from(packet[0] & 0x0f) * 4,
                <[u8; 4]>::try_from(packet.get(12..16)?).ok()?.into(),
                <[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into(),
            ),
            6 if packet.get(6) == Some(&58) => (
                40,
                <[u8; 16]>::try_from(packet.get(8..24)?).ok()?.into(),
                <[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into(),
            ),
            _ => return None,
        };
        let (header, icmp) = packet.split_at_checked(header_bytes)?;
        let request = if target.is_ipv4() { 8 } else { 128 };
        if icmp.len() < 8 || icmp[0] != request {
            return None;
        }
        Some(Self {
            asker,
            target,
            identifier: u16::from_be_bytes([icmp[4], icmp[5]]),
            sequence: u16::from_be_bytes([icmp[6], icmp[7]]),
            payload: icmp[8..].to_vec(),
            header: header.to_vec(),
            icmp: icmp.to_vec(),
        })
    }

    /// An ICMP error that quotes this, from the router at the target's side.
    pub(crate) fn error(&self, kind: u8, code: u8, quoted: usize, sequence: u16) -> Vec<u8> {
        let mut icmp = vec![kind, code, 0, 0, 0, 0, 0, 0];
        icmp.extend(&self.header);
        let quote_at = icmp.len();
        icmp.extend(&self.icmp[..quoted.min(self.icmp.len())]);
        icmp[quote_at + 6..quote_at + 8].copy_from_slice(&sequence.to_be_bytes());
        let router = match self.target {
            IpAddr::V4(_) => "10.9.255.254".parse(),
            IpAddr::V6(_) => "fd09::ffff".parse(),
        };
        in_ip(
            router.expect("an address"),
            self.asker,
            icmp,
            Crooked::Nothing,
        )
    }
}

impl Packet {
    /// The right reply.
    pub(crate) fn reply(asked: &Asked) -> Self {
        Self {
            from: asked.target,
            to: asked.asker,
            is_request: false,
            identifier: asked.identifier,
            sequence: asked.sequence,
            payload: asked.payload.clone(),
            crooked: Crooked::Nothing,
        }
    }

    /// As it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let kind = match (self.from, self.is_request) {
            (IpAddr::V4(_), false) => 0,
            (IpAddr::V4(_), true) => 8,
            (IpAddr::V6(_), false) => 129,
            (IpAddr::V6(_), true) => 128,
        };
        let mut icmp = vec![kind, 0, 0, 0];
        icmp.extend(self.identifier.to_be_bytes());
        icmp.extend(self.sequence.to_be_bytes());
        icmp.extend(&self.payload);
        in_ip(self.from, self.to, icmp, self.crooked)
    }
}

fn in_ip(from: IpAddr, to: IpAddr, mut icmp: Vec<u8>, crooked: Crooked) -> Vec<u8> {
    let length = u16::try_from(icmp.len()).expect("fits an IP packet");
    let mut packet = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend([0x45, 0]);
            packet.extend((length + 20).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 1, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let header_sum = sum(&[&packet]);
            packet[10..12].copy_from_slice(&header_sum.to_be_bytes());
            let icmp_sum = sum(&[&icmp]);
            icmp[2..4].copy_from_slice(&icmp_sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([58, 64]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let pseudo = [
                &packet[8..40],
                &[0, 0],
                &length.to_be_bytes(),
                &[0, 0, 0, 58],
            ]
            .concat();
            let icmp_sum = sum(&[&pseudo, &icmp]);
            icmp[2..4].copy_from_slice(&icmp_sum.to_be_bytes());
        }
        _ => panic!("{from} and {to} are of different families"),
    }
    if crooked == Crooked::Checksum {
        icmp[3] ^= 0x10;
    }
    packet.extend(icmp);
    packet
}

/// The Internet checksum over these parts, each of even length but the last.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).expect("folded")
}
