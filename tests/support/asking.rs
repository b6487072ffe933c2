//! What tests of the batch engine have in common: opening it, asking, waiting.

#![allow(
    clippy::allow_attributes,
    clippy::expect_used,
    dead_code,
    reason = "test code: each binary uses its part, and may panic"
)]

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sitebeat::clock::SystemClock;
use sitebeat::config::settings::SocketChoice;
use sitebeat::domain::heartbeat::{Miss, NoData, Outcome};
use sitebeat::ping::batch::{Batch, Tuning};
use sitebeat::ping::{Counters, Done, Options, Probe, Request};

pub(crate) const RAW: SocketChoice = SocketChoice::Raw;
pub(crate) const DGRAM: SocketChoice = SocketChoice::Dgram;
pub(crate) const BOTH: [SocketChoice; 2] = [RAW, DGRAM];
pub(crate) const MISSED: Outcome = Outcome::Missed(Miss::Timeout);
pub(crate) const NOT_SENT: Outcome = Outcome::NoData(NoData::SendFailed);
/// Long enough for a busy machine, where a reply is expected.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// The engine on this socket.
pub(crate) fn open(socket: SocketChoice) -> Batch {
    open_tuned(socket, Tuning::default())
}

pub(crate) fn open_tuned(socket: SocketChoice, tuning: Tuning) -> Batch {
    let options = Options {
        socket,
        ..Options::default()
    };
    let clock = Arc::new(SystemClock::new());
    Batch::open_tuned(&options, clock, tuning).expect("open: needs root")
}

/// A request to this address, in no hurry.
pub(crate) fn ask(key: u64, target: &str) -> Request {
    ask_address(key, target.parse().expect("an address"))
}

pub(crate) fn ask_address(key: u64, target: IpAddr) -> Request {
    Request {
        key,
        target,
        timeout: PATIENT,
        late_window: Duration::from_mins(1),
        payload_bytes: 16,
        fresh_identifier: false,
    }
}

/// The same request with another timeout.
pub(crate) fn within(timeout_ms: u64, request: Request) -> Request {
    Request {
        timeout: Duration::from_millis(timeout_ms),
        ..request
    }
}

/// Collects until `count` are done; their timeouts are the limit.
pub(crate) fn all_done(batch: &mut Batch, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    while done.len() < count {
        batch.collect(&mut done);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(done.len(), count);
    assert!(!batch.is_waiting());
    done
}

/// Sends one request and waits for its outcome.
pub(crate) fn outcome(batch: &mut Batch, request: Request) -> Outcome {
    batch.send(&[request]);
    all_done(batch, 1).remove(0).outcome
}

/// Collects until the counters are so; nothing may come to its end meanwhile.
pub(crate) fn until(batch: &mut Batch, is_so: impl Fn(&Counters) -> bool) {
    let mut done = Vec::new();
    for _ in 0..PATIENT.as_millis() {
        batch.collect(&mut done);
        if is_so(&batch.counters()) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(is_so(&batch.counters()), "{:?}", batch.counters());
    assert_eq!(done, []);
}

pub(crate) fn is_reply(outcome: Outcome) -> bool {
    outcome.rtt_us().is_some()
}

/// How many of these are replies.
pub(crate) fn replied(done: &[Done]) -> usize {
    done.iter().filter(|done| is_reply(done.outcome)).count()
}

/// valid, late, duplicate, foreign, malformed, errors
pub(crate) fn kinds(batch: &Batch) -> [u64; 6] {
    let Counters {
        valid,
        late,
        duplicate,
        foreign,
        malformed,
        errors,
        ..
    } = batch.counters();
    [valid, late, duplicate, foreign, malformed, errors]
}
