//! JSON that travels: the liveness record and the envelope of events.
//!
//! Floor 1. `store` writes envelopes into its log exactly as they go upstream;
//! `web` and the uplink show and send them unchanged.
//!
//! # Invariants
//!
//! - Field order is part of the contract and held by golden tests.
//! - Times are RFC 3339 in UTC with milliseconds, or null.
//! - A status event stays small enough for 600 bytes of MQTT packet with site
//!   and node names of 16 characters.

mod daily;
mod metrics;
mod node;
mod upward;

use serde::{Serialize, Serializer};

pub use daily::{DailyJson, SiteDailyJson};
pub use metrics::{Metrics, metrics};
pub use node::{NodeHeartbeat, NodeHeartbeatJson, node_gone, node_heartbeat};
pub use upward::{Applied, applied, with_central_ack};

use crate::domain::device::DeviceId;
use crate::domain::event::{Event, Failure, FailureCode, News};
use crate::domain::instant::Wall;
use crate::domain::status::{Liveness, Status};

/// The version of the envelope.
pub const SCHEMA_VERSION: u32 = 1;

/// Characters of a failure's message that travel; the rest is cut, so that an
/// entry of the log cannot grow without bound.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// Where an event stands: who produced it and which place it has in which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Site id.
    pub site: &'a str,
    /// Node name.
    pub node: &'a str,
    /// Names the log in which `seq` counts.
    pub log_id: &'a str,
    /// The event's number.
    pub seq: u64,
    /// Number of the log's previous event addressed to MQTT; `None` for the
    /// first.
    pub prev_seq: Option<u64>,
}

/// The liveness record, ready to be serialised alone or flattened into a
/// larger object.
#[derive(Clone, Debug, Serialize)]
pub struct LivenessJson {
    device_id: Id,
    status: Word,
    last_ping_at: Option<Time>,
    last_seen: Option<Time>,
    rtt_ms: Option<RttJson>,
    missed_count: u32,
    updated_at: Option<Time>,
}

/// A round trip time in microseconds, serialised in milliseconds: a whole
/// number where it is one, else at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttJson(pub u32);

impl From<&Liveness> for LivenessJson {
    fn from(liveness: &Liveness) -> Self {
        let track = &liveness.track;
        Self {
            device_id: Id(liveness.device),
            status: Word(track.status),
            last_ping_at: track.last_ping_at.map(Time),
            last_seen: track.last_seen.map(Time),
            rtt_ms: track.rtt_us.map(RttJson),
            missed_count: track.missed_count,
            updated_at: track.updated_at.map(Time),
        }
    }
}

/// The liveness record as text.
#[must_use]
pub fn liveness(liveness: &Liveness) -> String {
    text_of(&LivenessJson::from(liveness))
}

/// The envelope of an event as text.
#[must_use]
pub fn envelope(event: &Event, place: &Place<'_>) -> String {
    text_of(&Envelope {
        event: event.news.name(),
        meta: Meta {
            schema_version: SCHEMA_VERSION,
            trace_id: format!("hb-{}-{}", place.log_id, place.seq),
            producer_service: "heartbeat-service",
            produced_at: Time(event.produced_at),
            process_ms: event.process_ms,
            site: place.site,
            node: place.node,
            log_id: place.log_id,
            seq: place.seq,
            prev_seq: place.prev_seq,
        },
        context: match event.device {
            Some(device) => Context::Device {
                device_id: Id(device),
            },
            None => Context::Site { site: place.site },
        },
        data: Data::of(&event.news),
        error: if let News::Failed(failure) = &event.news {
            Some(ErrorJson::of(failure))
        } else {
            None
        },
    })
}

#[derive(Serialize)]
struct Envelope<'a> {
    event: &'static str,
    meta: Meta<'a>,
    context: Context<'a>,
    data: Option<Data>,
    error: Option<ErrorJson>,
}

#[derive(Serialize)]
struct Meta<'a> {
    schema_version: u32,
    trace_id: String,
    producer_service: &'static str,
    produced_at: Time,
    process_ms: u64,
    site: &'a str,
    node: &'a str,
    log_id: &'a str,
    seq: u64,
    prev_seq: Option<u64>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Context<'a> {
    Device { device_id: Id },
    Site { site: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Status {
        previous_status: Word,
        current_status: Word,
        missed_count: u32,
        last_seen: Option<Time>,
    },
    Removed {
        reason: &'static str,
    },
    Day(Box<DailyJson>),
    Site(Box<SiteDailyJson>),
    Clock {
        from: Time,
        to: Time,
        source: &'static str,
    },
}

#[derive(Serialize)]
struct ErrorJson {
    failed_stage: &'static str,
    error_code: &'static str,
    error_message: String,
    retryable: bool,
    failed_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
}

impl Data {
    fn of(news: &News) -> Option<Self> {
        match news {
            News::StatusChanged {
                previous,
                current,
                missed_count,
                last_seen,
            } => Some(Self::Status {
                previous_status: Word(*previous),
                current_status: Word(*current),
                missed_count: *missed_count,
                last_seen: last_seen.map(Time),
            }),
            News::Failed(_) => None,
            News::DeviceRemoved { reason } => Some(Self::Removed { reason }),
            News::DaySummarised(row) => Some(Self::Day(Box::new(DailyJson::from(&**row)))),
            News::SiteSummarised(site) => Some(Self::Site(Box::new(SiteDailyJson::from(&**site)))),
            News::ClockStepped { from, to, source } => Some(Self::Clock {
                from: Time(*from),
                to: Time(*to),
                source,
            }),
        }
    }
}

impl ErrorJson {
    fn of(failure: &Failure) -> Self {
        let missing = if let FailureCode::OutboxGap { from, to } = failure.code {
            Some((from, to))
        } else {
            None
        };
        Self {
            failed_stage: failure.stage.word(),
            error_code: failure.code.word(),
            error_message: failure.message.chars().take(MESSAGE_CHARS_MAX).collect(),
            retryable: failure.retryable,
            failed_at: Time(failure.failed_at),
            from: missing.map(|(from, _)| from),
            to: missing.map(|(_, to)| to),
        }
    }
}

/// Domain words stay free of serialisation; these carry them into JSON.
#[derive(Clone, Copy, Debug)]
struct Id(DeviceId);

#[derive(Clone, Copy, Debug)]
struct Word(Status);

#[derive(Clone, Copy, Debug)]
struct Time(Wall);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for RttJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            serializer.serialize_u32(self.0 / 1_000)
        } else {
            // The nearest double to a number of three decimals prints as it.
            serializer.serialize_f64(f64::from(self.0) / 1_000.0)
        }
    }
}

fn text_of(value: &impl Serialize) -> String {
    // Only maps with keys that are no text, and failing writers, make an error.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
