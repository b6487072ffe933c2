//! The shape of `GET node`: the node heartbeat, and what goes on inside.
//!
//! Floor 3. The first part is the heartbeat that goes upstream, from the same
//! serialiser.

use serde::Serialize;

use super::shape::Time;
use super::uplink::Uplink;
use crate::board::{ClockState, ConfigState, Picture, ProbeState, StoreState};
use crate::domain::instant::Wall;
use crate::domain::trust::Distrust;
use crate::web::InForce;
use crate::wire::message::NodeHeartbeatJson;

/// `GET node`
#[derive(Debug, Serialize)]
pub(super) struct Node {
    #[serde(flatten)]
    heartbeat: NodeHeartbeatJson,
    simulated: bool,
    config: Config,
    probe: Probe,
    store: Store,
    uplink: Uplink,
    clock: Clock,
}

/// The configuration in force.
#[derive(Debug, Serialize)]
pub(super) struct Config {
    /// The last file read, which wins over those before it.
    path: Option<String>,
    paths: Vec<String>,
    inventory: Option<String>,
    loaded_at: Time,
    last_error: Option<String>,
    refused_rows: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Probe {
    engine: &'static str,
    socket: &'static str,
    limits: Vec<String>,
    receive_buffer_bytes: usize,
    sent: u64,
    send_failed: u64,
    replies: Replies,
    icmp_errors: u64,
    overflowed: u64,
    lateness_p99_ms: Option<f64>,
    turned_at: Option<Time>,
}

#[derive(Debug, Serialize)]
struct Replies {
    valid: u64,
    late: u64,
    duplicate: u64,
    foreign: u64,
    malformed: u64,
}

#[derive(Debug, Serialize)]
struct Store {
    bytes: u64,
    bytes_written: u64,
    free: u64,
    last_flush: Option<Time>,
    state: &'static str,
    reason: Option<String>,
    since: Option<Time>,
    open_samples: usize,
    lost_samples: u64,
    events: u64,
    mended: Vec<String>,
}

/// The clock. Until it is trusted, times count from 1970.
#[derive(Debug, Serialize)]
struct Clock {
    now: Time,
    zone: &'static str,
    started_at: Time,
    trusted: bool,
    /// When trust was won or lost; null: as at the start.
    since: Option<Time>,
    /// Why it is not trusted.
    reason: Option<&'static str>,
    steps: u64,
    last_step: Option<LastStep>,
}

/// How the clock was set last.
#[derive(Debug, Serialize)]
struct LastStep {
    from: Time,
    to: Time,
    offset_ms: i64,
    source: &'static str,
}

impl Node {
    pub(super) fn of(picture: &Picture, in_force: &InForce, now: Wall) -> Self {
        let gateway = &picture.gateway;
        let heartbeat = picture.node_heartbeat(in_force.node.heartbeat_ttl);
        Self {
            heartbeat: NodeHeartbeatJson::from(&heartbeat),
            simulated: gateway.simulated.is_some(),
            config: Config::of(&gateway.config),
            probe: Probe::of(&gateway.probe),
            store: Store::of(&gateway.store),
            uplink: Uplink::of(&gateway.uplink),
            clock: Clock::of(&gateway.clock, gateway.started_at, now),
        }
    }
}

impl Config {
    pub(super) fn of(state: &ConfigState) -> Self {
        let paths: Vec<String> = state
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Self {
            path: paths.last().cloned(),
            paths,
            inventory: state
                .inventory
                .as_ref()
                .map(|path| path.display().to_string()),
            loaded_at: Time(state.loaded_at),
            last_error: state.last_error.clone(),
            refused_rows: state.refused_rows.clone(),
            warnings: state.warnings.clone(),
        }
    }
}

impl Probe {
    fn of(state: &ProbeState) -> Self {
        let (facts, counters) = (&state.facts, &state.counters);
        Self {
            engine: facts.engine,
            socket: facts.socket,
            limits: facts.notes(),
            receive_buffer_bytes: facts.receive_buffer_bytes,
            sent: counters.sent,
            send_failed: counters.send_failed,
            replies: Replies {
                valid: counters.valid,
                late: counters.late,
                duplicate: counters.duplicate,
                foreign: counters.foreign,
                malformed: counters.malformed,
            },
            icmp_errors: counters.errors,
            overflowed: counters.overflowed,
            lateness_p99_ms: state.lateness_p99_ms,
            turned_at: state.turned_at.map(Time),
        }
    }
}

impl Store {
    fn of(state: &StoreState) -> Self {
        let figures = &state.figures;
        Self {
            bytes: figures.bytes,
            bytes_written: figures.bytes_written,
            free: figures.free_bytes,
            last_flush: figures.last_flush.map(Time),
            state: store_word(state),
            reason: state.failing.as_ref().map(|failing| failing.reason.clone()),
            since: state.failing.as_ref().map(|failing| Time(failing.since)),
            open_samples: figures.open_samples,
            lost_samples: figures.lost_samples,
            events: figures.events,
            mended: state.mended.clone(),
        }
    }
}

impl Clock {
    fn of(state: &ClockState, started_at: Wall, now: Wall) -> Self {
        let last_step = state.last_step.map(|(step, source)| LastStep {
            from: Time(step.from),
            to: Time(step.to),
            offset_ms: step.to.millis().saturating_sub(step.from.millis()),
            source,
        });
        Self {
            now: Time(now),
            zone: "UTC",
            started_at: Time(started_at),
            trusted: state.distrust.is_none(),
            since: state.since.map(Time),
            reason: state.distrust.map(Distrust::sentence),
            steps: state.steps,
            last_step,
        }
    }
}

/// `closed`, `failing` or `ok`.
pub(in crate::web) const fn store_word(state: &StoreState) -> &'static str {
    match (state.is_open, &state.failing) {
        (false, _) => "closed",
        (true, Some(_)) => "failing",
        (true, None) => "ok",
    }
}
