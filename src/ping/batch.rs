//! The engine of our own for Linux: batched system calls, no timers, no threads.
//!
//! Floor 2. One RAW socket, or one to two DGRAM ones, per address family.
//! `send` hands requests to the kernel 32 at a time, `collect` fetches all that
//! has arrived since; nothing happens in between. Kernel receive stamps keep
//! RTTs right however late a tick comes. ICMP errors come by the error queue
//! of the socket (`IP_RECVERR`), for both kinds of socket.
//!
//! # Invariants
//!
//! - Each request comes back as exactly one [`Done`].
//! - No call blocks; a single reply wakes nobody.
//! - A socket fault concerns only the requests it hit and is retried before
//!   the next send.
//! - In flight at the same time per family: at most 16 x 49,152 (RAW) or
//!   49,152 + 65,536 (DGRAM); requests beyond come back as no data.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;

use self::exchange::Inbox;
use self::lane::{Lane, Tools};
use self::socket::{Fault, Kind, Way};
use super::packet::Family;
use super::{Counters, Done, Facts, Late, OpenError, Options, Probe, Request, Trouble};
use crate::clock::Clock;
use crate::config::settings::SocketChoice;
use crate::domain::instant::Mono;

mod exchange;
mod filter;
mod lane;
mod moment;
mod pressure;
mod reader;
mod renewal;
mod socket;

/// What is wished for each receive buffer: 10,000 small replies fit.
const BUFFER_WISHED_BYTES: usize = 4 << 20;

/// A family asked within this time is still in use, however long its period.
const ASKED_LATELY: Duration = Duration::from_hours(24);

/// What Linux keeps from RAW sockets for IPv6, where it checks the checksum.
const RAW_V6_LIMIT: &str = "over IPv6 the kernel drops replies with a wrong checksum and counts \
                            them as overflowed";

/// What Linux keeps from DGRAM sockets.
const DGRAM_LIMITS: [&str; 2] = [
    "a DGRAM socket never sees replies with a wrong checksum: the kernel drops them uncounted",
    "over IPv6 a DGRAM socket is not told that the transmit queue is full: such a probe is missed",
];

/// The engine.
#[derive(Debug)]
pub struct Batch {
    clock: Arc<dyn Clock>,
    kind: Kind,
    v4: Lane,
    v6: Lane,
    inbox: Inbox,
    /// Known, not yet collected.
    done: Vec<Done>,
}

/// What tests and measurements may set besides the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The ICMP sequence of the first probe of each family.
    pub first_sequence: u16,
    /// Bytes wished for each receive and send buffer.
    pub buffer_wished_bytes: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            first_sequence: 1,
            buffer_wished_bytes: BUFFER_WISHED_BYTES,
        }
    }
}

impl Batch {
    /// Opens the sockets.
    ///
    /// An interface or a source address that is not there yet, or a machine
    /// without IPv6, is no error: requests come back as no data until it is.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoPrivilege`] where the kernel allows none of the kinds of
    /// socket asked for, [`OpenError::Socket`] where it cannot be set up.
    pub fn open(options: &Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_tuned(options, clock, Tuning::default())
    }

    /// As [`open`](Self::open), with other figures.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_tuned(
        options: &Options,
        clock: Arc<dyn Clock>,
        tuning: Tuning,
    ) -> Result<Self, OpenError> {
        let kind = choose_kind(options.socket)?;
        let lane = |family| {
            let way = Way {
                family,
                kind,
                source: options.source.map(|source| source.to_canonical()),
                interface: options.interface.clone(),
                buffer_wished_bytes: tuning.buffer_wished_bytes,
            };
            Lane::new(way.for_its_family(), tuning.first_sequence)
        };
        let mut batch = Self {
            clock,
            kind,
            v4: lane(Family::V4),
            v6: lane(Family::V6),
            inbox: Inbox::new(),
            done: Vec::new(),
        };
        batch.open_lanes()?;
        Ok(batch)
    }

    fn open_lanes(&mut self) -> Result<(), OpenError> {
        let v4 = self.v4.tend();
        let v6 = self.v6.tend();
        match (v4, v6) {
            (Err(fault), _) if !fault.is_passing && !is_no_family(&fault.source) => {
                Err(fault.into())
            }
            (Err(fault), Err(also)) if is_no_family(&fault.source) && !also.is_passing => {
                Err(also.into())
            }
            _ => Ok(()),
        }
    }

    /// The lanes, and what they need.
    fn split(&mut self) -> ([&mut Lane; 2], Tools<'_>) {
        let tools = Tools {
            clock: self.clock.as_ref(),
            inbox: &mut self.inbox,
            done: &mut self.done,
        };
        ([&mut self.v4, &mut self.v6], tools)
    }

    const fn lanes(&self) -> [&Lane; 2] {
        [&self.v4, &self.v6]
    }
}

impl Probe for Batch {
    fn send(&mut self, requests: &[Request]) {
        let (lanes, mut tools) = self.split();
        for lane in lanes {
            lane.send(requests, &mut tools);
        }
    }

