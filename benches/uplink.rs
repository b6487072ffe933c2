//! What the uplink costs and how fast it is, against a real mosquitto on loopback.
//!
//! `cargo bench --bench uplink -- PART [NUMBER]`, PART one of
//!
//! - `drain` (NUMBER events, 100,000): how fast a backlog goes up, with
//!   `mosquitto_pub` sending the same messages in the same run;
//! - `offline`: 24 hours without a broker in simulated time, 1,000 devices of which 20
//!   turn each minute: memory, backlog, bytes on disk, and how fast it is up afterwards;
//! - `idle` (NUMBER seconds, 120): MQTT bytes of a gateway with five quiet devices, by
//!   the settings of dev and of prod, scaled to an hour.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot measure says so by ending"
)]

#[path = "../tests/support/mosquitto.rs"]
mod mosquitto;
#[path = "../tests/support/process.rs"]
mod process;
#[path = "../tests/support/upward.rs"]
mod upward;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mosquitto::Mosquitto;
use process::Launch;
use sitebeat::broker::double::{Way, World};
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::clock::{Clock, SimulatedClock, SystemClock};
use sitebeat::config::settings::{Uplink, UplinkAck};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use upward::{Gateway, Ways, turn};

const OPEN: &str = "allow_anonymous true\nmax_queued_messages 0\n";
const LIMIT: Duration = Duration::from_mins(10);

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let part = words.next().unwrap_or_else(|| "drain".into());
    let number = words.next().and_then(|text| text.parse().ok());
    match part.as_str() {
        "drain" => drain(number.unwrap_or(100_000)),
        "offline" => offline(),
        "idle" => idle(number.unwrap_or(120)),
        other => println!("unknown part {other}: drain, offline or idle"),
    }
}

fn runtime(is_paused: bool) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(is_paused)
        .build()
        .expect("a runtime")
}

/// Resident memory now, in megabytes.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| {
        text.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<f64>()
            .ok()
    });
    kilobytes.expect("a number") / 1_000.0
}

fn away(url: String) -> Uplink {
    Uplink {
        url: Some(url),
        ..upward::uplink(UplinkAck::Broker)
    }
}

/// A gateway whose log is filled while it has no uplink.
async fn filled(folder: &Path, clock: &Arc<dyn Clock>, events: u64) {
    let ways = Ways {
        folder,
        clock: Arc::clone(clock),
        uplink: Uplink {
            url: None,
            ..upward::uplink(UplinkAck::Broker)
        },
    };
    let gateway = Gateway::begin(&ways, Mqtt::new());
    let mut n = 0;
    while n < events {
        let some = (events - n).min(500);
        let status = if (n / 1_000) % 2 == 0 {
            Status::Offline
        } else {
            Status::Online
        };
        let turns = (n..n + some).map(|n| turn(n % 1_000, status, clock.wall()));
        let turns = turns.collect();
        gateway.commit(turns).await;
        n += some;
    }
    gateway.stop().await;
}

fn drain(events: u64) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let runtime = runtime(false);
    for ack in ["broker", "the peer"] {
        let broker = Mosquitto::with(OPEN);
        let folder = tempfile::tempdir().expect("a folder");
        if ack == "the peer" {
            let seconds = by_mosquitto_pub(&broker, events);
            println!(
                "mosquitto_pub -l -q 1: {:.0} events/s",
                events as f64 / seconds
            );
            continue;
        }
        runtime.block_on(async {
            filled(folder.path(), &clock, events).await;
            let ways = Ways {
                folder: folder.path(),
                clock: Arc::clone(&clock),
                uplink: away(broker.url()),
            };
            let before = resident_mb();
            let begin = clock.mono();
            let gateway = Gateway::begin(&ways, Mqtt::new());
            let opened = clock.mono().since(begin).as_secs_f64();
            gateway.until_sent(LIMIT).await;
            let seconds = clock.mono().since(begin).as_secs_f64();
            println!(
                "sitebeat: {events} events in {seconds:.2} s, {:.0} events/s (store opened in {opened:.2} s), \
                 resident {before:.1} -> {:.1} MB, {} bytes up",
                events as f64 / seconds,
                resident_mb(),
                gateway.shown().traffic.0,
            );
            gateway.stop().await;
        });
    }
}

