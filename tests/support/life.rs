//! Lives of a gateway on simulated time: a random GSM fleet, the real monitor,
//! recorder, rollup and store, from a start to a stop or a kill.
//!
//! Runs inside `#[tokio::test(start_paused = true)]`: waiting costs no time.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "shared by test programs, each of which uses a part"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sitebeat::app::roster::watched;
use sitebeat::board::Board;
use sitebeat::clock::Clock;
use sitebeat::config::settings::{Rollup as Rule, Settings};
use sitebeat::domain::device::{Device, DeviceId};
use sitebeat::domain::status::Track;
use sitebeat::edge::monitor::{self, Monitor, Order};
use sitebeat::edge::recorder::{self, Keeping, Recorder};
use sitebeat::edge::rollup::{self, Rollup, Rules};
use sitebeat::edge::seats::Seats;
use sitebeat::ping::fleet::Fleet;
use sitebeat::store::{Options, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A number of the environment, to repeat or to lengthen a run.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Numbers from one seed (the generator of Knuth's MMIX).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What a life is lived with.
pub(crate) struct Ways<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
    pub(crate) devices: &'a [Device],
    pub(crate) settings: Settings,
}

/// One life of the process: from a start to a stop or a kill.
pub(crate) struct Life {
    pub(crate) store: Arc<Store>,
    pub(crate) board: Arc<Board>,
    /// The standings that the start found.
    pub(crate) restored: BTreeMap<DeviceId, Track>,
    stop: watch::Sender<bool>,
    _keeping: watch::Sender<Keeping>,
    _rules: watch::Sender<Rules>,
    _wishes: mpsc::Sender<rollup::Wish>,
    tasks: [JoinHandle<()>; 2],
    recorder: JoinHandle<bool>,
}

pub(crate) fn options(folder: &Path) -> Options {
    Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    }
}

impl Life {
    pub(crate) fn begin(ways: &Ways<'_>, clock: &Arc<dyn Clock>) -> Self {
        let opened = Store::open(&options(ways.folder), clock.wall()).unwrap();
        assert_eq!(opened.mended, Vec::<String>::new());
        let (board, store) = (Arc::new(Board::default()), Arc::new(opened.store));
        let (stop, stopped) = watch::channel(false);
        let (report_to, reports) = mpsc::channel(256);
        let retention = ways.settings.store.raw_retention;
        let (keeping_to, keeping) = watch::channel(Keeping {
            flush_every: ways.settings.store.flush_every,
            raw_retention: retention,
        });
        let links = recorder::Links {
            reports,
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            clock: Arc::clone(clock),
            keeping,
            tap: sitebeat::edge::uplink::tap::tap().0,
        };
        let recorder = tokio::spawn(Recorder::new(links, &opened.mended).run());
        let (rules_to, rules) = watch::channel(Rules {
            rollup: Rule::default(),
            history: ways.settings.history,
            raw_retention: retention,
        });
        let (wish, wishes) = mpsc::channel(1);
        let links = rollup::Links {
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            clock: Arc::clone(clock),
            rules,
            wishes,
        };
        let rollup = tokio::spawn(Rollup::new(links).run(stopped.clone()));
        let seats = Seats::with_restored(&opened.standings, &opened.addresses);
        let monitor = watch_over(ways, (&board, clock), (report_to, stopped), seats);
        let known = opened.standings.iter();
        Self {
            store,
            board,
            restored: known.map(|known| (known.device, known.track)).collect(),
            stop,
            _keeping: keeping_to,
            _rules: rules_to,
            _wishes: wish,
            tasks: [monitor, rollup],
            recorder,
        }
    }

    /// The standings on the board.
    pub(crate) fn tracks(&self) -> BTreeMap<DeviceId, Track> {
        tracks(&self.board)
    }

    /// Stops in order; the standings at the end.
    pub(crate) async fn stop(self) -> BTreeMap<DeviceId, Track> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
        assert!(self.recorder.await.unwrap(), "everything is kept");
        tracks(&self.board)
    }

    /// Ends without writing what is held, as a power cut does; the standings shown.
    pub(crate) async fn kill(self) -> BTreeMap<DeviceId, Track> {
        let shown = self.tracks();
        self.recorder.abort();
        for task in &self.tasks {
            task.abort();
        }
        assert!(self.recorder.await.is_err());
        for task in self.tasks {
            drop(task.await);
        }
        shown
    }
}

fn tracks(board: &Board) -> BTreeMap<DeviceId, Track> {
    let picture = board.look();
    let rows = picture.devices.values();
    rows.map(|row| (row.device.id, row.track)).collect()
}

/// Starts the monitor of the fleet.
fn watch_over(
    ways: &Ways<'_>,
    (board, clock): (&Arc<Board>, &Arc<dyn Clock>),
    (reports, stopped): (
        mpsc::Sender<sitebeat::edge::report::Report>,
        watch::Receiver<bool>,
    ),
    seats: Seats,
) -> JoinHandle<()> {
    let devices = ways.devices.iter();
    let addresses: Vec<_> = devices.map(|device| (device.id, device.address)).collect();
    let fleet = Fleet::new(ways.seed, &addresses, Arc::clone(clock));
    let (orders, order_receiver) = mpsc::channel(4);
    let links = monitor::Links {
        orders: order_receiver,
        reports,
        board: Arc::clone(board),
        clock: Arc::clone(clock),
    };
    let monitor = Monitor::new(links, Box::new(fleet), seats);
    let roster = watched(ways.devices.to_vec(), &ways.settings);
    orders.try_send(Order::Roster(roster)).unwrap();
    tokio::spawn(async move {
        let _open = orders;
        monitor.run(stopped).await;
    })
}

/// A minute, as rules of time are mostly given in.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
