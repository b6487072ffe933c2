//! Probes on their way, shared by the engine and its tasks.
//!
//! Floor 2. `Surge` admits and collects, one task per probe reports.
//!
//! # Invariants
//!
//! - Each admitted request leaves through [`Flights::collect`] exactly once: by
//!   the report of its task, or without one shortly after its deadline.
//! - No more than [`IN_FLIGHT_MAX`] are in flight; those beyond are no data.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::domain::heartbeat::{Miss, NoData, Outcome};
use crate::domain::instant::Mono;
use crate::ping::{Counters, Done, Request};

/// Probes in flight at most. Large, so that silent devices, each in flight for
/// a whole timeout, never take the room of living ones.
pub(super) const IN_FLIGHT_MAX: usize = 10_000;

/// A task that has not reported this long after its deadline never got its
/// packet out: surge-ping counts the timeout from the send.
const GRACE: Duration = Duration::from_millis(250);

/// Tokio's timers tick in milliseconds: a deadline is reported within this.
const TICK: Duration = Duration::from_millis(2);

/// A probe's number in the table.
pub(super) type Number = u64;

/// What a task has to say of its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// An echo reply, this long after the send.
    Replied(Duration),
    /// An ICMP error, this long after the send.
    Refused(Miss, Duration),
    /// Nothing within the timeout.
    Silent,
    /// The packet did not get out.
    NotSent,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Flights {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_number: Number,
    in_flight: HashMap<Number, Flight>,
    deadlines: BTreeSet<(Mono, Number)>,
    done: Vec<Done>,
    counters: Counters,
    failing_since: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    key: u64,
    sent_at: Mono,
    timeout: Duration,
    bytes: u64,
}

impl Flights {
    /// Takes a request handed over at `now`; `None`: no room, it is no data.
    pub(super) fn admit(&self, request: &Request, now: Mono) -> Option<Number> {
        let mut table = self.table();
        let flight = Flight {
            key: request.key,
            sent_at: now,
            timeout: request.timeout,
            bytes: bytes_on_the_wire(request),
        };
        if table.in_flight.len() >= IN_FLIGHT_MAX {
            table.finish(flight, Report::NotSent, now);
            return None;
        }
        table.next_number += 1;
        let number = table.next_number;
        table.in_flight.insert(number, flight);
        table.deadlines.insert((flight.deadline(), number));
        Some(number)
    }

    /// Notes that the packet of this probe leaves at `at`.
    pub(super) fn sent(&self, number: Number, at: Mono) {
        let mut table = self.table();
        let Some(flight) = table.in_flight.get_mut(&number) else {
            return;
        };
        let before = flight.deadline();
        flight.sent_at = at;
        let after = flight.deadline();
        table.deadlines.remove(&(before, number));
        table.deadlines.insert((after, number));
    }

    /// Ends a probe; does nothing if it has ended before.
    pub(super) fn report(&self, number: Number, report: Report, now: Mono) {
        let mut table = self.table();
        if let Some(flight) = table.take(number) {
            table.finish(flight, report, now);
        }
    }

    /// Appends all that is known by `now`.
    pub(super) fn collect(&self, now: Mono, done: &mut Vec<Done>) {
        let mut table = self.table();
        while let Some(&(deadline, number)) = table.deadlines.first() {
            if deadline.plus(GRACE) > now {
                break;
            }
            match table.take(number) {
                Some(flight) => table.finish(flight, Report::NotSent, now),
                None => {
                    table.deadlines.remove(&(deadline, number));
                }
            }
        }
        done.append(&mut table.done);
    }

    /// When `collect` will have something to tell at the latest.
    pub(super) fn next_deadline(&self, now: Mono) -> Option<Mono> {
        let table = self.table();
        if !table.done.is_empty() {
            return Some(now);
        }
        let &(deadline, _) = table.deadlines.first()?;
        Some(deadline.max(now).plus(TICK))
    }

    /// Whether `collect` will have something to tell at all.
    pub(super) fn is_waiting(&self) -> bool {
        let table = self.table();
        !table.in_flight.is_empty() || !table.done.is_empty()
    }

    /// Counts since the start.
    pub(super) fn counters(&self) -> Counters {
        self.table().counters
    }

    /// Since when every send has failed, if so.
    pub(super) fn failing_since(&self) -> Option<Mono> {
        self.table().failing_since
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Each change is whole before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, number: Number) -> Option<Flight> {
        let flight = self.in_flight.remove(&number)?;
        self.deadlines.remove(&(flight.deadline(), number));
        Some(flight)
    }

