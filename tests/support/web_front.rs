//! A front to test against: a fixed picture, a held clock, no store, no port.
//!
//! Shared by the web tests and the page bench; each uses a part of it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use sitebeat::board::command::{Command, WAITING_MAX};
use sitebeat::board::{Board, Row, TrafficOfDay, Uplink, UplinkState};
use sitebeat::clock::Clock;
use sitebeat::config::settings::{Origin, ProbeRules};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::{Device, DeviceId};
use sitebeat::domain::heartbeat::{Miss, NoData, Occasion, Outcome, Sample};
use sitebeat::domain::instant::{Mono, Wall};
use sitebeat::domain::outbox::{Backlog, Load};
use sitebeat::domain::status::{Status, Track};
use sitebeat::ping;
use sitebeat::store::EventPage;
use sitebeat::web::{InForce, Shared};
use tokio::sync::mpsc;

#[path = "web_days.rs"]
pub(crate) mod web_days;

use web_days::{log_of, rows_of};

/// The moment at which all tests look.
pub(crate) const NOW: &str = "2026-03-12T14:02:11.000Z";

/// A name that would run as a script wherever it is printed unescaped.
pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"onmouseover=\"x</script><script>'&";

/// Whom a front belongs to.
pub(crate) const ADMIN: &str = "admin-secret";
/// Who may only read.
pub(crate) const VIEWER: &str = "viewer-secret";

/// A clock that stands until it is moved.
#[derive(Debug)]
pub(crate) struct HeldClock(pub(crate) Mutex<Wall>);

impl Clock for HeldClock {
    fn mono(&self) -> Mono {
        Mono::default()
    }

    fn wall_nanos(&self) -> i64 {
        self.0.lock().unwrap().millis() * 1_000_000
    }

    fn wake_at(&self, _: Mono) -> tokio::time::Instant {
        panic!("pages wait for nothing")
    }
}

/// A front with its ends.
pub(crate) struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<HeldClock>,
    pub(crate) commands: mpsc::Receiver<Command>,
}

pub(crate) fn now() -> Wall {
    Wall::parse(NOW).unwrap()
}

pub(crate) fn ago(seconds: u64) -> Wall {
    now().minus(Duration::from_secs(seconds))
}

/// A front over an empty picture.
pub(crate) fn empty() -> Front {
    let board = Arc::new(Board::default());
    board.draw(|picture| {
        let gateway = &mut picture.gateway;
        gateway.site = "site-1".into();
        gateway.site_name = "Harbour site".into();
        gateway.region = "north".into();
        gateway.node = "gw-1".into();
        gateway.boot = 7;
        gateway.boot_id = String::from("7-0badcafe");
        gateway.started_at = ago(90_061);
        gateway.config.loaded_at = ago(90_061);
        gateway.config.paths = vec!["config/default.toml".into(), "config/prod.toml".into()];
        gateway.config.inventory = Some("config/devices.csv".into());
        gateway.probe.facts.engine = "batch";
        gateway.probe.facts.socket = "RAW";
        gateway.probe.facts.receive_buffer_bytes = 4 << 20;
        gateway.probe.counters = ping::Counters {
            sent: 123_456,
            sent_bytes: 5_432_064,
            send_failed: 2,
            valid: 123_000,
            late: 12,
            duplicate: 3,
            foreign: 4,
            malformed: 5,
            errors: 6,
            overflowed: 0,
        };
        gateway.probe.lateness_p99_ms = Some(1.25);
        gateway.probe.turned_at = Some(ago(1));
        gateway.probe.has_begun = true;
        gateway.store.is_open = true;
        gateway.store.figures.bytes = 12_345_678;
        gateway.store.figures.bytes_written = 98_765_432;
        gateway.store.figures.free_bytes = 7_000_000_000;
        gateway.store.figures.last_flush = Some(ago(20));
        gateway.store.figures.events = 42;
        gateway.store.figures.max_bytes = 2 << 30;
        gateway.store.figures.min_free_bytes = 64 << 20;
        gateway.pulse.at = Some(ago(3));
        gateway.pulse.ip = Some([10, 64, 0, 2].into());
        gateway.pulse.memory_mb = 21.25;
        gateway.pulse.tasks = 9;
        gateway.pulse.uptime_s = 90_061;
    });
    over(board)
}