/// The same number of messages of the same size by the broker's own client.
fn by_mosquitto_pub(broker: &Mosquitto, events: u64) -> f64 {
    let clock = SystemClock::new();
    let begin = clock.mono();
    let mut child = Command::new("mosquitto_pub")
        .args(["-h", "127.0.0.1", "-p", &broker.port.to_string()])
        .args([
            "-q",
            "1",
            "-l",
            "-t",
            "cinga/heartbeat/status/p00/site-1/meter-0001",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .expect("mosquitto_pub");
    let line = format!("{}\n", "x".repeat(450));
    let mut input = child.stdin.take().expect("its input");
    for _ in 0..events {
        input.write_all(line.as_bytes()).expect("it reads");
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
    clock.mono().since(begin).as_secs_f64()
}

fn offline() {
    let folder = tempfile::tempdir().expect("a folder");
    let begin_wall = Wall::parse("2026-03-12T00:00:00Z").expect("a time");
    let runtime = runtime(true);
    let before = runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::starting_at(begin_wall));
        let world = World::new(Arc::clone(&clock));
        world.set_way(Way::Closed);
        let ways = Ways {
            folder: folder.path(),
            clock: Arc::clone(&clock),
            uplink: away("mqtt://127.0.0.1:1".into()),
        };
        let gateway = Gateway::begin(&ways, world.client());
        let most = a_day_away(&gateway, &clock).await;
        println!(
            "most: {most:.1} MB; {} attempts to connect",
            world.attempts().len()
        );
        gateway.stop().await;
        most
    });
    drop(runtime);
    on_return(folder.path(), before);
}

/// The day; the most resident memory in it, in megabytes.
async fn a_day_away(gateway: &Gateway, clock: &Arc<dyn Clock>) -> f64 {
    let mut most = resident_mb();
    println!("at the start: {most:.1} MB");
    for minute in 0..24 * 60_u64 {
        for n in 0..20 {
            let device = (minute * 20 + n) % 1_000;
            let status = if (minute * 20 + n) / 1_000 % 2 == 0 {
                Status::Offline
            } else {
                Status::Online
            };
            gateway
                .commit(vec![turn(device, status, clock.wall())])
                .await;
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        most = most.max(resident_mb());
        if minute % 240 == 239 {
            let shown = gateway.shown();
            println!(
                "after {} h: {:.1} MB, {} events wait, {} bytes, oldest {}, the outbox lasts {} h more",
                (minute + 1) / 60,
                resident_mb(),
                shown.backlog.total().events,
                shown.backlog.total().bytes,
                shown
                    .backlog
                    .oldest_at
                    .map_or_else(String::new, |at| at.to_string()),
                shown.autonomy.map_or(0, |left| left.as_secs() / 3_600),
            );
        }
    }
    most
}

/// How fast it goes up when the broker is there again.
fn on_return(folder: &Path, before: f64) {
    let broker = Mosquitto::with(OPEN);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    runtime(false).block_on(async {
        let ways = Ways {
            folder,
            clock: Arc::clone(&clock),
            uplink: away(broker.url()),
        };
        let begin = clock.mono();
        let gateway = Gateway::begin(&ways, Mqtt::new());
        gateway.until_sent(LIMIT).await;
        let seconds = clock.mono().since(begin).as_secs_f64();
        println!(
            "on return: {} events up in {seconds:.2} s, {:.0} events/s; resident {before:.1} -> {:.1} MB",
            gateway.shown().sent_events,
            gateway.shown().sent_events as f64 / seconds,
            resident_mb()
        );
        gateway.stop().await;
    });
}

fn idle(seconds: u64) {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let config = config.to_str().expect("a path");
    for env in ["dev", "prod"] {
        let broker = Mosquitto::with(OPEN);
        let folder = process::site_folder(5);
        let program = Launch::new(folder.path(), &["run", "--env", env, "--config", config])
            .set("uplink.url", &broker.url())
            .set("inventory.file", "config/devices.csv")
            .start();
        let up = || {
            let node = program.json("/api/v1/node");
            let today = &node["uplink"]["today"];
            (
                today["up_bytes"].as_u64().unwrap_or(0),
                today["down_bytes"].as_u64().unwrap_or(0),
            )
        };
        // The beginning is not idle.
        std::thread::sleep(Duration::from_secs(35));
        let before = up();
        std::thread::sleep(Duration::from_secs(seconds));
        let after = up();
        println!(
            "{env}: {} bytes up and {} down in {seconds} s, that is {:.1} and {:.1} KB an hour",
            after.0 - before.0,
            after.1 - before.1,
            (after.0 - before.0) as f64 * 3.6 / seconds as f64,
            (after.1 - before.1) as f64 * 3.6 / seconds as f64,
        );
        assert!(program.stop().success());
    }
}
