//! Settings in their checked form.
//!
//! Everything downstream takes these values as they are: `config::load` has
//! checked every rule. `Default` is the built-in default of each key; the shipped
//! `config/default.toml` is tested equal to it. Field names are the keys of the
//! files, less the unit suffix where a `Duration` carries it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::domain::status::StatusRule;

mod defaults;

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `[site]`
    pub site: Site,
    /// `[node]`
    pub node: Node,
    /// `[probe]`, for devices that name no profile.
    pub probe: ProbeRules,
    /// `[profile.NAME]`, each already merged over `[probe]`.
    pub profiles: BTreeMap<String, ProbeRules>,
    /// The part of `[probe]` that holds for the whole process.
    pub sockets: Sockets,
    /// `path.targets`
    pub path_targets: Vec<IpAddr>,
    /// `[inventory]`
    pub inventory: Inventory,
    /// `[store]`
    pub store: Store,
    /// `[rollup]`
    pub rollup: Rollup,
    /// `[history]`
    pub history: History,
    /// `[uplink]`
    pub uplink: Uplink,
    /// `[web]`
    pub web: Web,
    /// `[central]`
    pub central: Central,
}

/// `[site]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// `[A-Za-z0-9._-]{1,64}`
    pub id: String,
    /// What people call it; the id unless set.
    pub name: String,
    /// `[A-Za-z0-9._-]{1,64}`
    pub region: String,
}

/// `[node]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique per gateway; the host name unless set.
    pub name: String,
    /// Time between two node heartbeats.
    pub heartbeat_interval: Duration,
    /// How long one is valid; at least twice the interval.
    pub heartbeat_ttl: Duration,
}

/// How a device is probed and judged: `[probe]`, or a profile merged over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRules {
    /// Each device once per this.
    pub heartbeat_period: Duration,
    /// The thresholds of the verdict: `degraded_rtt_ms`,
    /// `degraded_leave_rtt_ms`, `offline_missed_count`, `recover_count`.
    pub status: StatusRule,
    /// No reply within this: missed. Below the period.
    pub offline_timeout: Duration,
    /// ICMP payload, 16 to 1400 bytes.
    pub payload_bytes: u16,
    /// How long a late reply is still recognised.
    pub late_window: Duration,
    /// After a miss, ask again this much later; `None` is off.
    pub recheck: Option<Duration>,
    /// One extra echo wakes an idle modem before the measured one.
    pub wake_echo: bool,
    /// Where each of the values above was set, by key.
    pub origins: BTreeMap<&'static str, Origin>,
}

/// Where a value comes from; prints as `default`, `config`, `env` or
/// `profile NAME`. A value set by a command line flag counts as config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    #[default]
    Default,
    /// A configuration file.
    Config,
    /// The environment.
    Env,
    /// The named profile.
    Profile(String),
}

/// One threshold in force for a device, as the page and the API show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The key as the files write it, less `probe.`.
    pub key: &'static str,
    /// Its value.
    pub value: ThresholdValue,
    /// Where it was set.
    pub from: Origin,
}

/// A threshold is a number or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdValue {
    /// In the unit that the key names.
    Number(u64),
    /// On or off.
    Switch(bool),
}

/// `probe.source`, `probe.interface`, `probe.socket`, `probe.engine`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Source address of probes, if set.
    pub source: Option<IpAddr>,
    /// Interface to bind to, if set.
    pub interface: Option<String>,
    /// Which socket.
    pub socket: SocketChoice,
    /// Which engine.
    pub engine: EngineChoice,
}

/// The engines a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// Batch on Linux, surge elsewhere.
    #[default]
    Auto,
    /// Our own, batched system calls.
    Batch,
    /// On surge-ping.
    Surge,
}

/// The sockets a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketChoice {
    /// RAW where the privilege is there, else DGRAM.
    #[default]
    Auto,
    /// Needs `CAP_NET_RAW`; sees all ICMP errors.
    Raw,
    /// Needs a group in `net.ipv4.ping_group_range`.
    Dgram,
}

/// `[inventory]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The file, CSV or TOML by extension.
    pub file: PathBuf,
    /// Whether `file` was set by someone: then its absence is a fault, while
    /// without it the built-in devices 127.0.0.1 to 127.0.0.5 are watched.
    pub is_set: bool,
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The folder.
    pub path: PathBuf,
    /// Time between two writes of raw heartbeats.
    pub flush_every: Duration,
    /// Beyond this no more raw is taken.
    pub max_bytes: u64,
    /// Below this much free disk no more raw is taken.
    pub min_free_bytes: u64,
    /// How long raw is kept, at the least until its summary is durable.
    pub raw_retention: Duration,
}

/// `[rollup]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// When yesterday is summarised, after midnight UTC.
    pub at_utc: Duration,
    /// How long after that late samples are taken in.
    pub late_tolerance: Duration,
    /// Waits between failed attempts.
    pub retry: Vec<Duration>,
    /// How many missing days are caught up.
    pub backfill_days: u32,
}

