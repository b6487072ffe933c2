//! The real program against a scripted site behind a TUN device, in a network
//! namespace of its own: many silent devices, an uplink that comes and goes, and
//! every kind of answer on every kind of socket. Needs root; see `support/net.rs`.
#![cfg(test)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use chrono::DateTime;
use serde_json::Value;

use net::Net;
use process::{Launch, Program, wait_for, wait_up_to, write_devices};
use responder::{Responder, SILENT, What, after_ms, at_once};

#[path = "support/net.rs"]
mod net;
#[path = "support/process.rs"]
mod process;
#[path = "support/responder.rs"]
mod responder;
#[path = "support/responder_packet.rs"]
mod responder_packet;

const SILENT_DEVICES: usize = 10_000;
const LIVE_DEVICES: usize = 50;
const PERIOD_MS: i64 = 4_000;
const TIMEOUT_MS: i64 = 1_000;
/// For a busy machine, in milliseconds; nothing else is late by this much.
const SLACK_MS: i64 = 1_000;

/// A program in a folder and with settings of its own, on these devices.
fn launch(folder: &Path, devices: &[(String, String)], settings: &[(&str, &str)]) -> Launch {
    settle(Launch::new(folder, &[]), folder, devices, settings)
}

fn settle(
    launch: Launch,
    folder: &Path,
    devices: &[(String, String)],
    settings: &[(&str, &str)],
) -> Launch {
    write_devices(folder, devices);
    let keys = settings.iter().copied();
    keys.fold(launch, |launch, (key, value)| launch.set(key, value))
}

fn beats(program: &Program, id: &str) -> Vec<Value> {
    let day = program.json(&format!("/api/v1/devices/{id}/heartbeats"));
    day["samples"].as_array().unwrap().clone()
}

/// All devices of a status, whatever the number of pages.
fn listed(program: &Program, status: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for page in 1.. {
        let path = format!("/api/v1/devices?status={status}&per_page=500&page={page}");
        let devices = program.json(&path)["devices"].as_array().unwrap().clone();
        if devices.is_empty() {
            break;
        }
        all.extend(devices);
    }
    all
}

fn millis(at: &Value) -> i64 {
    let at = DateTime::parse_from_rfc3339(at.as_str().unwrap());
    at.unwrap().timestamp_millis()
}

fn spread_out(n: usize, network: &str) -> String {
    format!("{network}.{}.{}", n / 250, n % 250 + 1)
}

#[test]
fn ten_thousand_silent_devices_go_offline_in_time_and_delay_no_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let silent = (0..SILENT_DEVICES).map(|n| (format!("S{n}"), spread_out(n, "10.20")));
    let live: Vec<_> = (0..LIVE_DEVICES)
        .map(|n| (format!("L{n}"), spread_out(n, "10.21")))
        .collect();
    let devices: Vec<_> = silent.chain(live.clone()).collect();
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(SILENT);
    for (_, address) in &live {
        site.behave(address, vec![after_ms(20, What::Answer)]);
    }
    net.run(|| {
        let settings = [
            ("probe.heartbeat_period_ms", &*PERIOD_MS.to_string()),
            ("probe.offline_timeout_ms", &*TIMEOUT_MS.to_string()),
            ("store.flush_every_ms", "5000"),
        ];
        let program = launch(folder.path(), &devices, &settings).start();
        let limit = Duration::from_secs(40);
        wait_up_to(limit, "all silent ones offline", || {
            let counts = program.json("/api/v1/devices?per_page=1")["counts"].clone();
            (counts["offline"] == SILENT_DEVICES).then_some(())
        });
        // Some more rounds under full load.
        for (id, _) in &live {
            wait_for("heartbeats of the live ones", || {
                (beats(&program, id).len() >= 6).then_some(())
            });
        }
        silent_are_offline_in_time(&program);
        live_are_as_if_alone(&program, &live);
        let node = program.json("/api/v1/node");
        let late = node["probe"]["lateness_p99_ms"].as_f64().unwrap();
        assert!(late < 500.0, "probes left {late} ms late");
        assert_eq!(node["probe"]["overflowed"], 0);
        assert_eq!(node["probe"]["send_failed"], 0);
        assert_eq!(program.stop().code(), Some(0));
    });
    arrivals_keep_the_period(&site, &live);
}

fn silent_are_offline_in_time(program: &Program) {
    let offline = listed(program, "offline");
    assert_eq!(offline.len(), SILENT_DEVICES);
    let started = millis(&program.json("/api/v1/node")["clock"]["started_at"]);
    // Its place in the spread, two periods on the third miss, its timeout.
    let limit = started + 3 * PERIOD_MS + TIMEOUT_MS + SLACK_MS;
    for device in offline {
        assert!(millis(&device["since"]) <= limit, "{device}");
        let id = device["device_id"].as_str().unwrap();
        assert!(id.starts_with('S'), "{device}");
    }
}

fn live_are_as_if_alone(program: &Program, live: &[(String, String)]) {
    assert_eq!(listed(program, "online").len(), live.len());
    for (id, _) in live {
        for beat in beats(program, id) {
            assert_eq!(beat["outcome"], "replied", "{id}: {beat}");
            let rtt_ms = beat["rtt_ms"].as_f64().unwrap();
            assert!((20.0..1_000.0).contains(&rtt_ms), "{id}: {beat}");
        }
    }
}

