//! Sends what happened upstream, and loses nothing while the way is away.
//!
//! Floor 3. `app` runs one [`Uplink`]. The event log is the memory: here only stands
//! what is under way on the present connection, and with its end that is forgotten and
//! begun again at the cursor. Receivers see an event twice then, under the same log
//! and number.
//!
//! In order on each connection: node heartbeat, liveness of the devices that changed
//! since, the log from the cursor on; heartbeats as they happen in between, those of
//! an outage behind all of it.
//!
//! # Invariants
//!
//! - The cursor moves by acknowledgement, or over a gap that is told in its place.
//! - A device's liveness record goes out before the event that made it true, and the
//!   cursor passes that event only when both are taken.
//! - Nothing here waits for the broker: probing, keeping and the page do not notice it.
//! - Bounded: what is under way by the window, what is read ahead by a few hundred
//!   parcels, metrics by `metrics`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::desk::{Desk, Ready};
use self::ledger::Ledger;
use self::metrics::MetricsFlow;
use self::place::Place;
use self::saying::Voice;
use self::suspicion::Suspicion;
use self::tap::Flow;
use self::trouble::Trouble;
use self::window::Window;
use crate::board::Board;
use crate::broker::{Access, Broker};
use crate::clock::Clock;
use crate::config::settings::{self, UplinkAck};
use crate::domain::device::DeviceId;
use crate::domain::instant::{Mono, Wall};
use crate::domain::retry::Backoff;
use crate::domain::status::Track;
use crate::store::Store;
use crate::store::outbox::Outbox;

mod asking;
mod desk;
mod drawing;
mod hearing;
mod ledger;
mod metrics;
mod place;
mod saying;
mod sending;
mod stopping;
mod suspicion;
pub mod tap;
mod traffic;
mod trouble;
mod window;

/// A connection that lasted this long was a good one.
const STABLE: Duration = Duration::from_secs(30);
/// Without any acknowledgement for this long, with something under way, the
/// connection is made anew.
const SILENT: Duration = Duration::from_secs(90);
/// An attempt to connect takes no longer; the broker's own limit is shorter.
const OPENING_MAX: Duration = Duration::from_mins(1);
/// Cursor and marks are written this often at most while they move.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// While there is no connection, the backlog is looked at this often at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A job of the store that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// The board is drawn this often at most while numbers move.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// Heartbeats of the past leave in small bursts.
const REPLAY_TICK: Duration = Duration::from_millis(100);

/// The links of the uplink.
#[derive(Debug)]
pub struct Links {
    /// The event log.
    pub store: Arc<Store>,
    /// Where the uplink is shown, and what the node heartbeat tells of.
    pub board: Arc<Board>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What the configuration says; a reload may change it.
    pub rules: watch::Receiver<Rules>,
    /// Tells of each pulse of the node; the board has it.
    pub pulse: watch::Receiver<()>,
    /// Heartbeats as they happen.
    pub flow: Flow,
    /// Chance between 0 and 1, for jitter.
    pub dice: fn() -> f64,
}

/// What the configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `[uplink]`
    pub uplink: settings::Uplink,
    /// `node.heartbeat_ttl_ms`
    pub heartbeat_ttl: Duration,
}

/// The uplink.
#[derive(Debug)]
pub struct Uplink<B> {
    links: Links,
    broker: B,
    rules: Rules,
    voice: Voice,
    access: Option<Access>,
    phase: Phase,
    phase_since: Wall,
    reason: Option<String>,
    backoff: Backoff,
    suspicion: Suspicion,
    trouble: Trouble,
    desk: Desk,
    outbox: Outbox,
    place: Place,
    ledger: Ledger,
    window: Window,
    /// Read from the log and not handed over yet.
    queue: VecDeque<Ready>,
    /// Liveness records that go first.
    liveness: VecDeque<(DeviceId, Option<Track>)>,
    metrics: MetricsFlow,
    traffic: traffic::Ledger,
    news: watch::Receiver<u64>,
    todo: Todo,
    counts: Counts,
    started_at: Mono,
}

/// Where the connection is.
#[derive(Debug)]
enum Phase {
    Off,
    Opening { since: Mono },
    Open(Session),
    Waiting { until: Mono },
}

/// An open connection.
#[derive(Debug)]
struct Session {
    opened_at: Mono,
    /// When the broker last took something.
    taken_at: Mono,
    heartbeat_is_due: bool,
    /// Whether a node heartbeat was taken.
    has_carried: bool,
    /// After which number standings are asked for; `None`: they are here.
    standings_after: Option<u64>,
    /// Takes turns between the log and heartbeats as they happen.
    turn: u32,
    /// Whether heartbeats go up: not without dates, or where none are wanted.
    sends_metrics: bool,
}

