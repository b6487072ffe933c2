//! The way upstream, on the page of the node and in the line above other pages.
//!
//! Floor 3. The same figures as `uplink` of `GET node`, as people read them.

use std::time::Duration;

use super::Group;
use super::shares::Shares;
use crate::board::{Uplink, UplinkState};
use crate::domain::instant::Wall;
use crate::domain::outbox::{Class, Load};
use crate::web::frame::Banner;
use crate::web::text::{DASH, ago, bytes, count, long_stamp, span};

/// An attempt to connect takes a moment, at the start too; before this nothing is
/// said above the pages.
const AWAY_AFTER: Duration = Duration::from_secs(10);

const DAY: Duration = Duration::from_hours(24);

/// The group of the page.
pub(super) fn group(uplink: &Uplink, now: Wall) -> Group {
    if !uplink.is_configured() {
        return Group {
            notes: vec![
                "uplink.url is not set: events stay in this store and on these pages.".to_owned(),
            ],
            ..Group::of("Uplink", vec![("State", "off".to_owned())])
        };
    }
    let is_connected = uplink.state == UplinkState::Connected;
    let mut facts = vec![("State", uplink.state.word().to_owned())];
    if let Some(at) = uplink.since {
        let term = if is_connected { "Since" } else { "Away since" };
        facts.push((term, format!("{} ({})", long_stamp(at), ago(at, now))));
    }
    if !is_connected {
        let reason = uplink.reason.clone();
        facts.push(("Why", reason.unwrap_or_else(|| "not tried yet".to_owned())));
        if let Some(at) = uplink.next_try_at {
            facts.push(("Next try", next_try(at, now)));
        }
    }
    let broker = uplink.broker.clone();
    facts.push(("Broker", broker.unwrap_or_else(|| DASH.to_owned())));
    facts.extend(waiting(uplink, now));
    facts.extend(sent(uplink));
    Group {
        shares: by_class(uplink),
        ..Group::of("Uplink", facts)
    }
}

/// That the broker is away, in one line; `None`: it is there, was just asked, or
/// there is none.
pub(in crate::web) fn banner(uplink: &Uplink, now: Wall) -> Option<Banner> {
    let is_away = match uplink.state {
        UplinkState::Off | UplinkState::Connected => false,
        UplinkState::Waiting => true,
        UplinkState::Connecting => {
            let is_long = uplink.since.is_some_and(|at| now.since(at) > AWAY_AFTER);
            uplink.reason.is_some() || is_long
        }
    };
    if !is_away {
        return None;
    }
    let since = uplink
        .since
        .map_or_else(String::new, |at| format!(" since {}", long_stamp(at)));
    let reason = uplink.reason.as_deref().unwrap_or_default();
    let reason = reason.trim_end_matches('.');
    let waits = waits(uplink.backlog.total());
    Some(Banner {
        class: "warn",
        title: format!("The uplink is away{since}:"),
        text: if reason.is_empty() {
            waits
        } else {
            format!("{reason}; {waits}")
        },
        items: Vec::new(),
    })
}

fn next_try(at: Wall, now: Wall) -> String {
    let ahead = at.since(now);
    if ahead < Duration::from_secs(1) {
        "now".to_owned()
    } else {
        format!("in {}", span(ahead))
    }
}

/// `1 event (512 B) waits`
fn waits(load: Load) -> String {
    match load.events {
        0 => "nothing waits".to_owned(),
        1 => format!("1 event ({}) waits", bytes(load.bytes)),
        events => format!("{} events ({}) wait", count(events), bytes(load.bytes)),
    }
}

fn waiting(uplink: &Uplink, now: Wall) -> Vec<(&'static str, String)> {
    let load = uplink.backlog.total();
    let oldest = uplink.backlog.oldest_at;
    let mut facts = vec![(
        "Waiting",
        match load.events {
            0 => "nothing".to_owned(),
            1 => format!("1 event, {}", bytes(load.bytes)),
            events => format!("{} events, {}", count(events), bytes(load.bytes)),
        },
    )];
    if let Some(at) = oldest.filter(|_| load.events > 0) {
        facts.push(("Oldest", format!("{} ({})", long_stamp(at), ago(at, now))));
    }
    facts.push(("Outbox", lasts(uplink.autonomy)));
    facts
}

