//! ICMP echo messages as bytes, for IPv4 and IPv6.
//!
//! Floor 2, pure: no socket, no clock. The engines call [`write_request`] per
//! probe and [`read_reply`] or [`read_quote`] per message that came back.
//!
//! # Invariants
//!
//! - Reading never panics and never reads past what came in, whatever it is.
//! - Nothing of a payload is believed but the nonce, and that only by equality.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// Bytes of an ICMP echo header.
pub const ICMP_HEADER_BYTES: usize = 8;
/// Bytes of an IPv4 header as we send it, without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Bytes of the nonce at the start of every payload.
pub const NONCE_BYTES: usize = 8;
/// The payload sizes a request may have; others are held at the ends.
pub const PAYLOAD_BYTES: Range<u16> = 16..1401;

/// The hops a packet may take (RFC 1700, and the kernel's own default).
const HOPS_MAX: u8 = 64;
/// ICMP as the protocol of an IPv4 packet (RFC 792).
const PROTOCOL_ICMP: u8 = 1;

/// The ICMP type of a source quench (RFC 792; deprecated, still sent).
pub const SOURCE_QUENCH: u8 = 4;

/// Which ICMP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// ICMP over IPv4 (RFC 792).
    V4,
    /// ICMP over IPv6 (RFC 4443).
    V6,
}

/// What tells one probe from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The ICMP identifier.
    pub identifier: u16,
    /// The ICMP sequence.
    pub sequence: u16,
    /// The first 8 bytes of the payload.
    pub nonce: u64,
}

/// An echo reply, or the echo request an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The ICMP identifier.
    pub identifier: u16,
    /// The ICMP sequence.
    pub sequence: u16,
    /// The first 8 bytes of the payload; `None` where it is shorter.
    pub nonce: Option<u64>,
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Destination unreachable.
    Unreachable,
    /// Time exceeded.
    TtlExceeded,
    /// Source quench, parameter problem, packet too big.
    Other,
}

impl Family {
    /// The family of an address; an IPv4 address written as IPv6 is IPv4.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        if address.to_canonical().is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Bytes of the IP header in front of what we send.
    #[must_use]
    pub const fn ip_header_bytes(self) -> usize {
        match self {
            Self::V4 => IPV4_HEADER_BYTES,
            Self::V6 => IPV6_HEADER_BYTES,
        }
    }