/// Seen from the devices: each is asked once per period, within a second.
fn arrivals_keep_the_period(site: &Responder, live: &[(String, String)]) {
    let mut arrivals: BTreeMap<IpAddr, Vec<Instant>> = BTreeMap::new();
    for seen in site.seen() {
        arrivals.entry(seen.target).or_default().push(seen.read_at);
    }
    for (id, address) in live {
        // The first may be the extra first look.
        let slots = &arrivals[&address.parse::<IpAddr>().unwrap()][1..];
        assert!(slots.len() >= 4, "{id}");
        for (count, at) in (0..).zip(slots) {
            let took = i64::try_from(at.duration_since(slots[0]).as_millis()).unwrap();
            let off = took - count * PERIOD_MS;
            assert!(off.abs() <= 1_000, "{id}: slot {count} off by {off} ms");
        }
    }
}

/// Settings of the programs that follow the uplink side by side: bound to it, by
/// the routes alone, and with the portable engine.
const FOLLOWERS: [&[(&str, &str)]; 4] = [
    &[("probe.interface", "wwan0")],
    &[],
    &[("probe.interface", "wwan0"), ("probe.socket", "dgram")],
    &[("probe.interface", "wwan0"), ("probe.engine", "surge")],
];

#[test]
fn uplink_that_comes_late_and_is_recycled_is_followed_and_nobody_is_offline() {
    let net = Net::new();
    let devices = [
        ("D1", "10.9.0.7"),
        ("D2", "10.9.0.8"),
        ("D3", "10.9.77.1"),
        ("D6", "fd09::7"),
    ]
    .map(|(id, address)| (id.to_owned(), address.to_owned()));
    let folders = FOLLOWERS.map(|_| tempfile::tempdir().unwrap());
    net.run(|| {
        let start = |(own, folder): (&&[_], &tempfile::TempDir)| {
            launch(folder.path(), &devices, own)
                .set("probe.heartbeat_period_ms", "1000")
                .set("probe.offline_timeout_ms", "300")
                .set("store.flush_every_ms", "1000")
                .start()
        };
        let programs: Vec<Program> = FOLLOWERS.iter().zip(&folders).map(start).collect();
        let every = |what: &str, is_so: &dyn Fn(&[Value]) -> bool| {
            for (program, own) in programs.iter().zip(FOLLOWERS) {
                for (id, _) in &devices {
                    wait_for(&format!("{what}: {id} of {own:?}"), || {
                        is_so(&beats(program, id)).then_some(())
                    });
                }
            }
        };
        every("heartbeats without an uplink", &|beats| beats.len() >= 4);
        every("no heartbeat says a thing", &|beats| {
            beats.iter().all(|beat| beat["outcome"] == "no_data")
        });
        let mut files: Option<Vec<usize>> = None;
        for round in 1..=4_usize {
            let (v4, v6) = (format!("10.9.0.{round}/16"), format!("fd09::{round}/64"));
            let site = Responder::start_at(&net, "wwan0", &v4, &v6);
            every("good heartbeats again", &|beats| {
                ends_with(beats, "replied")
            });
            let now: Vec<usize> = programs.iter().map(open_files).collect();
            assert_eq!(*files.get_or_insert(now.clone()), now, "round {round}");
            drop(site);
            every("no data again", &|beats| ends_with(beats, "no_data"));
        }
        for (program, own) in programs.iter().zip(FOLLOWERS) {
            for (id, _) in &devices {
                let beats = beats(program, id);
                // What was under way when the uplink went may be missed.
                let missed = count(&beats, "missed");
                assert!(missed <= 4, "{own:?} {id}: {missed} missed");
                let is_offline = |beat: &Value| beat["status"] == "offline";
                assert!(!beats.iter().any(is_offline), "{own:?} {id}: {beats:?}");
                assert!(count(&beats, "replied") >= 4);
            }
        }
        for program in programs {
            assert_eq!(program.stop().code(), Some(0));
        }
    });
}

fn ends_with(beats: &[Value], outcome: &str) -> bool {
    beats.last().is_some_and(|beat| beat["outcome"] == outcome)
}

fn count(beats: &[Value], outcome: &str) -> usize {
    let is_it = |beat: &&Value| beat["outcome"] == outcome;
    beats.iter().filter(is_it).count()
}

/// The least of some looks: connections of the page end a little after their
/// answer.
fn open_files(program: &Program) -> usize {
    let files = format!("/proc/{}/fd", program.pid());
    let looks = (0..15).map(|_| {
        sleep(Duration::from_millis(20));
        std::fs::read_dir(&files).unwrap().count()
    });
    looks.min().unwrap()
}

/// One way to ask: settings, and what `/node` must call it.
struct Way {
    settings: &'static [(&'static str, &'static str)],
    /// Without the privilege of `CAP_NET_RAW`.
    is_unprivileged: bool,
    engine: &'static str,
    socket: &'static str,
}

