//! All that concerns one address family: its sockets, its probes in flight.
//!
//! Floor 2. `Batch` owns one lane for IPv4 and one for IPv6.
//!
//! # Invariants
//!
//! - At most one RAW or two DGRAM sockets are open; the first of two only
//!   drains and is closed when nothing is known under its identifier.
//! - A socket fault never latches: what is closed is tried again before every
//!   send, and meanwhile requests come back as no data.
//! - An error the kernel kept from another probe is not taken for the fault of
//!   the one being sent: a refused message is tried again.

use std::net::IpAddr;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{SockaddrIn, SockaddrIn6};

use super::exchange::{Inbox, Outgoing, Peer, Queue, RECEIVED_MAX};
use super::moment::Moment;
use super::reader::{Reader, Report};
use super::renewal::random_identifier;
use super::socket::{Door, Fault, Way};
use crate::clock::Clock;
use crate::domain::heartbeat::{NoData, Outcome};
use crate::domain::instant::Mono;
use crate::ping::flight::{Flight, Ticket};
use crate::ping::packet::{self, Family};
use crate::ping::{Done, Request};

/// Requests per sending system call. Small enough that the last of them, sent
/// under one reading of the clock, is off by at most 0.1 ms.
pub(super) const CHUNK: usize = 32;
/// An identifier this young is fresh to everybody who asks for a fresh one.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Sending system calls for one message that the kernel keeps refusing.
const TRIES_MAX: u32 = 3;
/// Every IPv4 link carries packets of this size whole (RFC 791).
const UNFRAGMENTED_BYTES: usize = 576;
/// Receiving system calls per drain: a flood of replies cannot hold us for ever.
const DRAIN_ROUNDS_MAX: usize = 1_024;

/// What a lane has counted about its sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) send_failed: u64,
    pub(super) overflowed: u64,
}

/// One family.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) way: Way,
    pub(super) flight: Flight,
    pub(super) doors: Vec<Door>,
    pub(super) counts: Counts,
    /// Why no socket is open, in words.
    pub(super) trouble: Option<String>,
    /// When this family was last asked for.
    pub(super) asked_at: Option<Mono>,
    pub(super) is_pressed: bool,
    /// When the current identifier was taken.
    pub(super) renewed_at: Mono,
    chunk: Vec<Request>,
    tickets: Vec<Option<Ticket>>,
    packets: Vec<u8>,
    /// ICMP errors read, not yet judged; empty between calls.
    reports: Vec<Report>,
}

/// What sending and receiving need besides the lane itself.
pub(super) struct Tools<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) inbox: &'a mut Inbox,
    pub(super) done: &'a mut Vec<Done>,
}

