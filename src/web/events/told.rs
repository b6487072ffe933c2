//! One event of the log in words.
//!
//! Floor 3. The log holds envelopes as JSON; those of a later version may say
//! more or other things, so whatever does not fit is shown as it stands.

use serde_json::Value;

use super::super::text::{DASH, long_stamp, quote, several, stamp};
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::domain::status::Status;
use crate::store::LoggedEvent;

/// Characters of a text from the log that are shown.
const TEXT_MAX: usize = 500;

/// An event, ready to print.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Its number.
    pub(super) seq: u64,
    /// When it was produced, with its zone.
    pub(super) at: String,
    /// In plain words.
    pub(super) what: &'static str,
    /// As it is called upstream.
    pub(super) event: String,
    /// Whom it is about; `None`: the gateway.
    pub(super) device: Option<DeviceId>,
    /// A change of status: before and after.
    pub(super) turn: Option<(&'static str, &'static str)>,
    /// What programs know it by; empty where there is nothing of the kind.
    pub(super) code: String,
    /// The rest.
    pub(super) detail: String,
}

impl Told {
    /// The words for an event as it stands in the log.
    pub(super) fn of(logged: &LoggedEvent) -> Self {
        let raw = || Self {
            what: "Event",
            at: DASH.to_owned(),
            detail: quote(&logged.json, TEXT_MAX),
            ..Self::default()
        };
        let told = match serde_json::from_str::<Value>(&logged.json) {
            Ok(envelope) => Self::read(&envelope).unwrap_or_else(|| Self {
                // Name, time and device are told even of what is not known.
                ..Self::headed(&envelope, raw())
            }),
            Err(_) => raw(),
        };
        Self {
            seq: logged.seq,
            ..told
        }
    }

    /// What every envelope has, around `rest`.
    fn headed(envelope: &Value, rest: Self) -> Self {
        let at = text(envelope, "/meta/produced_at");
        let device = text(envelope, "/context/device_id");
        Self {
            at: at.map_or(rest.at, time),
            event: quote(text(envelope, "/event").unwrap_or_default(), 80),
            device: device.and_then(|id| id.parse().ok()),
            ..rest
        }
    }

    /// `None`: an event or a form of one that is not known here.
    fn read(envelope: &Value) -> Option<Self> {
        let empty = Self::default();
        let rest = match text(envelope, "/event")? {
            "heartbeat.status.changed.v1" => Self {
                what: "Status changed",
                turn: Some((
                    status(envelope, "/data/previous_status")?,
                    status(envelope, "/data/current_status")?,
                )),
                detail: status_detail(envelope)?,
                ..empty
            },
            "heartbeat.failed.v1" => Self {
                what: failed(envelope)?,
                code: quote(text(envelope, "/error/error_code")?, 80),
                detail: failed_detail(envelope)?,
                ..empty
            },
            "heartbeat.device.removed.v1" => Self {
                what: "Device removed",
                detail: match text(envelope, "/data/reason")? {
                    "removed" => "not in the inventory any more".to_owned(),
                    "disabled" => "disabled in the inventory".to_owned(),
                    other => quote(other, TEXT_MAX),
                },
                ..empty
            },
            "heartbeat.daily.summarised.v1" => Self {
                what: "Day summarised",
                detail: format!(
                    "{}: {}, coverage {}",
                    quote(text(envelope, "/data/day")?, 20),
                    online(envelope),
                    percent(envelope, "/data/coverage").unwrap_or_else(|| DASH.to_owned()),
                ),
                ..empty
            },
            "heartbeat.site.summarised.v1" => Self {
                what: "Site\u{2019}s day summarised",
                detail: site_detail(envelope)?,
                ..empty
            },
            "heartbeat.clock.stepped.v1" => Self {
                what: "Clock stepped",
                detail: format!(
                    "from {} to {} ({})",
                    time(text(envelope, "/data/from")?),
                    time(text(envelope, "/data/to")?),
                    quote(text(envelope, "/data/source")?, 40),
                ),
                ..empty
            },
            _ => return None,
        };
        Some(Self::headed(envelope, rest))
    }
}

fn text<'a>(envelope: &'a Value, place: &str) -> Option<&'a str> {
    envelope.pointer(place)?.as_str()
}

fn status(envelope: &Value, place: &str) -> Option<&'static str> {
    Status::parse(text(envelope, place)?).map(Status::word)
}

fn time(text: &str) -> String {
    Wall::parse(text).map_or_else(|| quote(text, 40), stamp)
}

/// Codes of their own meaning first; of the others the stage says enough.
fn failed(envelope: &Value) -> Option<&'static str> {
    match text(envelope, "/error/error_code")? {
        "OUTBOX_GAP" => return Some("Events not sent"),
        "MESSAGE_REFUSED" => return Some("Message refused by the broker"),
        "CLIENT_ID_CONFLICT" => return Some("Client id used twice"),
        "CERTIFICATE" => return Some("Certificate trouble"),
        _ => {}
    }
    match text(envelope, "/error/failed_stage")? {
        "heartbeat" => Some("Heartbeat failed"),
        "rollup" => Some("Summary failed"),
        "store" => Some("Keeping failed"),
        "uplink" => Some("Sending failed"),
        _ => None,
    }
}

