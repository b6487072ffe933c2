//! The real program and a real mosquitto: kills with traffic, stops with much waiting,
//! and what people and consumers see of it.
#![cfg(test)]

#[path = "support/mosquitto.rs"]
mod mosquitto;
#[path = "support/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mosquitto::{Listener, Mosquitto};
use nix::sys::signal::Signal;
use process::{Launch, Program, site_folder, wait_for, wait_up_to};
use serde_json::Value;
use sitebeat::clock::{Clock as _, SystemClock};
use sitebeat::wire::topic::{part_word, partition_of};

const KILLS: u64 = 30;
/// A broker with nothing to lose and no bound for who listens.
const OPEN: &str = "allow_anonymous true\nmax_queued_messages 0\n";

/// A simulated site of many bad modems, so that statuses change all the time.
fn fleet(folder: &Path, url: &str) -> Launch {
    Launch::new(folder, &["simulate", "--devices", "200", "--seed", "11"])
        .set("probe.heartbeat_period_ms", "400")
        .set("probe.offline_timeout_ms", "200")
        .set("probe.degraded_rtt_ms", "150")
        .set("store.flush_every_ms", "500")
        .set("uplink.url", url)
        .set("uplink.metrics_interval_ms", "0")
        .set("uplink.backoff_max_ms", "1000")
}

/// The log of the stopped gateway, by number.
fn log_on_disk(folder: &Path) -> BTreeMap<u64, Value> {
    let export = Launch::new(folder, &["export", "events", "--format", "jsonl"])
        .set("store.path", "data-simulated");
    let (status, out, err) = export.run();
    assert!(status.success(), "{err}");
    let events = out.lines().map(|line| serde_json::from_str(line).unwrap());
    events
        .map(|event: Value| (event["meta"]["seq"].as_u64().unwrap(), event))
        .collect()
}

/// What the listener has heard of the log, each event at its first coming.
fn heard(listener: &Listener) -> BTreeMap<u64, Value> {
    let mut heard = BTreeMap::new();
    for payload in listener.all() {
        let Ok(event) = serde_json::from_str::<Value>(&payload) else {
            continue;
        };
        if let Some(seq) = event["meta"]["seq"].as_u64() {
            let before = heard.entry(seq).or_insert_with(|| event.clone());
            assert_eq!(*before, event, "one number, two contents");
        }
    }
    heard
}

/// How far the log of the running gateway has come.
fn newest_number(program: &Program) -> u64 {
    let page = program.json("/api/v1/events?limit=1");
    page["events"][0]["meta"]["seq"].as_u64().unwrap_or(0)
}

fn until_connected(program: &Program) {
    wait_for("a connection to the broker", || {
        let node = program.json("/api/v1/node");
        (node["uplink"]["state"] == "connected").then_some(())
    });
}

#[test]
fn thirty_kills_with_traffic_and_what_is_on_disk_is_what_went_up() {
    let broker = Mosquitto::with(OPEN);
    let listener = broker.listen();
    let folder = site_folder(3);
    for round in 0..KILLS {
        let program = fleet(folder.path(), &broker.url()).start();
        until_connected(&program);
        std::thread::sleep(Duration::from_millis(round * 37 % 900));
        program.kill();
    }
    let program = fleet(folder.path(), &broker.url()).start();
    until_connected(&program);
    // How many events thirty short lives leave is the machine's affair.
    wait_up_to(Duration::from_mins(2), "a log of five hundred", || {
        (newest_number(&program) > 500).then_some(())
    });
    // Nothing waits at a moment in which nothing is told.
    wait_up_to(Duration::from_mins(1), "the log to be sent", || {
        let node = program.json("/api/v1/node");
        (node["uplink"]["backlog"]["events"].as_u64().unwrap() < 100).then_some(())
    });
    assert!(program.stop().success());
    let on_disk = log_on_disk(folder.path());
    assert!(on_disk.len() > 500, "{}", on_disk.len());
    let numbers: Vec<u64> = on_disk.keys().copied().collect();
    assert_eq!(numbers, (1..=on_disk.len() as u64).collect::<Vec<_>>());
    // What was not sent before the stop goes up with the next start.
    let program = fleet(folder.path(), &broker.url()).start();
    wait_up_to(Duration::from_mins(1), "the rest of the log", || {
        let heard = heard(&listener);
        numbers
            .iter()
            .all(|number| heard.contains_key(number))
            .then_some(())
    });
    assert!(program.stop().success());
    let heard = heard(&listener);
    for (number, event) in &on_disk {
        assert_eq!(heard.get(number), Some(event));
    }
    let now = log_on_disk(folder.path());
    let unknown: Vec<_> = heard.keys().filter(|seq| !now.contains_key(seq)).collect();
    assert!(
        unknown.is_empty(),
        "went up and is not on disk: {unknown:?}"
    );
}

