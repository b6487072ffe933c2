//! What summing up days costs, and what years of rows do.
//!
//! `cargo bench --bench rollup` sums up a day of 1,000 and of 10,000 devices with
//! a heartbeat a minute and prints time, processor time and memory over that of
//! the idle store, what opening takes where no checkpoint was written, and how long
//! a flush waits while the day is read; then writes one and five years of rows of 1,000 devices and
//! prints what keeping and reading them takes. Each scene runs in a process of its
//! own. Goals: 0.3 s and 20 MB at 1,000 devices, 3 s at 10,000; reading five years
//! takes no more memory than one, at most 100 MB.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a bench prints, stops at the first surprise, and measures real time"
)]

#[path = "../tests/support/years.rs"]
mod years;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sitebeat::config::settings::Rollup;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use sitebeat::edge::rollup::plan::by_hand;
use sitebeat::edge::rollup::work::summarise;
use sitebeat::store::{Options, Store};
use years::keep_days;

const MINUTE: Duration = Duration::from_mins(1);
const SCENES: [[&str; 2]; 4] = [
    ["day", "1000"],
    ["day", "10000"],
    ["years", "1"],
    ["years", "5"],
];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    // What is measured has not filled the store: that takes memory of its own.
    if let [scene, number, folder] = &words[..] {
        let folder = Path::new(folder);
        match scene.as_str() {
            "day" => sum_up(folder, number),
            _ => read(folder),
        }
        return;
    }
    if let [scene, number] = &words[..] {
        let number: u32 = number.parse().expect("a number");
        match scene.as_str() {
            "day" => day(usize::try_from(number).expect("few devices")),
            _ => years(number),
        }
        return;
    }
    let own = std::env::current_exe().expect("own path");
    for scene in SCENES {
        assert!(
            Command::new(&own)
                .args(scene)
                .status()
                .expect("run a scene")
                .success()
        );
    }
}

fn open(folder: &Path, now: Wall) -> Store {
    let options = Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 8 << 30,
        min_free_bytes: 0,
    };
    Store::open(&options, now).expect("open the store").store
}

fn fleet(devices: usize) -> Vec<DeviceId> {
    (0..devices)
        .map(|n| format!("meter-{n:05}").parse().unwrap())
        .collect()
}

fn day(devices: usize) {
    let folder = tempfile::tempdir_in("target").expect("a folder beside the build");
    let day: Day = "2026-03-12".parse().unwrap();
    let store = open(folder.path(), day.start());
    let fleet = fleet(devices);
    for minute in 0..1_440_u32 {
        let at = day.start().plus(MINUTE * minute);
        let sample = |(n, &device): (usize, &DeviceId)| {
            let turn = u32::try_from(n)
                .unwrap()
                .wrapping_mul(2_654_435_761)
                .wrapping_add(minute * 97)
                >> 8;
            let at = at.plus(Duration::from_millis(u64::from(turn % 60_000)));
            let outcome = if turn.is_multiple_of(50) {
                Outcome::Missed(Miss::Timeout)
            } else {
                Outcome::Replied {
                    rtt_us: 300_000 + turn % 900_000,
                }
            };
            Sample {
                outcome,
                ..reply(
                    device,
                    at.plus(Duration::from_millis(u64::from(turn % 60_000))),
                )
            }
        };
        let samples: Vec<Sample> = fleet.iter().enumerate().map(sample).collect();
        store.push_raw(&samples);
        store.flush_raw(at).expect("keep a minute");
    }
    drop(store);
    again(&["day", &devices.to_string()], folder.path());
}

fn reply(device: DeviceId, at: Wall) -> Sample {
    Sample {
        device,
        at,
        outcome: Outcome::Replied { rtt_us: 300_000 },
        occasion: Occasion::Scheduled,
        status: Status::Online,
    }
}

/// Goes on in another process.
fn again(scene: &[&str], folder: &Path) {
    let own = std::env::current_exe().expect("own path");
    let status = Command::new(own).args(scene).arg(folder).status();
    assert!(status.expect("run a scene").success());
}