    /// The ICMP type of an echo request.
    #[must_use]
    pub const fn request_type(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    /// The ICMP type of an echo reply.
    #[must_use]
    pub const fn reply_type(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }

    /// What an ICMP message of this type and code means for the probe it
    /// quotes; `None` where it means nothing, as a redirect.
    #[must_use]
    pub const fn error_kind(self, icmp_type: u8, code: u8) -> Option<ErrorKind> {
        match (self, icmp_type, code) {
            // Fragmentation needed: what IPv6 calls packet too big.
            (Self::V4, 3, 4) | (Self::V4, SOURCE_QUENCH | 12, _) | (Self::V6, 2 | 4, _) => {
                Some(ErrorKind::Other)
            }
            (Self::V4, 3, _) | (Self::V6, 1, _) => Some(ErrorKind::Unreachable),
            (Self::V4, 11, _) | (Self::V6, 3, _) => Some(ErrorKind::TtlExceeded),
            _ => None,
        }
    }
}

/// Appends an echo request with a payload of `payload_bytes` (held within
/// [`PAYLOAD_BYTES`]) to `out`; returns its place there.
///
/// The checksum is that of ICMP over IPv4. For IPv6 and for DGRAM sockets the
/// kernel writes its own over it.
pub fn write_request(
    out: &mut Vec<u8>,
    family: Family,
    mark: Mark,
    payload_bytes: u16,
) -> Range<usize> {
    let payload_bytes = payload_bytes.clamp(PAYLOAD_BYTES.start, PAYLOAD_BYTES.end - 1);
    let filler = (0..=u8::MAX)
        .cycle()
        .take(usize::from(payload_bytes) - NONCE_BYTES);
    let start = out.len();
    out.extend_from_slice(&[family.request_type(), 0, 0, 0]);
    out.extend_from_slice(&mark.identifier.to_be_bytes());
    out.extend_from_slice(&mark.sequence.to_be_bytes());
    out.extend_from_slice(&mark.nonce.to_be_bytes());
    out.extend(filler);
    let sum = out.get(start..).map_or(0, checksum);
    if let Some(field) = out.get_mut(start + 2..start + 4) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    start..out.len()
}

/// Appends the IPv4 header (RFC 791) of a packet of ICMP with `icmp_bytes` to
/// `target`, as a RAW socket with `IP_HDRINCL` takes it (raw(7)): the kernel
/// fills in source and checksum. Not to be fragmented, so its identification
/// says nothing (RFC 6864); 0 would have the kernel draw one.
pub fn write_ipv4_header(out: &mut Vec<u8>, target: Ipv4Addr, icmp_bytes: usize) {
    let total = u16::try_from(IPV4_HEADER_BYTES + icmp_bytes).unwrap_or(u16::MAX);
    let [length_high, length_low] = total.to_be_bytes();
    let [a, b, c, d] = target.octets();
    out.extend_from_slice(&[
        0x45,
        0,
        length_high,
        length_low, // version 4, 5 words long, no class, length
        0,
        1,
        0x40,
        0, // identification, do not fragment
        HOPS_MAX,
        PROTOCOL_ICMP,
        0,
        0, // checksum
        0,
        0,
        0,
        0, // source
        a,
        b,
        c,
        d,
    ]);
}

/// Reads an ICMP message as an echo reply; `None` where it is anything else.
#[must_use]
pub fn read_reply(family: Family, icmp: &[u8]) -> Option<Echo> {
    read_echo(icmp, family.reply_type())
}

/// Reads the start of a quoted ICMP message as our echo request; `None` where
/// it is anything else. A quote may end right after its ICMP header.
#[must_use]
pub fn read_quote(family: Family, icmp: &[u8]) -> Option<Echo> {
    read_echo(icmp, family.request_type())
}

/// Reads a whole ICMP message over IPv4 as an error: what it says, whom the
/// quoted echo request was for, and its mark. `None` where it is anything else.
#[must_use]
pub fn read_ipv4_error(icmp: &[u8]) -> Option<(ErrorKind, IpAddr, Echo)> {
    let (header, quoted) = icmp.split_first_chunk::<ICMP_HEADER_BYTES>()?;
    let &[icmp_type, code, ..] = header;
    let kind = Family::V4.error_kind(icmp_type, code)?;
    let echo = read_quote(Family::V4, strip_ipv4(quoted)?)?;
    let target = quoted.get(16..)?.first_chunk::<4>()?;
    Some((kind, Ipv4Addr::from(*target).into(), echo))
}

/// The ICMP message inside an IPv4 packet, options skipped; `None` where the
/// packet is not IPv4, not ICMP or cut within its header.
#[must_use]
pub fn strip_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    let is_icmp = packet.get(9) == Some(&1);
    if first >> 4 != 4 || header_bytes < IPV4_HEADER_BYTES || !is_icmp {
        return None;
    }
    packet.get(header_bytes..)
}

/// The Internet checksum (RFC 1071) of these bytes. Over a message that
/// carries its own right checksum it is 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    // Sixteen-bit sums of up to 64 KiB fit 32 bits; folded twice at the end.
    let mut pairs = bytes.chunks_exact(2);
    let mut sum: u32 = 0;
    for pair in pairs.by_ref() {
        if let &[high, low] = pair {
            sum = sum.wrapping_add(u32::from(u16::from_be_bytes([high, low])));
        }
    }
    if let &[last] = pairs.remainder() {
        sum = sum.wrapping_add(u32::from(u16::from_be_bytes([last, 0])));
    }
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    !u16::try_from(sum & 0xffff).unwrap_or(0)
}

