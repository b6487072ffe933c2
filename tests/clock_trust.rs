//! A gateway whose clock is wrong, late or set: monitor, recorder and store
//! together on simulated time.
#![cfg(test)]

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use gateway::{Gateway, MINUTE, NOON, at, check_standings, day, open, quick};
use serde_json::Value;
use site::{device, roster};
use sitebeat::config::settings::ProbeRules;
use sitebeat::domain::heartbeat::{Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use sitebeat::domain::trust::{DATES_BEGIN, Distrust};
use sitebeat::edge::monitor::Order;
use sitebeat::ping::fleet::Scripted;

#[tokio::test(start_paused = true)]
async fn heartbeats_from_before_the_clock_was_set_are_dated_by_the_time_since() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), "1970-01-01T00:02:00Z", 20, quick);
    site.pass(3 * MINUTE).await;
    assert_eq!(
        site.count(Status::Online),
        20,
        "shown before any date is known"
    );
    assert_eq!(site.clock().distrust, Some(Distrust::Implausible));
    assert!(site.store.raw_days().unwrap().is_empty());
    assert!(site.events().is_empty());
    assert_eq!(site.store.figures().open_samples, 0);
    site.set(NOON);
    site.pass(2 * MINUTE + Duration::from_secs(1)).await;
    assert_eq!(site.clock().distrust, None);
    let started = site.board.look().gateway.started_at;
    assert_eq!(started, at("2026-03-10T11:57:00Z"));
    // The look at the clock comes up to a tick after the step.
    let [told] = &site.clock_events()[..] else {
        panic!("one event: {:?}", site.clock_events())
    };
    assert_eq!(told.source, "boot");
    assert!(told.from.starts_with("1970-01-01T00:05:0"), "{told:?}");
    assert!(told.to.starts_with("2026-03-10T12:00:0"), "{told:?}");
    site.check_dates();
    assert_eq!(site.store.raw_days().unwrap(), [day("2026-03-10")]);
    for n in 1..=20 {
        let samples = site.scheduled(n, day("2026-03-10"));
        let before: Vec<Wall> = samples
            .iter()
            .map(|s| s.at)
            .filter(|&s| s < at(NOON))
            .collect();
        assert_eq!(before.len(), 3, "D{n}: {before:?}");
        assert!(before[0] >= at("2026-03-10T11:57:00Z"), "D{n}: {before:?}");
        let is_even = |pair: &[Sample]| pair[1].at.since(pair[0].at) == MINUTE;
        assert!(samples.windows(2).all(is_even), "D{n}: {samples:?}");
    }
    let turns = site
        .events()
        .iter()
        .filter(|e| e["event"] == "heartbeat.status.changed.v1")
        .count();
    assert_eq!(turns, 20, "each verdict is told, and once");
    site.stop().await;
    assert_eq!(
        check_standings(folder.path(), "2026-03-10T12:03:00Z").len(),
        20
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_of_six_hours_is_one_event_and_no_storm() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), NOON, 100, quick);
    site.pass(10 * MINUTE).await;
    let before = site.sent.lock().unwrap().len();
    site.set("2026-03-10T18:10:00Z");
    site.pass(MINUTE).await;
    let mut asked: BTreeMap<IpAddr, u32> = BTreeMap::new();
    for (target, _) in &site.sent.lock().unwrap()[before..] {
        *asked.entry(*target).or_default() += 1;
    }
    assert!((97..=100).contains(&asked.len()), "{}", asked.len());
    // One tick more than a minute lies between two looks.
    let twice = asked.values().filter(|&&times| times > 1).count();
    assert!(twice <= 3, "{twice} devices were asked twice in a minute");
    site.pass(MINUTE).await;
    for n in 1..=100 {
        let samples = site.scheduled(n, day("2026-03-10"));
        let is_reply = |s: &Sample| matches!(s.outcome, Outcome::Replied { rtt_us: 300_000 });
        assert!(samples.len() >= 11 && samples.iter().all(is_reply), "D{n}");
    }
    let told = site.clock_events();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].source, "step");
    let moved = at(&told[0].to).since(at(&told[0].from));
    assert_eq!(moved, Duration::from_hours(6));
    assert_eq!(site.clock().steps, 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_back_of_seven_minutes_is_one_event_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), NOON, 10, quick);
    site.pass(10 * MINUTE).await;
    site.set("2026-03-10T12:03:00Z");
    site.pass(20 * MINUTE).await;
    assert_eq!(site.clock_events().len(), 1);
    assert_eq!(site.clock().distrust, None);
    let sent = site.sent.lock().unwrap().len();
    let samples: usize = (1..=10)
        .map(|n| {
            site.store
                .heartbeats(device(n).id, day("2026-03-10"))
                .unwrap()
                .len()
        })
        .sum();
    // Two heartbeats of one time and outcome cannot be told apart when read.
    assert!(samples + 7 * 10 >= sent - 10, "{samples} of {sent}");
    let newest = site.scheduled(1, day("2026-03-10")).last().unwrap().at;
    assert!(newest > at("2026-03-10T12:21:30Z"), "{newest}");
    site.stop().await;
    let standings = check_standings(folder.path(), "2026-03-10T12:24:00Z");
    assert!(
        standings
            .iter()
            .all(|known| known.track.last_ping_at < Some(at("2026-03-10T12:24:00Z")))
    );
}