/// `[history]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Days that summaries are kept.
    pub daily_retention_days: u32,
    /// Days that events are kept.
    pub events_retention_days: u32,
}

/// `[uplink]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The broker; `None` is off.
    pub url: Option<String>,
    /// User name, if any.
    pub username: Option<String>,
    /// Password, if any.
    pub password: Option<Secret>,
    /// Certificate authority of the broker.
    pub ca_file: Option<PathBuf>,
    /// Our certificate.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// The largest packet sent or taken.
    pub max_packet_bytes: u64,
    /// Failed events of stage heartbeat go up.
    pub miss_events: bool,
    /// First part of every topic.
    pub topic_prefix: String,
    /// Number of partitions that sites are spread over.
    pub partitions: u32,
    /// Whose acknowledgement moves the cursor.
    pub ack: UplinkAck,
    /// Least distance between two metrics events of one device; `None` follows
    /// the period, zero sends none.
    pub metrics_interval: Option<Duration>,
    /// Bound of the waiting events.
    pub outbox_max_bytes: u64,
    /// MQTT keep-alive.
    pub keep_alive: Duration,
    /// Longest wait between two attempts to connect.
    pub backoff_max: Duration,
}

/// Whose acknowledgement counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UplinkAck {
    /// The broker's.
    #[default]
    Broker,
    /// The central consumer's.
    Central,
}

/// `[web]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Where the page listens.
    pub listen: SocketAddr,
    /// Path prefix behind a reverse proxy: empty, or `/mon` without a slash at
    /// its end.
    pub base_path: String,
    /// Who may change things; `None`: nobody.
    pub admin_token: Option<Secret>,
    /// Who may read; `None`: anybody who can reach the page.
    pub viewer_token: Option<Secret>,
    /// Proxies whose `X-Forwarded-*` headers are believed.
    pub trusted_proxies: Vec<IpAddr>,
}

/// `[central]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Central {
    /// The broker; `uplink.url` unless set.
    pub mqtt_url: Option<String>,
    /// One server, or several of a cluster.
    pub redis_url: Vec<String>,
    /// First and last partition taken, inclusive ranges.
    pub partitions: Vec<(u32, u32)>,
    /// Where the dashboard listens.
    pub listen: SocketAddr,
    /// Most workers at once.
    pub workers_max: u32,
    /// Events applied per turn of a site.
    pub chunk: u32,
    /// How long a worker owns a site without renewing.
    pub lock_ttl: Duration,
    /// Days that daily rows stay in Redis.
    pub daily_retention_days: u32,
    /// Hours that raw stays in Redis; 0: none is kept there.
    pub raw_retention_hours: u32,
    /// Name of this unit.
    pub unit: String,
    /// Cap of the event stream.
    pub events_maxlen: u64,
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Settings {
    /// The rules for a device that names `profile`. A name without a profile
    /// gives `[probe]`; the inventory refuses such rows beforehand.
    #[must_use]
    pub fn rules_for(&self, profile: Option<&str>) -> &ProbeRules {
        profile
            .and_then(|name| self.profiles.get(name))
            .unwrap_or(&self.probe)
    }
}

impl ProbeRules {
    /// Every threshold in force, in the order of the files.
    #[must_use]
    pub fn thresholds(&self) -> Vec<Threshold> {
        let millis = |duration: Duration| {
            ThresholdValue::Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        };
        let micros = |us: u32| ThresholdValue::Number(u64::from(us / 1_000));
        let count = |n: u32| ThresholdValue::Number(u64::from(n));
        [
            ("heartbeat_period_ms", millis(self.heartbeat_period)),
            ("degraded_rtt_ms", micros(self.status.degraded_rtt_us)),
            (
                "degraded_leave_rtt_ms",
                micros(self.status.degraded_leave_rtt_us),
            ),
            ("offline_timeout_ms", millis(self.offline_timeout)),
            (
                "offline_missed_count",
                count(self.status.offline_missed_count),
            ),
            ("recover_count", count(self.status.recover_count)),
            ("payload_bytes", count(self.payload_bytes.into())),
            ("late_window_ms", millis(self.late_window)),
            ("recheck_ms", millis(self.recheck.unwrap_or_default())),
            ("wake_echo", ThresholdValue::Switch(self.wake_echo)),
        ]
        .map(|(key, value)| Threshold {
            key,
            value,
            from: self.origins.get(key).cloned().unwrap_or_default(),
        })
        .into()
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Config => f.write_str("config"),
            Self::Env => f.write_str("env"),
            Self::Profile(name) => write!(f, "profile {name}"),
        }
    }
}

impl Secret {
    /// Wraps a value read from a file or the environment.
    #[must_use]
    pub const fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for the one place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
