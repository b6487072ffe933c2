//! The real program on a machine whose clock is wrong.
//!
//! Needs the right to send ICMP, and libfaketime for the test that sets a clock:
//! it gives the program a wall of its own and leaves its monotonic clock alone.
#![cfg(test)]

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use process::{Launch, Program, site_folder, wait_for, wait_up_to};

const BANNER: &str = "The clock of this gateway is not set";

/// A gateway in `folder` with periods short enough to watch.
fn quick(folder: &Path) -> Launch {
    Launch::new(folder, &[])
        .set("probe.heartbeat_period_ms", "400")
        .set("probe.offline_timeout_ms", "100")
        .set("store.flush_every_ms", "500")
}

fn libfaketime() -> PathBuf {
    let found = fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let library = |entry: fs::DirEntry| entry.path().join("faketime/libfaketimeMT.so.1");
    let found = found.map(library).find(|path| path.exists());
    found.expect("libfaketime: install the package faketime")
}

/// Sets the wall that the program sees.
fn set(file: &Path, wall: &str) {
    let draft = file.with_extension("new");
    fs::write(&draft, format!("@{wall}\n")).unwrap();
    fs::rename(&draft, file).unwrap();
}

fn raw_days(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("data/raw")).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.filter_map(Result::ok).map(name).collect()
}

fn metric(program: &Program, name: &str) -> String {
    let text = program.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

fn check_shown_without_a_date(program: &Program) {
    let clock = program.json("/api/v1/node")["clock"].clone();
    assert_eq!(clock["trusted"], false, "{clock}");
    assert!(
        clock["now"]
            .as_str()
            .unwrap()
            .starts_with("1970-01-01T00:0")
    );
    for page in ["/", "/node", "/devices/D1"] {
        assert!(program.get(page).body.contains(BANNER), "{page}");
    }
    assert_eq!(metric(program, "sitebeat_clock_trusted"), "0");
    assert_eq!(program.get("/healthz").status, 200);
}

fn check_dated(program: &Program) {
    assert_eq!(program.get("/healthz").status, 200);
    assert!(!program.get("/").body.contains(BANNER));
    assert_eq!(metric(program, "sitebeat_clock_trusted"), "1");
    assert_eq!(metric(program, "sitebeat_clock_steps_total"), "1");
    let node = program.json("/api/v1/node");
    let step = &node["clock"]["last_step"];
    assert_eq!(step["source"], "boot", "{node}");
    assert!(
        step["from"]
            .as_str()
            .unwrap()
            .starts_with("1970-01-01T00:0")
    );
    let started = node["clock"]["started_at"].as_str().unwrap();
    assert!(started.starts_with("2026-03-10T"), "{started}");
    let device = program.json("/api/v1/devices/D1");
    let since = device["since"].as_str().unwrap();
    assert!(
        since.starts_with("2026-03-10T") && since > started,
        "{device}"
    );
}

#[test]
fn a_machine_that_boots_in_1970_is_shown_at_once_and_written_once_its_clock_is_set() {
    let folder = site_folder(3);
    let wall = folder.path().join("wall");
    set(&wall, "1970-01-01 00:02:00");
    let library = libfaketime();
    let program = quick(folder.path())
        .variable("SITEBEAT_PLAUSIBLE_AFTER", "2026-03-01T00:00:00Z")
        .variable("LD_PRELOAD", library.to_str().unwrap())
        .variable("FAKETIME_TIMESTAMP_FILE", wall.to_str().unwrap())
        .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .variable("FAKETIME_NO_CACHE", "1")
        .variable("TZ", "UTC")
        .start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    check_shown_without_a_date(&program);
    assert!(raw_days(folder.path()).is_empty());
    set(&wall, "2026-03-10 12:00:00");
    wait_for("trust", || {
        let clock = program.json("/api/v1/node")["clock"].clone();
        (clock["trusted"] == true).then_some(())
    });
    check_dated(&program);
    wait_for("a day on disk", || {
        (raw_days(folder.path()) == ["2026-03-10"]).then_some(())
    });
    assert_eq!(program.stop().code(), Some(0));
    assert_eq!(raw_days(folder.path()), ["2026-03-10"]);
}

#[test]
fn a_stop_before_the_clock_is_known_writes_nothing_and_says_what_is_given_up() {
    let folder = site_folder(3);
    let mut program = quick(folder.path())
        .variable("SITEBEAT_PLAUSIBLE_AFTER", "2100-01-01T00:00:00Z")
        .start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    wait_up_to(
        Duration::from_secs(10),
        "a flush that writes nothing",
        || {
            let store = program.json("/api/v1/node")["store"].clone();
            (!store["last_flush"].is_null()).then_some(())
        },
    );
    program.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(program.wait().code(), Some(0));
    program.wait_for_log("stopped before the clock was trusted");
    let log = program.log();
    assert!(log.contains("changes=3"), "{log}");
    assert!(!log.contains("everything held is on disk"), "{log}");
    assert!(
        log.contains("everything that has a date is on disk"),
        "{log}"
    );
    assert!(raw_days(folder.path()).is_empty());
    // What was never written is not there at the next start either.
    let program = quick(folder.path()).start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    let device = program.json("/api/v1/devices/D1");
    assert!(device["since"].as_str().unwrap() > "2020", "{device}");
    assert_eq!(program.json("/api/v1/node")["clock"]["steps"], 0);
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_plausible_time_that_is_none_is_a_fault_of_usage() {
    let folder = site_folder(1);
    let (status, _, log) = quick(folder.path())
        .variable("SITEBEAT_PLAUSIBLE_AFTER", "yesterday")
        .run();
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(
        log.contains("SITEBEAT_PLAUSIBLE_AFTER = \"yesterday\" must be"),
        "{log}"
    );
    assert!(!folder.path().join("data").exists());
    for (after, code, word) in [
        ("yesterday", 1, "fail"),
        ("2100-01-01T00:00:00Z", 0, "warn"),
    ] {
        let (status, out, _) = Launch::new(folder.path(), &["check"])
            .variable("SITEBEAT_PLAUSIBLE_AFTER", after)
            .run();
        assert_eq!(status.code(), Some(code), "{out}");
        let line = out.lines().find(|line| line.contains("clock")).unwrap();
        assert!(line.starts_with(word), "{line}");
    }
}
