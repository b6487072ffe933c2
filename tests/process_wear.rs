//! What the real program writes to its disk: flash wears by it. Bytes are those
//! that the kernel counts for the process (`write_bytes` of `/proc/PID/io`), at
//! one heartbeat per device and flush, as by default, only thirty times as fast.
//!
//! Three gateways are watched at the same time through one window.
#![cfg(test)]

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use process::{Launch, Program, wait_for, write_inventory};

const WINDOW: Duration = Duration::from_secs(40);
const PERIOD_MS: u64 = 2_000;

/// A gateway of `devices` that all answer; its folder is on a disk, not in memory.
struct Gateway {
    program: Program,
    _folder: tempfile::TempDir,
}

/// What was written, and how many heartbeats came, up to a moment.
#[derive(Clone, Copy)]
struct Reading {
    bytes: u64,
    heartbeats: u64,
}

impl Gateway {
    fn start(devices: u32) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        is_on_a_disk(folder.path());
        write_inventory(folder.path(), devices);
        let program = Launch::new(folder.path(), &[])
            .set("probe.heartbeat_period_ms", &PERIOD_MS.to_string())
            .set("probe.offline_timeout_ms", "1000")
            .set("store.flush_every_ms", &PERIOD_MS.to_string())
            .start();
        program.wait_for_counts(|counts| counts["online"] == devices);
        Self {
            program,
            _folder: folder,
        }
    }

    fn read(&self) -> Reading {
        let node = self.program.json("/api/v1/node");
        let io = fs::read_to_string(format!("/proc/{}/io", self.program.pid())).unwrap();
        let line = io
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes: "));
        Reading {
            bytes: line.unwrap().parse().unwrap(),
            heartbeats: node["probe"]["replies"]["valid"].as_u64().unwrap(),
        }
    }

    /// No verdict has changed: what was written is heartbeats alone.
    fn events(&self) -> u64 {
        let node = self.program.json("/api/v1/node");
        node["store"]["events"].as_u64().unwrap()
    }

    fn wait_for_flush(&self) {
        let flushed = || self.program.json("/api/v1/node")["store"]["last_flush"].clone();
        let before = flushed();
        wait_for("a flush", || (flushed() != before).then_some(()));
    }
}

/// The kernel counts no bytes of a file system in memory.
fn is_on_a_disk(folder: &Path) {
    let kind = nix::sys::statfs::statfs(folder).unwrap().filesystem_type();
    assert_ne!(
        kind,
        nix::sys::statfs::TMPFS_MAGIC,
        "{} is in memory, so no wear can be measured: put the target folder on a disk",
        folder.display()
    );
}

#[test]
#[expect(clippy::print_stdout, reason = "a measurement is worth reading")]
fn a_heartbeat_costs_a_hundred_bytes_and_an_idle_gateway_next_to_nothing() {
    let busy = [(200, 100.0), (1_000, 60.0)];
    let gateways = busy.map(|(devices, _)| Gateway::start(devices));
    let idle = Gateway::start(0);
    for gateway in &gateways {
        // The first flush of a day makes its database.
        gateway.wait_for_flush();
    }
    let events = gateways.each_ref().map(Gateway::events);
    let before = gateways.each_ref().map(Gateway::read);
    let idle_before = idle.read();
    sleep(WINDOW);
    let after = gateways.each_ref().map(Gateway::read);
    let idle_bytes = idle.read().bytes - idle_before.bytes;
    assert_eq!(gateways.each_ref().map(Gateway::events), events);

    for (((devices, most), before), after) in busy.into_iter().zip(before).zip(after) {
        let heartbeats = after.heartbeats - before.heartbeats;
        let wanted = u64::from(devices) * WINDOW.as_secs() * 1_000 / PERIOD_MS;
        assert!(heartbeats >= wanted * 9 / 10, "{heartbeats} of {wanted}");
        let bytes = after.bytes - before.bytes;
        let each = rate(bytes, heartbeats);
        println!("{devices} devices: {bytes} bytes, {heartbeats} heartbeats, {each:.1} each");
        assert!(bytes > 0, "the kernel counts nothing for this file system");
        assert!(
            each <= most,
            "{devices} devices: {each:.1} bytes a heartbeat"
        );
    }
    let hourly = idle_bytes * 3_600 / WINDOW.as_secs();
    println!("idle: {idle_bytes} bytes, {hourly} an hour");
    assert!(
        hourly < 1_000_000,
        "an idle gateway writes {hourly} bytes an hour"
    );
    for gateway in gateways.into_iter().chain([idle]) {
        assert_eq!(gateway.program.stop().code(), Some(0));
    }
}

fn rate(bytes: u64, heartbeats: u64) -> f64 {
    let small = |n: u64| f64::from(u32::try_from(n).unwrap());
    small(bytes) / small(heartbeats)
}
