//! The real program where something hangs: a file server that answers no more, a
//! store that somebody else holds. What hangs costs itself and nothing else.
//!
//! Files that hang are pipes into which nobody writes.
#![cfg(test)]

#[path = "support/process.rs"]
mod process;

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use process::{Launch, Program, wait_for, wait_up_to, write_inventory};

fn fleet(folder: &Path) -> Launch {
    Launch::new(folder, &["simulate"])
        .argument("--devices")
        .argument("20")
        .argument("--seed")
        .argument("7")
        .set("probe.heartbeat_period_ms", "500")
        .set("probe.offline_timeout_ms", "400")
        .set("store.flush_every_ms", "500")
}

/// Probes are sent and heartbeats reach the disk, from now on.
fn goes_on(program: &Program) {
    let look = || {
        let node = program.json("/api/v1/node");
        let sent = node["probe"]["sent"].as_u64();
        (sent, node["store"]["last_flush"].to_string())
    };
    let before = look();
    wait_for("further probes and a further flush", || {
        let now = look();
        (now.0 > before.0 && now.1 != before.1).then_some(())
    });
}

#[test]
fn files_that_hang_hold_up_neither_probing_nor_keeping() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    mkfifo(&authority, Mode::S_IRWXU).unwrap();
    let program = fleet(folder.path())
        .set("uplink.url", "mqtts://127.0.0.1:9")
        .set("uplink.ca_file", &authority.to_string_lossy())
        .start();
    goes_on(&program);
    // The connection gives up after 20 s; the reading of its file does not.
    wait_up_to(Duration::from_secs(60), "an attempt given up", || {
        program
            .log()
            .contains("were not read within 20 s")
            .then_some(())
    });
    goes_on(&program);
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_reload_that_hangs_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let inventory = write_inventory(folder.path(), 3);
    let program = Launch::new(folder.path(), &[])
        .set("probe.heartbeat_period_ms", "500")
        .set("probe.offline_timeout_ms", "200")
        .set("store.flush_every_ms", "500")
        .start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    fs::remove_file(&inventory).unwrap();
    mkfifo(&inventory, Mode::S_IRWXU).unwrap();
    for _ in 0..3 {
        program.signal(Signal::SIGHUP);
        goes_on(&program);
    }
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_start_that_waits_for_the_store_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path()).start();
    program.address();
    assert_eq!(program.stop().code(), Some(0));
    let log = folder.path().join("data-simulated/state/db");
    let held = File::open(&log).unwrap();
    held.lock().unwrap();
    let mut program = fleet(folder.path()).start();
    let files = format!("/proc/{}/fd", program.pid());
    wait_for("the program at the database", || {
        let mut open = fs::read_dir(&files).ok()?.flatten();
        let is_log = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|at| at == log);
        open.any(|entry| is_log(&entry)).then_some(())
    });
    program.signal(Signal::SIGTERM);
    assert_eq!(program.wait().code(), Some(0), "{}", program.log());
    let (status, _, told) = fleet(folder.path()).run();
    assert_eq!(status.code(), Some(3), "{told}");
    assert!(told.contains("is in use"), "{told}");
}
