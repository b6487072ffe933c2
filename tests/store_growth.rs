//! A month of a site of two hundred devices, as fast as the store goes: what goes
//! away gives its room back.
//!
//! Measured: 12.6 MB of raw on day 3 and on day 30 alike, rows 0.5 and 1.1 MB, and
//! 1,212 bytes of `state/` for each event.
#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/store_kit.rs"]
mod store_kit;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sitebeat::board::Board;
use sitebeat::clock::{Clock, SimulatedClock, SystemClock};
use sitebeat::config::settings::{History, Rollup as Rule};
use sitebeat::domain::heartbeat::{Outcome, Sample};
use sitebeat::domain::status::Status;
use sitebeat::edge::rollup::{Links, Rollup, Rules};
use sitebeat::store::Store;
use store_kit::{at, miss, open, reply, turn};
use tokio::sync::{mpsc, watch};

const DEVICES: usize = 200;
const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;
/// Minutes that are flushed together.
const STEP: i64 = 10;

/// Bytes on the disk.
#[derive(Debug)]
struct Sizes {
    raw: u64,
    daily: u64,
    state: u64,
    events: u64,
}

fn bytes_below(folder: &Path) -> u64 {
    let sizes = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        if found.is_dir() {
            bytes_below(&entry.path())
        } else {
            found.blocks() * 512
        }
    });
    sizes.sum()
}

fn measure(folder: &Path, store: &Store) -> Sizes {
    let size = |part: &str| bytes_below(&folder.join(part));
    Sizes {
        raw: size("raw"),
        daily: size("daily"),
        state: size("state"),
        events: store.figures().events,
    }
}

/// One minute of all devices: round trips that vary, and a miss here and there.
fn minute(millis: i64) -> impl Iterator<Item = Sample> {
    let seed = u32::try_from(millis / MINUTE).unwrap();
    (0..DEVICES).map(move |n| {
        let dice = seed
            .wrapping_add(u32::try_from(n).unwrap() << 16)
            .wrapping_mul(2_654_435_761)
            >> 12;
        let millis = millis + 250 * i64::try_from(n).unwrap();
        if dice % 50 == 0 {
            return miss(n, millis);
        }
        let mut sample = reply(n, millis);
        sample.outcome = Outcome::Replied {
            rtt_us: 200_000 + dice % 400_000,
        };
        sample
    })
}

/// Lets the rollup live through this part of a day, and gives it its heartbeats.
async fn live(store: &Store, clock: &SimulatedClock, from: i64, to: i64) {
    let mut now = from;
    while now < to {
        let next = now + STEP * MINUTE;
        let until = at(next).since(clock.wall());
        tokio::time::sleep(until).await;
        let samples: Vec<Sample> = (0..STEP).flat_map(|n| minute(now + n * MINUTE)).collect();
        store.push_raw(&samples);
        store.flush_raw(at(next)).unwrap();
        now = next;
    }
}

#[tokio::test(start_paused = true)]
async fn thirty_days_take_no_more_than_twice_the_room_of_three_but_for_events() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at(0)));
    let store = Arc::new(open(folder.path(), at(0)).store);
    let (_rules, rules) = watch::channel(Rules {
        rollup: Rule::default(),
        history: History::default(),
        raw_retention: Duration::from_hours(48),
    });
    let (_wishes, wishes) = mpsc::channel(1);
    let (stop, stopped) = watch::channel(false);
    let links = Links {
        store: Arc::clone(&store),
        board: Arc::new(Board::default()),
        clock: Arc::<SimulatedClock>::clone(&clock),
        rules,
        wishes,
    };
    let rollup = tokio::spawn(Rollup::new(links).run(stopped));
    let mut at_noon = Vec::new();
    for day in 0..30 {
        let (from, noon) = (day * DAY, day * DAY + DAY / 2);
        live(&store, &clock, from, noon).await;
        at_noon.push(measure(folder.path(), &store));
        for status in [Status::Offline, Status::Online] {
            let changes: Vec<_> = (0..DEVICES / 4).map(|n| turn(n, status, noon)).collect();
            store.commit(&changes, at(noon)).unwrap();
        }
        live(&store, &clock, noon, from + DAY).await;
    }
    stop.send_replace(true);
    rollup.await.unwrap();
    // Three days are there as a whole, the first is gone by the noon of the fourth.
    let (early, late) = (&at_noon[3], &at_noon[29]);
    let kept = |sizes: &Sizes| sizes.raw + sizes.daily;
    assert!(kept(late) <= 2 * kept(early), "{early:?} {late:?}");
    assert!(late.raw <= early.raw + early.raw / 4, "{early:?} {late:?}");
    // Events are kept for ninety days on purpose; each of these days has 301.
    assert_eq!(late.events - early.events, 26 * 301);
    let per_event = (late.state - early.state) / (late.events - early.events);
    assert!(per_event <= 1_600, "{per_event} bytes: {early:?} {late:?}");
    let clock = SystemClock::new();
    let began = clock.mono();
    drop(store);
    assert_eq!(open(folder.path(), at(30 * DAY)).mended, [""; 0]);
    let took = clock.mono().since(began);
    assert!(took < Duration::from_secs(5), "opened in {took:?}");
}
