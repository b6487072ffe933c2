//! The task that sums up days, on a real store and simulated time: at its hour, too
//! late, with the clock set under it, after a crash at any point, on a full disk.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sitebeat::board::Board;
use sitebeat::board::command::{NotRolledUp, RolledUp};
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::{History, Rollup as Rule};
use sitebeat::domain::daily::Summary;
use sitebeat::domain::day::Day;
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use sitebeat::edge::rollup::plan::{Depth, Job};
use sitebeat::edge::rollup::work::summarise;
use sitebeat::edge::rollup::{Links, Rollup, Rules, Wish};
use sitebeat::store::{Options, Store};
use tokio::sync::{mpsc, oneshot, watch};

#[path = "support/small_disk.rs"]
mod small_disk;

const MINUTE: Duration = Duration::from_mins(1);

fn day(n: u32) -> Day {
    format!("2026-03-{n:02}").parse().unwrap()
}

fn at(text: &str) -> Wall {
    Wall::parse(&format!("2026-03-{text}Z")).unwrap()
}

fn open(folder: &Path, now: Wall) -> Arc<Store> {
    let options = Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    };
    Arc::new(Store::open(&options, now).unwrap().store)
}

fn reply(device: &str, at: Wall) -> Sample {
    Sample {
        device: device.parse().unwrap(),
        at,
        outcome: Outcome::Replied { rtt_us: 40_000 },
        occasion: Occasion::Scheduled,
        status: Status::Online,
    }
}

/// `count` replies of D7 from the start of the day on, one a minute.
fn fill(store: &Store, day: Day, count: u32) {
    let samples: Vec<Sample> = (0..count)
        .map(|minute| reply("D7", day.start().plus(MINUTE * minute)))
        .collect();
    store.push_raw(&samples);
    store.flush_raw(day.end()).unwrap();
}

fn rows(store: &Store, day: Day) -> Vec<Summary> {
    let mut rows = Vec::new();
    store
        .summaries(day, day, None, &mut |row| {
            rows.push(*row);
            true
        })
        .unwrap();
    rows
}

fn replied(store: &Store, day: Day) -> Option<u32> {
    rows(store, day).first().map(|row| row.figures.replied)
}

/// Names of the events so far, without `heartbeat.` and version, with their day.
fn told(store: &Store) -> Vec<String> {
    let events = store.events_after(0, 1_000).unwrap();
    let word = |json: &str| {
        let json: Value = serde_json::from_str(json).unwrap();
        let name = json["event"].as_str().unwrap();
        let name = name
            .trim_start_matches("heartbeat.")
            .trim_end_matches(".v1");
        let about = json["data"]["day"]
            .as_str()
            .or(json["error"]["error_code"].as_str());
        format!("{name} {}", about.unwrap_or_default())
    };
    events.iter().map(|event| word(&event.json)).collect()
}

/// The task while it runs.
struct Running {
    board: Arc<Board>,
    clock: Arc<SimulatedClock>,
    wishes: mpsc::Sender<Wish>,
    stop: watch::Sender<bool>,
    _rules: watch::Sender<Rules>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(store: &Arc<Store>, clock: &Arc<SimulatedClock>) -> Self {
        let board = Arc::new(Board::default());
        let (rules_to, rules) = watch::channel(Rules {
            rollup: Rule::default(),
            history: History::default(),
            raw_retention: Duration::from_hours(48),
        });
        let (wishes, wishes_in) = mpsc::channel(4);
        let (stop, stopped) = watch::channel(false);
        let links = Links {
            store: Arc::clone(store),
            board: Arc::clone(&board),
            clock: Arc::<SimulatedClock>::clone(clock),
            rules,
            wishes: wishes_in,
        };
        Self {
            board,
            clock: Arc::clone(clock),
            wishes,
            stop,
            _rules: rules_to,
            task: tokio::spawn(Rollup::new(links).run(stopped)),
        }
    }