    fn finish(&mut self, flight: Flight, report: Report, now: Mono) {
        if report == Report::NotSent {
            self.counters.send_failed += 1;
            self.failing_since.get_or_insert(now);
        } else {
            self.counters.sent += 1;
            self.counters.sent_bytes += flight.bytes;
            self.failing_since = None;
        }
        let (after, outcome) = match report {
            // A runtime that was held up reads a reply late; past the timeout
            // nobody can tell any more when it came.
            Report::Replied(rtt) if rtt > flight.timeout => {
                self.counters.late += 1;
                (flight.timeout, Outcome::Missed(Miss::Timeout))
            }
            Report::Replied(rtt) => {
                self.counters.valid += 1;
                (rtt, Outcome::replied(rtt))
            }
            Report::Refused(miss, after) => {
                self.counters.errors += 1;
                (after.min(flight.timeout), Outcome::Missed(miss))
            }
            Report::Silent => (flight.timeout, Outcome::Missed(Miss::Timeout)),
            Report::NotSent => (
                now.since(flight.sent_at).min(flight.timeout),
                Outcome::NoData(NoData::SendFailed),
            ),
        };
        self.done.push(Done {
            key: flight.key,
            sent_at: flight.sent_at,
            known_at: flight.sent_at.plus(after),
            outcome,
        });
    }
}

impl Flight {
    fn deadline(&self) -> Mono {
        self.sent_at.plus(self.timeout)
    }
}

/// Bytes of an echo request with its IP header.
const fn bytes_on_the_wire(request: &Request) -> u64 {
    let ip_header = match request.target {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    ip_header + 8 + request.payload_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn request(key: u64) -> Request {
        Request {
            key,
            target: IpAddr::from([127, 0, 0, 1]),
            timeout: TIMEOUT,
            late_window: Duration::from_mins(1),
            payload_bytes: 16,
            fresh_identifier: false,
        }
    }

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    fn collected(flights: &Flights, now: Mono) -> Vec<Done> {
        let mut done = Vec::new();
        flights.collect(now, &mut done);
        done
    }

    #[test]
    fn timeout_and_rtt_run_from_the_send_not_from_the_hand_over() {
        let flights = Flights::default();
        let number = flights.admit(&request(1), at(0)).unwrap();
        assert_eq!(flights.next_deadline(at(0)), Some(at(5_002)));
        flights.sent(number, at(300));
        assert_eq!(flights.next_deadline(at(0)), Some(at(5_302)));
        flights.report(number, Report::Replied(Duration::from_millis(20)), at(321));
        let done = collected(&flights, at(400));
        assert_eq!(done[0].sent_at, at(300));
        assert_eq!(done[0].known_at, at(320));
        assert_eq!(done[0].outcome, Outcome::Replied { rtt_us: 20_000 });
        assert!(!flights.is_waiting());
        assert_eq!(flights.next_deadline(at(400)), None);
    }

    #[test]
    fn a_reply_read_after_the_timeout_is_a_miss() {
        let flights = Flights::default();
        let number = flights.admit(&request(1), at(0)).unwrap();
        flights.report(
            number,
            Report::Replied(Duration::from_millis(5_001)),
            at(9_000),
        );
        let done = collected(&flights, at(9_000));
        assert_eq!(done[0].outcome, Outcome::Missed(Miss::Timeout));
        assert_eq!(done[0].known_at, at(5_000));
        assert_eq!(flights.counters().late, 1);
    }

    #[test]
    fn a_packet_that_never_got_out_is_no_data_and_not_a_miss() {
        let flights = Flights::default();
        flights.admit(&request(1), at(0)).unwrap();
        assert!(collected(&flights, at(5_100)).is_empty());
        let done = collected(&flights, at(5_250));
        assert_eq!(done[0].outcome, Outcome::NoData(NoData::SendFailed));
        assert_eq!(flights.failing_since(), Some(at(5_250)));
    }

    #[test]
    fn a_probe_ends_once_whoever_reports_last() {
        let flights = Flights::default();
        let number = flights.admit(&request(1), at(0)).unwrap();
        assert_eq!(collected(&flights, at(6_000)).len(), 1);
        flights.report(number, Report::Silent, at(6_001));
        flights.sent(number, at(6_002));
        assert!(collected(&flights, at(20_000)).is_empty());
        assert!(!flights.is_waiting());
    }

    #[test]
    fn beyond_the_limit_a_request_is_no_data_at_once() {
        let flights = Flights::default();
        for key in 0..10_000 {
            assert!(flights.admit(&request(key), at(0)).is_some());
        }
        assert_eq!(flights.admit(&request(10_000), at(0)), None);
        assert_eq!(flights.next_deadline(at(0)), Some(at(0)));
        let done = collected(&flights, at(0));
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].key, 10_000);
        assert_eq!(done[0].outcome, Outcome::NoData(NoData::SendFailed));
    }

    #[test]
    fn failing_ends_with_the_first_packet_that_gets_out() {
        let flights = Flights::default();
        let first = flights.admit(&request(1), at(0)).unwrap();
        let second = flights.admit(&request(2), at(0)).unwrap();
        flights.report(first, Report::NotSent, at(1));
        assert_eq!(flights.failing_since(), Some(at(1)));
        flights.report(second, Report::Silent, at(5_000));
        assert_eq!(flights.failing_since(), None);
        let counters = flights.counters();
        assert_eq!((counters.sent, counters.send_failed), (1, 1));
        assert_eq!(counters.sent_bytes, 44);
    }
}
