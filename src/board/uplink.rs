//! How the uplink stands.
//!
//! Floor 2. `edge::uplink` draws it, `/node`, the API and metrics show it.

use std::time::Duration;

use crate::domain::day::Day;
use crate::domain::instant::Wall;
use crate::domain::outbox::Backlog;

/// The uplink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uplink {
    /// Whether there is a connection.
    pub state: UplinkState,
    /// Since when there is a connection, or is none: an attempt that fails changes
    /// nothing about that.
    pub since: Option<Wall>,
    /// Why it is not connected, for people; `None` where it is, or was not tried yet.
    pub reason: Option<String>,
    /// Which broker, as configured (never with a password); `None`: off.
    pub broker: Option<String>,
    /// When the next attempt is made.
    pub next_try_at: Option<Wall>,
    /// What waits.
    pub backlog: Backlog,
    /// How long the outbox can take in events at the present rate until the oldest
    /// are passed over; `None`: no end in sight.
    pub autonomy: Option<Duration>,
    /// Number up to which everything is acknowledged.
    pub cursor: u64,
    /// Events acknowledged since the start.
    pub sent_events: u64,
    /// Metrics events acknowledged since the start.
    pub sent_metrics: u64,
    /// Events passed over because the outbox was full, since the store was made.
    pub passed_over: u64,
    /// Messages the broker would not take, kept aside, since the store was made.
    pub dead_letters: u64,
    /// Connections made since the start.
    pub connections: u64,
    /// MQTT bytes of the UTC day.
    pub today: Option<TrafficOfDay>,
    /// MQTT bytes since the process started: up, down.
    pub traffic: (u64, u64),
    /// Up to where heartbeats are sent as metrics, while older ones are still being
    /// made up for; `None`: nothing is owed.
    pub replaying_from: Option<Wall>,
}

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UplinkState {
    /// `uplink.url` is not set.
    #[default]
    Off,
    /// A connection is being made.
    Connecting,
    /// The broker has accepted us.
    Connected,
    /// The next attempt waits.
    Waiting,
}

/// MQTT bytes of a UTC day, over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficOfDay {
    /// Which day.
    pub day: Day,
    /// Sent.
    pub up_bytes: u64,
    /// Received.
    pub down_bytes: u64,
}

impl Uplink {
    /// Whether `uplink.url` is set.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.state != UplinkState::Off
    }
}

impl UplinkState {
    /// The state as API and metrics have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Waiting => "waiting",
        }
    }
}
