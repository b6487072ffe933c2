//! One ICMP socket, opened and set up.
//!
//! Floor 2. `lane` opens sockets here and replaces them when the interface
//! they are bound to was recreated.
//!
//! # Invariants
//!
//! - No socket blocks, and none outlives its door.
//! - What need not work (big buffers, stamps, error queue) does not fail the
//!   opening; what is missing is told by `Batch::facts`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::filter;
use crate::ping::packet::Family;

/// Which of the two kinds of ICMP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Raw,
    Dgram,
}

/// How the sockets of one family are to be opened.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) family: Family,
    pub(super) kind: Kind,
    pub(super) source: Option<IpAddr>,
    pub(super) interface: Option<String>,
    pub(super) buffer_wished_bytes: usize,
}

/// An open socket.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) socket: Socket,
    /// Registered with the runtime only while replies may overflow the buffer.
    pub(super) watch: Option<UdpSocket>,
    /// The identifier the kernel gave a DGRAM socket.
    pub(super) identifier: Option<u16>,
    /// As the kernel grants it.
    pub(super) buffer_bytes: usize,
    /// The kernel's own counter, as last told.
    pub(super) overflowed: u32,
    /// Whether packets sent carry an IP header of our making.
    pub(super) writes_headers: bool,
    interface_index: Option<u32>,
}

/// Why a socket could not be opened.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) deed: String,
    pub(super) source: io::Error,
    /// The interface or address is not there, but may come.
    pub(super) is_passing: bool,
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Raw => "RAW",
            Self::Dgram => "DGRAM",
        }
    }
}

/// A socket of this kind without any setting: shows whether it is allowed.
pub(super) fn bare(family: Family, kind: Kind) -> io::Result<Socket> {
    let (domain, protocol) = match family {
        Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
        Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket_type = match kind {
        Kind::Raw => Type::RAW,
        Kind::Dgram => Type::DGRAM,
    };
    Socket::new(domain, socket_type, Some(protocol))
}

impl Way {
    /// What kind of socket, in words.
    fn word(&self) -> &'static str {
        match (self.kind, self.family) {
            (Kind::Raw, Family::V4) => "RAW ICMP",
            (Kind::Raw, Family::V6) => "RAW ICMPv6",
            (Kind::Dgram, Family::V4) => "DGRAM ICMP",
            (Kind::Dgram, Family::V6) => "DGRAM ICMPv6",
        }
    }
}

impl Door {
    /// Opens a socket this way; a RAW one hears replies to `identifiers`.
    pub(super) fn open(
        way: &Way,
        identifiers: impl ExactSizeIterator<Item = u16>,
    ) -> Result<Self, Fault> {
        let kind = way.word();
        let socket = bare(way.family, way.kind).map_err(|source| Fault {
            deed: format!("open a {kind} socket"),
            source,
            is_passing: false,
        })?;
        let set_up = |source| Fault {
            deed: format!("set up the {kind} socket"),
            source,
            is_passing: false,
        };
        if way.kind == Kind::Raw {
            let program = filter::replies_to(way.family, identifiers);
            socket.attach_filter(&program).map_err(set_up)?;
        }
        socket.set_nonblocking(true).map_err(set_up)?;
        let interface_index = bind_interface(&socket, way)?;
        let identifier = bind_source(&socket, way)?;
        Ok(Self {
            buffer_bytes: equip(&socket, way),
            socket,
            watch: None,
            identifier,
            overflowed: 0,
            writes_headers: false,
            interface_index,
        })
    }

    /// Whether the interface it is bound to has been replaced by another of
    /// the same name: the kernel binds to the number, which has changed.
    pub(super) fn is_stale(&self, way: &Way) -> bool {
        let Some(name) = way.interface.as_deref() else {
            return false;
        };
        if_nametoindex(name).is_ok_and(|index| Some(index) != self.interface_index)
    }