const WAYS: [Way; 5] = [
    Way {
        settings: &[],
        is_unprivileged: false,
        engine: "batch",
        socket: "RAW",
    },
    Way {
        settings: &[("probe.socket", "dgram")],
        is_unprivileged: false,
        engine: "batch",
        socket: "DGRAM",
    },
    Way {
        settings: &[],
        is_unprivileged: true,
        engine: "batch",
        socket: "DGRAM",
    },
    Way {
        settings: &[("probe.engine", "surge")],
        is_unprivileged: false,
        engine: "surge",
        socket: "RAW",
    },
    Way {
        settings: &[("probe.engine", "surge"), ("probe.socket", "dgram")],
        is_unprivileged: true,
        engine: "surge",
        socket: "DGRAM",
    },
];

impl Way {
    fn start(&self, folder: &Path, devices: &[(String, String)]) -> Program {
        let without = [
            "setpriv",
            "--bounding-set=-net_raw,-net_admin",
            "--inh-caps=-all",
        ];
        let launch = if self.is_unprivileged {
            Launch::under(&without, folder, &[])
        } else {
            Launch::new(folder, &[])
        };
        settle(launch, folder, devices, self.settings)
            .set("probe.heartbeat_period_ms", "1000")
            .set("probe.offline_timeout_ms", "300")
            .set("store.flush_every_ms", "1000")
            .start()
    }

    /// ICMP errors reach every socket but surge-ping's DGRAM ones.
    fn hears_errors(&self) -> bool {
        (self.engine, self.socket) != ("surge", "DGRAM")
    }

    fn check(&self, program: &Program) {
        let name = format!("{} {} {:?}", self.engine, self.socket, self.settings);
        let node = program.json("/api/v1/node");
        assert_eq!(node["probe"]["engine"], self.engine, "{name}");
        assert_eq!(node["probe"]["socket"], self.socket, "{name}");
        let unheard = |reason| {
            if self.hears_errors() {
                reason
            } else {
                "timeout"
            }
        };
        let wanted = [
            ("good", "online", Value::Null),
            ("good-v6", "online", Value::Null),
            ("twin-1", "online", Value::Null),
            ("twin-2", "online", Value::Null),
            ("refused", "offline", unheard("unreachable").into()),
            ("looped", "offline", unheard("ttl_exceeded").into()),
            ("looped-v6", "offline", unheard("ttl_exceeded").into()),
            ("late", "offline", "timeout".into()),
            ("silent", "offline", "timeout".into()),
        ];
        for (id, status, reason) in wanted {
            let device = program.json(&format!("/api/v1/devices/{id}"));
            assert_eq!(device["status"], status, "{name}: {device}");
            let outcome = if status == "online" {
                "replied"
            } else {
                "missed"
            };
            for beat in beats(program, id) {
                assert_eq!(beat["outcome"], outcome, "{name} {id}: {beat}");
                assert_eq!(beat["reason"], reason, "{name} {id}: {beat}");
                assert_eq!(beat["rtt_ms"].is_null(), status != "online");
            }
        }
        let replies = &node["probe"]["replies"];
        let late = replies["late"].as_u64().unwrap();
        assert_eq!(late >= 2, self.engine == "batch", "{name}: {replies}");
        assert_eq!(replies["malformed"], 0, "{name}: {replies}");
        let errors = node["probe"]["icmp_errors"].as_u64().unwrap();
        assert_eq!(errors > 0, self.hears_errors(), "{name}: {node}");
    }
}

#[test]
fn every_way_to_ask_tells_answers_errors_late_ones_and_silence_apart() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    let error = |kind, code| {
        let quoted = 64;
        vec![at_once(What::Error { kind, code, quoted })]
    };
    site.behave("10.9.0.9", error(3, 1));
    site.behave("10.9.0.10", error(11, 0));
    site.behave("fd09::10", error(3, 0));
    site.behave("10.9.0.11", vec![after_ms(600, What::Answer)]);
    site.behave("10.9.0.12", SILENT);
    let devices = [
        ("good", "10.9.0.7"),
        ("good-v6", "fd09::7"),
        ("twin-1", "10.9.0.8"),
        ("twin-2", "10.9.0.8"),
        ("refused", "10.9.0.9"),
        ("looped", "10.9.0.10"),
        ("looped-v6", "fd09::10"),
        ("late", "10.9.0.11"),
        ("silent", "10.9.0.12"),
    ]
    .map(|(id, address)| (id.to_owned(), address.to_owned()));
    let folders = WAYS.map(|_| tempfile::tempdir().unwrap());
    net.run(|| {
        let start = |(way, folder): (&Way, &tempfile::TempDir)| way.start(folder.path(), &devices);
        let programs: Vec<Program> = WAYS.iter().zip(&folders).map(start).collect();
        for (program, way) in programs.iter().zip(&WAYS) {
            for (id, _) in &devices {
                wait_for("five heartbeats of everyone", || {
                    (beats(program, id).len() >= 5).then_some(())
                });
            }
            way.check(program);
        }
        for program in programs {
            assert_eq!(program.stop().code(), Some(0));
        }
    });
}
