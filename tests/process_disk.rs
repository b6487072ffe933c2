//! The real program on a disk that is full, nearly full or read-only: it goes on
//! asking and showing, says what it cannot keep, and needs nobody afterwards.
//!
//! Each test has a small tmpfs in a mount namespace of a thread of its own, and
//! a scripted site in a network namespace; both go with the test. Needs root.
#![cfg(test)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use serde_json::Value;

use net::Net;
use process::{Launch, Program, wait_for, wait_up_to, write_devices};
use responder::{Responder, SILENT, What, at_once};

#[path = "support/net.rs"]
mod net;
#[path = "support/process.rs"]
mod process;
#[path = "support/responder.rs"]
mod responder;
#[path = "support/responder_packet.rs"]
mod responder_packet;

/// What a test plays with: a folder with the disk in it, and the devices.
struct Scene {
    folder: PathBuf,
    site: Responder,
}

const DISK_MB: usize = 24;
const DEVICES: usize = 40;
/// A write that failed is tried again every 5 s.
const RESUMES: Duration = Duration::from_secs(12);
/// A database writes to what it has of the disk before it needs more.
const FILLS_UP: Duration = Duration::from_secs(40);

/// Plays `work` with a disk and a site of its own.
fn on_a_small_disk(work: impl FnOnce(&Scene) + Send) {
    let folder = tempfile::tempdir().unwrap();
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    let scene = Scene {
        folder: folder.path().to_owned(),
        site,
    };
    net.run(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace: needs root");
        net::run("mount", &["--make-rprivate", "/"]);
        let options = format!("size={DISK_MB}m");
        let disk = scene.disk();
        fs::create_dir(&disk).unwrap();
        let disk = disk.display().to_string();
        net::run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &disk]);
        let devices: Vec<_> = (0..DEVICES)
            .map(|n| (format!("D{n}"), address(n)))
            .collect();
        write_devices(&scene.folder, &devices);
        work(&scene);
    });
}

fn address(n: usize) -> String {
    format!("10.9.5.{}", n + 1)
}

impl Scene {
    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn launch(&self) -> Launch {
        Launch::new(&self.folder, &[])
            .set("probe.heartbeat_period_ms", "500")
            .set("probe.offline_timeout_ms", "200")
            .set("store.path", "disk/data")
            .set("store.flush_every_ms", "500")
            .set("store.min_free_bytes", "0")
    }

    /// Fills the disk to its last byte.
    fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let mut block = vec![7; 1 << 16];
        while !block.is_empty() {
            match ballast.write(&block) {
                Ok(0) | Err(_) => block.truncate(block.len() / 2),
                Ok(_) => {}
            }
        }
    }

    fn ballast(&self) -> PathBuf {
        self.disk().join("ballast")
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    /// Takes device `n` off the air, or puts it back.
    fn put(&self, n: usize, is_on_air: bool) {
        let answer = vec![at_once(What::Answer)];
        let acts = if is_on_air { answer } else { SILENT };
        self.site.behave(&address(n), acts);
    }
}

fn device(program: &Program, n: usize) -> Value {
    program.json(&format!("/api/v1/devices/D{n}"))
}

fn beats(program: &Program, n: usize) -> Vec<Value> {
    let day = program.json(&format!("/api/v1/devices/D{n}/heartbeats"));
    day["samples"].as_array().unwrap().clone()
}

fn store(program: &Program) -> Value {
    program.json("/api/v1/node")["store"].clone()
}

fn wait_for_status(program: &Program, n: usize, status: &str) -> Value {
    let what = format!("D{n} {status}");
    wait_for(&what, || {
        let device = device(program, n);
        (device["status"] == status).then_some(device)
    })
}

fn wait_for_state(program: &Program, state: &str) -> Value {
    let limit = if state == "ok" { RESUMES } else { FILLS_UP };
    wait_up_to(limit, &format!("store {state}"), || {
        let store = store(program);
        (store["state"] == state).then_some(store)
    })
}

fn all_online(program: &Program) {
    program.wait_for_counts(|counts| counts["online"] == DEVICES);
}

/// Heartbeats are on disk up to now: the open frame was written since.
fn wait_for_flush(program: &Program) {
    let before = store(program)["last_flush"].clone();
    wait_up_to(RESUMES, "a flush", || {
        (store(program)["last_flush"] != before).then_some(())
    });
}

