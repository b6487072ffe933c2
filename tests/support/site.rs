//! A monitor on a simulated clock and a scripted radio, without network or disk.
//!
//! Runs inside `#[tokio::test(start_paused = true)]`: waiting costs no time.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "shared by test programs, each of which uses a part"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sitebeat::board::Board;
use sitebeat::clock::SimulatedClock;
use sitebeat::config::settings::ProbeRules;
use sitebeat::domain::device::Device;
use sitebeat::domain::heartbeat::Sample;
use sitebeat::domain::instant::{Mono, Wall};
use sitebeat::domain::status::Liveness;
use sitebeat::edge::monitor::{Links, Monitor, Order};
use sitebeat::edge::report::{Beat, Entry, Report};
use sitebeat::edge::seats::{Seats, Watched};
use sitebeat::ping::Request;
use sitebeat::ping::fleet::{Fleet, Scripted};
use tokio::sync::{mpsc, watch};

/// One request as it left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Mono,
    pub(crate) request: Request,
}

/// A monitor and both ends of its links.
pub(crate) struct Site {
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) board: Arc<Board>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) reports: mpsc::Receiver<Report>,
    sent: Arc<Mutex<Vec<Sent>>>,
    stop: watch::Sender<bool>,
}

impl Site {
    /// Starts at 2026-03-12T12:00:00Z; `radio` says what comes of each request,
    /// given its target and the seconds since the start.
    pub(crate) fn start(
        restored: &[Liveness],
        radio: impl FnMut(IpAddr, f64) -> Scripted + Send + 'static,
    ) -> Self {
        let noon = Wall::parse("2026-03-12T12:00:00Z").unwrap();
        Self::start_at(noon, restored, radio)
    }

    pub(crate) fn start_at(
        wall: Wall,
        restored: &[Liveness],
        mut radio: impl FnMut(IpAddr, f64) -> Scripted + Send + 'static,
    ) -> Self {
        let clock = Arc::new(SimulatedClock::starting_at(wall));
        let board = Arc::new(Board::default());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&sent);
        let fleet = Fleet::scripted(Arc::<SimulatedClock>::clone(&clock), move |request, at| {
            log.lock().unwrap().push(Sent {
                at,
                request: *request,
            });
            radio(request.target, at.since(Mono::default()).as_secs_f64())
        });
        let (orders, order_receiver) = mpsc::channel(64);
        let (report_sender, reports) = mpsc::channel(100_000);
        let (stop, stopped) = watch::channel(false);
        let links = Links {
            orders: order_receiver,
            reports: report_sender,
            board: Arc::clone(&board),
            clock: Arc::<SimulatedClock>::clone(&clock),
        };
        tokio::spawn(
            Monitor::new(
                links,
                Box::new(fleet),
                Seats::with_restored(restored, &BTreeMap::new()),
            )
            .run(stopped),
        );
        Self {
            clock,
            board,
            orders,
            reports,
            sent,
            stop,
        }
    }

    /// Watches these from now on.
    pub(crate) async fn watch(&self, roster: Vec<Watched>) {
        self.orders.send(Order::Roster(roster)).await.unwrap();
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Stops the monitor; what it reported can still be read.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Everything reported since the last call.
    pub(crate) fn entries(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            entries.extend(report.entries);
        }
        entries
    }

    /// The heartbeats among it.
    pub(crate) fn beats(&mut self) -> Vec<Beat> {
        let beat = |entry| {
            if let Entry::Beat(beat) = entry {
                Some(beat)
            } else {
                None
            }
        };
        self.entries().into_iter().filter_map(beat).collect()
    }

    /// Only what is kept of them.
    pub(crate) fn samples(&mut self) -> Vec<Sample> {
        self.beats().into_iter().map(|beat| beat.sample).collect()
    }

    /// Every request so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

/// Device number `n`, at 10.0.x.y (never sent to: the radio is scripted).
pub(crate) fn device(n: u32) -> Device {
    let [_, _, high, low] = n.to_be_bytes();
    Device {
        id: format!("D{n}").parse().unwrap(),
        address: IpAddr::from([10, 0, high, low]),
        name: format!("Device {n}"),
        profile: None,
        tags: Vec::new(),
        parent: None,
        enabled: true,
    }
}

/// Devices 1 to `n` under these rules.
pub(crate) fn roster(n: u32, rules: &ProbeRules) -> Vec<Watched> {
    let rules = Arc::new(rules.clone());
    let watched = |n| Watched {
        device: Arc::new(device(n)),
        rules: Arc::clone(&rules),
    };
    (1..=n).map(watched).collect()
}
