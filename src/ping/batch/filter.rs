//! What the kernel lets through to a RAW socket: echo replies to our own
//! identifiers, so that other programs' pings cost us nothing.
//!
//! Floor 2, pure: makes classic BPF programs, `socket` attaches them. ICMP
//! errors come by the error queue, which no filter touches; but for the source
//! quench, which Linux keeps from the error queue of RAW sockets.
//!
//! Operation codes: <https://docs.kernel.org/networking/filter.html>.

use socket2::SockFilter;

use crate::ping::packet::{Family, SOURCE_QUENCH};

/// Load the IPv4 header's length into X.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
/// Load the byte at X + k.
const LOAD_BYTE_AFTER_X: u16 = 0x50;
/// Load the half word at X + k.
const LOAD_HALF_AFTER_X: u16 = 0x48;
/// Load the byte at k.
const LOAD_BYTE: u16 = 0x30;
/// Load the half word at k.
const LOAD_HALF: u16 = 0x28;
/// Jump if equal to k.
const JUMP_IF_EQUAL: u16 = 0x15;
/// Return: keep k bytes of the packet.
const RETURN: u16 = 0x06;

/// Byte of the identifier in an ICMP echo header.
const IDENTIFIER_AT: u32 = 4;

/// Lets echo replies with one of these identifiers through, nothing else.
///
/// At most 200 identifiers, since a jump reaches 255 instructions.
pub(super) fn replies_to(
    family: Family,
    identifiers: impl ExactSizeIterator<Item = u16>,
) -> Vec<SockFilter> {
    // After the type: load the identifier, n comparisons, drop, keep.
    let comparisons = u8::try_from(identifiers.len()).unwrap_or(u8::MAX).min(200);
    let mut program = match family {
        // An IPv4 RAW socket sees the IP header, an IPv6 one does not.
        Family::V4 => vec![
            SockFilter::new(LOAD_HEADER_LENGTH, 0, 0, 0),
            SockFilter::new(LOAD_BYTE_AFTER_X, 0, 0, 0),
        ],
        Family::V6 => vec![SockFilter::new(LOAD_BYTE, 0, 0, 0)],
    };
    if family == Family::V4 {
        // Past the reply test, the load, the comparisons and the drop.
        let keep = comparisons + 3;
        program.push(SockFilter::new(
            JUMP_IF_EQUAL,
            keep,
            0,
            SOURCE_QUENCH.into(),
        ));
    }
    let reply = u32::from(family.reply_type());
    program.push(SockFilter::new(JUMP_IF_EQUAL, 0, comparisons + 1, reply));
    program.push(match family {
        Family::V4 => SockFilter::new(LOAD_HALF_AFTER_X, 0, 0, IDENTIFIER_AT),
        Family::V6 => SockFilter::new(LOAD_HALF, 0, 0, IDENTIFIER_AT),
    });
    for (identifier, after) in identifiers.zip((0..comparisons).rev()) {
        program.push(SockFilter::new(
            JUMP_IF_EQUAL,
            after + 1,
            0,
            identifier.into(),
        ));
    }
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program
}