/// All of `before` is in `after`, and nothing twice.
fn goes_on(before: &[Value], after: &[Value], what: &str) {
    for beat in before {
        assert!(after.contains(beat), "{what}: {beat} is lost");
    }
    let times: Vec<_> = after.iter().map(|beat| beat["at"].as_str()).collect();
    assert!(times.is_sorted(), "{what}: out of order");
    let mut once = times.clone();
    once.dedup();
    assert_eq!(times.len(), once.len(), "{what}: a heartbeat twice");
}

#[test]
fn full_disk_stops_nothing_but_keeping_and_is_left_without_help() {
    on_a_small_disk(|scene| {
        let program = scene.launch().start();
        all_online(&program);
        wait_for_flush(&program);
        let mut noted = beats(&program, 1);
        scene.fill();
        scene.put(2, false);
        let failing = wait_for_state(&program, "failing");
        assert!(failing["reason"].is_string() && failing["since"].is_string());
        let page = program.get("/").body;
        assert!(page.contains("Nothing can be kept"), "{page}");
        wait_for_status(&program, 2, "offline");
        goes_on_asking(&program, 1);
        let page = program.get("/devices/D2");
        assert!(page.status == 200 && page.body.contains("offline"));
        scene.put(2, true);
        wait_for_status(&program, 2, "online");
        scene.put(3, false);
        let offline = wait_for_status(&program, 3, "offline");

        scene.make_room();
        let freed = wait_for_state(&program, "ok");
        assert_eq!(freed["lost_samples"], 0);
        assert_eq!(freed["mended"], Value::Array(Vec::new()));
        assert!(!program.get("/").body.contains("Nothing can be kept"));
        wait_for_flush(&program);
        let now = beats(&program, 1);
        goes_on(&noted, &now, "with the disk freed");
        noted = now;
        wait_for_flush(&program);
        let verdicts = || [2, 3].map(|n| device(&program, n)["since"].clone());
        assert_eq!(verdicts()[1], offline["since"]);
        let verdicts = verdicts();
        program.kill();
        let program = scene.launch().start();
        goes_on(&noted, &beats(&program, 1), "after a kill");
        for (n, since) in [2, 3].into_iter().zip(verdicts) {
            assert_eq!(device(&program, n)["since"], since, "D{n}");
        }
        assert_eq!(store(&program)["mended"], Value::Array(Vec::new()));
        assert_eq!(program.stop().code(), Some(0));
    });
}

/// Further heartbeats come, good ones, and the page answers meanwhile.
fn goes_on_asking(program: &Program, n: usize) {
    let sent = |program: &Program| program.json("/api/v1/node")["probe"]["sent"].as_u64();
    let last = |program: &Program| device(program, n)["last_seen"].clone();
    let before = (sent(program), last(program));
    wait_for("further probes and replies", || {
        (sent(program) > before.0 && last(program) != before.1).then_some(())
    });
}

#[test]
fn full_disk_at_a_stop_says_what_it_loses_and_starts_again() {
    on_a_small_disk(|scene| {
        let mut program = scene.launch().start();
        all_online(&program);
        wait_for_flush(&program);
        let noted = beats(&program, 1);
        scene.fill();
        // More to keep than a hole of the state's own would take.
        for n in 0..DEVICES {
            scene.put(n, false);
        }
        wait_for_state(&program, "failing");
        program.wait_for_counts(|counts| counts["offline"] == DEVICES);
        let told = program.get("/api/v1/devices/D1/heartbeats");
        assert!([200, 503].contains(&told.status), "{}", told.body);
        let told: Value = serde_json::from_str(&told.body).unwrap();
        assert!(!told["samples"].as_array().unwrap().is_empty(), "{told}");
        program.signal(Signal::SIGTERM);
        let ended = program.wait();
        let log = program.log();
        assert!(log.contains("not kept"), "{log}");
        assert!(!log.contains("has been closed"), "not the reason: {log}");
        assert_eq!(ended.code(), Some(1), "no clean stop: {}", program.log());
        scene.make_room();
        for n in 0..DEVICES {
            scene.put(n, true);
        }
        let program = scene.launch().start();
        all_online(&program);
        goes_on(&noted, &beats(&program, 1), "after the stop");
        assert_eq!(store(&program)["mended"], Value::Array(Vec::new()));
        assert_eq!(program.stop().code(), Some(0));
    });
}

