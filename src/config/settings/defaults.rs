//! The built-in default of each key.
//!
//! Floor 1. The shipped `config/default.toml` is tested equal to these.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::{
    Central, History, Inventory, Node, ProbeRules, Rollup, Site, Store, Uplink, UplinkAck, Web,
};
use crate::domain::status::StatusRule;

impl Default for Site {
    fn default() -> Self {
        Self {
            id: "site-1".into(),
            name: "site-1".into(),
            region: "local".into(),
        }
    }
}

impl Default for Node {
    /// The name is empty here; `config::load` puts the host name in.
    fn default() -> Self {
        Self {
            name: String::new(),
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_ttl: Duration::from_secs(15),
        }
    }
}

impl Default for ProbeRules {
    fn default() -> Self {
        Self {
            heartbeat_period: Duration::from_mins(1),
            status: StatusRule {
                degraded_rtt_us: 1_500_000,
                degraded_leave_rtt_us: 1_500_000,
                offline_missed_count: 3,
                recover_count: 1,
            },
            offline_timeout: Duration::from_secs(5),
            payload_bytes: 16,
            late_window: Duration::from_mins(1),
            recheck: None,
            wake_echo: false,
            origins: BTreeMap::new(),
        }
    }
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            file: "config/devices.csv".into(),
            is_set: false,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            path: "data".into(),
            flush_every: Duration::from_mins(1),
            max_bytes: 2 << 30,
            min_free_bytes: 64 << 20,
            raw_retention: Duration::from_hours(48),
        }
    }
}

impl Default for Rollup {
    fn default() -> Self {
        Self {
            at_utc: Duration::from_mins(5),
            late_tolerance: Duration::from_mins(10),
            retry: [60, 300, 900].map(Duration::from_secs).to_vec(),
            backfill_days: 7,
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            daily_retention_days: 1_830,
            events_retention_days: 90,
        }
    }
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            url: None,
            username: None,
            password: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
            max_packet_bytes: 256 << 10,
            miss_events: true,
            topic_prefix: "cinga/heartbeat".into(),
            partitions: 64,
            ack: UplinkAck::Broker,
            metrics_interval: None,
            outbox_max_bytes: 256 << 20,
            keep_alive: Duration::from_secs(30),
            backoff_max: Duration::from_mins(1),
        }
    }
}

impl Default for Web {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            base_path: String::new(),
            admin_token: None,
            viewer_token: None,
            trusted_proxies: Vec::new(),
        }
    }
}

impl Default for Central {
    fn default() -> Self {
        Self {
            mqtt_url: None,
            redis_url: vec!["redis://127.0.0.1:6379".into()],
            partitions: vec![(0, 63)],
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            workers_max: 8,
            chunk: 500,
            lock_ttl: Duration::from_secs(30),
            daily_retention_days: 400,
            raw_retention_hours: 0,
            unit: "central-1".into(),
            events_maxlen: 100_000,
        }
    }
}