/// What is to be asked of the store, each as soon as the desk is free.
#[derive(Debug)]
struct Todo {
    apply: bool,
    /// Something may be in the log that was not read yet.
    has_news: bool,
    set_aside: Option<(u64, String)>,
    keep_at: Option<Mono>,
    look_at: Option<Mono>,
    draw_at: Option<Mono>,
    /// After a failure nothing is asked before this.
    rest_until: Option<Mono>,
    /// The newest number when room was last made.
    passed_over_at: u64,
}

/// What a turn of the loop leaves to be done.
enum Turn {
    Done,
    Rules,
    Stop,
}

/// What was sent since the start.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    metrics: u64,
    connections: u64,
}

impl<B: Broker> Uplink<B> {
    /// An uplink over this broker; nothing happens until it runs.
    #[must_use]
    pub fn new(links: Links, broker: B) -> Self {
        let rules = links.rules.borrow().clone();
        let now = links.clock.mono();
        let voice = Voice::of(
            &links.board.look(),
            &rules.uplink.topic_prefix,
            rules.uplink.partitions,
        );
        Self {
            backoff: Backoff::new(rules.uplink.backoff_max),
            desk: Desk::new(Arc::clone(&links.store)),
            news: links.store.news(),
            phase_since: links.clock.wall(),
            voice,
            broker,
            rules,
            access: None,
            phase: Phase::Off,
            reason: None,
            suspicion: Suspicion::default(),
            trouble: Trouble::default(),
            outbox: Outbox::default(),
            place: Place::default(),
            ledger: Ledger::default(),
            window: Window::default(),
            queue: VecDeque::new(),
            liveness: VecDeque::new(),
            metrics: MetricsFlow::default(),
            traffic: traffic::Ledger::default(),
            todo: Todo::at_start(),
            counts: Counts::default(),
            started_at: now,
            links,
        }
    }