    /// Lets time pass until the wall shows this, and a look longer.
    async fn until(&self, to: &str) {
        tokio::time::sleep(at(to).since(self.clock.wall())).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
    }

    async fn by_hand(&self, day: Day) -> Result<RolledUp, NotRolledUp> {
        let (answer, answered) = oneshot::channel();
        self.wishes.send(Wish { day, answer }).await.unwrap();
        answered.await.unwrap()
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn late_heartbeats_are_in_the_last_word_and_those_after_it_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("12T23:50:00")));
    let store = open(folder.path(), clock.wall());
    fill(&store, day(12), 1_430);
    let running = Running::start(&store, &clock);
    running.until("13T00:05:00").await;
    assert_eq!(replied(&store, day(12)), Some(1_430));
    assert!(told(&store).is_empty());
    let late = |from: u32, count: u32| {
        let samples = (from..from + count).map(|n| reply("D7", day(12).start().plus(MINUTE * n)));
        store.push_raw(&samples.collect::<Vec<_>>());
    };
    running.until("13T00:09:00").await;
    late(1_430, 5);
    running.until("13T00:14:30").await;
    late(1_435, 3);
    running.until("13T00:15:00").await;
    assert_eq!(replied(&store, day(12)), Some(1_438));
    assert_eq!(
        told(&store),
        ["daily.summarised 2026-03-12", "site.summarised 2026-03-12"]
    );
    late(1_438, 2);
    running.until("13T23:00:00").await;
    assert_eq!(replied(&store, day(12)), Some(1_438));
    running.until("14T00:15:00").await;
    assert_eq!(replied(&store, day(12)), Some(1_440));
    // Told anew, since it says something else now.
    assert_eq!(told(&store).len(), 4);
    running.until("15T00:20:00").await;
    assert_eq!(told(&store).len(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn missed_hours_are_made_up_for_oldest_first_within_a_minute_of_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("15T14:00:00")));
    let store = open(folder.path(), clock.wall());
    for n in [12, 13, 14, 15] {
        fill(&store, day(n), 100);
    }
    let running = Running::start(&store, &clock);
    running.until("15T14:00:01").await;
    let of_days = told(&store);
    let expected = [12, 13, 14].map(|n| {
        [
            format!("daily.summarised 2026-03-{n}"),
            format!("site.summarised 2026-03-{n}"),
        ]
    });
    assert_eq!(of_days, expected.concat());
    assert!(
        rows(&store, day(15)).is_empty(),
        "a day that goes on has no row"
    );
    let shown = running.board.look().gateway.rollup.clone();
    assert_eq!((shown.last_final, shown.running), (Some(day(14)), None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stall_over_the_trigger_or_over_midnight_changes_nothing() {
    for (from, to) in [
        ("13T00:04:30", "13T00:07:00"),
        ("12T23:50:00", "13T00:10:00"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimulatedClock::starting_at(at("12T23:45:00")));
        let store = open(folder.path(), clock.wall());
        fill(&store, day(12), 1_440);
        let running = Running::start(&store, &clock);
        running.until(from).await;
        // Nothing gets a turn meanwhile.
        tokio::time::advance(at(to).since(clock.wall())).await;
        running.until("13T00:10:30").await;
        assert_eq!(replied(&store, day(12)), Some(1_440), "{from}");
        running.until("13T00:15:00").await;
        assert_eq!(told(&store).len(), 2, "{from}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_over_the_trigger_gives_the_same_row_and_no_second_event() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("12T23:59:00")));
    let store = open(folder.path(), clock.wall());
    fill(&store, day(12), 1_440);
    let running = Running::start(&store, &clock);
    running.until("13T00:16:00").await;
    let before = rows(&store, day(12));
    assert_eq!((before.len(), told(&store).len()), (1, 2));
    clock.step_wall(-18 * 60_000);
    running.until("12T23:58:30").await;
    running.until("13T00:20:00").await;
    assert_eq!(rows(&store, day(12)), before, "times included");
    assert_eq!(told(&store).len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn leap_of_the_clock_removes_nothing_and_what_comes_after_it_still_counts() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("12T12:00:00")));
    let store = open(folder.path(), clock.wall());
    fill(&store, day(11), 1_440);
    fill(&store, day(12), 720);
    let running = Running::start(&store, &clock);
    running.until("12T12:10:00").await;
    let five_years = 5 * 366 * 86_400_000_i64;
    clock.step_wall(five_years);
    tokio::time::sleep(Duration::from_hours(1)).await;
    clock.step_wall(-five_years);
    assert_eq!(
        store.raw_days().unwrap(),
        [day(11), day(12)],
        "nothing is old"
    );
    assert_eq!(rows(&store, day(11)).len(), 1, "no row is old");
    fill(&store, day(12), 1_440);
    running.until("13T00:20:00").await;
    assert_eq!(replied(&store, day(12)), Some(1_440));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn raw_goes_48_hours_after_its_day_and_never_before_the_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("12T23:00:00")));
    let store = open(folder.path(), clock.wall());
    fill(&store, day(12), 1_440);
    let running = Running::start(&store, &clock);
    for n in [13, 14] {
        fill(&store, day(n), 1_440);
    }
    running.until("14T23:40:00").await;
    assert_eq!(store.raw_days().unwrap(), [12, 13, 14].map(day));
    running.until("15T00:15:30").await;
    assert_eq!(store.raw_days().unwrap(), [13, 14].map(day));
    assert_eq!(replied(&store, day(12)), Some(1_440));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn starts_under_a_clock_years_ahead_remove_neither_rows_nor_raw() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("13T01:00:00")));
    let store = open(folder.path(), clock.wall());
    for n in [11, 12] {
        fill(&store, day(n), 1_440);
    }
    let running = Running::start(&store, &clock);
    running.until("13T01:01:00").await;
    running.stop().await;
    clock.step_wall(7 * 365 * 86_400_000);
    for _ in 0..3 {
        let ahead = Day::of(clock.wall()).unwrap();
        fill(&store, ahead, 10);
        let running = Running::start(&store, &clock);
        tokio::time::sleep(Duration::from_hours(10)).await;
        running.stop().await;
        let raw = store.raw_days().unwrap();
        assert!(raw.contains(&day(12)), "{raw:?}");
        assert_eq!(rows(&store, day(11)).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn day_is_summed_up_by_hand_when_it_is_over_and_its_raw_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(at("13T00:01:00")));
    let store = open(folder.path(), clock.wall());
    fill(&store, day(12), 10);
    let running = Running::start(&store, &clock);
    let done = RolledUp {
        rows_changed: 1,
        rows_kept: 0,
    };
    assert_eq!(running.by_hand(day(12)).await, Ok(done));
    let again = RolledUp {
        rows_changed: 0,
        rows_kept: 1,
    };
    assert_eq!(running.by_hand(day(12)).await, Ok(again));
    let (today, gone) = (day(13), day(2));
    assert_eq!(
        running.by_hand(today).await,
        Err(NotRolledUp::NotOver { day: today })
    );
    assert_eq!(
        running.by_hand(gone).await,
        Err(NotRolledUp::NoRaw { day: gone })
    );
    running.stop().await;
}