#[tokio::test(start_paused = true)]
async fn an_excursion_into_the_future_is_two_events_and_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // D1 falls silent after the clock is right again.
    let radio = |target, at| match target {
        target if target == device(1).address && at > 900.0 => Scripted::Silent,
        target => quick(target, at),
    };
    let site = Gateway::start(folder.path(), NOON, 5, radio);
    site.pass(5 * MINUTE).await;
    site.set("2031-01-01T10:00:00Z");
    site.pass(5 * MINUTE).await;
    site.set("2026-03-10T12:10:00Z");
    site.pass(20 * MINUTE).await;
    assert_eq!(site.clock_events().len(), 2);
    assert_eq!(site.scheduled(2, day("2031-01-01")).len(), 5);
    let samples = site.scheduled(2, day("2026-03-10"));
    assert!((24..=25).contains(&samples.len()), "{}", samples.len());
    assert_eq!(site.count(Status::Offline), 1);
    let last = site.events().pop().unwrap();
    assert_eq!(last["data"]["current_status"], "offline", "{last}");
    assert!(last["meta"]["produced_at"].as_str().unwrap() < "2026-03-10T12:31");
    site.stop().await;
    let standings = check_standings(folder.path(), "2026-03-10T12:31:00Z");
    let offline: Vec<_> = standings
        .iter()
        .filter(|known| known.track.status == Status::Offline)
        .collect();
    assert_eq!(offline.len(), 1);
    assert!(
        standings
            .iter()
            .all(|known| known.track.last_ping_at < Some(at("2026-03-10T12:31:00Z")))
    );
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_falls_back_to_1970_holds_what_comes_until_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), NOON, 5, quick);
    site.pass(5 * MINUTE).await;
    site.set("1970-01-01T00:00:00Z");
    site.pass(3 * MINUTE).await;
    assert_eq!(site.clock().distrust, Some(Distrust::Implausible));
    assert!(site.clock_events().is_empty(), "it has no date yet");
    assert_eq!(site.scheduled(1, day("2026-03-10")).len(), 5);
    site.set("2026-03-10T12:08:00Z");
    site.pass(2 * MINUTE).await;
    let sources: Vec<_> = site
        .clock_events()
        .into_iter()
        .map(|told| told.source)
        .collect();
    assert_eq!(sources, ["step", "boot"]);
    site.check_dates();
    let samples = site.scheduled(1, day("2026-03-10"));
    assert!(samples.len() >= 9, "{samples:?}");
    let is_even =
        |pair: &[Sample]| pair[1].at.since(pair[0].at).abs_diff(MINUTE) < Duration::from_secs(1);
    assert!(samples.windows(2).all(is_even), "{samples:?}");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_never_learns_the_time_writes_nothing_and_stops_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let radio = |target, at| match target {
        target if target == device(1).address => Scripted::Silent,
        target => quick(target, at),
    };
    let site = Gateway::start(folder.path(), "1970-01-01T00:00:00Z", 5, radio);
    site.pass(20 * MINUTE).await;
    assert_eq!(
        (site.count(Status::Online), site.count(Status::Offline)),
        (4, 1)
    );
    let newest = site.board.look().gateway.probe.turned_at.unwrap();
    assert!(
        newest < DATES_BEGIN && newest >= at("1970-01-01T00:19:50Z"),
        "{newest}"
    );
    assert!(site.events().is_empty());
    assert!(site.store.raw_days().unwrap().is_empty());
    site.stop().await;
    let opened = open(folder.path(), at(NOON));
    assert!(opened.standings.is_empty() && opened.addresses.is_empty());
    assert!(opened.store.events(None, None, 9).unwrap().is_empty());
    assert!(opened.store.raw_days().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_start_behind_what_was_kept_holds_ten_minutes_and_then_writes() {
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(folder.path(), NOON, 5, quick);
    first.pass(30 * MINUTE).await;
    first.kill().await;
    let site = Gateway::start(folder.path(), "2026-03-10T12:05:00Z", 5, quick);
    assert_eq!(site.restored.len(), 5);
    let before = (
        site.events().len(),
        site.scheduled(1, day("2026-03-10")).len(),
    );
    site.pass(9 * MINUTE + Duration::from_secs(55)).await;
    let held = (
        site.events().len(),
        site.scheduled(1, day("2026-03-10")).len(),
    );
    assert_eq!(before, held);
    assert_eq!(site.clock().distrust, Some(Distrust::Behind));
    site.pass(2 * MINUTE).await;
    assert_eq!(site.clock().distrust, None);
    let told = site.clock_events();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].source, "boot");
    site.pass(20 * MINUTE).await;
    let samples = site.scheduled(1, day("2026-03-10"));
    assert!(samples.last().unwrap().at > at("2026-03-10T12:35:30Z"));
    site.check_dates();
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_behind_what_was_kept_writes_once_the_system_vouches_for_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(folder.path(), NOON, 5, quick);
    first.pass(10 * MINUTE).await;
    first.stop().await;
    let site = Gateway::start(folder.path(), "2026-03-10T12:05:00Z", 5, quick);
    site.pass(MINUTE).await;
    assert_eq!(site.clock().distrust, Some(Distrust::Behind));
    site.machine.synchronise();
    site.pass(5 * Duration::from_secs(1)).await;
    assert_eq!(site.clock().distrust, None);
    assert_eq!(site.clock_events().len(), 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_devices_sees_its_clock_set_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), "1970-01-01T00:00:00Z", 0, quick);
    site.pass(MINUTE).await;
    site.set(NOON);
    site.pass(Duration::from_secs(5)).await;
    assert_eq!(site.clock().distrust, None);
    assert_eq!(site.clock_events().len(), 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_leaves_before_the_clock_is_set_is_told_with_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let first = Gateway::start(folder.path(), NOON, 3, quick);
    first.pass(2 * MINUTE).await;
    first.stop().await;
    let site = Gateway::start(folder.path(), "1970-01-01T00:00:00Z", 3, quick);
    site.pass(MINUTE).await;
    let two = roster(2, &ProbeRules::default());
    site.orders.send(Order::Roster(two)).await.unwrap();
    site.pass(MINUTE).await;
    let before = site.events().len();
    site.set("2026-03-10T13:00:00Z");
    site.pass(MINUTE).await;
    let events = site.events();
    assert_eq!(events.len(), before + 2, "{events:?}");
    let removed = &events[before];
    assert_eq!(removed["event"], "heartbeat.device.removed.v1");
    let produced_at = removed["meta"]["produced_at"].as_str().unwrap();
    assert!(produced_at.starts_with("2026-03-10T12:59:0"), "{removed}");
    site.stop().await;
    assert_eq!(
        check_standings(folder.path(), "2026-03-10T13:02:00Z").len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_date_has_a_bound_and_what_goes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let site = Gateway::start(folder.path(), "1970-01-01T00:00:00Z", 1_000, quick);
    site.pass(202 * MINUTE).await;
    site.set(NOON);
    site.pass(MINUTE).await;
    let lost: Vec<Value> = site
        .events()
        .into_iter()
        .filter(|e| e["error"]["error_code"] == "RAW_LOST")
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    let message = lost[0]["error"]["error_message"].as_str().unwrap();
    assert!(
        message.contains("heartbeats and 0 events were given up"),
        "{message}"
    );
    let samples = site.scheduled(7, day("2026-03-10"));
    assert!((196..=203).contains(&samples.len()), "{}", samples.len());
    site.check_dates();
    site.stop().await;
}
