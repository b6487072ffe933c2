//! The way upstream in `GET node`.
//!
//! Floor 3.

use serde::Serialize;

use super::shape::Time;
use crate::board;
use crate::domain::outbox::{Backlog, Class, Load};

/// How the uplink stands. A password is nowhere in it.
#[derive(Debug, Serialize)]
pub(super) struct Uplink {
    state: &'static str,
    since: Option<Time>,
    reason: Option<String>,
    broker: Option<String>,
    next_try_at: Option<Time>,
    backlog: Waiting,
    autonomy_s: Option<u64>,
    cursor: u64,
    sent_events: u64,
    sent_metrics: u64,
    passed_over: u64,
    dead_letters: u64,
    connections: u64,
    today: Option<Today>,
    replaying_from: Option<Time>,
}

/// What waits.
#[derive(Debug, Serialize)]
struct Waiting {
    events: u64,
    bytes: u64,
    oldest_at: Option<Time>,
    by_class: ByClass,
}

#[derive(Debug, Serialize)]
struct ByClass {
    failed: Amount,
    status: Amount,
    alarm: Amount,
    daily: Amount,
}

#[derive(Debug, Serialize)]
struct Amount {
    events: u64,
    bytes: u64,
}

/// MQTT bytes of the UTC day.
#[derive(Debug, Serialize)]
struct Today {
    day: String,
    up_bytes: u64,
    down_bytes: u64,
}

impl Uplink {
    pub(super) fn of(uplink: &board::Uplink) -> Self {
        Self {
            state: uplink.state.word(),
            since: uplink.since.map(Time),
            reason: uplink.reason.clone(),
            broker: uplink.broker.clone(),
            next_try_at: uplink.next_try_at.map(Time),
            backlog: Waiting::of(&uplink.backlog),
            autonomy_s: uplink.autonomy.map(|length| length.as_secs()),
            cursor: uplink.cursor,
            sent_events: uplink.sent_events,
            sent_metrics: uplink.sent_metrics,
            passed_over: uplink.passed_over,
            dead_letters: uplink.dead_letters,
            connections: uplink.connections,
            today: uplink.today.map(|today| Today {
                day: today.day.to_string(),
                up_bytes: today.up_bytes,
                down_bytes: today.down_bytes,
            }),
            replaying_from: uplink.replaying_from.map(Time),
        }
    }
}

impl Waiting {
    fn of(backlog: &Backlog) -> Self {
        let Load { events, bytes } = backlog.total();
        let amount = |class: Class| {
            let load = backlog.loads.get(class.index()).copied();
            let Load { events, bytes } = load.unwrap_or_default();
            Amount { events, bytes }
        };
        Self {
            events,
            bytes,
            oldest_at: backlog.oldest_at.map(Time),
            by_class: ByClass {
                failed: amount(Class::Failed),
                status: amount(Class::Status),
                alarm: amount(Class::Alarm),
                daily: amount(Class::Daily),
            },
        }
    }
}
