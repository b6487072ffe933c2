//! The portable engine, on the crate surge-ping, for small sites and for
//! systems other than Linux.
//!
//! Floor 2. `app` opens it where `probe.engine` says `surge`, or `auto` off
//! Linux. surge-ping gives one future per probe; each runs as a task, a
//! dispatcher starts them in small bursts so that replies are read in between
//! (the receive buffer cannot be enlarged from outside).
//!
//! # Invariants
//!
//! - Each request comes back as exactly one [`Done`], see `flights`.
//! - No reply is credited to another probe than its own, see `marks`.
//! - An ICMP error is a miss, although surge-ping hands it over like a reply.
//! - A silent device holds up nobody: there is no limit on concurrency below
//!   `IN_FLIGHT_MAX`, and beyond it a request is no data, not a wait.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use surge_ping::{IcmpPacket, PingIdentifier, PingSequence, SurgeError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::{Counters, Done, Facts, Late, OpenError, Options, Probe, Request};
use crate::clock::Clock;
use crate::domain::heartbeat::Miss;
use crate::domain::instant::Mono;

mod flights;
mod marks;
mod sockets;

use flights::{Flights, IN_FLIGHT_MAX, Number, Report};
use marks::{Mark, Marks};
use sockets::Sockets;

/// Probes started before replies are read again. Linux's default receive buffer
/// holds the replies of 192; of 500 started at once the others stay unheard.
const BURST: usize = 16;

/// Sockets on which nothing got out for this long are opened anew, at most this
/// often.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// A DGRAM socket is replaced for a fresh identifier at most this often.
const ROTATE_EVERY: Duration = Duration::from_mins(1);

/// The engine on surge-ping.
pub struct Surge {
    clock: Arc<dyn Clock>,
    options: Options,
    runtime: Handle,
    sockets: Arc<Sockets>,
    opened_at: Mono,
    marks: Marks,
    flights: Arc<Flights>,
    orders: mpsc::Sender<Order>,
    dispatcher: AbortHandle,
}

/// One probe to start.
#[derive(Debug)]
struct Order {
    number: Number,
    target: IpAddr,
    timeout: Duration,
    payload_bytes: u16,
    mark: Mark,
    /// Held until the probe has ended: the last holder closes the sockets.
    sockets: Arc<Sockets>,
}

impl Surge {
    /// Opens the sockets and starts the dispatcher. An interface or source
    /// address that is not there yet is waited for: until then every request is
    /// no data.
    pub fn open(options: &Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let runtime = Handle::try_current().map_err(|_| {
            OpenError::Unsupported("engine surge runs inside a tokio runtime only".into())
        })?;
        let sockets = Arc::new(Sockets::open(options)?);
        let flights = Arc::new(Flights::default());
        let (orders, waiting) = mpsc::channel(IN_FLIGHT_MAX);
        let dispatcher = runtime
            .spawn(dispatch(waiting, Arc::clone(&flights), Arc::clone(&clock)))
            .abort_handle();
        Ok(Self {
            opened_at: clock.mono(),
            marks: Marks::starting_from(clock.wall_nanos().cast_unsigned()),
            options: options.clone(),
            runtime,
            sockets,
            flights,
            orders,
            dispatcher,
            clock,
        })
    }

    fn admit(&mut self, request: &Request, now: Mono) {
        let Some(number) = self.flights.admit(request, now) else {
            return;
        };
        let order = Order {
            number,
            target: request.target,
            timeout: request.timeout,
            payload_bytes: request.payload_bytes,
            mark: self.marks.next(request, now),
            sockets: Arc::clone(&self.sockets),
        };
        if self.orders.try_send(order).is_err() {
            self.flights.report(number, Report::NotSent, now);
        }
    }

