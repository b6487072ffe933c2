//! Starts the gateway, watches over its tasks and stops it in order.
//!
//! Floor 4. Order of start: probe engine, store, listener, picture, tasks. Order
//! of stop: monitor first (no new outcomes), then the recorder writes all it
//! holds, the page last. Nothing here decides anything about devices.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tracing::{error, info};

use super::exit::Failure;
use super::opening::{
    Simulation, draw_start, listen, newest_kept, open_probe, open_store, plausible_after,
};
use super::page;
use super::roster::{rows_at_start, watched};
use super::signals::{Signals, StopSignals};
use super::steward::{self, Devices, Steward};
use crate::board::Board;
use crate::board::command::{self, Command};
use crate::broker::mqtt::Mqtt;
use crate::clock::{Calendar, Clock, SystemClock};
use crate::config::inventory::Inventory;
use crate::config::settings::Settings;
use crate::config::{self, Loaded};
use crate::domain::status::Liveness;
use crate::edge::monitor::{self, Monitor, Order};
use crate::edge::pulse;
use crate::edge::recorder::{self, Keeping, Recorder};
use crate::edge::report::Report;
use crate::edge::rollup::{self, Rollup};
use crate::edge::seats::Seats;
use crate::edge::seats::Watched;
use crate::edge::uplink::tap::{Flow, Tap, tap};
use crate::edge::uplink::{self, Uplink};
use crate::ping::Probe;
use crate::store::{self, Store};
use crate::web;

/// Turns of the monitor that may wait for the recorder.
const REPORTS_MAX: usize = 256;
/// Orders that may wait for the monitor.
const ORDERS_MAX: usize = 64;
/// Days asked for by hand that may wait for the rollup.
const WISHES_MAX: usize = 4;
/// Threads for blocking calls at most, one for each that blocks, so that a disk or a
/// server that hangs takes nobody else's: the recorder's write, the rollup's work, the
/// uplink's job at the store, the look at the inventory, the reload, the reading of
/// the broker's files, the question for its address. Each has one under way at most.
/// A thread is made when all others are busy, and goes after ten idle seconds.
const BLOCKING_THREADS_MAX: usize = 7;
/// A stop takes no longer than this, whatever hangs.
const STOP_MAX: Duration = Duration::from_secs(9);

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// How the configuration was loaded, to load it again.
    pub request: config::Request,
    /// What was loaded.
    pub loaded: Loaded,
    /// The devices of the inventory file.
    pub inventory: Inventory,
    /// A simulated fleet in place of the network, by its seed.
    pub simulation: Option<Simulation>,
}

/// Makes the plan and runs it until a signal asks to stop.
pub fn run(plan: impl FnOnce() -> Result<Plan, Failure>) -> Result<(), Failure> {
    // Before the runtime, whose timers it is aligned with.
    let machine: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|fault| Failure::Running(format!("cannot start the runtime: {fault}")))?;
    let ended = runtime.block_on(start_and_watch(plan, machine));
    // What still blocks after a stop in order must not hold the process.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

async fn start_and_watch(
    plan: impl FnOnce() -> Result<Plan, Failure>,
    machine: Arc<dyn Clock>,
) -> Result<(), Failure> {
    // First of all: a signal that comes while files are read or the store opens
    // must not kill.
    let mut signals = Signals::hear();
    let plan = plan()?;
    let settings = &plan.loaded.settings;
    let plausible_after = plausible_after(&plan.request.variables)?;
    let calendar = Arc::new(Calendar::new(Arc::clone(&machine), plausible_after));
    let clock: Arc<dyn Clock> = Arc::<Calendar>::clone(&calendar);
    let probe = open_probe(&plan, &clock)?;
    // Whoever holds the store is waited for, but not by one who is to stop. Cut off,
    // opening leaves what a kill leaves.
    let (own, at) = (settings.clone(), Arc::clone(&machine));
    let opening = tokio::task::spawn_blocking(move || open_store(&own, &*at));
    let opened = tokio::select! {
        opened = opening => opened.map_err(|broken| broken_open(&broken))??,
        signal = signals.stop.next() => {
            info!(signal, "stopped before the store was open");
            return Ok(());
        }
    };
    // Before anything is logged or pruned.
    opened.store.address_misses(settings.uplink.miss_events);
    opened.store.hold_for_uplink(settings.uplink.url.is_some());
    calendar.begin(newest_kept(&opened.standings));
    let listener = listen(settings)?;
    let board = Arc::new(Board::default());
    draw_start(&board, &plan, &opened, &*probe, &*clock);
    let address = listener.local_addr().unwrap_or(settings.web.listen);
    info!("page on http://{address}{}/", settings.web.base_path);
    let start = Start {
        plan,
        clock,
        board,
        probe,
        opened,
        page_runtime: Arc::default(),
    };
    let page_runtime = Arc::clone(&start.page_runtime);
    let (house, shared) = start.spawn(signals.hangup)?;
    let alive = page::serve(listener, shared, house.stop.subscribe(), page_runtime)?;
    house.watch_over(alive, signals.stop).await
}

