//! A gateway's flows together on simulated time: a random GSM fleet, the real
//! monitor, recorder and store, with stops and kills in between.
//!
//! One seed decides everything; `SEED=17 cargo test --test edge_simulation`
//! repeats a run. Checkers watch invariants instead of expecting values.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::Settings;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::{Device, DeviceId};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Status, Track};
use sitebeat::ping::fleet::Fleet;
use sitebeat::store::Store;

use life::{Dice, Life, MINUTE, Ways, number, options};

#[path = "support/life.rs"]
mod life;

fn seed() -> u64 {
    let seed = number("SEED", 1);
    #[expect(clippy::print_stdout, reason = "whoever sees it fail needs the seed")]
    {
        println!("SEED={seed}");
    }
    seed
}

/// Every status on the board stands in the event log.
fn check_board_is_durable(life: &Life) {
    let events = life.store.events(None, None, usize::MAX).unwrap();
    let mut newest: BTreeMap<String, (String, String)> = BTreeMap::new();
    for event in events.iter().rev() {
        let json: Value = serde_json::from_str(&event.json).unwrap();
        if json["event"] == "heartbeat.status.changed.v1" {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            newest.insert(
                text(&json["context"]["device_id"]),
                (
                    text(&json["data"]["current_status"]),
                    text(&json["meta"]["produced_at"]),
                ),
            );
        }
    }
    for (device, track) in life.tracks() {
        let told = newest.get(device.as_str());
        let Some(since) = track.since else {
            assert_eq!(track.status, Status::Unknown);
            continue;
        };
        let shown = (track.status.word().to_owned(), since.to_string());
        // The log may already hold a change that the board shows in a moment.
        let is_told = told == Some(&shown)
            || events
                .iter()
                .any(|event| event.json.contains(&shown.1) && event.json.contains(device.as_str()));
        assert!(is_told, "{device} is shown as {shown:?}, told as {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_day_of_stops_and_kills_loses_no_status_and_no_more_raw_than_a_flush() {
    let seed = seed();
    let mut dice = Dice(seed);
    let folder = tempfile::tempdir().unwrap();
    let devices = Fleet::inventory(seed, "site-1", 60);
    let start = Wall::parse("2026-03-12T00:00:10Z").unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(start));
    let ways = Ways {
        folder: folder.path(),
        seed,
        devices: &devices,
        settings: Settings::default(),
    };
    let mut before: BTreeMap<DeviceId, Track> = BTreeMap::new();
    let mut was_killed = false;
    while clock.wall() < Wall::parse("2026-03-12T23:00:00Z").unwrap() {
        let life = Life::begin(&ways, &(Arc::clone(&clock) as Arc<dyn Clock>));
        for (device, track) in &before {
            let Some(restored) = life.restored.get(device) else {
                assert_eq!(track.last_ping_at, None, "{device} is forgotten");
                continue;
            };
            if was_killed {
                // A verdict may have become durable just before it was shown.
                assert!(
                    restored.since >= track.since,
                    "{device}: {restored:?} after {track:?}"
                );
            } else {
                let standing = |track: &Track| {
                    (
                        track.status,
                        track.since,
                        track.missed_count,
                        track.last_seen,
                        track.rtt_us,
                    )
                };
                assert_eq!(standing(restored), standing(track), "{device}");
            }
        }
        for _ in 0..=dice.below(4) {
            tokio::time::sleep(Duration::from_secs(60 + dice.below(3_600))).await;
            check_board_is_durable(&life);
        }
        was_killed = dice.below(2) == 0;
        before = if was_killed {
            life.kill().await
        } else {
            life.stop().await
        };
        tokio::time::sleep(Duration::from_millis(dice.below(90_000))).await;
    }
    check_samples(folder.path(), &devices, &clock);
}

/// Each device has one scheduled heartbeat a minute at most, in order, and the
/// status after each follows from the outcomes.
fn check_samples(folder: &Path, devices: &[Device], clock: &SimulatedClock) {
    let opened = Store::open(&options(folder), clock.wall()).unwrap();
    let day: Day = "2026-03-12".parse().unwrap();
    let mut kept = 0;
    for device in devices {
        let samples = opened.store.heartbeats(device.id, day).unwrap();
        let scheduled: Vec<_> = samples
            .iter()
            .filter(|s| s.occasion == sitebeat::domain::heartbeat::Occasion::Scheduled)
            .collect();
        assert!(
            scheduled
                .windows(2)
                .all(|pair| pair[1].at.since(pair[0].at) >= MINUTE),
            "{}",
            device.id
        );
        kept += scheduled.len();
    }
    assert!(
        kept > devices.len() * 1_200,
        "{kept} heartbeats of {} devices",
        devices.len()
    );
}