    /// Runs until `stop` turns true; then takes leave, within a few seconds.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        if !self.remember(&mut stop).await {
            return;
        }
        self.take_rules().await;
        loop {
            self.go_on();
            match self.turn(&mut stop).await {
                Turn::Done => {}
                Turn::Rules => self.take_rules().await,
                Turn::Stop => break,
            }
        }
        self.leave_for_good().await;
    }

    /// Waits for the next thing to happen and takes it in.
    async fn turn(&mut self, stop: &mut watch::Receiver<bool>) -> Turn {
        let wake = self.next_wake();
        let is_on = !matches!(self.phase, Phase::Off);
        tokio::select! {
            _ = stop.wait_for(|&stop| stop) => Turn::Stop,
            changed = self.links.rules.changed() => match changed {
                Ok(()) => Turn::Rules,
                Err(_gone) => Turn::Stop,
            },
            happening = self.broker.next() => {
                self.take(happening);
                Turn::Done
            }
            ended = self.desk.ended() => {
                self.conclude(ended.map_err(|broken| broken.to_string()));
                Turn::Done
            }
            Ok(()) = self.news.changed(), if is_on => {
                self.hear_news();
                Turn::Done
            }
            Ok(()) = self.links.pulse.changed(), if is_on => {
                self.feel_pulse();
                Turn::Done
            }
            heartbeats = self.links.flow.next(), if is_on => {
                self.take_heartbeats(heartbeats);
                Turn::Done
            }
            () = tokio::time::sleep_until(wake), if is_on => {
                self.look_at_the_clock();
                Turn::Done
            }
        }
    }

    /// Takes the configuration into force; another way to the broker is another
    /// connection.
    async fn take_rules(&mut self) {
        self.rules = self.links.rules.borrow_and_update().clone();
        let uplink = &self.rules.uplink;
        self.backoff.set_longest(uplink.backoff_max);
        self.metrics.set_interval(uplink.metrics_interval);
        self.voice = Voice::of(
            &self.links.board.look(),
            &uplink.topic_prefix,
            uplink.partitions,
        );
        self.todo.apply = true;
        let access = self.access_now();
        if access == self.access {
            return;
        }
        self.leave("reconfigured").await;
        self.access = access;
        self.backoff.reset();
        self.trouble = Trouble::default();
        if self.access.is_some() {
            self.open();
        } else {
            self.enter(Phase::Off, None);
        }
    }

    fn access_now(&self) -> Option<Access> {
        let uplink = self.rules.uplink.clone();
        uplink.url.as_ref()?;
        let Voice { site, node, .. } = &self.voice;
        let asks_central = uplink.ack == UplinkAck::Central;
        // What the connection does not depend on does not part it at a reload.
        let built_in = settings::Uplink::default();
        let uplink = settings::Uplink {
            miss_events: built_in.miss_events,
            metrics_interval: built_in.metrics_interval,
            outbox_max_bytes: built_in.outbox_max_bytes,
            backoff_max: built_in.backoff_max,
            ..uplink
        };
        Some(Access {
            client_id: format!("sitebeat-{site}-{node}"),
            will: self.voice.gone("connection lost"),
            subscription: asks_central.then(|| self.voice.topics.ack()),
            uplink,
        })
    }

    fn open(&mut self) {
        let Some(access) = &self.access else { return };
        self.broker.open(access);
        let since = self.links.clock.mono();
        let reason = self.reason.clone();
        self.enter(Phase::Opening { since }, reason);
    }

    fn enter(&mut self, phase: Phase, reason: Option<String>) {
        let kind = |phase: &Phase| match phase {
            Phase::Off => 0,
            Phase::Opening { .. } | Phase::Waiting { .. } => 1,
            Phase::Open(_) => 2,
        };
        // A failed attempt changes nothing: it is away since it was lost.
        if kind(&phase) != kind(&self.phase) {
            self.phase_since = self.links.clock.wall();
        }
        self.phase = phase;
        self.reason = reason;
        self.draw();
    }

    fn hear_news(&mut self) {
        self.todo.has_news = true;
        let now = self.links.clock.mono();
        if !matches!(self.phase, Phase::Open(_)) {
            self.todo.look_at.get_or_insert(now.plus(LOOK_EVERY));
        }
    }

    fn feel_pulse(&mut self) {
        if let Phase::Open(session) = &mut self.phase {
            session.heartbeat_is_due = true;
        }
        self.begin_metrics();
        let (day, now) = (self.links.clock.wall(), self.broker.traffic());
        if self.links.clock.distrust().is_none() {
            self.traffic.note(day, now);
        }
        self.draw();
    }

    fn take_heartbeats(&mut self, heartbeats: Vec<crate::wire::message::Metrics>) {
        if !matches!(self.phase, Phase::Open(_)) {
            return;
        }
        let is_too_much = self.metrics.offer(heartbeats);
        if is_too_much || self.links.flow.has_spilled() {
            // Raw has them: they are made up for from there.
            let (wall, mono) = (self.links.clock.wall(), self.links.clock.mono());
            self.metrics.interrupt(None, wall);
            self.metrics.begin(wall, mono);
        }
    }

    /// Looks at what is due by the clock alone.
    fn look_at_the_clock(&mut self) {
        let now = self.links.clock.mono();
        match &self.phase {
            Phase::Waiting { until } if *until <= now => self.open(),
            Phase::Opening { since } if now.since(*since) >= OPENING_MAX => self.open(),
            Phase::Open(session) => {
                let waits_since = self.ledger.oldest().map(|at| at.max(session.taken_at));
                if waits_since.is_some_and(|since| now.since(since) >= SILENT) {
                    warn!("nothing was acknowledged for 90 s: the connection is made anew");
                    self.forget_what_is_under_way();
                    self.reason = Some("the broker acknowledged nothing for 90 s".to_owned());
                    self.open();
                } else if self.place.stalled_at().is_some_and(|at| at <= now) {
                    info!("central has not moved on: events are sent again from the cursor");
                    self.place.send_again();
                    self.queue.clear();
                    self.todo.has_news = true;
                }
            }
            Phase::Off | Phase::Opening { .. } | Phase::Waiting { .. } => {}
        }
        if self.todo.draw_at.is_some_and(|at| at <= now) {
            self.draw();
        }
    }

    fn keep_soon(&mut self, now: Mono) {
        self.todo.keep_at.get_or_insert(now.plus(KEEP_EVERY));
    }

    fn draw_soon(&mut self, now: Mono) {
        self.todo.draw_at.get_or_insert(now.plus(DRAW_EVERY));
    }

    fn next_wake(&self) -> Instant {
        let now = self.links.clock.mono();
        let todo = &self.todo;
        let by_phase = match &self.phase {
            Phase::Off => None,
            Phase::Opening { since } => Some(since.plus(OPENING_MAX)),
            Phase::Waiting { until } => Some(*until),
            Phase::Open(session) => {
                let silent_at = self
                    .ledger
                    .oldest()
                    .map(|at| at.max(session.taken_at).plus(SILENT));
                let tick = self.metrics.has_past().then(|| now.plus(REPLAY_TICK));
                [silent_at, tick, self.place.stalled_at()]
                    .into_iter()
                    .flatten()
                    .min()
            }
        };
        let by_desk = [todo.keep_at, todo.look_at]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| self.desk.is_free())
            .map(|at| at.max(todo.rest_until.unwrap_or_default()));
        let due = [by_phase, by_desk, todo.draw_at, todo.rest_until]
            .into_iter()
            .flatten()
            .min();
        let far = now.plus(Duration::from_hours(1));
        self.links.clock.wake_at(due.unwrap_or(far))
    }
}

impl Todo {
    const fn at_start() -> Self {
        Self {
            apply: true,
            has_news: true,
            set_aside: None,
            keep_at: None,
            look_at: None,
            draw_at: None,
            rest_until: None,
            passed_over_at: 0,
        }
    }
}
