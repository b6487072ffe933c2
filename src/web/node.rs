//! `/node`: the gateway itself.
//!
//! Floor 3. Terms and values, grouped; the same figures as `GET node` of the
//! API, as people read them.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Front;
use super::access::Caller;
use super::api::node::store_word;
use super::fault::Fault;
use super::frame::{Frame, Here, answer};
use super::history;
use super::text::{DASH, ago, bytes, count, long_stamp, several, span};
use crate::board::{ClockState, Gateway, Picture};
use crate::domain::instant::Wall;
use crate::domain::trust::Step;

mod budget;
mod shares;
pub(super) mod uplink;

use budget::Budget;
use shares::Shares;

const PAGE_BYTES: usize = 12 << 10;

#[derive(Debug, Template)]
#[template(path = "node.html")]
struct NodePage {
    frame: Frame,
    node: String,
    groups: Vec<Group>,
    budget: Budget,
}

/// A heading with its facts.
#[derive(Debug)]
struct Group {
    name: &'static str,
    facts: Vec<(&'static str, String)>,
    /// A drawing below them.
    shares: Option<Shares>,
    /// Sentences below that.
    notes: Vec<String>,
}

impl Group {
    const fn of(name: &'static str, facts: Vec<(&'static str, String)>) -> Self {
        Self {
            name,
            facts,
            shares: None,
            notes: Vec::new(),
        }
    }
}

/// `GET /node`
pub(super) async fn page(
    State(front): State<Arc<Front>>,
    caller: Caller,
) -> Result<Response, Fault> {
    let now = front.shared.clock.wall();
    let page = {
        let picture = front.shared.board.look();
        NodePage {
            frame: Frame::new(&caller, &picture, now, Here::Node),
            node: picture.gateway.node.clone(),
            groups: groups(&caller, &picture, now),
            budget: Budget::of(&picture),
        }
    };
    answer(&page, PAGE_BYTES)
}

fn groups(caller: &Caller, picture: &Picture, now: Wall) -> Vec<Group> {
    let gateway = &picture.gateway;
    vec![
        about(caller, gateway, now),
        probing(gateway, now),
        replies(gateway),
        keeping(gateway, now),
        uplink::group(&gateway.uplink, now),
        Group::of("Daily summaries", history::facts(&gateway.rollup)),
        configuration(gateway, now),
    ]
}

fn about(caller: &Caller, gateway: &Gateway, now: Wall) -> Group {
    let pulse = &gateway.pulse;
    let ttl = span(caller.in_force.node.heartbeat_ttl);
    let heartbeat = pulse.at.map_or_else(
        || "none yet".to_owned(),
        |at| format!("{} ({}; valid for {ttl})", long_stamp(at), ago(at, now)),
    );
    let ip = pulse.ip.map(|ip| ip.to_string());
    Group::of(
        "Gateway",
        vec![
            ("Site", gateway.site.clone()),
            ("Region", gateway.region.clone()),
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ("Clock", long_stamp(now)),
            ("Clock is trusted", trusted(&gateway.clock)),
            ("Clock was set", clock_set(&gateway.clock)),
            ("Started", long_stamp(gateway.started_at)),
            ("Up for", span(Duration::from_secs(pulse.uptime_s))),
            ("Starts", count(gateway.boot.into())),
            ("Last heartbeat", heartbeat),
            ("Own address", ip.unwrap_or_else(|| DASH.to_owned())),
            ("Memory", format!("{:.1} MB", pulse.memory_mb)),
            ("Tasks", count(pulse.tasks as u64)),
        ],
    )
}

/// Since when, where that turned after the start; a time from before trust was
/// won would mean nothing.
fn trusted(clock: &ClockState) -> String {
    match (clock.distrust, clock.since) {
        (None, None) => "yes".to_owned(),
        (None, Some(since)) => format!("yes, since {}", long_stamp(since)),
        (Some(_), _) => "no, times count from the start".to_owned(),
    }
}

