//! Many messages per system call: `sendmmsg` and `recvmmsg`.
//!
//! Floor 2. `lane` sends and receives through here alone. nix cannot use
//! received headers twice and they may not change threads, so they are made
//! per call; the packets' memory is kept.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrIn, SockaddrIn6, SockaddrLike,
    recvmmsg, sendmmsg,
};
use nix::sys::time::{TimeSpec, TimeValLike};
use socket2::Socket;

/// Messages per receiving system call at most.
pub(super) const RECEIVED_MAX: usize = 64;
/// Room for one received message: the biggest reply to what we ask (an IPv4
/// header with options, 8 + 1,400 bytes) fits; what is bigger comes cut.
const MESSAGE_BYTES: usize = 1_536;
/// Room for an error report: `sock_extended_err` and the offender's address.
type ErrorReport = [u8; 48];

/// An address of one family, as the kernel takes it.
pub(super) trait Peer: SockaddrLike + Copy {
    /// This address; `None` where it is of the other family.
    fn of(address: IpAddr) -> Option<Self>;
    fn address(&self) -> IpAddr;
}

impl Peer for SockaddrIn {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => Some(SocketAddrV4::new(v4, 0).into()),
            IpAddr::V6(_) => None,
        }
    }

    fn address(&self) -> IpAddr {
        self.ip().into()
    }
}

impl Peer for SockaddrIn6 {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V6(v6) => Some(SocketAddrV6::new(v6, 0, 0, 0).into()),
            IpAddr::V4(_) => None,
        }
    }

    fn address(&self) -> IpAddr {
        self.ip().into()
    }
}

/// Packets ready to be sent.
pub(super) struct Outgoing<'a, S> {
    fd: RawFd,
    headers: MultiHeaders<S>,
    packets: Vec<[IoSlice<'a>; 1]>,
    peers: Vec<Option<S>>,
}

impl<'a, S: Peer> Outgoing<'a, S> {
    /// The packets at these places of `bytes`, each with its target.
    pub(super) fn new(
        socket: &Socket,
        bytes: &'a [u8],
        places: impl ExactSizeIterator<Item = (Range<usize>, IpAddr)>,
    ) -> Self {
        let mut packets = Vec::with_capacity(places.len());
        let mut peers = Vec::with_capacity(places.len());
        let headers = MultiHeaders::preallocate(places.len(), None);
        for (place, target) in places {
            packets.push([IoSlice::new(bytes.get(place).unwrap_or(&[]))]);
            peers.push(S::of(target));
        }
        Self {
            fd: socket.as_raw_fd(),
            headers,
            packets,
            peers,
        }
    }

    /// Sends from the packet `at` on; returns how many the kernel took before
    /// the first it refused, or why it refused the first.
    pub(super) fn send_from(&mut self, at: usize) -> nix::Result<usize> {
        let packets = self.packets.get(at..).unwrap_or(&[]);
        let peers = self.peers.get(at..).unwrap_or(&[]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmmsg(self.fd, &mut self.headers, packets, peers, [], flags).map(Iterator::count)
    }
}

/// One received message.
pub(super) struct Incoming<'a> {
    /// The sender; of an error report the target of what it quotes.
    pub(super) peer: IpAddr,
    pub(super) bytes: &'a [u8],
    /// Whether the message was longer than `bytes`.
    pub(super) is_cut: bool,
    /// When the kernel received it, in nanoseconds of its wall clock.
    pub(super) stamp_nanos: Option<i64>,
    /// The kernel's counter of messages it dropped, where it tells.
    pub(super) overflowed: Option<u32>,
    /// ICMP type and code of an error report.
    pub(super) error: Option<(u8, u8)>,
}

/// Which of a socket's two queues to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Replies,
    Errors,
}

/// Memory for received messages.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; RECEIVED_MAX * MESSAGE_BYTES],
        }
    }

    /// Reads up to `count` messages (at most [`RECEIVED_MAX`]) and shows each
    /// to `each`; returns how many there were. Never blocks.
    pub(super) fn receive<S: Peer>(
        &mut self,
        socket: &Socket,
        queue: Queue,
        count: usize,
        mut each: impl FnMut(&Incoming<'_>),
    ) -> nix::Result<usize> {
        let count = count.clamp(1, RECEIVED_MAX);
        let rooms = self.bytes.chunks_exact_mut(MESSAGE_BYTES).take(count);
        let mut rooms: Vec<_> = rooms.map(|room| [IoSliceMut::new(room)]).collect();
        let (control, flags) = match queue {
            Queue::Replies => (cmsg_space!(TimeSpec, u32), MsgFlags::MSG_DONTWAIT),
            Queue::Errors => (
                cmsg_space!(TimeSpec, u32, ErrorReport),
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_ERRQUEUE,
            ),
        };
        let mut headers = MultiHeaders::<S>::preallocate(count, Some(control));
        let messages = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            rooms.iter_mut(),
            flags,
            None,
        )?;
        let mut read = 0;
        for message in messages {
            read += 1;
            if let Some(incoming) = incoming(&message) {
                each(&incoming);
            }
        }
        Ok(read)
    }
}

fn incoming<'a, S: Peer>(message: &RecvMsg<'_, 'a, S>) -> Option<Incoming<'a>> {
    let mut incoming = Incoming {
        peer: message.address?.address(),
        bytes: message.iovs().next().unwrap_or(&[]),
        is_cut: message.flags.contains(MsgFlags::MSG_TRUNC),
        stamp_nanos: None,
        overflowed: None,
        error: None,
    };
    let control: Result<_, Errno> = message.cmsgs();
    for control in control.into_iter().flatten() {
        note_control(&mut incoming, &control);
    }
    Some(incoming)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "kinds of control data that nobody asked for"
)]
fn note_control(incoming: &mut Incoming<'_>, control: &ControlMessageOwned) {
    // Origins of an error report that are ICMP and ICMPv6, not this host.
    const FROM_ICMP: [u8; 2] = [2, 3];
    match control {
        ControlMessageOwned::ScmTimestampns(stamp) => {
            incoming.stamp_nanos = Some(stamp.num_nanoseconds());
        }
        ControlMessageOwned::RxqOvfl(count) => incoming.overflowed = Some(*count),
        ControlMessageOwned::Ipv4RecvErr(report, _)
        | ControlMessageOwned::Ipv6RecvErr(report, _)
            if FROM_ICMP.contains(&report.ee_origin) =>
        {
            incoming.error = Some((report.ee_type, report.ee_code));
        }
        _ => {}
    }
}
