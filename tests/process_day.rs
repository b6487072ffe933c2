//! The real program over midnight, 00:05 and 00:15 UTC, in four time zones, in the
//! night in which Berlin sets its clocks forward.
//!
//! libfaketime shifts the wall clock and leaves the monotonic one alone; where a
//! quarter of an hour would have to be waited for the wall is stepped.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use sitebeat::domain::instant::Wall;

use process::{Launch, Program, site_folder, wait_for, wait_up_to};

#[path = "support/process.rs"]
mod process;

const ZONES: [&str; 4] = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Pacific/Chatham",
];
const DAY: &str = "2027-03-27";
const DEVICES: u32 = 3;

/// A wall clock that a test sets.
struct ShiftedWall {
    file: PathBuf,
}

impl ShiftedWall {
    fn new(folder: &Path) -> Self {
        Self {
            file: folder.join("faketime"),
        }
    }

    /// Sets it to this time of `DAY` or the night after it.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is shifted is the real time"
    )]
    fn set(&self, to: &str) {
        let to = Wall::parse(to).expect("a time").millis();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let shift_ms = to - i64::try_from(now.as_millis()).expect("now");
        // Replaced at once, since it is read at any moment.
        let draft = self.file.with_extension("new");
        let (sign, shift_ms) = (
            if shift_ms < 0 { '-' } else { '+' },
            shift_ms.unsigned_abs(),
        );
        let text = format!("{sign}{}.{:03}\n", shift_ms / 1_000, shift_ms % 1_000);
        fs::write(&draft, text).expect("the shift");
        fs::rename(&draft, &self.file).expect("the shift");
    }

    fn under(&self, launch: Launch) -> Launch {
        launch
            .variable("LD_PRELOAD", &library())
            .variable("FAKETIME_TIMESTAMP_FILE", &self.file.to_string_lossy())
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

/// Where Debian's package libfaketime puts it.
fn library() -> String {
    let found = fs::read_dir("/usr/lib")
        .expect("a system")
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists());
    found
        .expect("libfaketime is installed: see tests/run")
        .to_string_lossy()
        .into_owned()
}

#[test]
fn day_is_summed_up_at_its_hour_in_every_time_zone_and_all_say_the_same() {
    let nights: Vec<_> = ZONES
        .into_iter()
        .map(|zone| thread::spawn(move || night(zone)))
        .collect();
    for (night, zone) in nights.into_iter().zip(ZONES) {
        let expected = night.join().unwrap_or_else(|_| panic!("in {zone}"));
        // A second is a slot, and the watch began within the last minute of the day.
        assert!((10..=60).contains(&expected), "{zone}: {expected} expected");
    }
}

/// One gateway over the end of the day; how many heartbeats the day should have.
fn night(zone: &str) -> u64 {
    let folder = site_folder(DEVICES);
    let wall = ShiftedWall::new(folder.path());
    wall.set("2027-03-27T23:59:30Z");
    let launch = Launch::new(folder.path(), &[])
        .variable("TZ", zone)
        .set("probe.heartbeat_period_ms", "1000")
        .set("probe.offline_timeout_ms", "300")
        .set("store.flush_every_ms", "500");
    let program = wall.under(launch).start();
    wait_up_to(Duration::from_secs(60), "the next day", || {
        let now = program.json("/api/v1/node")["last_heartbeat"]
            .as_str()
            .map(str::to_owned);
        now.filter(|now| now.starts_with("2027-03-28T00:00:0"))
            .map(drop)
    });
    assert!(rows(&program).is_empty(), "nothing before 00:05");
    wall.set("2027-03-28T00:04:57Z");
    wait_up_to(Duration::from_secs(60), "the first summary", || {
        (rows(&program).len() == 3).then_some(())
    });
    assert!(summarised(&program).is_empty(), "not final before 00:15");
    wall.set("2027-03-28T00:14:57Z");
    wait_up_to(Duration::from_secs(60), "the last word", || {
        (summarised(&program).len() == 3).then_some(())
    });
    let rows = rows(&program);
    let page = program.get(&format!("/history?day={DAY}")).body;
    assert!(page.contains("D1") && page.contains("100"), "{page}");
    assert_eq!(program.stop().code(), Some(0));
    let exported = export(
        folder.path(),
        zone,
        &["daily", "--from", DAY, "--to", DAY, "--format", "jsonl"],
    );
    assert_eq!(exported, rows, "{zone}: the export says what the API said");
    let raw = export(
        folder.path(),
        zone,
        &["raw", "--from", DAY, "--to", DAY, "--format", "jsonl"],
    );
    let mut heard: BTreeMap<&str, u64> = BTreeMap::new();
    for beat in &raw {
        assert!(beat["at"].as_str().unwrap().starts_with(DAY));
        *heard
            .entry(beat["device_id"].as_str().unwrap())
            .or_default() += 1;
    }
    for row in &rows {
        let device = row["device_id"].as_str().unwrap();
        assert_eq!(row["online_ratio"], 1.0);
        // Its first look is in raw and in no count.
        let counted = row["probed"].as_u64().unwrap();
        assert!(
            heard[device] - counted <= 1,
            "{zone}: {row} of {}",
            heard[device]
        );
    }
    rows[0]["expected"].as_u64().unwrap()
}

