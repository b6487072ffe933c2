//! What the node says of itself, from the picture.
//!
//! Floor 2. The uplink sends it, the API begins `GET node` with it: both ask here,
//! so that they cannot differ.

use std::time::Duration;

use super::Picture;
use crate::wire::message::NodeHeartbeat;

impl Picture {
    /// The node heartbeat; `ttl` is how long it is valid.
    #[must_use]
    pub fn node_heartbeat(&self, ttl: Duration) -> NodeHeartbeat {
        let (gateway, counts) = (&self.gateway, self.counts());
        let (pulse, backlog) = (&gateway.pulse, &gateway.uplink.backlog);
        let waiting = backlog.total();
        NodeHeartbeat {
            node_name: gateway.node.clone(),
            region: gateway.region.clone(),
            // Without a date it says nothing.
            last_heartbeat: pulse.at.filter(|_| gateway.clock.distrust.is_none()),
            ip: pulse.ip,
            mem_alloc_mb: pulse.memory_mb,
            num_goroutine: pulse.tasks,
            site: gateway.site.clone(),
            boot_id: gateway.boot_id.clone(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            uptime_s: pulse.uptime_s,
            devices: [
                counts.online,
                counts.degraded,
                counts.offline,
                counts.unknown,
            ],
            // Whether the gateway itself is cut off is not told yet (R5).
            path: "unknown",
            outbox_events: waiting.events,
            outbox_bytes: waiting.bytes,
            outbox_oldest_at: backlog.oldest_at,
            store_bytes: gateway.store.figures.bytes,
        }
    }
}