/// A front over this picture, with made-up days and events.
fn over(board: Arc<Board>) -> Front {
    let clock = Arc::new(HeldClock(Mutex::new(now())));
    let (sender, commands) = mpsc::channel(WAITING_MAX);
    let [known, logs] = [&board, &board].map(Arc::clone);
    let shared = Shared {
        board,
        summaries: Arc::new(move |from, to, device, each| {
            rows_of(&known, (from, to), device, each);
            Ok(())
        }),
        events: Arc::new(move |device, before, limit| {
            let events = if logs.look().devices.is_empty() {
                Vec::new()
            } else {
                log_of(device, before, limit)
            };
            Ok(EventPage {
                events,
                older: None,
            })
        }),
        heartbeats: Arc::new(|device, day| Ok(day_of(device, day))),
        commands: sender,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        settings: RwLock::new(Arc::new(InForce::default())),
    };
    Front {
        shared: Arc::new(shared),
        clock,
        commands,
    }
}

/// A front over a site with one device of each kind.
pub(crate) fn site() -> Front {
    let front = empty();
    front.shared.board.draw(|picture| {
        for row in [
            row("meter-001", "Water meter north", Status::Online, 43_219),
            row("meter-002", "meter-002", Status::Degraded, 1_820_500),
            row("pump-7", "Pump 7", Status::Offline, 0),
            row("valve-3", HOSTILE, Status::Online, 3_270),
            row("new-1", "Just added", Status::Unknown, 0),
            row("old-9", "Taken out", Status::Unknown, 0),
        ] {
            picture.devices.put(row);
        }
        let old: DeviceId = "old-9".parse().unwrap();
        let row = picture.devices.get_mut(&old).unwrap();
        Arc::make_mut(&mut row.device).enabled = false;
        picture.gateway.rollup.last_final = Some("2026-03-11".parse().unwrap());
    });
    front
}

/// The same, with a broker that is there and takes what comes.
pub(crate) fn linked() -> Front {
    let front = site();
    let today = TrafficOfDay {
        day: Day::of(now()).unwrap(),
        up_bytes: 1_234_567,
        down_bytes: 45_678,
    };
    front.shared.board.draw(|picture| {
        picture.gateway.uplink = Uplink {
            state: UplinkState::Connected,
            since: Some(ago(3_720)),
            broker: Some("mqtts://broker.example.org:8883".into()),
            cursor: 4_242,
            sent_events: 321,
            sent_metrics: 7_200,
            connections: 3,
            today: Some(today),
            traffic: (2_345_678, 98_765),
            ..Uplink::default()
        };
    });
    front
}

/// The same, with a broker that is away for two hours.
pub(crate) fn away() -> Front {
    let front = linked();
    let load = |events, bytes| Load { events, bytes };
    front.shared.board.draw(|picture| {
        let uplink = &mut picture.gateway.uplink;
        uplink.state = UplinkState::Waiting;
        uplink.since = Some(ago(7_380));
        uplink.reason = Some("connection refused at 198.51.100.7:8883".into());
        uplink.next_try_at = Some(now().plus(Duration::from_secs(42)));
        uplink.backlog = Backlog {
            loads: [
                load(1_200, 610_000),
                load(84, 43_100),
                load(0, 0),
                load(6, 5_400),
            ],
            oldest_at: Some(ago(7_260)),
        };
        uplink.autonomy = Some(Duration::from_hours(24 * 12 + 5));
        uplink.passed_over = 7;
        uplink.dead_letters = 1;
        uplink.replaying_from = Some(ago(7_380));
    });
    front
}

/// A front over `n` devices, one in ten of them not well.
pub(crate) fn many(n: usize) -> Front {
    let front = empty();
    front.shared.board.draw(|picture| {
        for i in 0..n {
            let status = match i % 20 {
                7 => Status::Offline,
                13 => Status::Degraded,
                _ => Status::Online,
            };
            let id = format!("meter-{i:05}");
            let name = format!("Meter {i:05} north");
            let rtt_us = 20_000 + u32::try_from(i * 7_919 % 400_000).unwrap();
            let mut row = row(&id, &name, status, rtt_us);
            if i % 10 != 0 && status == Status::Online {
                for sample in &mut row.recent {
                    sample.outcome = Outcome::Replied { rtt_us };
                }
            }
            picture.devices.put(row);
        }
    });
    front
}