/// How long the outbox lasts; no more exact than a rate can tell.
fn lasts(autonomy: Option<Duration>) -> String {
    let about = match autonomy {
        None => return "no end of its room in sight".to_owned(),
        Some(length) if length >= DAY * 3_650 => "more than ten years".to_owned(),
        Some(length) if length >= DAY * 2 => {
            format!("about {} days", count(length.as_secs() / DAY.as_secs()))
        }
        Some(length) if length >= Duration::from_hours(2) => {
            format!("about {} hours", length.as_secs() / 3_600)
        }
        Some(length) => format!("about {}", span(length)),
    };
    format!("lasts {about} at the present rate")
}

fn sent(uplink: &Uplink) -> Vec<(&'static str, String)> {
    let today = uplink.today.map_or_else(
        || DASH.to_owned(),
        |today| {
            let [up, down] = [today.up_bytes, today.down_bytes].map(bytes);
            format!("{up} up, {down} down")
        },
    );
    let replaying = uplink
        .replaying_from
        .map_or_else(|| "nothing owed".to_owned(), long_stamp);
    vec![
        ("Acknowledged up to number", count(uplink.cursor)),
        ("Events sent since start", count(uplink.sent_events)),
        ("Metrics sent since start", count(uplink.sent_metrics)),
        ("Metrics caught up to", replaying),
        ("Passed over", count(uplink.passed_over)),
        ("Refused by the broker", count(uplink.dead_letters)),
        ("Connections since start", count(uplink.connections)),
        ("Bytes this UTC day", today),
    ]
}

/// What waits, by class: the bar goes by events, the words say both.
fn by_class(uplink: &Uplink) -> Option<Shares> {
    let parts = Class::ALL.map(|class| {
        let load = uplink.backlog.loads.get(class.index()).copied();
        let Load {
            events,
            bytes: size,
        } = load.unwrap_or_default();
        let (colour, name) = match class {
            Class::Failed => ("d", "failures"),
            Class::Status => ("a", "statuses"),
            Class::Alarm => ("c", "alarms"),
            Class::Daily => ("b", "summaries"),
        };
        let words = format!("{name} {} ({})", count(events), bytes(size));
        (colour, events, words)
    });
    Shares::of("Waiting", parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outbox_lasts_about_as_long_as_a_rate_can_tell() {
        let hours = |n| lasts(Some(Duration::from_hours(n)));
        assert_eq!(
            hours(24 * 12 + 5),
            "lasts about 12 days at the present rate"
        );
        assert_eq!(hours(47), "lasts about 47 hours at the present rate");
        assert_eq!(hours(1), "lasts about 1 h at the present rate");
        assert_eq!(
            hours(24 * 4_000),
            "lasts more than ten years at the present rate"
        );
        assert_eq!(
            lasts(Some(Duration::ZERO)),
            "lasts about 0 s at the present rate"
        );
        assert_eq!(lasts(None), "no end of its room in sight");
    }

    #[test]
    fn an_uplink_that_just_connects_is_not_called_away() {
        let now = Wall::from_millis(1_773_273_900_000);
        let uplink = |state, seconds, reason: Option<&str>| Uplink {
            state,
            since: Some(now.minus(Duration::from_secs(seconds))),
            reason: reason.map(str::to_owned),
            ..Uplink::default()
        };
        let is_away = |uplink: &Uplink| banner(uplink, now).is_some();
        let why = Some("connection refused.");
        assert!(!is_away(&uplink(UplinkState::Off, 100, None)));
        assert!(!is_away(&uplink(UplinkState::Connected, 100, None)));
        assert!(!is_away(&uplink(UplinkState::Connecting, 3, None)));
        assert!(is_away(&uplink(UplinkState::Connecting, 11, None)));
        assert!(is_away(&uplink(UplinkState::Connecting, 3, why)));
        let told = banner(&uplink(UplinkState::Waiting, 3, why), now).unwrap();
        assert_eq!(
            (told.title.as_str(), told.text.as_str()),
            (
                "The uplink is away since 2026-03-12 00:04:57 UTC:",
                "connection refused; nothing waits"
            )
        );
    }
}