fn broken_open(broken: &JoinError) -> Failure {
    Failure::Running(format!("opening the store broke off: {broken}"))
}

/// Everything opened and nothing started.
struct Start {
    plan: Plan,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    probe: Box<dyn Probe>,
    opened: store::Opened,
    page_runtime: Arc<OnceLock<Handle>>,
}

/// Shows the roster as the store knows it, and orders the monitor to watch it.
fn seat(
    board: &Board,
    orders: &mpsc::Sender<Order>,
    roster: Vec<Watched>,
    standings: &[Liveness],
) -> Result<(), Failure> {
    let rows = rows_at_start(&roster, standings);
    board.draw(|picture| picture.devices = rows);
    orders
        .try_send(Order::Roster(roster))
        .map_err(|_| Failure::Running("the monitor takes no orders".into()))
}

/// The running tasks.
struct House {
    tasks: JoinSet<()>,
    /// Tells whether everything held is on disk.
    recorder: JoinHandle<bool>,
    stop: watch::Sender<bool>,
}

/// Both ends of every line between tasks.
struct Wires {
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
    orders: (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
    commands: (mpsc::Sender<Command>, mpsc::Receiver<Command>),
    keeping: (watch::Sender<Keeping>, watch::Receiver<Keeping>),
    rollup_rules: (watch::Sender<rollup::Rules>, watch::Receiver<rollup::Rules>),
    rollup_wishes: (mpsc::Sender<rollup::Wish>, mpsc::Receiver<rollup::Wish>),
    pulse_interval: (watch::Sender<Duration>, watch::Receiver<Duration>),
    pulse: (watch::Sender<()>, watch::Receiver<()>),
    uplink_rules: (watch::Sender<uplink::Rules>, watch::Receiver<uplink::Rules>),
    metrics: (Tap, Flow),
}

impl Wires {
    fn new(settings: &Settings) -> Self {
        Self {
            stop: watch::channel(false),
            orders: mpsc::channel(ORDERS_MAX),
            reports: mpsc::channel(REPORTS_MAX),
            commands: mpsc::channel(command::WAITING_MAX),
            keeping: watch::channel(steward::keeping(settings)),
            rollup_rules: watch::channel(steward::rollup_rules(settings)),
            rollup_wishes: mpsc::channel(WISHES_MAX),
            pulse_interval: watch::channel(settings.node.heartbeat_interval),
            pulse: watch::channel(()),
            uplink_rules: watch::channel(steward::uplink_rules(settings)),
            metrics: tap(),
        }
    }
}

impl Start {
    fn spawn(self, hangup: Option<Signal>) -> Result<(House, Arc<web::Shared>), Failure> {
        let Self {
            plan,
            clock,
            board,
            probe,
            opened,
            page_runtime,
        } = self;
        let settings = plan.loaded.settings;
        let wires = Wires::new(&settings);
        let store = Arc::new(opened.store);
        let fleet = plan.simulation.map(|simulation| simulation.devices);
        let roster = watched(fleet.clone().unwrap_or(plan.inventory.devices), &settings);
        seat(&board, &wires.orders.0, roster, &opened.standings)?;
        let stopped = wires.stop.1;
        let common = Common {
            board: Arc::clone(&board),
            clock: Arc::clone(&clock),
            store: Arc::clone(&store),
            page_runtime,
        };
        let mut tasks = JoinSet::new();
        let links = common.monitor(wires.orders.1, wires.reports.0);
        let seats = Seats::with_restored(&opened.standings, &opened.addresses);
        tasks.spawn(Monitor::new(links, probe, seats).run(stopped.clone()));
        tasks.spawn(pulse::run(
            common.pulse(wires.pulse_interval.1, wires.pulse.0),
            stopped.clone(),
        ));
        let links = common.rollup(wires.rollup_rules.1, wires.rollup_wishes.1);
        tasks.spawn(Rollup::new(links).run(stopped.clone()));
        let links = common.recorder(wires.reports.1, wires.keeping.1, wires.metrics.0);
        let recorder = tokio::spawn(Recorder::new(links, &opened.mended).run());
        let links = common.uplink(wires.uplink_rules.1, wires.pulse.1, wires.metrics.1);
        tasks.spawn(Uplink::new(links, Mqtt::default()).run(stopped.clone()));
        let web = page::shared(&settings, &board, &store, &clock, wires.commands.0);
        let links = steward::Links {
            commands: wires.commands.1,
            orders: wires.orders.0,
            board,
            store,
            clock,
            web: Arc::clone(&web),
            keeping: wires.keeping.0,
            rollup_rules: wires.rollup_rules.0,
            rollup_wishes: wires.rollup_wishes.0,
            pulse_interval: wires.pulse_interval.0,
            uplink_rules: wires.uplink_rules.0,
            hangup,
        };
        let devices = fleet.map_or(Devices::Inventory, Devices::Fixed);
        tasks.spawn(Steward::new(links, plan.request, settings, devices).run(stopped));
        let stop = wires.stop.0;
        let house = House {
            tasks,
            recorder,
            stop,
        };
        Ok((house, web))
    }
}

/// What nearly every task holds.
struct Common {
    board: Arc<Board>,
    clock: Arc<dyn Clock>,
    store: Arc<Store>,
    page_runtime: Arc<OnceLock<Handle>>,
}

impl Common {
    fn monitor(
        &self,
        orders: mpsc::Receiver<Order>,
        reports: mpsc::Sender<Report>,
    ) -> monitor::Links {
        monitor::Links {
            orders,
            reports,
            board: Arc::clone(&self.board),
            clock: Arc::clone(&self.clock),
        }
    }

