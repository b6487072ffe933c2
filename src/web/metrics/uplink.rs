//! The series about the way upstream.
//!
//! Floor 3. None of them where no broker is configured: a gauge that says "not
//! connected" would raise an alarm that nobody can end.

use super::{flag, head, line, wide};
use crate::board::{Gateway, Uplink, UplinkState};
use crate::domain::instant::Wall;
use crate::domain::outbox::Class;
use crate::web::text::put;

/// Appends them.
pub(super) fn push(text: &mut String, gateway: &Gateway, now: Wall) {
    let uplink = &gateway.uplink;
    if !uplink.is_configured() {
        return;
    }
    for (name, kind, help, value) in singles(uplink, now) {
        head(text, (name, kind), help);
        text.push_str(name);
        line(text, value);
    }
    let waiting = Class::ALL.map(|class| {
        let load = uplink.backlog.loads.get(class.index());
        (class.word(), load.map_or(0, |load| load.events))
    });
    labelled(
        text,
        ("sitebeat_outbox_events", "gauge", "class"),
        "Events that wait to be sent, by class.",
        &waiting,
    );
    labelled(
        text,
        ("sitebeat_uplink_sent_total", "counter", "kind"),
        "Messages acknowledged, by kind.",
        &[
            ("event", uplink.sent_events),
            ("metrics", uplink.sent_metrics),
        ],
    );
    let (up, down) = uplink.traffic;
    labelled(
        text,
        ("sitebeat_uplink_bytes_total", "counter", "direction"),
        "Bytes of MQTT packets, without TLS, TCP and IP.",
        &[("up", up), ("down", down)],
    );
}

/// Name, type, help and value of each series without labels.
fn singles(uplink: &Uplink, now: Wall) -> Vec<super::Single> {
    let is_connected = uplink.state == UplinkState::Connected;
    let mut all = vec![
        (
            "sitebeat_uplink_connected",
            "gauge",
            "Whether the broker has accepted us.",
            flag(is_connected),
        ),
        (
            "sitebeat_outbox_bytes",
            "gauge",
            "Bytes of the events that wait to be sent.",
            wide(uplink.backlog.total().bytes),
        ),
        (
            "sitebeat_uplink_connections_total",
            "counter",
            "Connections made.",
            wide(uplink.connections),
        ),
        (
            "sitebeat_outbox_passed_over_total",
            "counter",
            "Events passed over because the outbox was full, since the store was made.",
            wide(uplink.passed_over),
        ),
        (
            "sitebeat_uplink_dead_letters_total",
            "counter",
            "Messages the broker would not take, since the store was made.",
            wide(uplink.dead_letters),
        ),
    ];
    if let Some(at) = uplink.backlog.oldest_at {
        all.push((
            "sitebeat_outbox_oldest_age_seconds",
            "gauge",
            "Seconds since the oldest waiting event was produced.",
            now.since(at).as_secs_f64(),
        ));
    }
    if let Some(autonomy) = uplink.autonomy {
        all.push((
            "sitebeat_outbox_autonomy_seconds",
            "gauge",
            "How long the outbox takes in events at the present rate.",
            autonomy.as_secs_f64(),
        ));
    }
    all
}

fn labelled(
    text: &mut String,
    (name, kind, label): (&str, &str, &str),
    help: &str,
    values: &[(&str, u64)],
) {
    head(text, (name, kind), help);
    for (value, n) in values {
        put(text, format_args!("{name}{{{label}=\"{value}\"}} {n}\n"));
    }
}