fn read_echo(icmp: &[u8], wanted_type: u8) -> Option<Echo> {
    let (header, payload) = icmp.split_first_chunk::<ICMP_HEADER_BYTES>()?;
    let &[icmp_type, code, _, _, id_high, id_low, seq_high, seq_low] = header;
    if icmp_type != wanted_type || code != 0 {
        return None;
    }
    Some(Echo {
        identifier: u16::from_be_bytes([id_high, id_low]),
        sequence: u16::from_be_bytes([seq_high, seq_low]),
        nonce: payload
            .first_chunk::<NONCE_BYTES>()
            .map(|nonce| u64::from_be_bytes(*nonce)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARK: Mark = Mark {
        identifier: 0xbeef,
        sequence: 65_535,
        nonce: 0x0123_4567_89ab_cdef,
    };

    fn request(family: Family, payload_bytes: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let place = write_request(&mut out, family, MARK, payload_bytes);
        assert_eq!(place, 0..out.len());
        out
    }

    /// As a device answers: the type changed, the checksum made anew.
    fn reply(family: Family, payload_bytes: u16) -> Vec<u8> {
        let mut bytes = request(family, payload_bytes);
        bytes[0] = family.reply_type();
        bytes[2..4].fill(0);
        let sum = checksum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn in_ipv4(icmp: &[u8], option_words: u8) -> Vec<u8> {
        let mut packet = vec![0; 20 + usize::from(option_words) * 4];
        packet[0] = 0x40 | (5 + option_words);
        packet[9] = 1;
        packet.extend_from_slice(icmp);
        packet
    }

    #[test]
    fn smallest_request_makes_a_44_byte_ip_packet() {
        assert_eq!(IPV4_HEADER_BYTES + request(Family::V4, 16).len(), 44);
    }

    #[test]
    fn payload_size_is_held_within_its_range() {
        assert_eq!(request(Family::V4, 0).len(), 8 + 16);
        assert_eq!(request(Family::V4, 1400).len(), 8 + 1400);
        assert_eq!(request(Family::V4, 9000).len(), 8 + 1400);
    }

    #[test]
    fn requests_follow_one_another_in_one_buffer() {
        let mut out = Vec::new();
        let first = write_request(&mut out, Family::V4, MARK, 16);
        let second = write_request(&mut out, Family::V4, MARK, 17);
        assert_eq!((first, second.clone()), (0..24, 24..49));
        assert_eq!(checksum(&out[second]), 0);
    }

    #[test]
    fn checksum_is_that_of_rfc_1071() {
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&example), !0xddf2);
        assert_eq!(checksum(&vec![0xff; 65_535]), !0xff00);
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn reply_gives_back_the_mark_of_its_request() {
        for family in [Family::V4, Family::V6] {
            let echo = read_reply(family, &reply(family, 16)).unwrap();
            assert_eq!(echo.identifier, MARK.identifier);
            assert_eq!(echo.sequence, MARK.sequence);
            assert_eq!(echo.nonce, Some(MARK.nonce));
        }
    }

    #[test]
    fn own_request_seen_on_loopback_is_no_reply() {
        assert_eq!(read_reply(Family::V4, &request(Family::V4, 16)), None);
        assert_eq!(read_reply(Family::V6, &request(Family::V6, 16)), None);
    }

    #[test]
    fn reply_cut_to_eight_payload_bytes_keeps_its_nonce_and_one_byte_less_does_not() {
        let whole = reply(Family::V4, 64);
        assert_eq!(
            read_reply(Family::V4, &whole[..16]).unwrap().nonce,
            Some(MARK.nonce)
        );
        assert_eq!(read_reply(Family::V4, &whole[..15]).unwrap().nonce, None);
        assert_eq!(read_reply(Family::V4, &whole[..8]).unwrap().nonce, None);
        assert_eq!(read_reply(Family::V4, &whole[..7]), None);
    }

    #[test]
    fn ip_options_are_skipped() {
        let icmp = reply(Family::V4, 16);
        for option_words in 0..=10 {
            assert_eq!(
                strip_ipv4(&in_ipv4(&icmp, option_words)),
                Some(icmp.as_slice())
            );
        }
    }

    #[test]
    fn packet_that_is_not_icmp_over_ipv4_is_left_alone() {
        let mut packet = in_ipv4(&reply(Family::V4, 16), 0);
        packet[9] = 17;
        assert_eq!(strip_ipv4(&packet), None);
        packet[9] = 1;
        packet[0] = 0x44;
        assert_eq!(strip_ipv4(&packet), None);
        packet[0] = 0x65;
        assert_eq!(strip_ipv4(&packet), None);
        assert_eq!(strip_ipv4(&[0x4f; 30]), None);
        assert_eq!(strip_ipv4(&[]), None);
    }

    #[test]
    fn errors_mean_what_their_rfcs_say_and_a_redirect_means_nothing() {
        use ErrorKind::{Other, TtlExceeded, Unreachable};
        let v4 = |icmp_type, code| Family::V4.error_kind(icmp_type, code);
        let v6 = |icmp_type| Family::V6.error_kind(icmp_type, 0);
        assert_eq!(v4(3, 1), Some(Unreachable));
        assert_eq!(v4(3, 4), Some(Other));
        assert_eq!(v4(11, 0), Some(TtlExceeded));
        assert_eq!((v4(4, 0), v4(12, 0)), (Some(Other), Some(Other)));
        assert_eq!((v4(5, 1), v4(0, 0), v4(8, 0)), (None, None, None));
        assert_eq!(v6(1), Some(Unreachable));
        assert_eq!((v6(2), v6(4)), (Some(Other), Some(Other)));
        assert_eq!(v6(3), Some(TtlExceeded));
        assert_eq!((v6(129), v6(137)), (None, None));
    }

    #[test]
    fn error_over_ipv4_says_whose_probe_it_quotes() {
        let mut quoted = in_ipv4(&request(Family::V4, 16), 2);
        quoted[16..20].copy_from_slice(&[10, 9, 0, 7]);
        let error = [&[SOURCE_QUENCH, 0, 0, 0, 0, 0, 0, 0], quoted.as_slice()].concat();
        let (kind, target, echo) = read_ipv4_error(&error).unwrap();
        assert_eq!(kind, ErrorKind::Other);
        assert_eq!(target, IpAddr::from([10, 9, 0, 7]));
        assert_eq!(echo.sequence, MARK.sequence);
        assert_eq!(read_ipv4_error(&error[..8 + 28 + 7]), None);
        assert_eq!(read_ipv4_error(&reply(Family::V4, 64)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for family in [Family::V4, Family::V6] {
                let reply = read_reply(family, &bytes);
                prop_assert!(reply.is_none() || bytes.len() >= ICMP_HEADER_BYTES);
                let quote = read_quote(family, &bytes);
                prop_assert!(quote.is_none() || reply.is_none());
            }
            let error = read_ipv4_error(&bytes);
            prop_assert!(error.is_none() || bytes.len() >= 2 * ICMP_HEADER_BYTES + 20);
            if let Some(icmp) = strip_ipv4(&bytes) {
                prop_assert!(icmp.len() + 20 <= bytes.len());
                prop_assert!(read_reply(Family::V4, icmp).is_none() || icmp.len() >= 8);
            }
        }

        #[test]
        fn bytes_that_look_right_up_to_anywhere_make_nothing_panic(
            junk in proptest::collection::vec(any::<u8>(), 0..120),
            first in 0x40_u8..0x50,
            kind in prop::sample::select(vec![0_u8, 3, 4, 5, 8, 11, 12]),
            at in 0_usize..60,
        ) {
            let mut bytes = junk;
            for (at, byte) in [(0, first), (9, 1), (20, kind), (28, first), (37, 1), (at, kind)] {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Some(icmp) = strip_ipv4(&bytes) {
                let error = read_ipv4_error(icmp);
                prop_assert!(error.is_none() || icmp.len() >= 2 * ICMP_HEADER_BYTES + 20);
            }
        }

        #[test]
        fn one_flipped_bit_breaks_the_checksum(bit in 0_usize..24 * 8) {
            let mut bytes = reply(Family::V4, 16);
            prop_assert_eq!(checksum(&bytes), 0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(checksum(&bytes), 0);
        }
    }
}
