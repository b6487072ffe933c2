//! The node heartbeat, and what is said in its place when the node is gone.
//!
//! Floor 1. `edge::uplink` sends them; `GET node` of the API begins with the first,
//! from the same serialiser.

use std::net::IpAddr;

use serde::Serialize;

use super::{Time, text_of};
use crate::domain::instant::Wall;

/// What a node says of itself, in the fields' own words (`num_goroutine`: live
/// asynchronous tasks, `mem_alloc_mb`: resident memory in 10^6 bytes).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeHeartbeat {
    /// Node name.
    pub node_name: String,
    /// Region.
    pub region: String,
    /// When this was taken.
    pub last_heartbeat: Option<Wall>,
    /// Own address towards the uplink.
    pub ip: Option<IpAddr>,
    /// Resident memory in megabytes.
    pub mem_alloc_mb: f64,
    /// Live asynchronous tasks.
    pub num_goroutine: usize,
    /// Site id.
    pub site: String,
    /// Name of this start of the process.
    pub boot_id: String,
    /// How long this is valid, in milliseconds.
    pub ttl_ms: u64,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Enabled devices: online, degraded, offline, unknown.
    pub devices: [usize; 4],
    /// `up`, `down` or `unknown`.
    pub path: &'static str,
    /// Events that wait for the uplink.
    pub outbox_events: u64,
    /// Their bytes.
    pub outbox_bytes: u64,
    /// When the oldest of them was produced.
    pub outbox_oldest_at: Option<Wall>,
    /// Bytes of the store on disk.
    pub store_bytes: u64,
}

/// The heartbeat, ready to be serialised alone or flattened into a larger object.
#[derive(Clone, Debug, Serialize)]
pub struct NodeHeartbeatJson {
    node_name: String,
    region: String,
    last_heartbeat: Option<Time>,
    ip: Option<IpAddr>,
    mem_alloc_mb: f64,
    num_goroutine: usize,
    site: String,
    boot_id: String,
    version: &'static str,
    ttl_ms: u64,
    uptime_s: u64,
    devices: DevicesJson,
    path: &'static str,
    outbox: OutboxJson,
    store_bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct DevicesJson {
    online: usize,
    degraded: usize,
    offline: usize,
    unknown: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct OutboxJson {
    events: u64,
    bytes: u64,
    oldest_at: Option<Time>,
}

#[derive(Serialize)]
struct Gone<'a> {
    node_name: &'a str,
    state: &'static str,
    boot_id: &'a str,
    reason: &'a str,
}

impl From<&NodeHeartbeat> for NodeHeartbeatJson {
    fn from(heartbeat: &NodeHeartbeat) -> Self {
        let [online, degraded, offline, unknown] = heartbeat.devices;
        Self {
            node_name: heartbeat.node_name.clone(),
            region: heartbeat.region.clone(),
            last_heartbeat: heartbeat.last_heartbeat.map(Time),
            ip: heartbeat.ip,
            // More decimals would be bytes that nobody reads.
            mem_alloc_mb: (heartbeat.mem_alloc_mb * 10.0).round() / 10.0,
            num_goroutine: heartbeat.num_goroutine,
            site: heartbeat.site.clone(),
            boot_id: heartbeat.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION"),
            ttl_ms: heartbeat.ttl_ms,
            uptime_s: heartbeat.uptime_s,
            devices: DevicesJson {
                online,
                degraded,
                offline,
                unknown,
            },
            path: heartbeat.path,
            outbox: OutboxJson {
                events: heartbeat.outbox_events,
                bytes: heartbeat.outbox_bytes,
                oldest_at: heartbeat.outbox_oldest_at.map(Time),
            },
            store_bytes: heartbeat.store_bytes,
        }
    }
}

/// The heartbeat as text.
#[must_use]
pub fn node_heartbeat(heartbeat: &NodeHeartbeat) -> String {
    text_of(&NodeHeartbeatJson::from(heartbeat))
}

/// What the Will and a clean stop say; `reason` in one word or a few.
#[must_use]
pub fn node_gone(node_name: &str, boot_id: &str, reason: &str) -> String {
    text_of(&Gone {
        node_name,
        state: "offline",
        boot_id,
        reason,
    })
}