/// How often the clock was set, and how the last time.
fn clock_set(clock: &ClockState) -> String {
    let Some((Step { from, to }, _)) = clock.last_step else {
        return "never".into();
    };
    let times = several(
        usize::try_from(clock.steps).unwrap_or(usize::MAX),
        "time",
        "times",
    );
    format!(
        "{times}, last from {} to {}",
        long_stamp(from),
        long_stamp(to)
    )
}

fn probing(gateway: &Gateway, now: Wall) -> Group {
    let probe = &gateway.probe;
    let (facts, counters) = (&probe.facts, &probe.counters);
    let said = |word: &str| {
        if word.is_empty() {
            DASH.to_owned()
        } else {
            word.to_owned()
        }
    };
    let late = probe
        .lateness_p99_ms
        .map_or_else(|| DASH.to_owned(), |ms| format!("{ms:.1} ms"));
    let turned = probe
        .turned_at
        .map_or_else(|| "not yet".to_owned(), |at| ago(at, now));
    Group {
        name: "Probing",
        facts: vec![
            ("Engine", said(facts.engine)),
            ("Socket", said(facts.socket)),
            ("Receive buffer", bytes(facts.receive_buffer_bytes as u64)),
            ("Scheduler ran", turned),
            ("Lateness, 99 % within", late),
            ("Probes sent", count(counters.sent)),
            ("Bytes sent", bytes(counters.sent_bytes)),
            ("Sends that failed", count(counters.send_failed)),
        ],
        notes: facts.notes(),
        shares: None,
    }
}

fn replies(gateway: &Gateway) -> Group {
    let counters = &gateway.probe.counters;
    Group::of(
        "Replies",
        vec![
            ("Valid", count(counters.valid)),
            ("Late", count(counters.late)),
            ("Duplicate", count(counters.duplicate)),
            ("Foreign", count(counters.foreign)),
            ("Malformed", count(counters.malformed)),
            ("ICMP errors", count(counters.errors)),
            ("Buffer overflows", count(counters.overflowed)),
        ],
    )
}

fn keeping(gateway: &Gateway, now: Wall) -> Group {
    let store = &gateway.store;
    let figures = &store.figures;
    let flushed = figures.last_flush.map_or_else(
        || "not yet".to_owned(),
        |at| format!("{} ({})", long_stamp(at), ago(at, now)),
    );
    Group {
        name: "Store",
        facts: vec![
            ("State", store_word(store).to_owned()),
            ("Size", bytes(figures.bytes)),
            ("Free on disk", bytes(figures.free_bytes)),
            ("Written since start", bytes(figures.bytes_written)),
            ("Last flush", flushed),
            (
                "Heartbeats not yet on disk",
                count(figures.open_samples as u64),
            ),
            ("Heartbeats lost", count(figures.lost_samples)),
            ("Events in the log", count(figures.events)),
        ],
        notes: store.mended.clone(),
        shares: None,
    }
}

fn configuration(gateway: &Gateway, now: Wall) -> Group {
    let config = &gateway.config;
    let paths: Vec<String> = config
        .paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let files = if paths.is_empty() {
        "built-in defaults".to_owned()
    } else {
        paths.join(", ")
    };
    let inventory = config.inventory.as_ref().map_or_else(
        || "built-in devices".to_owned(),
        |path| path.display().to_string(),
    );
    let error = config.last_error.clone();
    Group {
        name: "Configuration",
        facts: vec![
            ("Files", files),
            ("Inventory", inventory),
            (
                "In force since",
                format!(
                    "{} ({})",
                    long_stamp(config.loaded_at),
                    ago(config.loaded_at, now)
                ),
            ),
            ("Last error", error.unwrap_or_else(|| "none".to_owned())),
            ("Refused rows", count(config.refused_rows.len() as u64)),
        ],
        notes: config.warnings.clone(),
        shares: None,
    }
}