    fn recorder(
        &self,
        reports: mpsc::Receiver<Report>,
        keeping: watch::Receiver<Keeping>,
        tap: Tap,
    ) -> recorder::Links {
        recorder::Links {
            reports,
            store: Arc::clone(&self.store),
            board: Arc::clone(&self.board),
            clock: Arc::clone(&self.clock),
            keeping,
            tap,
        }
    }

    fn rollup(
        &self,
        rules: watch::Receiver<rollup::Rules>,
        wishes: mpsc::Receiver<rollup::Wish>,
    ) -> rollup::Links {
        rollup::Links {
            store: Arc::clone(&self.store),
            board: Arc::clone(&self.board),
            clock: Arc::clone(&self.clock),
            rules,
            wishes,
        }
    }

    fn uplink(
        &self,
        rules: watch::Receiver<uplink::Rules>,
        pulse: watch::Receiver<()>,
        flow: Flow,
    ) -> uplink::Links {
        uplink::Links {
            store: Arc::clone(&self.store),
            board: Arc::clone(&self.board),
            clock: Arc::clone(&self.clock),
            rules,
            pulse,
            flow,
            dice,
        }
    }

    fn pulse(&self, interval: watch::Receiver<Duration>, beat: watch::Sender<()>) -> pulse::Links {
        pulse::Links {
            board: Arc::clone(&self.board),
            clock: Arc::clone(&self.clock),
            interval,
            page_runtime: Arc::clone(&self.page_runtime),
            beat,
        }
    }
}

impl House {
    /// Waits for a signal, or for a task that ends by itself, which none should;
    /// then stops everything in order.
    async fn watch_over(
        mut self,
        mut page: page::Alive,
        mut stop: StopSignals,
    ) -> Result<(), Failure> {
        let ended = tokio::select! {
            signal = stop.next() => {
                info!(signal, "stopping");
                Ok(())
            }
            ended = self.tasks.join_next() => Err(broken(ended)),
            ended = &mut self.recorder => Err(broken(Some(ended.map(drop)))),
            _gone = &mut page => Err(broken(None)),
        };
        self.stop.send_replace(true);
        let is_recorder_done = self.recorder.is_finished();
        let finished = tokio::time::timeout(STOP_MAX, async {
            while self.tasks.join_next().await.is_some() {}
            if is_recorder_done {
                Ok(true)
            } else {
                self.recorder.await
            }
        });
        if !matches!(finished.await, Ok(Ok(true))) {
            return Err(Failure::Running(
                "stopped before everything held was on disk".into(),
            ));
        }
        info!("stopped");
        ended
    }
}

/// Chance between 0 and 1. The standard library seeds its hashes from the system's
/// randomness.
fn dice() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

fn broken(ended: Option<Result<(), JoinError>>) -> Failure {
    let why = match ended {
        Some(Err(fault)) => fault.to_string(),
        Some(Ok(())) | None => "it ended by itself".to_owned(),
    };
    error!(
        why,
        "a task broke, stopping so that the service manager can start anew"
    );
    Failure::Running(format!("a task broke: {why}"))
}
