//! Kills, stops and hand-overs of the real program on one store: what was shown
//! stays true, and the store opens every time.
#![cfg(test)]

#[path = "support/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use chrono::DateTime;
use nix::sys::signal::Signal;
use process::{Launch, Program, site_folder, wait_for};
use serde_json::Value;

/// Replays a run: `SITEBEAT_TEST_SEED=17 cargo test --test process_crash`.
const SEED: &str = "SITEBEAT_TEST_SEED";
const DEVICES: usize = 300;
const KILLS: u64 = 30;
const FLUSH_MS: i64 = 500;

/// A simulated site of many bad modems, so that statuses change all the time.
fn fleet(folder: &Path) -> Launch {
    let devices = DEVICES.to_string();
    Launch::new(folder, &["simulate", "--devices", &devices, "--seed", "11"])
        .set("probe.heartbeat_period_ms", "400")
        .set("probe.offline_timeout_ms", "200")
        .set("probe.degraded_rtt_ms", "150")
        .set("store.flush_every_ms", &FLUSH_MS.to_string())
}

fn store_of(folder: &Path) -> std::path::PathBuf {
    folder.join("data-simulated")
}

/// Numbers from a seed: the same run again for the same one.
struct Dice(u64);

impl Dice {
    #[expect(clippy::print_stdout, reason = "a run must be repeatable")]
    fn new() -> Self {
        let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(KILLS) >> 32);
        println!("{SEED}={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 16) % end
    }