/// Runs into a limit by `reach`, and beyond it keeps states, but no raw.
fn limit_refuses_raw_only(scene: &Scene, launch: impl Fn() -> Launch, key: &str) {
    let program = launch().start();
    let failing = wait_for_state(&program, "failing");
    let reason = failing["reason"].as_str().unwrap();
    assert!(reason.contains(key), "{reason}");
    assert!(program.get("/").body.contains(key));
    let events = failing["events"].as_u64();
    scene.put(4, false);
    let offline = wait_for_status(&program, 4, "offline");
    goes_on_asking(&program, 1);
    let later = wait_for("the event counted", || {
        Some(store(&program)).filter(|store| store["events"].as_u64() > events)
    });
    assert_eq!(later["state"], "failing");
    assert!(later["open_samples"].as_u64() > Some(0));
    program.kill();
    // Killed with the limit in force, and yet the state is there.
    scene.put(4, true);
    scene.site.behave_all(SILENT);
    for n in 0..DEVICES {
        scene.put(n, false);
    }
    let program = launch().start();
    let restored = device(&program, 4);
    assert_eq!(restored["status"], "offline");
    assert_eq!(restored["since"], offline["since"]);
    assert_eq!(program.stop().code(), Some(0));
}

#[test]
fn size_limit_of_the_store_refuses_raw_but_no_state() {
    on_a_small_disk(|scene| {
        let launch = || scene.launch().set("store.max_bytes", "1000");
        limit_refuses_raw_only(scene, launch, "store.max_bytes");
    });
}

#[test]
fn least_free_space_refuses_raw_but_no_state_and_is_left_when_there_is_more() {
    on_a_small_disk(|scene| {
        let least = 12 << 20;
        let launch = || {
            scene
                .launch()
                .set("store.min_free_bytes", &least.to_string())
        };
        let program = launch().start();
        all_online(&program);
        wait_for_flush(&program);
        fs::write(scene.ballast(), vec![7; 14 << 20]).unwrap();
        let failing = wait_for_state(&program, "failing");
        let reason = failing["reason"].as_str().unwrap();
        assert!(reason.contains("store.min_free_bytes"), "{reason}");
        let noted = beats(&program, 1);
        scene.make_room();
        let store = wait_for_state(&program, "ok");
        assert_eq!(store["lost_samples"], 0);
        wait_for_flush(&program);
        goes_on(&noted, &beats(&program, 1), "above the limit again");
        assert_eq!(program.stop().code(), Some(0));
        fs::write(scene.ballast(), vec![7; 14 << 20]).unwrap();
        limit_refuses_raw_only(scene, launch, "store.min_free_bytes");
    });
}

#[test]
fn read_only_store_folder_exits_3_and_says_why() {
    on_a_small_disk(|scene| {
        let remount = |how: &str| {
            let disk = scene.disk().display().to_string();
            net::run("mount", &["-o", &format!("remount,{how}"), &disk]);
        };
        let is_refused = |what: &str| {
            let (status, _, log) = scene.launch().run();
            assert_eq!(status.code(), Some(3), "{what}: {log}");
            assert!(log.contains("disk/data"), "{what}: {log}");
            assert!(log.contains("Read-only file system"), "{what}: {log}");
            assert!(!log.contains("panicked"), "{what}: {log}");
        };
        remount("ro");
        is_refused("nothing there yet");
        remount("rw");
        let program = scene.launch().start();
        all_online(&program);
        wait_for_flush(&program);
        assert_eq!(program.stop().code(), Some(0));
        let before = files_below(&scene.disk());
        remount("ro");
        is_refused("a store");
        assert_eq!(files_below(&scene.disk()), before, "not touched");
        remount("rw");
        let program = scene.launch().start();
        assert_eq!(store(&program)["mended"], Value::Array(Vec::new()));
        assert_eq!(program.stop().code(), Some(0));
    });
}

/// Every file with its content, ascending by name.
fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                all.push((path, content));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn no_disk_of_these_tests_is_seen_outside() {
    let mounts = || fs::read_to_string("/proc/thread-self/mounts").unwrap();
    on_a_small_disk(|scene| {
        let disk = scene.disk().display().to_string();
        assert!(mounts().contains(&disk));
        // What this process's first thread sees, which is not this one.
        let outside = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!outside.contains(&disk));
    });
}
