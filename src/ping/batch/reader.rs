//! From a received message to what it means for the probes.
//!
//! Floor 2. `lane` makes a reader per received batch.

use std::net::IpAddr;

use super::exchange::{Incoming, Queue};
use super::socket::{Kind, Way};
use crate::ping::Done;
use crate::ping::flight::{Arrival, Flight};
use crate::ping::packet::{self, Echo, ErrorKind, Family};

/// An ICMP error that quotes an echo request, not yet judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) target: IpAddr,
    pub(super) quote: Echo,
    pub(super) kind: ErrorKind,
    pub(super) arrival: Arrival,
}

/// Tells the table what a message is.
pub(super) struct Reader<'a> {
    pub(super) way: &'a Way,
    pub(super) flight: &'a mut Flight,
    pub(super) overflowed: &'a mut u64,
    pub(super) last_overflowed: &'a mut u32,
    pub(super) reports: &'a mut Vec<Report>,
    pub(super) done: &'a mut Vec<Done>,
}

impl Reader<'_> {
    pub(super) fn read(&mut self, queue: Queue, incoming: &Incoming<'_>, arrival: Arrival) {
        if let Some(count) = incoming.overflowed {
            *self.overflowed += u64::from(count.wrapping_sub(*self.last_overflowed));
            *self.last_overflowed = count;
        }
        match queue {
            Queue::Errors => self.reports.extend(self.report(incoming, arrival)),
            Queue::Replies => {
                let ended = self.read_reply(incoming, arrival);
                self.done.extend(ended);
            }
        }
    }

    fn read_reply(&mut self, incoming: &Incoming<'_>, arrival: Arrival) -> Option<Done> {
        let family = self.way.family;
        // Only IPv4 RAW sockets show the IP header and leave the checksum to us.
        let is_bare = family == Family::V4 && self.way.kind == Kind::Raw;
        let icmp = if is_bare {
            packet::strip_ipv4(incoming.bytes)?
        } else {
            incoming.bytes
        };
        let is_intact = !is_bare || (!incoming.is_cut && packet::checksum(icmp) == 0);
        if let Some(echo) = packet::read_reply(family, icmp) {
            return self.flight.reply(incoming.peer, echo, arrival, is_intact);
        }
        let (kind, target, quote) =
            packet::read_ipv4_error(icmp).filter(|_| is_bare && is_intact)?;
        self.flight.error(target, quote, kind, arrival)
    }

    /// What the error queue tells; `None` for this host's own errors and all
    /// that does not quote an echo request.
    fn report(&self, incoming: &Incoming<'_>, arrival: Arrival) -> Option<Report> {
        let family = self.way.family;
        let (icmp_type, code) = incoming.error?;
        // The quote begins with the IP header where that was of our making; an
        // echo request of our own begins with an 8, which is no such header.
        let quoted = packet::strip_ipv4(incoming.bytes).unwrap_or(incoming.bytes);
        Some(Report {
            target: incoming.peer,
            quote: packet::read_quote(family, quoted)?,
            kind: family.error_kind(icmp_type, code)?,
            arrival,
        })
    }
}
