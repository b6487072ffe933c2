//! What the real program keeps of memory that it needed for a while.
#![cfg(test)]

#[path = "support/process.rs"]
mod process;
#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test only opens a store")]
mod store_kit;
#[path = "support/years.rs"]
mod years;

use std::fs;

use process::{Launch, Program, site_folder};
use sitebeat::clock::{Clock, SystemClock};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;

/// Kilobytes of memory that are there for this process.
fn resident_kb(program: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn views_of_the_history_leave_no_more_than_ten_megabytes() {
    let folder = site_folder(10);
    let now = SystemClock::new().wall();
    let fleet: Vec<DeviceId> = (1..=1_000)
        .map(|n| format!("D{n}").parse().unwrap())
        .collect();
    let store = store_kit::open(&folder.path().join("data"), now).store;
    years::keep_days(&store, &fleet, (Day::of(now).unwrap().previous(), 90));
    store.close(now).unwrap();
    drop(store);
    let program = Launch::new(folder.path(), &[]).start();
    program.wait_for_counts(|counts| counts["online"] == 10);
    let before = resident_kb(&program);
    for _ in 0..4 {
        for view in ["days=30", "days=90", "device=D7&days=90"] {
            let answer = program.get(&format!("/history?{view}"));
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert!(answer.body.contains("99."), "rows are shown");
        }
    }
    let after = resident_kb(&program);
    assert!(
        after < before + 10_000,
        "{before} kB before, {after} kB after"
    );
    assert_eq!(program.stop().code(), Some(0));
}