    fn millis_below(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// All that was ever shown, over all lives of the program.
#[derive(Default)]
struct Witness {
    /// Status and its `since` by device; RFC 3339 of one width sorts by time.
    verdicts: BTreeMap<String, (Option<String>, String)>,
    /// Heartbeats by device and time.
    beats: BTreeMap<String, BTreeMap<String, Value>>,
    /// The program's clock when last seen, in milliseconds.
    seen_ms: i64,
    changes: usize,
}

impl Witness {
    /// Looks at all verdicts; none is older than one shown before.
    fn look(&mut self, program: &Program, when: &str) {
        let listed = program.json("/api/v1/devices?per_page=500");
        let devices = listed["devices"].as_array().unwrap();
        assert_eq!(devices.len(), DEVICES, "{when}");
        for device in devices {
            let id = device["device_id"].as_str().unwrap().to_owned();
            let since = device["since"].as_str().map(str::to_owned);
            let status = device["status"].as_str().unwrap().to_owned();
            let shown = (since, status);
            if let Some(before) = self.verdicts.insert(id.clone(), shown.clone()) {
                let same_time = shown.0 == before.0;
                assert!(
                    shown.0 > before.0 || (same_time && shown.1 == before.1),
                    "{when}: {id} showed {before:?} and now shows {shown:?}"
                );
                self.changes += usize::from(!same_time);
            }
        }
    }

    /// Notes a device's heartbeats of today.
    fn note_beats(&mut self, program: &Program, id: &str) {
        let day = program.json(&format!("/api/v1/devices/{id}/heartbeats"));
        let kept = self.beats.entry(id.to_owned()).or_default();
        for beat in day["samples"].as_array().unwrap() {
            kept.insert(beat["at"].as_str().unwrap().to_owned(), beat.clone());
        }
        let now = program.json("/api/v1/node")["clock"]["now"].clone();
        self.seen_ms = self.seen_ms.max(millis(now.as_str().unwrap()));
    }

    /// Every heartbeat that was shown and is older than `ms` before the end is
    /// still there as it was; tells how many that are.
    fn check_beats(&mut self, program: &Program, ms: i64, when: &str) -> usize {
        let mut checked = 0;
        for (id, beats) in &mut self.beats {
            let mut found = BTreeMap::new();
            let days: std::collections::BTreeSet<_> =
                beats.keys().filter_map(|at| at.get(..10)).collect();
            for day in days {
                let path = format!("/api/v1/devices/{id}/heartbeats?day={day}");
                let samples = program.json(&path)["samples"].as_array().unwrap().clone();
                let times: Vec<_> = samples.iter().map(|beat| beat["at"].clone()).collect();
                let ascends = times
                    .windows(2)
                    .all(|two| two[0].as_str() < two[1].as_str());
                assert!(
                    ascends,
                    "{when}: {id} has a heartbeat twice or out of order"
                );
                found.extend(
                    samples
                        .into_iter()
                        .map(|beat| (beat["at"].as_str().unwrap().to_owned(), beat)),
                );
            }
            beats.retain(|at, beat| {
                let is_old = millis(at) <= self.seen_ms - ms;
                let is_kept = found.get(at) == Some(beat);
                assert!(is_kept || !is_old, "{when}: {id} lost {beat}");
                checked += usize::from(is_old);
                is_kept
            });
        }
        checked
    }
}

fn millis(at: &str) -> i64 {
    DateTime::parse_from_rfc3339(at).unwrap().timestamp_millis()
}

/// The store opened without finding anything to mend.
fn is_sound(program: &Program, when: &str) {
    let store = program.json("/api/v1/node")["store"].clone();
    assert_eq!(store["mended"], Value::Array(Vec::new()), "{when}");
    assert_eq!(store["state"], "ok", "{when}");
}

fn ids(program: &Program) -> Vec<String> {
    let listed = program.json("/api/v1/devices?per_page=500");
    let devices = listed["devices"].as_array().unwrap();
    let id = |device: &Value| device["device_id"].as_str().unwrap().to_owned();
    devices.iter().map(id).collect()
}

#[test]
fn thirty_kills_take_back_nothing_that_was_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut witness = Witness::default();
    let (mut lives, mut checked) = (0, 0);
    for kill in 1..=KILLS {
        let when = format!("after kill {}", kill - 1);
        let program = fleet(folder.path()).start();
        if dice.below(5) == 0 {
            // Some die while they start.
            sleep(dice.millis_below(250));
            program.kill();
            continue;
        }
        lives += 1;
        program.address();
        witness.look(&program, &when);
        is_sound(&program, &when);
        checked += witness.check_beats(&program, FLUSH_MS + 1_000, &when);
        let ids = ids(&program);
        for _ in 0..=dice.below(5) {
            sleep(dice.millis_below(250));
            witness.look(&program, &format!("{when}, later"));
            let id = &ids[usize::try_from(dice.below(8)).unwrap() * 31];
            witness.note_beats(&program, id);
        }
        sleep(dice.millis_below(400));
        program.kill();
    }
    let program = fleet(folder.path()).start();
    witness.look(&program, "at the end");
    is_sound(&program, "at the end");
    witness.check_beats(&program, FLUSH_MS + 1_000, "at the end");
    assert_eq!(program.stop().code(), Some(0));
    // It was a real trial: much was seen, and much of it is old enough to bind.
    assert!(lives >= 10 && witness.changes > DEVICES && checked > 100);
}

#[test]
fn further_sigterms_do_not_hurry_or_harm_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::default();
    for signals in [2, 5] {
        let mut program = fleet(folder.path())
            .set("store.flush_every_ms", "3600000")
            .start();
        program.wait_for_counts(|counts| counts["unknown"] == 0);
        let ids = ids(&program);
        witness.look(&program, "before");
        for id in ids.iter().take(5) {
            witness.note_beats(&program, id);
        }
        for _ in 0..signals {
            program.signal(Signal::SIGTERM);
        }
        assert_eq!(program.wait().code(), Some(0), "{}", program.log());
        let program = fleet(folder.path()).start();
        witness.look(&program, "after");
        is_sound(&program, "after");
        // Not one is lost, however young.
        assert!(witness.check_beats(&program, 0, "after") > 10);
        assert_eq!(program.stop().code(), Some(0));
    }
}

