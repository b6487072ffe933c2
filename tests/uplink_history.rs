//! The uplink's rivals and outages, on simulated time: two gateways with one client id,
//! and heartbeats that go up late.
#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sitebeat::broker::double::{Way, World};
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::UplinkAck;
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;

#[path = "support/upward.rs"]
mod upward;

use upward::{Gateway, Ways, carried, once_each, turn, uplink};

const MINUTE: Duration = Duration::from_mins(1);

fn clock() -> Arc<dyn Clock> {
    let start = Wall::parse("2026-03-12T08:00:00Z").unwrap();
    Arc::new(SimulatedClock::starting_at(start))
}

fn ways<'a>(folder: &'a tempfile::TempDir, clock: &Arc<dyn Clock>, ack: UplinkAck) -> Ways<'a> {
    Ways {
        folder: folder.path(),
        clock: Arc::clone(clock),
        uplink: uplink(ack),
    }
}

fn arrived(world: &World) -> Vec<upward::Carried> {
    let log = world.log();
    carried(log.iter().map(|arrival| arrival.message.payload.as_slice()))
}

/// MQ-08: two gateways with one client id throw each other out seldom, say so once, and
/// lose nothing.
#[tokio::test(start_paused = true)]
async fn two_gateways_of_one_name_throw_each_other_out_seldom_and_lose_nothing() {
    let clock = clock();
    let world = World::new(Arc::clone(&clock));
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = folders
        .each_ref()
        .map(|folder| Gateway::begin(&ways(folder, &clock, UplinkAck::Broker), world.client()));
    for round in 0..60 {
        one.commit(vec![turn(round % 50, Status::Online, clock.wall())])
            .await;
        other
            .commit(vec![turn(round % 50, Status::Offline, clock.wall())])
            .await;
        one.beat();
        other.beat();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let connections = one.shown().connections + other.shown().connections;
    assert!(
        (4..=12).contains(&connections),
        "{connections} in ten minutes"
    );
    let conflicts = [&one, &other].map(|gateway| {
        let events = gateway.store.events(None, None, 200).unwrap();
        let told = events
            .iter()
            .filter(|event| event.json.contains("CLIENT_ID_CONFLICT"));
        told.count()
    });
    // Whoever is thrown out more often says so, and gives way.
    assert!(
        conflicts == [1, 0] || conflicts == [0, 1] || conflicts == [1, 1],
        "{conflicts:?}"
    );
    other.stop().await;
    one.until_sent(MINUTE * 5).await;
    let log_id = one.store.outbox().log_id;
    let mine: Vec<_> = arrived(&world)
        .into_iter()
        .filter(|event| event.log_id == log_id)
        .collect();
    assert_eq!(once_each(&mine).len() as u64, one.store.outbox().last);
    one.stop().await;
}

/// Who is alive, to a consumer that takes the newest word about each device.
#[derive(Default)]
struct Consumer {
    newest: BTreeMap<String, (String, String)>,
    /// Places of the metrics events among all messages, with what they say.
    metrics: Vec<(usize, Value)>,
    last_of_log: usize,
}

impl Consumer {
    fn hear(&mut self, place: usize, json: Value) {
        let Some(at) = json["meta"]["produced_at"].as_str() else {
            return;
        };
        let data = &json["data"];
        let status = data["status"].as_str().or(data["current_status"].as_str());
        let Some(status) = status else { return };
        let word = (at.to_owned(), status.to_owned());
        let device = json["context"]["device_id"].to_string();
        let held = self.newest.entry(device).or_insert_with(|| word.clone());
        if held.0 <= word.0 {
            *held = word;
        }
        if json["event"] == "heartbeat.metrics.updated.v1" {
            self.metrics.push((place, json));
        } else {
            self.last_of_log = place;
        }
    }
}

/// Three hours away: 20 devices each minute, and all fall silent in the second hour.
async fn three_hours(gateway: &Gateway, clock: &Arc<dyn Clock>) {
    for minute in 0..180 {
        if minute == 60 {
            let turns = (0..20).map(|n| turn(n, Status::Offline, clock.wall()));
            let turns = turns.collect();
            gateway.commit(turns).await;
        }
        let samples = (0..20).map(|n| upward::heartbeat(n, minute < 60, clock.wall()));
        gateway.keep(samples.collect()).await;
        tokio::time::sleep(MINUTE).await;
    }
}

/// After an outage heartbeats go up from raw, with their own times and counts, behind
/// everything else, and make nobody look alive who is not.
#[tokio::test(start_paused = true)]
async fn replayed_history_is_whole_and_makes_nobody_look_alive() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    let mut ways = ways(&folder, &clock, UplinkAck::Broker);
    ways.uplink.metrics_interval = None;
    let gateway = Gateway::begin(&ways, world.client());
    gateway.until(MINUTE, |shown| shown.connections == 1).await;
    gateway.beat();
    tokio::time::sleep(MINUTE * 5).await;
    let begin = clock.wall();
    world.set_way(Way::Cut);
    three_hours(&gateway, &clock).await;
    assert!(world.take_log().len() > 1);
    world.set_way(Way::Clear);
    gateway
        .until(MINUTE * 2, |shown| shown.connections == 2)
        .await;
    gateway
        .until(MINUTE * 10, |shown| shown.replaying_from.is_none())
        .await;
    let log = world.log();
    let mut consumer = Consumer::default();
    for (place, arrival) in log.iter().enumerate() {
        let json = serde_json::from_slice(&arrival.message.payload);
        consumer.hear(place, json.unwrap_or_default());
    }
    let is_offline = |(_, status): &(String, String)| status == "offline";
    assert!(
        consumer.newest.values().all(is_offline),
        "{:?}",
        consumer.newest
    );
    assert_eq!(consumer.newest.len(), 20);
    let metrics = &consumer.metrics;
    assert_eq!(metrics.len(), 180 * 20, "each heartbeat of the three hours");
    assert!(metrics[0].0 > consumer.last_of_log, "behind the log");
    assert_own_times(metrics, begin);
    // Paced: at most 200 a second.
    let at = |nth: usize| log[metrics[nth].0].at;
    let took = at(metrics.len() - 1).since(at(0));
    assert!(took >= Duration::from_secs(17), "{took:?}");
    gateway.stop().await;
}

/// In order of time, each once, with the counts of the time, and marked as replayed.
fn assert_own_times(metrics: &[(usize, Value)], begin: Wall) {
    let mut all: Vec<(&str, String)> = Vec::new();
    for (_, json) in metrics {
        let (meta, data) = (&json["meta"], &json["data"]);
        assert_eq!(meta["replayed"], true);
        assert!(meta.get("seq").is_none());
        let at = meta["produced_at"].as_str().unwrap();
        let minute = Wall::parse(at).unwrap().since(begin).as_secs() / 60;
        assert_eq!(
            data["missed_count"],
            (minute + 1).saturating_sub(60),
            "{json}"
        );
        assert_eq!(data["rtt_ms"].is_null(), minute >= 60);
        all.push((at, json["context"]["device_id"].to_string()));
    }
    assert!(all.windows(2).all(|two| two[0].0 <= two[1].0));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), metrics.len());
}