/// Ends between any two deeds of a summary: whatever was done, doing it again
/// gives what one summary without a crash gives.
#[test]
fn crash_between_any_two_deeds_of_a_summary_changes_nothing_in_the_end() {
    let whole = |folder: &Path, crash: u32| {
        let now = at("13T00:20:00");
        let store = open(folder, now);
        fill(&store, day(12), 1_440);
        fill(&store, day(13), 20);
        let job = Job {
            day: day(12),
            depth: if crash == 1 {
                Depth::First
            } else {
                Depth::Final
            },
        };
        if crash > 0 {
            // 1: rows without events. 2: rows and events, raw not removed.
            summarise(&store, job, now).unwrap();
        }
        if crash == 3 {
            // A removal that a crash cut short leaves the day under another name.
            drop(store);
            let raw = folder.join("data/raw");
            fs::rename(raw.join("2026-03-12"), raw.join("2026-03-12.removing")).unwrap();
        } else {
            drop(store);
        }
        let store = open(folder, now);
        if crash < 3 {
            let job = Job {
                day: day(12),
                depth: Depth::Final,
            };
            summarise(&store, job, now).unwrap();
            store.remove_raw_day(day(12)).unwrap();
        }
        let raw = store
            .heartbeats("D7".parse().unwrap(), day(13))
            .unwrap()
            .len();
        (
            rows(&store, day(12)),
            told(&store),
            store.raw_days().unwrap(),
            raw,
        )
    };
    let without = tempfile::tempdir().unwrap();
    let expected = whole(without.path(), 0);
    assert_eq!((expected.0.len(), expected.1.len(), expected.3), (1, 2, 20));
    assert_eq!(expected.2, [day(13)]);
    for crash in 1..=3 {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(whole(folder.path(), crash), expected, "crash {crash}");
    }
}

