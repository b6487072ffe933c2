//! What keeping raw heartbeats costs: simulated days with a flush a minute.
//!
//! `cargo bench --bench store` prints processor time and bytes written per
//! heartbeat, peak memory, disk size and the time to read one device's day, then
//! the disk size after eight days of which two are kept. Then 600,000 events wait
//! for an uplink: what opening, reading and giving up some of them takes. Each scene
//! runs in a process of its own, so that peaks and counts are its own.
//!
//! Goals: at 1,000 devices at most 1 us and 60 bytes written a heartbeat, at
//! 200 devices at most 100 bytes; after eight days at most 8 times a raw day of
//! 16 bytes a heartbeat; 600,000 waiting events open in less than a second of
//! processor time and take no more memory than few.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a bench prints, stops at the first surprise, and measures real time"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sitebeat::domain::day::{DAY_MILLIS, Day};
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::event::{Change, Event, News};
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::store::outbox::UplinkMarks;
use sitebeat::store::{Options, Store};

const MINUTE: i64 = 60_000;
const MINUTES: i64 = 1_440;
/// 2026-03-12T00:00:00Z.
const START: i64 = 1_773_273_600_000;
const RAW_BYTES: f64 = 16.0;
/// Events that wait for an uplink.
const WAITING: usize = 600_000;
/// Devices and days.
const SCENES: [(usize, i64); 4] = [(1_000, 1), (200, 1), (1_000, 8), (200, 8)];

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    if let [devices, days] = numbers[..] {
        play(devices, i64::try_from(days).expect("few days"));
        return;
    }
    if let ([events], Ok(path)) = (&numbers[..], std::env::var("BENCH_STORE")) {
        forward(*events, Path::new(&path));
        return;
    }
    let own = std::env::current_exe().expect("own path");
    for (devices, days) in SCENES {
        let mut scene = Command::new(&own);
        scene.args([devices.to_string(), days.to_string()]);
        assert!(scene.status().expect("run a scene").success());
    }
    for events in [1_000, WAITING] {
        let folder = bench_folder();
        // Twice in a process of its own: the first one fills the store.
        for _ in 0..2 {
            let mut scene = Command::new(&own);
            scene
                .arg(events.to_string())
                .env("BENCH_STORE", folder.path());
            assert!(scene.status().expect("run a scene").success());
        }
    }
}

fn bench_folder() -> tempfile::TempDir {
    let beside = std::env::var("BENCH_DIR").unwrap_or("target".into());
    tempfile::tempdir_in(beside).expect("a folder beside the build")
}

fn options_for(path: &Path) -> Options {
    Options {
        path: path.join("data"),
        site: "site-1".into(),
        node: "gw-a".into(),
        max_bytes: u64::MAX,
        min_free_bytes: 0,
    }
}

/// Fills a store with events that wait for an uplink; where it is filled, opens it,
/// reads some, gives up a half and reads the rest.
fn forward(events: usize, path: &Path) {
    let now = Wall::from_millis(START);
    let before = Usage::now();
    let store = Store::open(&options_for(path), now).expect("a store").store;
    let waiting = store.outbox().backlog.total();
    let fleet = fleet(1_000);
    if waiting.events == 0 {
        for _ in 0..events / fleet.len() {
            let changes: Vec<Change> = fleet.iter().map(|&device| turn(device, now)).collect();
            store.commit(&changes, now).expect("a commit");
        }
        let marks = UplinkMarks::default();
        store.keep_uplink(&marks, now).expect("the totals");
        return;
    }
    let mut last = before;
    let mut tell = |deed: &str, count: u64| {
        let used = Usage::now();
        println!(
            "  {deed}: {count} events, {:.2} s of CPU, {:.1} MB written, peak {:.1} MB",
            (used.cpu_us - last.cpu_us) / 1e6,
            (used.written - last.written) / 1e6,
            used.peak_mb,
        );
        last = used;
    };
    println!(
        "{} events of {:.0} MB wait",
        waiting.events,
        waiting.bytes as f64 / 1e6
    );
    tell("opened", waiting.events);
    let drain = |after: u64, most: u64| {
        let (mut position, mut count) = (after, 0);
        while count < most {
            let parcels = store
                .read_outbox(position, (100, 64 << 10), now)
                .expect("parcels");
            let Some(newest) = parcels.last() else { break };
            position = newest.seq;
            count += parcels.len() as u64;
            store.move_cursor(position, now).expect("a cursor");
        }
        (position, count)
    };
    let (position, count) = drain(0, waiting.events / 10);
    tell("read and acknowledged", count);
    let half = store.outbox().backlog.total().bytes / 2;
    let passed = store
        .pass_over(half, position, now)
        .expect("a passing over");
    tell("passed over", passed);
    let (_, count) = drain(position, u64::MAX);
    tell("read and acknowledged the rest", count);
    assert_eq!(store.outbox().backlog.total().events, 0);
}