    /// Takes IP headers of our making from now on, or the kernel's; says which.
    ///
    /// With headers of ours the kernel neither assembles a packet nor draws an
    /// identification for it, nor would it take it apart for a small link.
    pub(super) fn write_headers(&mut self, way: &Way, wished: bool) -> bool {
        let can = way.kind == Kind::Raw && way.family == Family::V4;
        if can && self.writes_headers != wished {
            match self.socket.set_header_included_v4(wished) {
                Ok(()) => self.writes_headers = wished,
                Err(fault) => tracing::debug!(%fault, "the kernel keeps writing IP headers"),
            }
        }
        self.writes_headers
    }

    /// Lets a RAW socket hear replies to these identifiers only.
    pub(super) fn listen_for(
        &self,
        family: Family,
        identifiers: impl ExactSizeIterator<Item = u16>,
    ) -> io::Result<()> {
        self.socket
            .attach_filter(&filter::replies_to(family, identifiers))
    }
}

fn bind_interface(socket: &Socket, way: &Way) -> Result<Option<u32>, Fault> {
    let Some(name) = way.interface.as_deref() else {
        return Ok(None);
    };
    let index = if_nametoindex(name).map_err(io::Error::from);
    let bound = index.and_then(|index| {
        socket.bind_device(Some(name.as_bytes()))?;
        Ok(Some(index))
    });
    bound.map_err(|source| Fault {
        deed: format!("bind the {} socket to interface {name}", way.word()),
        is_passing: is_errno(&source, &[Errno::ENODEV, Errno::ENXIO]),
        source,
    })
}

/// Binds to the source address, if one is set; a DGRAM socket in any case,
/// since that is when the kernel gives it its identifier.
fn bind_source(socket: &Socket, way: &Way) -> Result<Option<u16>, Fault> {
    if way.source.is_none() && way.kind == Kind::Raw {
        return Ok(None);
    }
    let any = match way.family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let source = way.source.unwrap_or(any);
    let bound = socket.bind(&SocketAddr::new(source, 0).into());
    let local = bound.and_then(|()| socket.local_addr());
    let local = local.map_err(|fault| Fault {
        deed: format!("bind the {} socket to address {source}", way.word()),
        is_passing: is_errno(&fault, &[Errno::EADDRNOTAVAIL]),
        source: fault,
    })?;
    let is_dgram = way.kind == Kind::Dgram;
    Ok(local
        .as_socket()
        .filter(|_| is_dgram)
        .map(|local| local.port()))
}

/// Big buffers, stamps, error queue, overflow counter: each as far as it can
/// be had. Returns the receive buffer granted.
fn equip(socket: &Socket, way: &Way) -> usize {
    let wished = way.buffer_wished_bytes;
    if setsockopt(socket, sockopt::RcvBufForce, &wished).is_err() {
        // Held at net.core.rmem_max by the kernel, without an error.
        note(
            "receive buffer",
            setsockopt(socket, sockopt::RcvBuf, &wished),
        );
    }
    // A full send buffer would turn the rest of a burst into no data.
    if setsockopt(socket, sockopt::SndBufForce, &wished).is_err() {
        note("send buffer", setsockopt(socket, sockopt::SndBuf, &wished));
    }
    note(
        "receive stamps",
        setsockopt(socket, sockopt::ReceiveTimestampns, &true),
    );
    note("overflow counter", setsockopt(socket, sockopt::RxqOvfl, &1));
    // Also what makes the kernel tell of a full transmit queue (ENOBUFS).
    let error_queue = match way.family {
        Family::V4 => setsockopt(socket, sockopt::Ipv4RecvErr, &true),
        Family::V6 => setsockopt(socket, sockopt::Ipv6RecvErr, &true),
    };
    note("error queue", error_queue);
    getsockopt(socket, sockopt::RcvBuf).unwrap_or(0)
}

fn note(what: &str, outcome: nix::Result<()>) {
    if let Err(fault) = outcome {
        tracing::debug!(what, %fault, "the kernel refuses a socket setting");
    }
}

fn is_errno(fault: &io::Error, kinds: &[Errno]) -> bool {
    let errno = fault.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| kinds.contains(&errno))
}