/// One device in the given state.
pub(crate) fn row(id: &str, name: &str, status: Status, rtt_us: u32) -> Row {
    let id: DeviceId = id.parse().unwrap();
    let number = id
        .as_str()
        .bytes()
        .fold(7_u32, |sum, b| sum * 31 % 60_000 + u32::from(b));
    let device = Device {
        id,
        address: Ipv4Addr::from(0x0a40_0000 + number).into(),
        name: name.into(),
        profile: (status == Status::Degraded).then(|| "nb-iot".into()),
        tags: if name == HOSTILE {
            vec![HOSTILE.into(), "north".into()]
        } else {
            vec!["north".into(), "meter".into()]
        },
        parent: None,
        enabled: true,
    };
    let missed = match status {
        Status::Offline => 5,
        Status::Unknown | Status::Online | Status::Degraded => 0,
    };
    let is_known = status != Status::Unknown;
    let has_replied = rtt_us > 0;
    let track = Track {
        status,
        since: is_known.then(|| ago(8_040)),
        last_ping_at: is_known.then(|| ago(20)),
        last_seen: has_replied.then(|| ago(if missed > 0 { 320 } else { 19 })),
        rtt_us: has_replied.then_some(rtt_us),
        missed_count: missed,
        recovering: 0,
        updated_at: is_known.then(|| ago(19)),
    };
    let rules = ProbeRules {
        origins: BTreeMap::from([
            ("heartbeat_period_ms", Origin::Config),
            ("degraded_rtt_ms", Origin::Profile("nb-iot".into())),
        ]),
        ..ProbeRules::default()
    };
    let mut row = Row {
        device: Arc::new(device),
        rules: Arc::new(rules),
        track,
        recent: std::collections::VecDeque::new(),
    };
    if is_known {
        for minute in (0..30).rev() {
            row.remember(sample(id, ago(20 + minute * 60), status, minute, rtt_us));
        }
    }
    row
}

fn sample(device: DeviceId, at: Wall, status: Status, minute: u64, rtt_us: u32) -> Sample {
    let is_miss = match status {
        Status::Offline => minute < 5 || minute == 17,
        Status::Unknown | Status::Online | Status::Degraded => minute == 11,
    };
    let outcome = if is_miss {
        Outcome::Missed(Miss::Timeout)
    } else if minute == 23 {
        Outcome::NoData(NoData::SendFailed)
    } else {
        Outcome::Replied { rtt_us }
    };
    Sample {
        device,
        at,
        outcome,
        occasion: Occasion::Scheduled,
        status: if status == Status::Offline && minute >= 3 {
            Status::Online
        } else {
            status
        },
    }
}

/// A day of heartbeats, one a minute until the moment of the tests: slow for an
/// hour, away for another.
pub(crate) fn day_of(device: DeviceId, day: Day) -> Vec<Sample> {
    let mut samples = Vec::new();
    for minute in 0..1_440_u64 {
        let at = day
            .start()
            .plus(Duration::from_millis(minute * 60_000 + 17_250));
        if at > now() {
            break;
        }
        let wobble = u32::try_from(minute * 7_919 % 97).unwrap() * 900;
        let (outcome, status) = match minute {
            240..300 => (
                Outcome::Replied {
                    rtt_us: 1_600_000 + wobble * 3,
                },
                Status::Degraded,
            ),
            500..502 => (Outcome::Missed(Miss::Timeout), Status::Online),
            502..560 => (Outcome::Missed(Miss::Unreachable), Status::Offline),
            700 => (Outcome::NoData(NoData::SendFailed), Status::Online),
            _ if minute % 211 == 0 => (Outcome::Missed(Miss::Timeout), Status::Online),
            _ => (
                Outcome::Replied {
                    rtt_us: 310_000 + wobble,
                },
                Status::Online,
            ),
        };
        samples.push(Sample {
            device,
            at,
            outcome,
            occasion: if minute == 501 {
                Occasion::Recheck
            } else {
                Occasion::Scheduled
            },
            status,
        });
    }
    samples
}