    /// Opens the sockets anew where the old ones are of no use: their interface
    /// or address went away, or the kernel's identifier is to change.
    fn renew(&mut self, requests: &[Request], now: Mono) {
        let age = now.since(self.opened_at);
        let is_dead = sockets::is_bound(&self.options)
            && age >= RENEW_EVERY
            && self
                .flights
                .failing_since()
                .is_some_and(|since| now.since(since) >= RENEW_EVERY);
        let is_stale = age >= ROTATE_EVERY
            && self.sockets.word() == "DGRAM"
            && requests.iter().any(|request| request.fresh_identifier);
        if !is_dead && !is_stale {
            return;
        }
        let _inside = self.runtime.enter();
        match Sockets::open(&self.options) {
            Ok(sockets) => self.sockets = Arc::new(sockets),
            Err(fault) => tracing::warn!(%fault, "sockets stay as they are"),
        }
        // Also after a failure: try again at the same slow pace.
        self.opened_at = now;
    }
}

impl Probe for Surge {
    fn send(&mut self, requests: &[Request]) {
        let now = self.clock.mono();
        self.renew(requests, now);
        for request in requests {
            self.admit(request, now);
        }
    }

    fn collect(&mut self, done: &mut Vec<Done>) {
        self.flights.collect(self.clock.mono(), done);
    }

    /// Their library does not tell of them, but for those a held-up runtime read
    /// late, which are counted.
    fn take_late(&mut self, _late: &mut Vec<Late>) {}

    fn next_deadline(&self) -> Option<Mono> {
        self.flights.next_deadline(self.clock.mono())
    }

    fn is_waiting(&self) -> bool {
        self.flights.is_waiting()
    }

    fn poll_pressed(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        // Replies are read by tasks of their own, whatever the caller does.
        Poll::Pending
    }

    fn counters(&self) -> Counters {
        self.flights.counters()
    }

    fn facts(&self) -> Facts {
        let mut limits: Vec<String> = [
            "The payload of replies is not seen: no nonce is checked, short replies count.",
            "Replies with a wrong ICMP checksum count on a RAW socket.",
            "Duplicate, late, foreign and malformed replies are dropped uncounted.",
            "An ICMP redirect ends its probe as missed.",
            "RTTs are taken by the user clock, and the receive buffer is the system's default.",
        ]
        .map(String::from)
        .into();
        if self.sockets.word() == "DGRAM" {
            limits
                .push("A DGRAM socket sees no ICMP errors here: unreachable is a timeout.".into());
        }
        if let Some(fault) = &self.sockets.v6_fault {
            limits.push(format!("IPv6 devices cannot be asked: {fault}."));
        }
        Facts {
            engine: "surge",
            socket: self.sockets.word(),
            receive_buffer_bytes: 0,
            limits,
            troubles: Vec::new(),
        }
    }
}

impl Drop for Surge {
    fn drop(&mut self) {
        self.dispatcher.abort();
    }
}

impl fmt::Debug for Surge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surge")
            .field("sockets", &self.sockets)
            .field("counters", &self.flights.counters())
            .finish_non_exhaustive()
    }
}

