//! The uplink against a real mosquitto that is killed, cut off, hung, slowed down and
//! locked: a thousand changes through each, some hundreds through a slow line (a
//! thousand through a slow one are simulated in `uplink_simulation`).

#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Access, Broker as _, Happening, Message};
use sitebeat::clock::{Clock, SystemClock};
use sitebeat::config::settings::{Secret, Uplink, UplinkAck};
use sitebeat::domain::status::Status;
use tokio::task::JoinHandle;

#[path = "support/line.rs"]
mod line;
#[path = "support/mosquitto.rs"]
mod mosquitto;
#[path = "support/upward.rs"]
mod upward;

use line::{Line, Nature};
use mosquitto::{Authority, Mosquitto, access};
use upward::{Carried, Gateway, Ways, carried, once_each, turn};

const LIMIT: Duration = Duration::from_mins(2);
const CHANGES: u64 = 1_000;

/// A broker that keeps what it has for those who are away.
const KEEPING: &str = "allow_anonymous true\npersistence true\npersistence_location FOLDER/\n\
                       autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\n";
const FORGETTING: &str = "allow_anonymous true\nmax_queued_messages 0\n";

/// A small central: applies events in order, once, and says how far it is.
struct Central {
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    applied: Arc<Mutex<Vec<u64>>>,
    task: JoinHandle<()>,
}

impl Central {
    /// Listens at the broker itself, whatever the gateway's line does.
    fn at(broker: &Mosquitto) -> Self {
        let (seen, applied) = (Arc::default(), Arc::default());
        let mut access = access(&broker.url());
        access.client_id = "central-of-the-test".into();
        access.will.topic = "central/gone".into();
        access.subscription = Some("cinga/heartbeat/#".into());
        let task = tokio::spawn(consume(access, Arc::clone(&seen), Arc::clone(&applied)));
        Self {
            seen,
            applied,
            task,
        }
    }

    /// The events that have come, in order, each time they came.
    fn events(&self) -> Vec<Carried> {
        carried(self.seen.lock().unwrap().iter().map(Vec::as_slice))
    }

    fn applied(&self) -> Vec<u64> {
        self.applied.lock().unwrap().clone()
    }
}

