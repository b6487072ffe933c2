//! A disk that fills up: writes are refused, nothing acknowledged is lost, and
//! they resume without a restart when there is room again.
//!
//! The scene plays in a child process with a small tmpfs of its own, mounted in
//! a mount namespace of its own; so nothing needs cleaning up.
#![cfg(test)]

#[path = "support/store_kit.rs"]
#[expect(dead_code, reason = "this test needs only some of the words")]
mod store_kit;

use std::error::Error as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sitebeat::domain::day::Day;
use sitebeat::domain::event::Change;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::status::Status;
use sitebeat::store::{Store, WriteError};
use store_kit::{at, id, notice, open, reply, turn};

const DISK: &str = "SITEBEAT_TEST_DISK";
const DEVICES: usize = 300;

#[test]
fn a_full_disk_loses_nothing_and_is_left_without_a_restart() {
    play_on_a_small_disk("scene_on_a_small_disk");
}

#[test]
fn a_close_that_failed_can_be_tried_again() {
    play_on_a_small_disk("scene_of_a_close_on_a_full_disk");
}

fn play_on_a_small_disk(scene: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=16m tmpfs \"$SITEBEAT_TEST_DISK\" && \
                  exec \"$0\" --exact --nocapture \"$1\"";
    let root = nix::unistd::geteuid().is_root();
    let kind = if root { "-m" } else { "-Urm" };
    if !may_mount(kind) {
        return;
    }
    let played = Command::new("unshare")
        .args([kind, "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(scene)
        .env(DISK, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[expect(clippy::print_stderr, reason = "a scene that is left out says so")]
fn may_mount(kind: &str) -> bool {
    let tried = Command::new("unshare").args([kind, "true"]).output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if !may {
        eprintln!("left out: this machine gives us no mount namespace");
    }
    may
}

/// Does nothing unless it is the child.
#[test]
fn scene_on_a_small_disk() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else {
        return;
    };
    let data = disk.join("data");
    let mut opened = open(&data, at(0));
    let mut scene = Scene::default();
    for round in 0..3 {
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![7; 3 << 20]).unwrap();
        scene.fill(&opened.store);
        scene.is_refused(&opened.store);
        scene.all_is_there(&opened.store, false);
        fs::remove_file(ballast).unwrap();
        scene.resumes(&opened.store);
        scene.all_is_there(&opened.store, true);
        assert_eq!(opened.store.take_mended(), [""; 0], "round {round}");
        if round == 1 {
            drop(opened);
            opened = open(&data, at(scene.now));
            assert_eq!(opened.mended, [""; 0]);
            scene.all_is_there(&opened.store, true);
        }
        // The next round needs room to fill.
        scene.make_room(&opened.store);
    }
}

#[test]
fn scene_of_a_close_on_a_full_disk() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else {
        return;
    };
    let data = disk.join("closing");
    let store = open(&data, at(0)).store;
    store.push_raw(&[reply(1, 1_000)]);
    store.push_notices(vec![notice(1, 1_000)]);
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![7; 32 << 20]).unwrap_err();
    let told = |fault: &WriteError| fault.source().unwrap().to_string();
    let first = store.close(at(2_000)).unwrap_err();
    let again = store.close(at(3_000)).unwrap_err();
    assert_eq!(told(&first), told(&again), "the reason stays the true one");
    assert!(!told(&again).contains("closed"), "{again:?}");
    assert_eq!(store.figures().open_samples, 1);
    fs::remove_file(ballast).unwrap();
    store.close(at(4_000)).unwrap();
    store.close(at(5_000)).unwrap();
    let opened = open(&data, at(6_000));
    assert_eq!(opened.mended, [""; 0]);
    let day = Day::of(at(1_000)).unwrap();
    let found = opened.store.heartbeats(id(1), day).unwrap();
    assert_eq!(found, [reply(1, 1_000)]);
    assert_eq!(opened.store.events(None, 10).unwrap().len(), 1);
}

#[derive(Default)]
struct Scene {
    now: i64,
    acknowledged: Vec<Sample>,
    waiting: Vec<Sample>,
    events: Vec<u64>,
    /// Time of the change that is tried again and again.
    round: i64,
}

