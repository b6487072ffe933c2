//! A gateway on simulated time whose clock may be wrong: the real monitor,
//! recorder and store, a scripted radio, no network.
//!
//! Runs inside `#[tokio::test(start_paused = true)]`: waiting costs no time.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sitebeat::board::{Board, ClockState};
use sitebeat::clock::{Calendar, Clock, SimulatedClock};
use sitebeat::config::settings::ProbeRules;
use sitebeat::domain::day::Day;
use sitebeat::domain::heartbeat::{Occasion, Sample};
use sitebeat::domain::instant::{Mono, Wall};
use sitebeat::domain::status::{Liveness, Status};
use sitebeat::domain::trust::DATES_BEGIN;
use sitebeat::edge::monitor::{self, Monitor, Order};
use sitebeat::edge::recorder::{self, Keeping, Recorder};
use sitebeat::edge::seats::Seats;
use sitebeat::ping::fleet::{Fleet, Scripted};
use sitebeat::store::{Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::site::{device, roster};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const BUILT: &str = "2026-03-01T00:00:00Z";
pub(crate) const NOON: &str = "2026-03-10T12:00:00Z";

/// One life of a gateway.
pub(crate) struct Gateway {
    pub(crate) machine: Arc<SimulatedClock>,
    pub(crate) board: Arc<Board>,
    pub(crate) store: Arc<Store>,
    pub(crate) restored: Vec<Liveness>,
    pub(crate) sent: Arc<Mutex<Vec<(IpAddr, Mono)>>>,
    stop: watch::Sender<bool>,
    _keeping: watch::Sender<Keeping>,
    pub(crate) orders: mpsc::Sender<Order>,
    monitor: JoinHandle<()>,
    recorder: JoinHandle<bool>,
}

/// A clock event's data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) source: String,
}

pub(crate) fn at(text: &str) -> Wall {
    Wall::parse(text).unwrap()
}

pub(crate) fn day(text: &str) -> Day {
    text.parse().unwrap()
}

pub(crate) fn open(folder: &Path, now: Wall) -> sitebeat::store::Opened {
    let options = Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    };
    Store::open(&options, now).unwrap()
}

pub(crate) fn quick(_: IpAddr, _: f64) -> Scripted {
    Scripted::Reply(Duration::from_millis(300))
}

impl Gateway {
    /// Watches `devices` devices from now on; the machine's clock shows `wall`.
    pub(crate) fn start(
        folder: &Path,
        wall: &str,
        devices: u32,
        mut radio: impl FnMut(IpAddr, f64) -> Scripted + Send + 'static,
    ) -> Self {
        let machine = Arc::new(SimulatedClock::starting_at(at(wall)));
        let opened = open(folder, machine.wall());
        assert_eq!(opened.mended, Vec::<String>::new());
        let inner = Arc::clone(&machine) as Arc<dyn Clock>;
        let calendar = Calendar::new(inner, at(BUILT));
        let newest = opened.standings.iter().map(|known| known.track.updated_at);
        calendar.begin(newest.max().flatten());
        let clock: Arc<dyn Clock> = Arc::new(calendar);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&sent);
        let fleet = Fleet::scripted(Arc::clone(&clock), move |request, at| {
            log.lock().unwrap().push((request.target, at));
            radio(request.target, at.since(Mono::default()).as_secs_f64())
        });
        let board = Arc::new(Board::default());
        board.draw(|picture| picture.gateway.started_at = clock.wall());
        let store = Arc::new(opened.store);
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
            clock: Arc::clone(&clock),
        };
        let seats = Seats::with_restored(&opened.standings, &opened.addresses);
        let monitor = Monitor::new(links, Box::new(fleet), seats);
        let links = recorder::Links {
            reports,
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            clock,
            keeping,
            tap: sitebeat::edge::uplink::tap::tap().0,
        };
        let recorder = tokio::spawn(Recorder::new(links, &[]).run());
        let roster = roster(devices, &ProbeRules::default());
        orders.try_send(Order::Roster(roster)).unwrap();
        let monitor = tokio::spawn(monitor.run(stopped));
        Self {
            machine,
            board,
            store,
            restored: opened.standings,
            sent,
            stop,
            _keeping: keeping_to,
            orders,
            monitor,
            recorder,
        }
    }

    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Sets the machine's clock.
    pub(crate) fn set(&self, wall: &str) {
        let by = at(wall).millis() - self.machine.wall().millis();
        self.machine.step_wall(by);
    }

    pub(crate) fn clock(&self) -> ClockState {
        self.board.look().gateway.clock
    }

    pub(crate) fn count(&self, status: Status) -> usize {
        let picture = self.board.look();
        let is_so = |row: &&sitebeat::board::Row| row.track.status == status;
        picture.devices.values().filter(is_so).count()
    }

    /// Every event, oldest first.
    pub(crate) fn events(&self) -> Vec<Value> {
        let events = self.store.events(None, None, usize::MAX).unwrap();
        let json = |event: &sitebeat::store::LoggedEvent| serde_json::from_str(&event.json);
        events
            .iter()
            .rev()
            .map(|event| json(event).unwrap())
            .collect()
    }

    pub(crate) fn clock_events(&self) -> Vec<Told> {
        let told = |event: Value| {
            let data = &event["data"];
            let text = |key: &str| data[key].as_str().unwrap().to_owned();
            Told {
                from: text("from"),
                to: text("to"),
                source: text("source"),
            }
        };
        let events = self.events().into_iter();
        events
            .filter(|event| event["event"] == "heartbeat.clock.stepped.v1")
            .map(told)
            .collect()
    }

    pub(crate) fn scheduled(&self, n: u32, day: Day) -> Vec<Sample> {
        let mut samples = self.store.heartbeats(device(n).id, day).unwrap();
        samples.retain(|sample| sample.occasion == Occasion::Scheduled);
        samples
    }

    /// Stops it as a service manager does.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.monitor.await.unwrap();
        assert!(self.recorder.await.unwrap(), "a clean stop");
    }

    /// Ends without writing what is held, as a power cut does.
    pub(crate) async fn kill(self) {
        self.recorder.abort();
        self.monitor.abort();
        let ended = (self.recorder.await, self.monitor.await);
        assert!(ended.0.is_err() && ended.1.is_err());
    }

    /// Nothing the store has is older than the program.
    pub(crate) fn check_dates(&self) {
        for event in self.events() {
            let produced_at = event["meta"]["produced_at"].as_str().unwrap();
            assert!(at(produced_at) > at(BUILT), "{event}");
            if let Some(seen) = event["data"]["last_seen"].as_str() {
                assert!(at(seen) > at(BUILT), "{event}");
            }
        }
        let days = self.store.raw_days().unwrap();
        assert!(days.iter().all(|day| day.start() >= at(BUILT)), "{days:?}");
    }
}

pub(crate) fn check_standings(folder: &Path, now: &str) -> Vec<Liveness> {
    let standings = open(folder, at(now)).standings;
    for known in &standings {
        let track = known.track;
        let times = [
            track.since,
            track.last_ping_at,
            track.last_seen,
            track.updated_at,
        ];
        assert!(
            times.into_iter().flatten().all(|at| at > DATES_BEGIN),
            "{known:?}"
        );
    }
    standings
}