/// Starts probes, and lets replies be read between bursts. Ends with the engine;
/// the probes under way end with it.
async fn dispatch(
    mut waiting: mpsc::Receiver<Order>,
    flights: Arc<Flights>,
    clock: Arc<dyn Clock>,
) {
    let mut probes = JoinSet::new();
    let mut in_burst = 0;
    while let Some(order) = waiting.recv().await {
        probes.spawn(ask(order, Arc::clone(&flights), Arc::clone(&clock)));
        while probes.try_join_next().is_some() {}
        in_burst += 1;
        if in_burst == BURST {
            in_burst = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Asks one device and reports what came of it.
async fn ask(order: Order, flights: Arc<Flights>, clock: Arc<dyn Clock>) {
    let report = match order.sockets.for_target(order.target) {
        None => Report::NotSent,
        Some(client) => {
            let identifier = PingIdentifier(order.mark.identifier);
            let mut pinger = client.pinger(order.target, identifier).await;
            pinger.timeout(order.timeout);
            let payload = vec![0; usize::from(order.payload_bytes)];
            flights.sent(order.number, clock.mono());
            let sequence = PingSequence(order.mark.sequence);
            match pinger.ping(sequence, &payload).await {
                Ok((packet, after)) => judged(&packet, after),
                Err(SurgeError::Timeout { .. }) => Report::Silent,
                // The kernel refused, or surge-ping did: says nothing about the device.
                Err(
                    SurgeError::IOError(_)
                    | SurgeError::IncorrectBufferSize
                    | SurgeError::MalformedPacket(_)
                    | SurgeError::EchoRequestPacket
                    | SurgeError::NetworkError
                    | SurgeError::IdenticalRequests { .. }
                    | SurgeError::ClientDestroyed,
                ) => Report::NotSent,
            }
        }
    };
    flights.report(order.number, report, clock.mono());
}

/// A packet that surge-ping matched is not always a reply: an ICMP error that
/// quotes the probe is handed over just like one.
fn judged(packet: &IcmpPacket, after: Duration) -> Report {
    let miss = match packet {
        IcmpPacket::V4(v4) => match v4.get_icmp_type().0 {
            0 => return Report::Replied(after),
            3 => Miss::Unreachable,
            11 => Miss::TtlExceeded,
            _ => Miss::OtherError,
        },
        IcmpPacket::V6(v6) => match v6.get_icmpv6_type().0 {
            129 => return Report::Replied(after),
            1 => Miss::Unreachable,
            3 => Miss::TtlExceeded,
            _ => Miss::OtherError,
        },
    };
    Report::Refused(miss, after)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use surge_ping::{Icmpv4Packet, Icmpv6Packet};

    use super::*;

    const AFTER: Duration = Duration::from_millis(7);

    /// What is made of an `ICMPv4` message of this type that quotes a probe.
    fn v4(kind: u8) -> Report {
        let home = Ipv4Addr::LOCALHOST;
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
        ]);
        message.extend([8, 0, 0, 0, 0, 7, 0, 1]);
        let packet = Icmpv4Packet::decode(&message, socket2::Type::DGRAM, home, home).unwrap();
        judged(&IcmpPacket::V4(packet), AFTER)
    }

    /// The same for `ICMPv6`.
    fn v6(kind: u8) -> Report {
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend([0x60, 0, 0, 0, 0, 8, 58, 64]);
        message.extend([Ipv6Addr::LOCALHOST.octets(); 2].concat());
        message.extend([128, 0, 0, 0, 0, 7, 0, 1]);
        let packet = Icmpv6Packet::decode(&message, Ipv6Addr::LOCALHOST).unwrap();
        judged(&IcmpPacket::V6(packet), AFTER)
    }

    #[test]
    fn only_an_echo_reply_is_a_reply() {
        assert_eq!(v4(0), Report::Replied(AFTER));
        assert_eq!(v6(129), Report::Replied(AFTER));
        for kind in (1..=255).filter(|&kind| kind != 8) {
            assert!(!matches!(v4(kind), Report::Replied(_)), "{kind}");
        }
        for kind in (0..=255).filter(|&kind| kind != 128 && kind != 129) {
            assert!(!matches!(v6(kind), Report::Replied(_)), "{kind}");
        }
    }

    #[test]
    fn errors_mean_what_rfc_792_and_rfc_4443_say() {
        for (report, miss) in [
            (v4(3), Miss::Unreachable),
            (v4(11), Miss::TtlExceeded),
            (v4(4), Miss::OtherError),
            (v4(12), Miss::OtherError),
            (v6(1), Miss::Unreachable),
            (v6(3), Miss::TtlExceeded),
            (v6(2), Miss::OtherError),
            (v6(4), Miss::OtherError),
        ] {
            assert_eq!(report, Report::Refused(miss, AFTER));
        }
    }
}