#[test]
fn full_disk_is_tried_again_after_1_5_and_15_minutes_then_told_and_made_up_for() {
    small_disk::play("scene_on_a_disk_that_fills");
}

#[tokio::test(start_paused = true)]
async fn scene_on_a_disk_that_fills() {
    let Some(disk) = small_disk::disk() else {
        return;
    };
    let clock = Arc::new(SimulatedClock::starting_at(at("12T23:59:00")));
    let store = open(&disk, clock.wall());
    fill(&store, day(12), 1_440);
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![0; 64 << 20]).unwrap_err();
    let running = Running::start(&store, &clock);
    let failing = || {
        running
            .board
            .look()
            .gateway
            .rollup
            .failing
            .clone()
            .unwrap_or_default()
    };
    for (until, next) in [
        ("13T00:05:00", "next try at 2026-03-13T00:06"),
        ("13T00:06:15", "next try at 2026-03-13T00:11"),
        ("13T00:11:30", "next try at 2026-03-13T00:26"),
        ("13T00:26:45", "next try with the next day's"),
    ] {
        running.until(until).await;
        assert!(failing().contains(next), "{until}: {}", failing());
        assert_eq!(store.raw_days().unwrap(), [day(12)], "raw stays");
    }
    fs::remove_file(&ballast).unwrap();
    running.until("13T23:00:00").await;
    assert!(rows(&store, day(12)).is_empty(), "not before the next run");
    fill(&store, day(13), 10);
    running.until("14T00:16:00").await;
    assert_eq!(failing(), "");
    assert_eq!(replied(&store, day(12)), Some(1_440));
    assert_eq!(replied(&store, day(13)), Some(10));
    assert!(
        told(&store).contains(&"failed ROLLUP_FAILED".to_owned()),
        "{:?}",
        told(&store)
    );
    running.stop().await;
}

#[test]
fn daily_and_site_events_say_what_the_row_says() {
    let folder = tempfile::tempdir().unwrap();
    let now = at("13T00:20:00");
    let store = open(folder.path(), now);
    fill(&store, day(12), 3);
    let missed = |n: u32, status| Sample {
        outcome: Outcome::Missed(Miss::Timeout),
        status,
        ..reply("D8", day(12).start().plus(MINUTE * n))
    };
    store.push_raw(&[
        reply("D8", day(12).start()),
        missed(1, Status::Online),
        missed(2, Status::Online),
        missed(3, Status::Offline),
    ]);
    let job = Job {
        day: day(12),
        depth: Depth::Final,
    };
    let done = summarise(&store, job, now).unwrap();
    assert_eq!((done.rows.changed, done.told), (2, 3));
    let events = store.events_after(0, 10).unwrap();
    let data: Vec<String> = events
        .iter()
        .map(|event| {
            let json: Value = serde_json::from_str(&event.json).unwrap();
            format!("{} {} {}", json["event"], json["context"], json["data"])
        })
        .collect();
    insta::assert_snapshot!(data.join("\n"));
}
