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
use sitebeat::app::roster::watched;
use sitebeat::board::Board;
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::Settings;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::{Device, DeviceId};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Status, Track};
use sitebeat::edge::monitor::{self, Monitor, Order};
use sitebeat::edge::recorder::{self, Keeping, Recorder};
use sitebeat::edge::seats::Seats;
use sitebeat::ping::fleet::Fleet;
use sitebeat::store::{Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const MINUTE: Duration = Duration::from_secs(60);

/// One life of the process: from a start to a stop or a kill.
struct Life {
    board: Arc<Board>,
    store: Arc<Store>,
    restored: BTreeMap<DeviceId, Track>,
    stop: watch::Sender<bool>,
    _keeping: watch::Sender<Keeping>,
    monitor: JoinHandle<()>,
    recorder: JoinHandle<bool>,
}

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    #[expect(clippy::print_stdout, reason = "whoever sees it fail needs the seed")]
    {
        println!("SEED={seed}");
    }
    seed
}

fn options(folder: &Path) -> Options {
    Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    }
}

impl Life {
    fn begin(folder: &Path, seed: u64, devices: &[Device], clock: &Arc<SimulatedClock>) -> Self {
        let opened = Store::open(&options(folder), clock.wall()).unwrap();
        assert_eq!(opened.mended, Vec::<String>::new());
        let board = Arc::new(Board::default());
        let store = Arc::new(opened.store);
        let addresses: Vec<_> = devices
            .iter()
            .map(|device| (device.id, device.address))
            .collect();
        let fleet = Fleet::new(seed, &addresses, Arc::<SimulatedClock>::clone(clock));
        let (orders, order_receiver) = mpsc::channel(4);
        let (report_to, reports) = mpsc::channel(256);
        let (stop, stopped) = watch::channel(false);
        let (keeping_to, keeping) = watch::channel(Keeping {
            flush_every: MINUTE,
            raw_retention: Duration::from_hours(48),
        });
        let links = monitor::Links {
            orders: order_receiver,
            reports: report_to,
            board: Arc::clone(&board),
            clock: Arc::<SimulatedClock>::clone(clock),
        };
        let monitor = Monitor::new(
            links,
            Box::new(fleet),
            Seats::with_restored(&opened.standings, &opened.addresses),
        );
        let links = recorder::Links {
            reports,
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            clock: Arc::<SimulatedClock>::clone(clock),
            keeping,
        };
        let recorder = tokio::spawn(Recorder::new(links, &opened.mended).run());
        let roster = watched(devices.to_vec(), &Settings::default());
        orders.try_send(Order::Roster(roster)).unwrap();
        let monitor = tokio::spawn(async move {
            let _open = orders;
            monitor.run(stopped).await;
        });
        let restored = opened
            .standings
            .iter()
            .map(|known| (known.device, known.track))
            .collect();
        Self {
            board,
            store,
            restored,
            stop,
            _keeping: keeping_to,
            monitor,
            recorder,
        }
    }

    fn tracks(&self) -> BTreeMap<DeviceId, Track> {
        let picture = self.board.look();
        picture
            .devices
            .values()
            .map(|row| (row.device.id, row.track))
            .collect()
    }

    /// Every status on the board stands in the event log.
    fn check_board_is_durable(&self) {
        let events = self.store.events(None, usize::MAX).unwrap();
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
        for (device, track) in self.tracks() {
            let told = newest.get(device.as_str());
            let Some(since) = track.since else {
                assert_eq!(track.status, Status::Unknown);
                continue;
            };
            let shown = (track.status.word().to_owned(), since.to_string());
            // The log may already hold a change that the board shows in a moment.
            let is_told = told == Some(&shown)
                || events.iter().any(|event| {
                    event.json.contains(&shown.1) && event.json.contains(device.as_str())
                });
            assert!(is_told, "{device} is shown as {shown:?}, told as {told:?}");
        }
    }

    async fn stop(self) -> BTreeMap<DeviceId, Track> {
        self.stop.send_replace(true);
        self.monitor.await.unwrap();
        assert!(self.recorder.await.unwrap(), "everything is kept");
        let picture = self.board.look();
        picture
            .devices
            .values()
            .map(|row| (row.device.id, row.track))
            .collect()
    }

    /// Ends without writing what is held, as a power cut does.
    async fn kill(self) -> BTreeMap<DeviceId, Track> {
        let tracks = self.tracks();
        self.recorder.abort();
        self.monitor.abort();
        let ended = (self.recorder.await, self.monitor.await);
        assert!(ended.0.is_err() && ended.1.is_err());
        tracks
    }
}

/// Numbers from one seed (the generator of Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
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
    let mut before: BTreeMap<DeviceId, Track> = BTreeMap::new();
    let mut was_killed = false;
    while clock.wall() < Wall::parse("2026-03-12T23:00:00Z").unwrap() {
        let life = Life::begin(folder.path(), seed, &devices, &clock);
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
            life.check_board_is_durable();
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