#[test]
fn a_stop_with_five_hundred_events_waiting_takes_seconds_and_they_go_up_after_it() {
    let clock = SystemClock::new();
    let mut broker = Mosquitto::with(OPEN);
    let url = broker.url();
    let folder = site_folder(3);
    broker.kill();
    let mut program = fleet(folder.path(), &url).start();
    wait_up_to(Duration::from_mins(2), "five hundred events", || {
        let node = program.json("/api/v1/node");
        (node["uplink"]["backlog"]["events"].as_u64().unwrap() >= 500).then_some(())
    });
    let begin = clock.mono();
    program.signal(Signal::SIGTERM);
    program.signal(Signal::SIGTERM);
    assert!(program.wait().success(), "{}", program.log());
    assert!(clock.mono().since(begin) < Duration::from_secs(10));
    let on_disk = log_on_disk(folder.path());
    broker.restart();
    let listener = broker.listen();
    let program = fleet(folder.path(), &url).start();
    wait_up_to(Duration::from_mins(1), "all that waited", || {
        let heard = heard(&listener);
        on_disk
            .keys()
            .all(|number| heard.contains_key(number))
            .then_some(())
    });
    // A broker that hangs does not hold the stop.
    broker.hang();
    let begin = clock.mono();
    assert!(program.stop().success());
    assert!(clock.mono().since(begin) < Duration::from_secs(10));
    broker.go_on();
}

#[test]
fn a_node_lives_says_goodbye_and_its_device_leaves_no_ghost() {
    let broker = Mosquitto::with(OPEN);
    let folder = site_folder(3);
    let part = part_word(partition_of("site-1", 64));
    let node = format!("cinga/heartbeat/node/{part}/site-1/gw");
    let gateway = || {
        Launch::new(folder.path(), &["run"])
            .set("uplink.url", &broker.url())
            .set("node.name", "gw")
            .set("node.heartbeat_interval_ms", "500")
            .set("node.heartbeat_ttl_ms", "1500")
            .set("probe.heartbeat_period_ms", "500")
            .set("probe.offline_timeout_ms", "300")
    };
    let program = gateway().start();
    program.wait_for_counts(|counts| counts["online"] == 3);
    let liveness = |n: u32| format!("cinga/heartbeat/liveness/{part}/site-1/D{n}");
    wait_for("liveness of all three", || {
        (1..=3)
            .all(|n| {
                broker
                    .retained(&liveness(n))
                    .is_some_and(|text| text.contains("\"online\""))
            })
            .then_some(())
    });
    // The next heartbeat tells of them.
    let beat = wait_for("a node heartbeat with all three", || {
        let beat: Value = serde_json::from_str(&broker.retained(&node)?).ok()?;
        (beat["devices"]["online"] == 3).then_some(beat)
    });
    assert_eq!(
        (&beat["node_name"], &beat["site"]),
        (&"gw".into(), &"site-1".into())
    );
    assert!(
        beat["mem_alloc_mb"].as_f64().unwrap() > 1.0
            && beat["num_goroutine"].as_u64().unwrap() >= 5
    );
    let shown = program.json("/api/v1/node");
    for same in ["node_name", "boot_id", "site", "ttl_ms", "region", "ip"] {
        assert_eq!(shown[same], beat[same], "{same}");
    }
    // Killed: the Will says so.
    program.kill();
    wait_for("the Will", || {
        let told: Value = serde_json::from_str(&broker.retained(&node)?).ok()?;
        (told["state"] == "offline" && told["boot_id"] == beat["boot_id"]).then_some(())
    });
    // A device that left while the gateway was down leaves no ghost.
    process::write_inventory(folder.path(), 2);
    let program = gateway().start();
    wait_for("its retained liveness to go", || {
        broker.retained(&liveness(3)).is_none().then_some(())
    });
    assert!(broker.retained(&liveness(1)).is_some());
    assert!(program.stop().success());
    let told: Value = serde_json::from_str(&broker.retained(&node).unwrap()).unwrap();
    assert_eq!(told["reason"], "stopped");
}