fn sum_up(folder: &Path, devices: &str) {
    let day: Day = "2026-03-12".parse().unwrap();
    let now = day.end().plus(Duration::from_mins(20));
    let start = Instant::now();
    let store = open(folder, now);
    println!(
        "{devices} devices, opened without a checkpoint: {:.2} s, CPU {:.2} s, peak of the \
         process {} kB",
        start.elapsed().as_secs_f64(),
        cpu_seconds(),
        memory("VmHWM:")
    );
    let job = by_hand(day, now, &Rollup::default()).expect("the day is over");
    let idle = memory("VmRSS:");
    reset_peak();
    for what in ["first time", "again"] {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let done = summarise(&store, job, now).expect("sum up the day");
        println!(
            "{devices} devices, {what}: {:.2} s, CPU {:.2} s, {} rows written, {} events",
            start.elapsed().as_secs_f64(),
            cpu_seconds() - cpu,
            done.rows.changed,
            done.told
        );
    }
    println!(
        "  memory: idle {idle} kB, peak {} kB more",
        memory("VmHWM:") - idle
    );
    flush_beside_a_reading(&store, devices, day);
}

/// How long a flush of one heartbeat per device takes alone, and while the day is
/// read.
fn flush_beside_a_reading(store: &Store, devices: &str, day: Day) {
    let fleet = fleet(devices.parse().expect("a number"));
    let mut minute = 0;
    let mut flush = || {
        let at = day.end().plus(MINUTE * minute);
        minute += 1;
        let samples: Vec<Sample> = fleet.iter().map(|&id| reply(id, at)).collect();
        store.push_raw(&samples);
        let start = Instant::now();
        store.flush_raw(at).expect("keep a minute");
        let took = start.elapsed();
        thread::sleep(Duration::from_millis(10));
        took
    };
    let alone: Vec<Duration> = (0..20).map(|_| flush()).collect();
    let mut beside = Vec::new();
    thread::scope(|scope| {
        let reading = scope.spawn(|| store.read_day(day, &mut |_| {}).expect("read the day"));
        while !reading.is_finished() {
            beside.push(flush());
        }
    });
    for (what, mut waits) in [("alone", alone), ("beside a reading of the day", beside)] {
        waits.sort_unstable();
        println!(
            "  {} flushes {what}: median {:.1?}, longest {:.1?}",
            waits.len(),
            waits[waits.len() / 2],
            waits[waits.len() - 1]
        );
    }
}

fn years(years: u32) {
    let folder = tempfile::tempdir_in("target").expect("a folder beside the build");
    let first: Day = "2021-01-01".parse().unwrap();
    let fleet = fleet(1_000);
    {
        let store = open(folder.path(), first.start());
        let count = years * 365;
        let last = (1..count).fold(first, |day, _| day.next());
        let start = Instant::now();
        keep_days(&store, &fleet, (last, count));
        println!(
            "{years} years of 1,000 devices: {:.1} ms a day to write, {} MB on disk",
            start.elapsed().as_secs_f64() * 1_000.0 / f64::from(count),
            disk_bytes(folder.path()) / 1_000_000
        );
        store.close(last.end()).expect("close");
    }
    again(&["years", &years.to_string()], folder.path());
}

fn read(folder: &Path) {
    let first: Day = "2021-01-01".parse().unwrap();
    let store = open(folder, first.start());
    let idle = memory("VmRSS:");
    reset_peak();
    let start = Instant::now();
    let mut rows = 0_u64;
    let read = store.summaries(Day::MIN, Day::MAX, None, &mut |_| {
        rows += 1;
        true
    });
    read.expect("read all rows");
    println!(
        "  {rows} rows read in {:.2} s; memory: idle {idle} kB, peak {} kB more",
        start.elapsed().as_secs_f64(),
        memory("VmHWM:") - idle
    );
    let start = Instant::now();
    let month_end = (0..30).fold(first, |day, _| day.next());
    let mut month = 0_u64;
    let read = store.summaries(first, month_end, None, &mut |_| {
        month += 1;
        true
    });
    read.expect("read a month");
    println!(
        "  a month, {month} rows: {:.1} ms",
        start.elapsed().as_secs_f64() * 1_000.0
    );
}

/// A line of `/proc/self/status`, in kB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line");
    line.split_whitespace()
        .next()
        .expect("a number")
        .parse()
        .expect("a number")
}

/// Makes `VmHWM` begin anew (proc(5)).
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("own peak");
}

fn cpu_seconds() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)
        .expect("the kernel keeps it");
    let seconds = |time: nix::sys::time::TimeVal| {
        let whole = u32::try_from(time.tv_sec()).unwrap_or(u32::MAX);
        let micros = u32::try_from(time.tv_usec()).unwrap_or(0);
        f64::from(whole) + f64::from(micros) / 1e6
    };
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn disk_bytes(folder: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let data = entry.metadata().expect("its size");
        sum += if data.is_dir() {
            disk_bytes(&entry.path())
        } else {
            data.len()
        };
    }
    sum
}