impl Lane {
    /// A lane without a socket yet.
    pub(super) fn new(way: Way, first_sequence: u16) -> Self {
        Self {
            flight: Flight::new(random_identifier(0), first_sequence),
            way,
            doors: Vec::new(),
            counts: Counts::default(),
            trouble: None,
            asked_at: None,
            is_pressed: false,
            renewed_at: Mono::default(),
            chunk: Vec::with_capacity(CHUNK),
            tickets: Vec::with_capacity(CHUNK),
            packets: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// Opens the socket, or a new one for an interface that was recreated.
    /// Without effect where a good one is open.
    pub(super) fn tend(&mut self) -> Result<(), Fault> {
        if self
            .doors
            .last()
            .is_some_and(|door| !door.is_stale(&self.way))
        {
            return Ok(());
        }
        // The old one goes only for a new one: the count of open files stays.
        let opened = Door::open(&self.way, self.flight.identifiers());
        let door = match opened {
            Ok(door) => door,
            Err(fault) => {
                self.complain(&fault);
                return Err(fault);
            }
        };
        if let Some(identifier) = door.identifier {
            self.flight.use_identifier(identifier);
        }
        self.doors.clear();
        self.doors.push(door);
        if let Some(trouble) = self.trouble.take() {
            tracing::info!(family = ?self.way.family, before = trouble, "ICMP socket is open again");
        }
        Ok(())
    }

    /// Sends all requests of this family.
    pub(super) fn send(&mut self, requests: &[Request], tools: &mut Tools<'_>) {
        let family = self.way.family;
        let own = || {
            requests
                .iter()
                .filter(|request| Family::of(request.target) == family)
        };
        if own().next().is_none() {
            return;
        }
        self.asked_at = Some(tools.clock.mono());
        // The fault is kept in `trouble`; the requests come back as no data.
        if self.tend().is_ok() && own().any(|request| request.fresh_identifier) {
            let now = tools.clock.mono();
            if now.since(self.renewed_at) >= FRESH_FOR {
                self.renew(now);
            }
        }
        for &request in own() {
            if self.chunk.len() == CHUNK {
                self.send_chunk(tools);
                // Replies of near targets are here already: a long burst must
                // not overflow the receive buffer with them.
                self.relieve(tools);
            }
            self.chunk.push(Request {
                target: request.target.to_canonical(),
                ..request
            });
        }
        self.send_chunk(tools);
        self.flight.tidy();
    }

    /// Reads all that has arrived.
    pub(super) fn drain(&mut self, tools: &mut Tools<'_>) {
        match self.way.family {
            Family::V4 => self.drain_doors::<SockaddrIn>(tools),
            Family::V6 => self.drain_doors::<SockaddrIn6>(tools),
        }
    }

    /// Reads replies, as many as one system call gives: more than a chunk asks for.
    fn relieve(&mut self, tools: &mut Tools<'_>) {
        for at in 0..self.doors.len() {
            match self.way.family {
                Family::V4 => self.drain_queue::<SockaddrIn>(at, Queue::Replies, 1, tools),
                Family::V6 => self.drain_queue::<SockaddrIn6>(at, Queue::Replies, 1, tools),
            }
        }
    }

    /// Ends what is due at `now` and lets unused identifiers go.
    pub(super) fn sweep(&mut self, now: Mono, done: &mut Vec<Done>) {
        self.flight.sweep(now, done);
        if !self.flight.retire_unused() {
            return;
        }
        let known: Vec<_> = self.flight.identifiers().collect();
        self.doors.retain(|door| {
            door.identifier
                .is_none_or(|identifier| known.contains(&identifier))
        });
        self.narrow_filter();
    }

    fn send_chunk(&mut self, tools: &mut Tools<'_>) {
        if self.chunk.is_empty() {
            return;
        }
        let now = tools.clock.mono();
        if self.flight.is_crowded() && !self.doors.is_empty() {
            self.renew(now);
        }
        self.load(now);
        match self.way.family {
            Family::V4 => self.fire::<SockaddrIn>(tools),
            Family::V6 => self.fire::<SockaddrIn6>(tools),
        }
        for (request, ticket) in self.chunk.iter().zip(&self.tickets) {
            if ticket.is_none() {
                self.counts.send_failed += 1;
                tools.done.push(not_sent(request, now));
            }
        }
        self.chunk.clear();
    }

    /// Launches the chunk and writes its packets.
    fn load(&mut self, now: Mono) {
        self.packets.clear();
        self.tickets.clear();
        let is_open = !self.doors.is_empty();
        let writes_headers = self.settle_headers();
        for request in &self.chunk {
            let ticket = is_open.then(|| self.flight.launch(request, now)).flatten();
            if let Some(ticket) = ticket {
                let family = self.way.family;
                if let IpAddr::V4(target) = request.target
                    && writes_headers
                {
                    let bytes = packet_bytes(request);
                    packet::write_ipv4_header(&mut self.packets, target, bytes);
                }
                packet::write_request(
                    &mut self.packets,
                    family,
                    ticket.mark,
                    request.payload_bytes,
                );
            }
            self.tickets.push(ticket);
        }
    }

    /// Whether the chunk's packets carry IP headers of our making.
    fn settle_headers(&mut self) -> bool {
        let is_small = self
            .chunk
            .iter()
            .all(|request| packet::IPV4_HEADER_BYTES + packet_bytes(request) <= UNFRAGMENTED_BYTES);
        self.doors
            .last_mut()
            .is_some_and(|door| door.write_headers(&self.way, is_small))
    }

    /// Sends what was loaded; takes back what the kernel refuses.
    fn fire<S: Peer>(&mut self, tools: &mut Tools<'_>) {
        let Some(door) = self.doors.last() else {
            return;
        };
        let header_bytes = if door.writes_headers {
            packet::IPV4_HEADER_BYTES
        } else {
            0
        };
        let mut end = 0;
        let loaded = self
            .chunk
            .iter()
            .zip(&self.tickets)
            .filter(|(_, ticket)| ticket.is_some());
        let places: Vec<_> = loaded
            .map(|(request, _)| {
                let start = end;
                end += header_bytes + packet_bytes(request);
                (start..end, request.target)
            })
            .collect();
        let mut outgoing = Outgoing::<S>::new(&door.socket, &self.packets, places.into_iter());
        let mut refused = Vec::new();
        let count = self.tickets.iter().flatten().count();
        let mut at = 0;
        let mut tries = 1;
        while at < count {
            match outgoing.send_from(at) {
                Ok(taken) if taken > 0 => {
                    at += taken;
                    tries = 1;
                }
                Err(Errno::EINTR) => {}
                // It may be the ICMP error of another probe, told once.
                _ if tries < TRIES_MAX => tries += 1,
                fault => {
                    let fault = fault.err().map(tracing::field::display);
                    tracing::debug!(fault, "the kernel refuses an echo request");
                    refused.push(at);
                    at += 1;
                    tries = 1;
                }
            }
        }
        drop(outgoing);
        self.settle(&refused);
        if !refused.is_empty() {
            self.drain(tools);
        }
    }

    /// Counts what was sent and takes back the `refused` of the loaded ones.
    fn settle(&mut self, refused: &[usize]) {
        let header_bytes = self.way.family.ip_header_bytes();
        let mut loaded = 0;
        for (request, ticket) in self.chunk.iter().zip(&mut self.tickets) {
            let Some(launched) = *ticket else {
                continue;
            };
            if refused.contains(&loaded) {
                self.flight.abandon(launched);
                *ticket = None;
            } else {
                let bytes = header_bytes + packet_bytes(request);
                self.counts.sent += 1;
                self.counts.sent_bytes += u64::try_from(bytes).unwrap_or(0);
            }
            loaded += 1;
        }
    }

    fn drain_doors<S: Peer>(&mut self, tools: &mut Tools<'_>) {
        // Errors are read first and judged last: a reply that came before one
        // is then certainly among the replies, and counts.
        for queue in [Queue::Errors, Queue::Replies] {
            for at in 0..self.doors.len() {
                self.drain_queue::<S>(at, queue, DRAIN_ROUNDS_MAX, tools);
            }
        }
        for report in self.reports.drain(..) {
            let ended = self
                .flight
                .error(report.target, report.quote, report.kind, report.arrival);
            tools.done.extend(ended);
        }
    }

    fn drain_queue<S: Peer>(
        &mut self,
        at: usize,
        queue: Queue,
        rounds: usize,
        tools: &mut Tools<'_>,
    ) {
        let Some(door) = self.doors.get_mut(at) else {
            return;
        };
        let count = match queue {
            Queue::Errors => 8,
            Queue::Replies => self.flight.in_flight().clamp(8, RECEIVED_MAX),
        };
        let clock = tools.clock;
        let mut reader = Reader {
            way: &self.way,
            flight: &mut self.flight,
            overflowed: &mut self.counts.overflowed,
            last_overflowed: &mut door.overflowed,
            reports: &mut self.reports,
            done: tools.done,
        };
        for _ in 0..rounds {
            let mut moment = None;
            let read = tools
                .inbox
                .receive::<S>(&door.socket, queue, count, |incoming| {
                    let moment = moment.get_or_insert_with(|| Moment::now(clock));
                    reader.read(queue, incoming, moment.arrival(incoming.stamp_nanos));
                });
            // Any other error is told once in place of the next reply, and for
            // it a call may end early: only this one says that all is read.
            if read == Err(Errno::EAGAIN) {
                return;
            }
        }
    }

    fn complain(&mut self, fault: &Fault) {
        let trouble = format!("cannot {}: {}", fault.deed, fault.source);
        if self.trouble.as_ref() != Some(&trouble) {
            let family = self.way.family;
            tracing::warn!(
                ?family,
                trouble,
                "no ICMP socket; trying again before every send"
            );
        }
        self.trouble = Some(trouble);
    }
}

fn not_sent(request: &Request, now: Mono) -> Done {
    Done {
        key: request.key,
        sent_at: now,
        known_at: now,
        outcome: Outcome::NoData(NoData::SendFailed),
    }
}

fn packet_bytes(request: &Request) -> usize {
    let range = packet::PAYLOAD_BYTES;
    packet::ICMP_HEADER_BYTES + usize::from(request.payload_bytes.clamp(range.start, range.end - 1))
}