    fn collect(&mut self, done: &mut Vec<Done>) {
        // Read before draining: what arrived by then is seen before its
        // deadline is judged.
        let now = self.clock.mono();
        let (lanes, mut tools) = self.split();
        for lane in lanes {
            // A family nobody asks costs no system call.
            if lane.counts.sent > 0 || lane.flight.in_flight() > 0 {
                lane.drain(&mut tools);
                lane.sweep(now, tools.done);
            }
        }
        done.append(&mut self.done);
    }

    fn take_late(&mut self, late: &mut Vec<Late>) {
        self.v4.flight.take_late(late);
        self.v6.flight.take_late(late);
    }

    fn next_deadline(&self) -> Option<Mono> {
        let known = self.done.iter().map(|done| done.known_at);
        let due = self
            .lanes()
            .into_iter()
            .filter_map(|lane| lane.flight.next_deadline());
        known.chain(due).min()
    }

    fn is_waiting(&self) -> bool {
        !self.done.is_empty() || self.lanes().iter().any(|lane| lane.flight.in_flight() > 0)
    }

    fn poll_pressed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (lanes, _) = self.split();
        let mut pressed = Poll::Pending;
        // Both are asked: each must have its wake-up registered.
        for lane in lanes {
            if lane.poll_pressed(cx).is_ready() {
                pressed = Poll::Ready(());
            }
        }
        pressed
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for lane in self.lanes() {
            let tally = lane.flight.tally();
            sum.sent += lane.counts.sent;
            sum.sent_bytes += lane.counts.sent_bytes;
            sum.send_failed += lane.counts.send_failed;
            sum.valid += tally.valid;
            sum.late += tally.late;
            sum.duplicate += tally.duplicate;
            sum.foreign += tally.foreign;
            sum.malformed += tally.malformed;
            sum.errors += tally.errors;
            sum.overflowed += lane.counts.overflowed;
        }
        sum
    }

    fn facts(&self) -> Facts {
        let doors = || self.lanes().into_iter().flat_map(|lane| &lane.doors);
        Facts {
            engine: "batch",
            socket: self.kind.word(),
            receive_buffer_bytes: doors().map(|door| door.buffer_bytes).min().unwrap_or(0),
            limits: self.limits(),
            troubles: self.troubles(),
        }
    }
}

impl Batch {
    /// A family that nobody asks is not tended, so its trouble may be long over.
    fn troubles(&self) -> Vec<Trouble> {
        let now = self.clock.mono();
        let is_new = self.lanes().iter().all(|lane| lane.asked_at.is_none());
        let told = self.lanes().into_iter().filter(|lane| {
            let is_asked = lane
                .asked_at
                .is_some_and(|asked_at| now.since(asked_at) < ASKED_LATELY);
            is_new || is_asked
        });
        told.filter_map(|lane| {
            Some(Trouble {
                family: lane.way.family,
                text: lane.trouble.clone()?,
            })
        })
        .collect()
    }

    fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        let mut smallest = usize::MAX;
        for lane in self.lanes() {
            for door in &lane.doors {
                smallest = smallest.min(door.buffer_bytes);
            }
        }
        if smallest < BUFFER_WISHED_BYTES {
            limits.push(format!(
                "receive buffer is {smallest} bytes of {BUFFER_WISHED_BYTES} wished, so bursts of \
                 replies wake the process earlier: raise net.core.rmem_max or give CAP_NET_ADMIN"
            ));
        }
        match self.kind {
            Kind::Raw if self.v6.doors.is_empty() => {}
            Kind::Raw => limits.push(RAW_V6_LIMIT.to_owned()),
            Kind::Dgram => limits.extend(DGRAM_LIMITS.map(str::to_owned)),
        }
        limits
    }
}

impl Way {
    /// Without a source address of the other family.
    fn for_its_family(mut self) -> Self {
        let is_v4 = self.family == Family::V4;
        self.source = self
            .source
            .filter(|source: &IpAddr| source.is_ipv4() == is_v4);
        self
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Socket {
            deed: fault.deed,
            source: fault.source,
        }
    }
}

/// The first kind of those wished that the kernel allows.
fn choose_kind(choice: SocketChoice) -> Result<Kind, OpenError> {
    let wished: &[Kind] = match choice {
        SocketChoice::Auto => &[Kind::Raw, Kind::Dgram],
        SocketChoice::Raw => &[Kind::Raw],
        SocketChoice::Dgram => &[Kind::Dgram],
    };
    let mut refusal = None;
    for &kind in wished {
        let tried = socket::bare(Family::V4, kind).or_else(|fault| match fault {
            fault if is_no_family(&fault) => socket::bare(Family::V6, kind),
            fault => Err(fault),
        });
        match tried {
            Ok(_) => return Ok(kind),
            Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied => refusal = Some(fault),
            Err(source) => {
                let deed = format!("open a {} ICMP socket", kind.word());
                return Err(OpenError::Socket { deed, source });
            }
        }
    }
    let source = refusal.unwrap_or_else(|| Errno::EPERM.into());
    Err(OpenError::NoPrivilege { choice, source })
}

fn is_no_family(fault: &io::Error) -> bool {
    fault.raw_os_error().map(Errno::from_raw) == Some(Errno::EAFNOSUPPORT)
}
