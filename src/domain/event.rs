//! What happened, in the words that go to the event log and upstream.
//!
//! Floor 0: pure. `edge` makes events, `store` numbers and keeps them,
//! `wire::message` writes them as JSON.

use super::daily::{SiteSummary, Summary};
use super::day::Day;
use super::device::DeviceId;
use super::instant::Wall;
use super::status::{Liveness, Status};

/// Something worth telling others, before it has a place in the event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The device it is about; `None` for the gateway itself.
    pub device: Option<DeviceId>,
    /// When it was produced.
    pub produced_at: Wall,
    /// How long the process took from the cause to this event, in milliseconds.
    pub process_ms: u64,
    /// What happened.
    pub news: News,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A device has another status: `heartbeat.status.changed.v1`.
    StatusChanged {
        /// The status before.
        previous: Status,
        /// The status now.
        current: Status,
        /// Consecutive misses at that moment.
        missed_count: u32,
        /// The last reply's arrival; `None` before the first.
        last_seen: Option<Wall>,
    },
    /// Something the gateway wanted did not work: `heartbeat.failed.v1`.
    Failed(Failure),
    /// A device is no longer watched: `heartbeat.device.removed.v1`.
    DeviceRemoved {
        /// Why, in one word: `removed` or `disabled`.
        reason: &'static str,
    },
    /// A device's day is final: `heartbeat.daily.summarised.v1`.
    DaySummarised(Box<Summary>),
    /// The site's day is final: `heartbeat.site.summarised.v1`.
    SiteSummarised(Box<SiteSummary>),
    /// The wall clock was set: `heartbeat.clock.stepped.v1`.
    ClockStepped {
        /// What it would have shown without the step.
        from: Wall,
        /// What it showed after it.
        to: Wall,
        /// What was seen, in one word: `boot` where a clock came into range, `step`.
        source: &'static str,
    },
}

/// A failure and whether it may pass by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where it happened.
    pub stage: Stage,
    /// What kind it is, for machines.
    pub code: FailureCode,
    /// What it is, for people.
    pub message: String,
    /// Whether trying again can help.
    pub retryable: bool,
    /// When it happened.
    pub failed_at: Wall,
}

/// Where a failure happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Asking a device.
    Heartbeat,
    /// Summarising a day.
    Rollup,
    /// Keeping data.
    Store,
    /// Sending data upstream.
    Uplink,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// The first timeout of a run of misses.
    PingTimeout,
    /// The first miss of a run was an ICMP error.
    Unreachable,
    /// The first probe of a run that could not be sent.
    SendFailed,
    /// Raw heartbeats could not be kept.
    RawLost,
    /// The store was damaged and had to be repaired or set aside.
    StoreDamaged,
    /// A day could not be summarised, tries are used up.
    RollupFailed,
    /// These events were passed over: the outbox was full, or their time was up
    /// while the uplink was off.
    OutboxGap {
        /// The first number that is missing.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The broker does not take a message; it is kept aside.
    MessageRefused,
    /// Another client uses our client id.
    ClientIdConflict,
    /// A certificate ends soon, has ended, or cannot be read.
    Certificate,
}

/// One durable step of the store: what becomes true together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device's standing and the event that tells of it.
    Standing {
        /// The standing after the change.
        liveness: Liveness,
        /// What is told.
        event: Event,
    },
    /// A device left: its standing goes, the event stays.
    Removal {
        /// Which.
        device: DeviceId,
        /// What is told.
        event: Event,
    },
    /// An event without a standing.
    Notice(Event),
    /// A row of a final day is told, once per content.
    Announcement {
        /// Which day.
        day: Day,
        /// A hash of what the event says: told again only if it differs.
        content: u64,
        /// What is told; its device says whose row, none: the site's.
        event: Event,
    },
}

impl News {
    /// The event's name on the wire.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StatusChanged { .. } => "heartbeat.status.changed.v1",
            Self::Failed(_) => "heartbeat.failed.v1",
            Self::DeviceRemoved { .. } => "heartbeat.device.removed.v1",
            Self::DaySummarised(_) => "heartbeat.daily.summarised.v1",
            Self::SiteSummarised(_) => "heartbeat.site.summarised.v1",
            Self::ClockStepped { .. } => "heartbeat.clock.stepped.v1",
        }
    }
}

impl Stage {
    /// The stage as it stands in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Rollup => "rollup",
            Self::Store => "store",
            Self::Uplink => "uplink",
        }
    }
}

impl FailureCode {
    /// The code as it stands in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::PingTimeout => "HEARTBEAT_PING_TIMEOUT",
            Self::Unreachable => "HEARTBEAT_UNREACHABLE",
            Self::SendFailed => "HEARTBEAT_SEND_FAILED",
            Self::RawLost => "RAW_LOST",
            Self::StoreDamaged => "STORE_DAMAGED",
            Self::RollupFailed => "ROLLUP_FAILED",
            Self::OutboxGap { .. } => "OUTBOX_GAP",
            Self::MessageRefused => "MESSAGE_REFUSED",
            Self::ClientIdConflict => "CLIENT_ID_CONFLICT",
            Self::Certificate => "CERTIFICATE",
        }
    }
}

impl Change {
    /// The event this step tells.
    #[must_use]
    pub const fn event(&self) -> &Event {
        match self {
            Self::Standing { event, .. }
            | Self::Removal { event, .. }
            | Self::Notice(event)
            | Self::Announcement { event, .. } => event,
        }
    }
}