#[test]
fn a_stop_or_hangup_asked_for_while_it_starts_is_heeded_when_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start_and_stop(folder.path()).code(), Some(0));
    let lock = File::open(store_of(folder.path()).join("LOCK")).unwrap();
    lock.lock().unwrap();
    let mut program = fleet(folder.path()).start();
    wait_until_it_wants_the_lock(&program);
    program.signal(Signal::SIGHUP);
    program.signal(Signal::SIGTERM);
    lock.unlock().unwrap();
    assert_eq!(program.wait().code(), Some(0), "{}", program.log());
    assert!(program.log().contains("stopped"), "{}", program.log());

    lock.lock().unwrap();
    let program = fleet(folder.path()).start();
    wait_until_it_wants_the_lock(&program);
    program.signal(Signal::SIGHUP);
    lock.unlock().unwrap();
    program.wait_for_log("SIGHUP");
    is_sound(&program, "after a hangup during its start");
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_stop_at_any_moment_of_a_start_leaves_a_store_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    for step in 0..12 {
        let mut program = fleet(folder.path()).start();
        sleep(Duration::from_millis(step * 15));
        program.signal(Signal::SIGTERM);
        let ended = program.wait();
        // Before it listens for signals nothing is open yet.
        let is_fine = ended.code() == Some(0) || ended.signal() == Some(15);
        assert!(is_fine, "{ended}: {}", program.log());
    }
    let program = fleet(folder.path()).start();
    is_sound(&program, "at the end");
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn a_new_process_waits_for_the_old_one_to_let_go_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::default();
    let old = fleet(folder.path()).start();
    old.wait_for_counts(|counts| counts["unknown"] == 0);
    let new = fleet(folder.path()).start();
    sleep(Duration::from_millis(300));
    let ids = ids(&old);
    witness.look(&old, "the old one");
    witness.note_beats(&old, &ids[7]);
    assert_eq!(old.stop().code(), Some(0));
    witness.look(&new, "the new one");
    is_sound(&new, "the new one");
    assert!(witness.check_beats(&new, 0, "the new one") > 0);
    assert_eq!(new.stop().code(), Some(0));
}

#[test]
fn a_lock_file_that_a_killed_process_left_holds_up_nobody() {
    let folder = site_folder(1);
    let lock = store_of(folder.path()).join("LOCK");
    let program = fleet(folder.path()).start();
    program.address();
    program.kill();
    assert!(lock.exists(), "the file stays, the kernel's lock does not");
    // Not even one with the number of a process that lives.
    fs::write(&lock, std::process::id().to_string()).unwrap();
    let program = fleet(folder.path()).start();
    is_sound(&program, "after the kill");
    assert_eq!(program.stop().code(), Some(0));
}

fn start_and_stop(folder: &Path) -> std::process::ExitStatus {
    let program = fleet(folder).start();
    program.address();
    program.stop()
}

fn wait_until_it_wants_the_lock(program: &Program) {
    let files = format!("/proc/{}/fd", program.pid());
    wait_for("the program at the lock", || {
        let mut open = fs::read_dir(&files).ok()?.flatten();
        let is_lock = |entry: &fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|file| file.ends_with("LOCK"))
        };
        open.any(|entry| is_lock(&entry)).then_some(())
    });
}

#[test]
fn a_repair_is_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path()).start();
    let raw = store_of(folder.path()).join("raw");
    let day = wait_for("a day of raw", || {
        let mut days = fs::read_dir(&raw).ok()?.flatten();
        days.find(|day| day.path().join("db").exists())
    });
    // Files may still come into it while it is being removed.
    wait_for("the removal of the day", || {
        fs::remove_dir_all(day.path())
            .ok()
            .or_else(|| (!day.path().exists()).then_some(()))
    });
    program.wait_for_log("was removed or replaced while it was in use");
    wait_for("the repair on the page", || {
        let mended = &program.json("/api/v1/node")["store"]["mended"];
        (mended.as_array()?.len() == 1).then_some(())
    });
    let log = program.log();
    let told = log.matches("was removed or replaced while it was in use");
    assert_eq!(told.count(), 1, "{log}");
    assert_eq!(program.stop().code(), Some(0));
}