/// The message; of a gap its numbers first.
fn failed_detail(envelope: &Value) -> Option<String> {
    let message = quote(text(envelope, "/error/error_message")?, TEXT_MAX);
    let number = |place| envelope.pointer(place).and_then(Value::as_u64);
    let Some((from, to)) = number("/error/from").zip(number("/error/to")) else {
        return Some(message);
    };
    let numbers = if from == to {
        format!("number {from}")
    } else {
        format!("numbers {from} to {to}")
    };
    Some(format!("{numbers}: {message}"))
}

fn status_detail(envelope: &Value) -> Option<String> {
    let missed = envelope.pointer("/data/missed_count")?.as_u64()?;
    let mut parts = Vec::new();
    if missed > 0 {
        parts.push(format!("{missed} missed in a row"));
    }
    if let Some(seen) = text(envelope, "/data/last_seen") {
        let seen = Wall::parse(seen).map_or_else(|| quote(seen, 40), long_stamp);
        parts.push(format!("last seen {seen}"));
    }
    Some(parts.join(", "))
}

fn site_detail(envelope: &Value) -> Option<String> {
    let devices = envelope.pointer("/data/devices")?.as_u64()?;
    let worst: Vec<String> = envelope
        .pointer("/data/worst")?
        .as_array()?
        .iter()
        .filter_map(|worst| {
            let id = quote(text(worst, "/device_id")?, 40);
            Some(format!("{id} {}", percent(worst, "/online_ratio")?))
        })
        .collect();
    let worst = if worst.is_empty() {
        String::new()
    } else {
        format!("; worst: {}", worst.join(", "))
    };
    Some(format!(
        "{}: {}, {}{worst}",
        quote(text(envelope, "/data/day")?, 20),
        several(usize::try_from(devices).ok()?, "device", "devices"),
        online(envelope),
    ))
}

fn online(envelope: &Value) -> String {
    percent(envelope, "/data/online_ratio").map_or_else(
        || "nothing observed".to_owned(),
        |share| format!("{share} online"),
    )
}

/// `99.31 %`, on one line; what is not all is never rounded to it.
fn percent(value: &Value, place: &str) -> Option<String> {
    let ratio = value.pointer(place)?.as_f64()?;
    Some(if ratio >= 1.0 {
        "100\u{a0}%".to_owned()
    } else {
        format!("{:.2}\u{a0}%", (ratio * 100.0).min(99.99))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> Told {
        Told::of(&LoggedEvent {
            seq: 7,
            json: json.to_owned(),
        })
    }

    #[test]
    fn what_is_not_known_is_told_by_name_and_shown_as_it_stands() {
        let json = r#"{"event":"heartbeat.new.v9","meta":{"produced_at":"2026-03-12T14:02:11.000Z"},"context":{"device_id":"a-1"},"data":[1]}"#;
        let told = told(json);
        assert_eq!((told.seq, told.what), (7, "Event"));
        assert_eq!(told.at, "2026-03-12 14:02:11Z");
        assert_eq!(told.event, "heartbeat.new.v9");
        assert_eq!(told.device, Some("a-1".parse().unwrap()));
        assert_eq!(told.detail, json);
    }

    #[test]
    fn no_form_of_an_event_is_left_out() {
        for json in [
            "",
            "nonsense",
            "[]",
            "null",
            r#"{"event":7}"#,
            r#"{"event":"heartbeat.status.changed.v1","data":null}"#,
            r#"{"event":"heartbeat.failed.v1","error":{"failed_stage":"moon"}}"#,
            r#"{"event":"heartbeat.site.summarised.v1","data":{"devices":-1}}"#,
        ] {
            let told = told(json);
            assert_eq!((told.what, told.detail.as_str()), ("Event", json), "{json}");
            assert!(!told.at.is_empty());
        }
        assert!(told(&"x".repeat(9_000)).detail.len() < 600);
    }

    #[test]
    fn failures_of_the_uplink_are_told_in_plain_words() {
        let failure = |code: &str, more: &str| {
            let json = format!(
                r#"{{"event":"heartbeat.failed.v1","error":{{"failed_stage":"uplink","error_code":"{code}","error_message":"why"{more}}}}}"#
            );
            let told = told(&json);
            assert_eq!(told.code, code);
            (told.what, told.detail)
        };
        let gap = failure("OUTBOX_GAP", r#","from":12,"to":40"#);
        assert_eq!(gap, ("Events not sent", "numbers 12 to 40: why".into()));
        let one = failure("OUTBOX_GAP", r#","from":12,"to":12"#);
        assert_eq!(one.1, "number 12: why");
        for (code, what) in [
            ("OUTBOX_GAP", "Events not sent"),
            ("MESSAGE_REFUSED", "Message refused by the broker"),
            ("CLIENT_ID_CONFLICT", "Client id used twice"),
            ("CERTIFICATE", "Certificate trouble"),
            ("SOMETHING_NEW", "Sending failed"),
        ] {
            assert_eq!(failure(code, ""), (what, "why".into()));
        }
    }

    #[test]
    fn shares_are_percents_and_what_is_not_all_is_never_a_hundred() {
        let row = |ratio: &str| {
            told(&format!(
                r#"{{"event":"heartbeat.daily.summarised.v1","data":{{"day":"2026-03-11","online_ratio":{ratio},"coverage":1.0}}}}"#
            ))
            .detail
        };
        assert_eq!(
            row("0.99999"),
            "2026-03-11: 99.99\u{a0}% online, coverage 100\u{a0}%"
        );
        assert_eq!(
            row("null"),
            "2026-03-11: nothing observed, coverage 100\u{a0}%"
        );
    }
}
