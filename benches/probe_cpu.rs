//! CPU per probe of the batch engine over 10,000 answering loopback addresses,
//! side by side with `fping -c1 -i0` in alternating rounds.
//!
//! `cargo bench --bench probe_cpu`, as root, with fping installed. It runs in a
//! network namespace of its own. User and system time of the whole process are
//! counted: of this one the difference over a round, of fping its whole run.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be taken says so and ends"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sitebeat::clock::SystemClock;
use sitebeat::config::settings::SocketChoice;
use sitebeat::ping::batch::Batch;
use sitebeat::ping::{Options, Probe, Request};

use net::Net;

#[path = "../tests/support/net.rs"]
mod net;

const TARGETS: u16 = 10_000;
const ROUNDS: usize = 7;
/// Requests handed over per tick: as for 60,000 and for 10,000 devices a minute
/// at 20 ticks a second.
const DUE_PER_TICK: [usize; 2] = [64, 8];

fn main() {
    let net = Net::new();
    net.run(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let list = folder.path().join("targets");
        let lines: Vec<_> = (0..TARGETS).map(|n| host(n).to_string()).collect();
        std::fs::write(&list, lines.join("\n")).expect("the list of targets");
        let list = list.to_str().expect("a readable path");
        let mut raw = open(SocketChoice::Raw);
        let mut dgram = open(SocketChoice::Dgram);
        let [many, few] = DUE_PER_TICK;
        let mut figures: [Vec<f64>; 5] = Default::default();
        for _ in 0..ROUNDS {
            figures[0].push(fping(list));
            figures[1].push(batch(&mut raw, many));
            figures[2].push(batch(&mut raw, few));
            figures[3].push(batch(&mut dgram, many));
            figures[4].push(batch(&mut dgram, few));
        }
        let [fping, raw_many, raw_few, dgram_many, dgram_few] = figures.map(median);
        say("fping -c1 -i0", fping, fping);
        say("batch RAW, 64 per tick", raw_many, fping);
        say("batch RAW, 8 per tick", raw_few, fping);
        say("batch DGRAM, 64 per tick", dgram_many, fping);
        say("batch DGRAM, 8 per tick", dgram_few, fping);
    });
}

fn open(socket: SocketChoice) -> Batch {
    let options = Options {
        socket,
        ..Options::default()
    };
    Batch::open(&options, Arc::new(SystemClock::new())).expect("a socket: needs root")
}

fn host(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

/// Microseconds of CPU per probe of a run of fping.
fn fping(list: &str) -> f64 {
    let before = used_us(UsageWho::RUSAGE_CHILDREN);
    let status = Command::new("fping")
        .args(["-c1", "-i0", "-q", "-f", list])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("fping is installed");
    assert!(status.success(), "fping missed somebody: {status}");
    (used_us(UsageWho::RUSAGE_CHILDREN) - before) / f64::from(TARGETS)
}

/// Microseconds of CPU per probe of a round of ours.
fn batch(engine: &mut Batch, due_per_tick: usize) -> f64 {
    let requests: Vec<_> = (0..TARGETS).map(request).collect();
    let mut done = Vec::with_capacity(requests.len());
    let before = used_us(UsageWho::RUSAGE_SELF);
    for due in requests.chunks(due_per_tick) {
        engine.send(due);
        engine.collect(&mut done);
    }
    while engine.is_waiting() {
        thread::sleep(Duration::from_millis(1));
        engine.collect(&mut done);
    }
    let used = used_us(UsageWho::RUSAGE_SELF) - before;
    let replied = done.iter().filter(|done| done.outcome.rtt_us().is_some());
    assert_eq!(replied.count(), usize::from(TARGETS));
    used / f64::from(TARGETS)
}

fn request(number: u16) -> Request {
    Request {
        key: number.into(),
        target: IpAddr::V4(host(number)),
        timeout: Duration::from_secs(5),
        late_window: Duration::from_mins(1),
        payload_bytes: 16,
        fresh_identifier: false,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a run, far below 2^52"
)]
fn used_us(who: UsageWho) -> f64 {
    let usage = getrusage(who).expect("the kernel counts CPU time");
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[expect(clippy::print_stdout, reason = "what a measurement is for")]
fn say(what: &str, figure: f64, fping: f64) {
    println!(
        "{what:25} {figure:6.2} us CPU per probe, {:.2} of fping",
        figure / fping
    );
}
