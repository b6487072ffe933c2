//! `heartbeat.metrics.updated.v1`: one heartbeat, for those who draw curves.
//!
//! Floor 1. Not in the event log, so without `log_id` and `seq`.

use serde::Serialize;

use super::{Id, RttJson, SCHEMA_VERSION, Time, Word, text_of};
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::domain::status::Status;

/// What a metrics event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Whose heartbeat.
    pub device: DeviceId,
    /// Its scheduled time, which is its `produced_at`.
    pub at: Wall,
    /// The status after it.
    pub status: Status,
    /// The round trip time in microseconds; `None` where it was missed.
    pub rtt_us: Option<u32>,
    /// Consecutive misses after it.
    pub missed_count: u32,
    /// The last reply up to then.
    pub last_seen: Option<Wall>,
    /// Whether it is sent after an outage.
    pub is_replayed: bool,
}

#[derive(Serialize)]
struct Envelope<'a> {
    event: &'static str,
    meta: Meta<'a>,
    context: Context,
    data: Data,
    error: Option<()>,
}

#[derive(Serialize)]
struct Meta<'a> {
    schema_version: u32,
    trace_id: String,
    producer_service: &'static str,
    produced_at: Time,
    /// The heartbeat's own time is told, so nothing passes between the two.
    process_ms: u64,
    site: &'a str,
    node: &'a str,
    /// Stands only where it holds: most are live, and bytes cost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
}

#[derive(Serialize)]
struct Context {
    device_id: Id,
}

#[derive(Serialize)]
struct Data {
    status: Word,
    rtt_ms: Option<RttJson>,
    missed_count: u32,
    last_seen: Option<Time>,
}

/// The event as text. Its `trace_id` is made of `log_id`, device and time, so that a
/// heartbeat sent twice has the same one.
#[must_use]
pub fn metrics(metrics: &Metrics, site: &str, node: &str, log_id: &str) -> String {
    let (device, at) = (metrics.device, metrics.at);
    text_of(&Envelope {
        event: "heartbeat.metrics.updated.v1",
        meta: Meta {
            schema_version: SCHEMA_VERSION,
            trace_id: format!("hb-{log_id}-{device}-{}", at.millis()),
            producer_service: "heartbeat-service",
            produced_at: Time(at),
            process_ms: 0,
            site,
            node,
            replayed: metrics.is_replayed,
        },
        context: Context {
            device_id: Id(device),
        },
        data: Data {
            status: Word(metrics.status),
            rtt_ms: metrics.rtt_us.map(RttJson),
            missed_count: metrics.missed_count,
            last_seen: metrics.last_seen.map(Time),
        },
        error: None,
    })
}