fn play(devices: usize, days: i64) {
    let folder = bench_folder();
    let fleet = fleet(devices);
    let options = options_for(folder.path());
    let opened = Store::open(&options, Wall::from_millis(START)).expect("a fresh store");
    let store = opened.store;
    let before = Usage::now();
    let began = Instant::now();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut disk_most = 0;
    let raw_day = samples(devices, 1) * RAW_BYTES;
    for day in 0..days {
        for minute in 0..MINUTES {
            let start = START + day * DAY_MILLIS + minute * MINUTE;
            store.push_raw(&sweep(&fleet, start, &mut dice));
            let end = Wall::from_millis(start + MINUTE);
            store.flush_raw(end).expect("a flush");
        }
        disk_most = disk_most.max(bytes_below(folder.path()));
        for old in store.raw_days().expect("days") {
            if old.end().millis() + 2 * DAY_MILLIS <= START + (day + 1) * DAY_MILLIS {
                store.remove_raw_day(old).expect("a removal");
            }
        }
    }
    report(&before, devices, days, began);
    println!(
        "  disk at the end {:.2} times a raw day, at most {:.2} times",
        bytes_below(folder.path()) as f64 / raw_day,
        disk_most as f64 / raw_day,
    );
    read(&store, &fleet, days);
    change(&store, &fleet, Wall::from_millis(START + days * DAY_MILLIS));
    store
        .close(Wall::from_millis(START + days * DAY_MILLIS))
        .expect("a close");
    drop(store);
    let began = Instant::now();
    let now = Wall::from_millis(START + days * DAY_MILLIS);
    let opened = Store::open(&options, now).expect("a reopening");
    println!(
        "  reopened without a checkpoint in {:.0} ms, {} standings, peak {:.1} MB",
        began.elapsed().as_secs_f64() * 1e3,
        opened.standings.len(),
        Usage::now().peak_mb,
    );
}

fn samples(devices: usize, days: i64) -> f64 {
    (i64::try_from(devices).unwrap() * MINUTES * days) as f64
}

fn report(before: &Usage, devices: usize, days: i64, began: Instant) {
    let used = Usage::now();
    let samples = samples(devices, days);
    println!(
        "{devices} devices, {days} day(s): {:.2} us and {:.1} bytes written a heartbeat, \
         peak {:.1} MB ({:.1} MB before), {:.1} s",
        (used.cpu_us - before.cpu_us) / samples,
        (used.written - before.written) / samples,
        used.peak_mb,
        before.peak_mb,
        began.elapsed().as_secs_f64(),
    );
}

fn read(store: &Store, fleet: &[DeviceId], days: i64) {
    let day = Day::of(Wall::from_millis(START + (days - 1) * DAY_MILLIS)).expect("a day");
    let began = Instant::now();
    let count = 20.min(fleet.len());
    for &device in fleet.iter().take(count) {
        let samples = store.heartbeats(device, day).expect("a day's heartbeats");
        assert_eq!(samples.len(), usize::try_from(MINUTES).unwrap());
    }
    println!(
        "  a device's day read in {:.1} ms",
        began.elapsed().as_secs_f64() * 1e3 / count as f64
    );
}

/// Changes of status: one a flush, ten a flush.
fn change(store: &Store, fleet: &[DeviceId], now: Wall) {
    for group in [1, 10] {
        let before = Usage::now();
        let flushes = 1_000;
        for round in 0..flushes {
            let turned = fleet.iter().cycle().skip(round * group).take(group);
            let changes: Vec<Change> = turned.map(|&device| turn(device, now)).collect();
            store.commit(&changes, now).expect("a commit");
        }
        let used = Usage::now();
        let changes = (flushes * group) as f64;
        println!(
            "  {group} change(s) a flush: {:.0} bytes written and {:.0} us a change",
            (used.written - before.written) / changes,
            (used.cpu_us - before.cpu_us) / changes,
        );
    }
}

fn turn(device: DeviceId, now: Wall) -> Change {
    let track = Track {
        status: Status::Online,
        last_ping_at: Some(now),
        ..Track::default()
    };
    let news = News::StatusChanged {
        previous: Status::Offline,
        current: Status::Online,
        missed_count: 0,
        last_seen: Some(now),
    };
    Change::Standing {
        liveness: Liveness { device, track },
        event: Event {
            device: Some(device),
            produced_at: now,
            process_ms: 1,
            news,
        },
    }
}

fn fleet(devices: usize) -> Vec<DeviceId> {
    (0..devices)
        .map(|n| format!("meter-{n:05}").parse().expect("an id"))
        .collect()
}

/// One heartbeat of every device, spread over the minute, GSM-like: 200 to
/// 1,400 ms, one in fifty missed.
fn sweep(fleet: &[DeviceId], start: i64, dice: &mut u64) -> Vec<Sample> {
    let spread = (0_i64..).zip(fleet);
    let devices = i64::try_from(fleet.len()).unwrap();
    spread
        .map(|(n, &device)| {
            *dice ^= *dice << 13;
            *dice ^= *dice >> 7;
            *dice ^= *dice << 17;
            let outcome = if dice.is_multiple_of(50) {
                Outcome::Missed(Miss::Timeout)
            } else {
                Outcome::Replied {
                    rtt_us: 200_000 + u32::try_from(*dice % 1_200_000).unwrap(),
                }
            };
            // A stable phase that has nothing to do with the order of ids.
            let phase = (n * 7_919 % devices) * MINUTE / devices;
            Sample {
                device,
                at: Wall::from_millis(start + phase),
                outcome,
                occasion: Occasion::Scheduled,
                status: Status::Online,
            }
        })
        .collect()
}

struct Usage {
    cpu_us: f64,
    written: f64,
    peak_mb: f64,
}

impl Usage {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("status");
        let io = fs::read_to_string("/proc/self/io").expect("io");
        let stat = fs::read_to_string("/proc/self/stat").expect("stat");
        // Past the name, which may hold spaces: user and system time in ticks of
        // 10 ms, threads that have ended included.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<f64>().expect("ticks"))
            .sum();
        Self {
            cpu_us: ticks * 1e4,
            written: number(&io, "write_bytes:"),
            peak_mb: number(&status, "VmHWM:") / 1e3,
        }
    }
}

fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.expect("a number").parse().expect("a number")
}

fn bytes_below(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries
        .map(|entry| {
            let found = entry.metadata().expect("a file");
            if found.is_dir() {
                bytes_below(&entry.path())
            } else {
                found.blocks() * 512
            }
        })
        .sum()
}