fn rows(program: &Program) -> Vec<Value> {
    let path = format!("/api/v1/daily?from={DAY}&to={DAY}");
    program.json(&path)["rows"]
        .as_array()
        .expect("rows")
        .clone()
}

/// The daily events so far.
fn summarised(program: &Program) -> Vec<Value> {
    let events = program.json("/api/v1/events?limit=500")["events"].clone();
    let is_daily = |event: &&Value| event["event"] == "heartbeat.daily.summarised.v1";
    events
        .as_array()
        .expect("events")
        .iter()
        .filter(is_daily)
        .cloned()
        .collect()
}

/// What `sitebeat export` prints of the stopped gateway's store.
fn export(folder: &Path, zone: &str, arguments: &[&str]) -> Vec<Value> {
    let mut launch = Launch::new(folder, &["export"]).variable("TZ", zone);
    for argument in arguments {
        launch = launch.argument(argument);
    }
    let (status, stdout, log) = launch.run();
    assert_eq!(status.code(), Some(0), "{log}");
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn export_says_what_is_wrong_and_with_which_code() {
    let folder = site_folder(1);
    let run = |arguments: &[&str]| {
        let mut launch = Launch::new(folder.path(), &["export"]);
        for argument in arguments {
            launch = launch.argument(argument);
        }
        let (status, stdout, log) = launch.run();
        (status.code(), stdout, log)
    };
    let (code, _, log) = run(&["daily"]);
    assert_eq!(code, Some(3), "no store: {log}");
    assert!(log.contains("data"), "{log}");
    let (code, _, log) = run(&["daily", "--from", "2026-02-30"]);
    assert_eq!(code, Some(2), "{log}");
    assert!(
        log.contains("2026-02-30") && log.contains("2026-03-12"),
        "{log}"
    );
    let program = Launch::new(folder.path(), &[]).start();
    program.wait_for_counts(|counts| counts["online"] == 1);
    let (code, _, log) = run(&["events"]);
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("is in use"), "{log}");
    assert_eq!(program.stop().code(), Some(0));
    let (code, stdout, log) = run(&["events"]);
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "log_id,seq,produced_at,event,device_id,json");
    assert!(lines[1].contains("heartbeat.status.changed.v1"), "{stdout}");
    let (code, stdout, _) = run(&["daily"]);
    assert_eq!(
        (code, stdout.lines().count()),
        (Some(0), 1),
        "a header alone"
    );
    let (code, stdout, _) = run(&["raw", "--device", "D1", "--format", "jsonl"]);
    assert_eq!(code, Some(0));
    let first: Value = serde_json::from_str(stdout.lines().next().expect("a heartbeat")).unwrap();
    assert_eq!(first["outcome"], "replied");
    wait_for("no lock is left behind", || {
        (run(&["raw", "--to", "2020-01-01"]).0 == Some(0)).then_some(())
    });
}