impl Scene {
    fn stubborn(&self) -> Change {
        turn(999, Status::Offline, self.round)
    }

    fn fill(&mut self, store: &Store) {
        // Mostly raw, so that the state leaves room for the rounds to come.
        for turn in 0..10_000 {
            if self.flush(store) {
                if turn % 20 == 0 {
                    self.commit(store);
                }
            } else if !self.commit(store) {
                return;
            }
        }
        panic!("the disk never fills up");
    }

    fn is_refused(&mut self, store: &Store) {
        for _ in 0..3 {
            assert!(!self.flush(store));
            assert!(store.commit(&[self.stubborn()], at(self.now)).is_err());
        }
        assert_eq!(store.figures().open_samples, self.waiting.len());
    }

    fn resumes(&mut self, store: &Store) {
        assert!(self.flush(store), "raw does not resume");
        let seqs = store.commit(&[self.stubborn()], at(self.now)).unwrap();
        self.events.extend(seqs);
        let events = store.events(None, usize::MAX).unwrap();
        let wanted = format!(r#""missed_count":0,"last_seen":"{}""#, at(self.round));
        let told = events
            .iter()
            .filter(|event| event.json.contains(&wanted) && event.json.contains("meter-0999"));
        assert_eq!(told.count(), 1, "tried four times, told once");
        assert!(self.commit(store), "events do not resume");
        assert!(self.flush(store) && self.commit(store));
        assert_eq!(store.figures().open_samples, 0);
        assert_eq!(store.figures().lost_samples, 0);
    }

    fn make_room(&mut self, store: &Store) {
        let day = Day::of(at(self.now)).unwrap();
        store.remove_raw_day(day).unwrap();
        self.acknowledged.clear();
        self.round = self.now;
        // On to the next day.
        self.now += 86_400_000;
    }

    /// A minute of heartbeats; tells whether it is acknowledged.
    fn flush(&mut self, store: &Store) -> bool {
        self.now += 60;
        let now = self.now;
        let samples: Vec<_> = (0..DEVICES).map(|n| reply(n, now)).collect();
        store.push_raw(&samples);
        self.waiting.extend(samples);
        let done = store.flush_raw(at(now)).is_ok();
        if done {
            self.acknowledged.append(&mut self.waiting);
        }
        done
    }

    /// Some changes of status; tells whether they are acknowledged.
    fn commit(&mut self, store: &Store) -> bool {
        let changes: Vec<_> = (0..20).map(|n| turn(n, Status::Online, self.now)).collect();
        match store.commit(&changes, at(self.now)) {
            Ok(seqs) => {
                self.events.extend(seqs);
                true
            }
            Err(_) => false,
        }
    }

    /// While the disk is full the store may be unable to read, but never wrong.
    fn all_is_there(&self, store: &Store, must_read: bool) {
        let day = Day::of(at(self.now)).unwrap();
        let events = store.events(None, usize::MAX);
        assert!(events.is_ok() || !must_read, "{events:?}");
        if let Ok(found) = events {
            let found: Vec<u64> = found.iter().rev().map(|event| event.seq).collect();
            for seq in &self.events {
                assert!(found.contains(seq), "event {seq} is lost");
            }
            let expected: Vec<u64> = (1..=found.len() as u64).collect();
            assert_eq!(found, expected, "a gap or a repeat");
        }
        for n in [0, 150, DEVICES - 1] {
            let found = store.heartbeats(id(n), day);
            assert!(found.is_ok() || !must_read, "{found:?}");
            let waiting = self.waiting.iter().filter(|one| one.device == id(n));
            let found = match found {
                Ok(found) => found,
                Err(fault) => {
                    assert!(fault.in_memory.iter().eq(waiting), "{fault:?}");
                    continue;
                }
            };
            let expected: Vec<&Sample> = self
                .acknowledged
                .iter()
                .chain(&self.waiting)
                .filter(|sample| sample.device == id(n))
                .collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "device {n}");
        }
    }
}
