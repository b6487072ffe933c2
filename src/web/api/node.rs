//! The shape of `GET node`: the node heartbeat, and what goes on inside.
//!
//! Floor 3. Names of the first part are those of the heartbeat that goes
//! upstream.

use serde::Serialize;

use super::shape::{Counts, Time};
use crate::board::{ClockState, ConfigState, Picture, ProbeState, StoreState};
use crate::domain::instant::Wall;
use crate::domain::trust::Distrust;
use crate::web::InForce;

/// `GET node`
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the contract")]
pub(super) struct Node {
    node_name: String,
    region: String,
    last_heartbeat: Option<Time>,
    ip: Option<String>,
    mem_alloc_mb: f64,
    num_goroutine: usize,
    site: String,
    boot_id: String,
    version: &'static str,
    ttl_ms: u64,
    uptime_s: u64,
    devices: Counts,
    path: &'static str,
    outbox: Outbox,
    store_bytes: u64,
    simulated: bool,
    config: Config,
    probe: Probe,
    store: Store,
    uplink: Uplink,
    clock: Clock,
}

/// What waits to go upstream.
#[derive(Debug, Default, Serialize)]
struct Outbox {
    events: u64,
    bytes: u64,
    oldest_at: Option<Time>,
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

/// The line upstream.
#[derive(Debug, Serialize)]
struct Uplink {
    state: &'static str,
    since: Option<Time>,
    reason: Option<String>,
    backlog: Outbox,
    autonomy_s: Option<u64>,
    bytes_up_today: u64,
    bytes_down_today: u64,
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
        let ttl = in_force.node.heartbeat_ttl.as_millis();
        Self {
            node_name: gateway.node.clone(),
            region: gateway.region.clone(),
            last_heartbeat: gateway.pulse.at.map(Time),
            ip: gateway.pulse.ip.map(|ip| ip.to_string()),
            mem_alloc_mb: tenths(gateway.pulse.memory_mb),
            num_goroutine: gateway.pulse.tasks,
            site: gateway.site.clone(),
            boot_id: gateway.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION"),
            ttl_ms: u64::try_from(ttl).unwrap_or(u64::MAX),
            uptime_s: gateway.pulse.uptime_s,
            devices: Counts::of(picture.counts()),
            path: "unknown",
            outbox: Outbox::default(),
            store_bytes: gateway.store.figures.bytes,
            simulated: gateway.simulated.is_some(),
            config: Config::of(&gateway.config),
            probe: Probe::of(&gateway.probe),
            store: Store::of(&gateway.store),
            uplink: Uplink::off(),
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

impl Uplink {
    fn off() -> Self {
        Self {
            state: "off",
            since: None,
            reason: None,
            backlog: Outbox::default(),
            autonomy_s: None,
            bytes_up_today: 0,
            bytes_down_today: 0,
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

fn tenths(megabytes: f64) -> f64 {
    (megabytes * 10.0).round() / 10.0
}