impl Drop for Central {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn consume(access: Access, seen: Arc<Mutex<Vec<Vec<u8>>>>, applied: Arc<Mutex<Vec<u64>>>) {
    let mut mqtt = Mqtt::new();
    let mut log = String::new();
    let (mut upto, mut told, mut is_open) = (0, 0, false);
    mqtt.open(&access);
    let mut tick = tokio::time::interval(Duration::from_millis(300));
    loop {
        tokio::select! {
            happening = mqtt.next() => match happening {
                Happening::Open { .. } => (is_open, told) = (true, 0),
                Happening::Lost(_) => {
                    is_open = false;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    mqtt.open(&access);
                }
                Happening::Came(message) => {
                    seen.lock().unwrap().push(message.payload.clone());
                    for event in carried([message.payload.as_slice()]) {
                        if event.log_id != log {
                            (log, upto) = (event.log_id, event.prev_seq.unwrap_or(0));
                        }
                        let is_hole = event.prev_seq.is_some_and(|prev| prev > upto);
                        let asks = event.json["meta"]["ack"] == "central";
                        if event.seq > upto && !(is_hole && asks) {
                            upto = event.seq;
                            applied.lock().unwrap().push(upto);
                        }
                    }
                }
                Happening::Taken { .. } => {}
            },
            _ = tick.tick() => if is_open && told < upto {
                told = upto;
                let word = serde_json::json!({ "log_id": log, "applied_seq": upto });
                mqtt.publish(upto, Message {
                    topic: "cinga/heartbeat/ack/site-1/gateway".into(),
                    payload: word.to_string().into_bytes(),
                    retain: true,
                });
            },
        }
    }
}

fn uplink(url: String, ack: UplinkAck) -> Uplink {
    Uplink {
        url: Some(url),
        backoff_max: Duration::from_secs(1),
        ..upward::uplink(ack)
    }
}

/// A gateway under `uplink`; the folder lives as long as the test wants it.
fn gateway(folder: &tempfile::TempDir, uplink: Uplink) -> Gateway {
    let ways = Ways {
        folder: folder.path(),
        clock: Arc::new(SystemClock::new()) as Arc<dyn Clock>,
        uplink,
    };
    Gateway::begin(&ways, Mqtt::new())
}

/// Some changes of fifty devices.
async fn live(gateway: &Gateway, from: u64, count: u64) {
    let clock = SystemClock::new();
    for n in (from..from + count).step_by(10) {
        let status = if n % 20 == 0 {
            Status::Offline
        } else {
            Status::Online
        };
        let turns = (n..n + 10).map(|n| turn(n % 50, status, clock.wall()));
        let turns = turns.collect();
        gateway.commit(turns).await;
    }
}

/// All changes are with the broker, in order; with central's word also with central,
/// each applied once.
async fn assert_all_came(
    gateway: Gateway,
    central: &Central,
    ack: UplinkAck,
    is_whole: bool,
    changes: u64,
) {
    gateway.until_sent(LIMIT).await;
    let last = gateway.store.outbox().last;
    assert!(last >= changes);
    if is_whole || ack == UplinkAck::Central {
        mosquitto::until("everything has come", || {
            let all: BTreeSet<u64> = central.events().iter().map(|e| e.seq).collect();
            all.len() as u64 == last
        })
        .await;
    }
    once_each(&central.events());
    if ack == UplinkAck::Central {
        assert_eq!(central.applied(), (1..=last).collect::<Vec<_>>());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_broker_that_is_killed_with_its_memory_and_without() {
    for (settings, ack) in [
        (KEEPING, UplinkAck::Broker),
        (FORGETTING, UplinkAck::Broker),
        (KEEPING, UplinkAck::Central),
        (FORGETTING, UplinkAck::Central),
    ] {
        let mut broker = Mosquitto::with(settings);
        let folder = tempfile::tempdir().unwrap();
        let central = Central::at(&broker);
        let gateway = gateway(&folder, uplink(broker.url(), ack));
        for round in 0..5 {
            live(&gateway, round * 200, 200).await;
            broker.restart();
        }
        // What a broker without memory has acknowledged and not passed on is lost
        // with it; only central's word knows of it.
        assert_all_came(gateway, &central, ack, false, CHANGES).await;
    }
}

#[tokio::test]
async fn a_line_that_is_cut_mid_publish_or_hangs_or_refuses() {
    for ack in [UplinkAck::Broker, UplinkAck::Central] {
        let broker = Mosquitto::with(FORGETTING);
        let folder = tempfile::tempdir().unwrap();
        let central = Central::at(&broker);
        let mut line = Line::to(broker.port);
        let gateway = gateway(&folder, uplink(line.url(), ack));
        for round in 0..5 {
            live(&gateway, round * 200, 100).await;
            line.cut();
            live(&gateway, round * 200 + 100, 100).await;
            match round {
                1 => {
                    line.refuse();
                    line.cut();
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    line.listen();
                }
                3 => {
                    line.hang(true);
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    // Half open: the gateway does not know.
                    line.cut();
                    line.hang(false);
                }
                _ => {}
            }
        }
        assert_all_came(gateway, &central, ack, true, CHANGES).await;
    }
}

#[tokio::test]
async fn a_broker_that_hangs_and_goes_on() {
    let broker = Mosquitto::with(FORGETTING);
    let folder = tempfile::tempdir().unwrap();
    let central = Central::at(&broker);
    let short = Uplink {
        keep_alive: Duration::from_secs(2),
        ..uplink(broker.url(), UplinkAck::Central)
    };
    let gateway = gateway(&folder, short);
    live(&gateway, 0, 500).await;
    broker.hang();
    live(&gateway, 500, 500).await;
    gateway.until(LIMIT, |shown| shown.reason.is_some()).await;
    broker.go_on();
    assert_all_came(gateway, &central, UplinkAck::Central, true, CHANGES).await;
}

/// 800 ms and 2,000 bytes a second: what is under way is kept so small that the
/// keep-alive behind it comes in time.
#[tokio::test]
async fn a_slow_line_carries_everything_over_one_connection() {
    let broker = Mosquitto::with(FORGETTING);
    let folder = tempfile::tempdir().unwrap();
    let central = Central::at(&broker);
    let line = Line::to(broker.port);
    line.set(Nature {
        latency: Duration::from_millis(800),
        bytes_per_second: Some(20_000),
        is_hanging: false,
    });
    let gateway = gateway(&folder, uplink(line.url(), UplinkAck::Broker));
    live(&gateway, 0, 300).await;
    gateway.until(LIMIT, |shown| shown.cursor >= 280).await;
    line.set(Nature {
        latency: Duration::from_millis(800),
        bytes_per_second: Some(2_000),
        is_hanging: false,
    });
    live(&gateway, 300, 30).await;
    gateway.until_sent(LIMIT).await;
    assert_eq!(gateway.shown().connections, 1);
    assert_all_came(gateway, &central, UplinkAck::Broker, true, 330).await;
}

#[tokio::test]
async fn a_wrong_password_and_a_stolen_client_id() {
    let passwords = "allow_anonymous false\npassword_file FOLDER/users\n";
    let broker = Mosquitto::with_file(passwords, "users", |path| {
        let made = std::process::Command::new("mosquitto_passwd")
            .args(["-b", "-c"])
            .arg(path)
            .args(["gw", "right"])
            .status();
        assert!(made.unwrap().success());
    });
    let folder = tempfile::tempdir().unwrap();
    let with = |password: &str| Uplink {
        username: Some("gw".into()),
        password: Some(Secret::new(password.into())),
        ..uplink(broker.url(), UplinkAck::Broker)
    };
    let gateway = gateway(&folder, with("wrong"));
    live(&gateway, 0, 500).await;
    gateway.until(LIMIT, |shown| shown.reason.is_some()).await;
    let reason = gateway.shown().reason.unwrap();
    assert!(
        reason.contains("password") && !reason.contains("wrong"),
        "{reason}"
    );
    gateway
        .rules
        .send_modify(|rules| rules.uplink = with("right"));
    gateway.until(LIMIT, |shown| shown.cursor >= 500).await;
    // Somebody else comes with our client id, again and again.
    let mut thief = mosquitto::with_user(access(&broker.url()), "gw", "right");
    thief.client_id = "sitebeat-site-1-gateway".into();
    let mut mqtt = Mqtt::new();
    for round in 0..4 {
        let before = gateway.shown().connections;
        mqtt.open(&thief);
        live(&gateway, 500 + round * 100, 100).await;
        gateway
            .until(LIMIT, |shown| shown.connections > before)
            .await;
    }
    live(&gateway, 900, 100).await;
    gateway.until_sent(LIMIT).await;
    let events = gateway.store.events(None, None, 20).unwrap();
    let is_told = |event: &sitebeat::store::LoggedEvent| {
        let json: Value = serde_json::from_str(&event.json).unwrap();
        json["error"]["error_code"] == "CLIENT_ID_CONFLICT"
    };
    let all = gateway.store.events(None, None, 2_000).unwrap();
    assert_eq!(
        all.iter().filter(|event| is_told(event)).count(),
        1,
        "{events:?}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn an_expired_certificate_that_is_renewed_on_disk() {
    let authority = Authority::new("ours");
    authority.issue("server", "IP:127.0.0.1,DNS:localhost", 30, 0);
    authority.issue("old", "DNS:gw", 10, -20);
    authority.issue("new", "DNS:gw", 30, 0);
    let path = |name: &str| authority.path(name).display().to_string();
    let broker = Mosquitto::with(&format!(
        "allow_anonymous true\ncafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\n",
        path("ca.crt"),
        path("server.crt"),
        path("server.key"),
    ));
    let swap = |from: &str| {
        for kind in ["crt", "key"] {
            std::fs::copy(
                authority.path(&format!("{from}.{kind}")),
                authority.path(&format!("gw.{kind}")),
            )
            .unwrap();
        }
    };
    swap("old");
    let folder = tempfile::tempdir().unwrap();
    let url = format!("mqtts://127.0.0.1:{}", broker.port);
    let gateway = gateway(
        &folder,
        Uplink {
            ca_file: Some(authority.ca()),
            client_cert_file: Some(authority.path("gw.crt")),
            client_key_file: Some(authority.path("gw.key")),
            ..uplink(url, UplinkAck::Broker)
        },
    );
    live(&gateway, 0, 1_000).await;
    gateway.until(LIMIT, |shown| shown.reason.is_some()).await;
    swap("new");
    gateway.until_sent(LIMIT).await;
    let all = gateway.store.events(None, None, 2_000).unwrap();
    let told = all
        .iter()
        .filter(|event| event.json.contains("\"CERTIFICATE\""));
    assert_eq!(told.count(), 1, "its end is told once");
    gateway.stop().await;
}

/// MQ-04: a message on the ack topic that is too long comes once, not for ever.
#[tokio::test]
async fn a_word_to_us_that_is_too_long_stops_nothing() {
    let broker = Mosquitto::with(FORGETTING);
    let folder = tempfile::tempdir().unwrap();
    let central = Central::at(&broker);
    let gateway = gateway(
        &folder,
        Uplink {
            max_packet_bytes: 4_096,
            ..uplink(broker.url(), UplinkAck::Central)
        },
    );
    live(&gateway, 0, 100).await;
    gateway.until(LIMIT, |shown| shown.cursor >= 50).await;
    let before = gateway.shown().connections;
    let long = "x".repeat(60_000);
    broker.publish("cinga/heartbeat/ack/site-1/gateway", &long, false);
    gateway
        .until(LIMIT, |shown| shown.connections > before)
        .await;
    live(&gateway, 100, 900).await;
    let connections = gateway.shown().connections;
    assert!(connections <= before + 2, "{connections} after {before}");
    assert_all_came(gateway, &central, UplinkAck::Central, true, CHANGES).await;
}
