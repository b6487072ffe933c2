//! Golden texts of everything that travels.

mod golden;
mod size;
mod upward;

use proptest::prelude::*;

use super::*;
use crate::domain::event::{FailureCode, Stage};
use crate::domain::heartbeat::RttMillis;
use crate::domain::status::Track;

fn at(millis: i64) -> Wall {
    Wall::from_millis(1_773_273_900_000 + millis)
}

fn place() -> Place<'static> {
    Place {
        site: "site-1",
        node: "gw-a",
        log_id: "5f0c1e8a9b2d",
        seq: 42,
        prev_seq: Some(41),
    }
}

fn event(device: Option<&str>, news: News) -> Event {
    Event {
        device: device.map(|id| id.parse().unwrap()),
        produced_at: at(5_000),
        process_ms: 3,
        news,
    }
}

#[test]
fn liveness_record_reads_as_documented() {
    let track = Track {
        status: Status::Degraded,
        since: Some(at(0)),
        last_ping_at: Some(at(60_000)),
        last_seen: Some(at(61_820)),
        rtt_us: Some(1_820_000),
        missed_count: 0,
        recovering: 2,
        updated_at: Some(at(61_820)),
    };
    let device = "meter-7".parse().unwrap();
    assert_eq!(
        liveness(&Liveness { device, track }),
        concat!(
            r#"{"device_id":"meter-7","status":"degraded","#,
            r#""last_ping_at":"2026-03-12T00:06:00.000Z","last_seen":"2026-03-12T00:06:01.820Z","#,
            r#""rtt_ms":1820,"missed_count":0,"updated_at":"2026-03-12T00:06:01.820Z"}"#
        )
    );
    let track = Track::default();
    assert_eq!(
        liveness(&Liveness { device, track }),
        concat!(
            r#"{"device_id":"meter-7","status":"unknown","last_ping_at":null,"last_seen":null,"#,
            r#""rtt_ms":null,"missed_count":0,"updated_at":null}"#
        )
    );
}

#[test]
fn status_event_reads_as_documented() {
    let news = News::StatusChanged {
        previous: Status::Online,
        current: Status::Offline,
        missed_count: 3,
        last_seen: None,
    };
    assert_eq!(
        envelope(&event(Some("meter-7"), news), &place()),
        concat!(
            r#"{"event":"heartbeat.status.changed.v1","meta":{"schema_version":1,"#,
            r#""trace_id":"hb-5f0c1e8a9b2d-42","producer_service":"heartbeat-service","#,
            r#""produced_at":"2026-03-12T00:05:05.000Z","process_ms":3,"site":"site-1","#,
            r#""node":"gw-a","log_id":"5f0c1e8a9b2d","seq":42,"prev_seq":41},"#,
            r#""context":{"device_id":"meter-7"},"data":{"previous_status":"online","#,
            r#""current_status":"offline","missed_count":3,"last_seen":null},"error":null}"#
        )
    );
}

#[test]
fn failed_event_of_the_gateway_names_its_site_and_has_no_data() {
    let failure = Failure {
        stage: Stage::Store,
        code: FailureCode::RawLost,
        message: "disk \"full\"\n".into(),
        retryable: true,
        failed_at: at(0),
    };
    let first = Place {
        seq: 1,
        prev_seq: None,
        ..place()
    };
    assert_eq!(
        envelope(&event(None, News::Failed(failure)), &first),
        concat!(
            r#"{"event":"heartbeat.failed.v1","meta":{"schema_version":1,"#,
            r#""trace_id":"hb-5f0c1e8a9b2d-1","producer_service":"heartbeat-service","#,
            r#""produced_at":"2026-03-12T00:05:05.000Z","process_ms":3,"site":"site-1","#,
            r#""node":"gw-a","log_id":"5f0c1e8a9b2d","seq":1,"prev_seq":null},"#,
            r#""context":{"site":"site-1"},"data":null,"error":{"failed_stage":"store","#,
            r#""error_code":"RAW_LOST","error_message":"disk \"full\"\n","retryable":true,"#,
            r#""failed_at":"2026-03-12T00:05:00.000Z"}}"#
        )
    );
}

#[test]
fn a_gap_names_its_first_and_last_number_after_all_other_fields() {
    let failure = Failure {
        stage: Stage::Uplink,
        code: FailureCode::OutboxGap { from: 3, to: 9 },
        message: "7 events".into(),
        retryable: false,
        failed_at: at(0),
    };
    let json = envelope(&event(None, News::Failed(failure)), &place());
    let end = concat!(
        r#""error":{"failed_stage":"uplink","error_code":"OUTBOX_GAP","#,
        r#""error_message":"7 events","retryable":false,"#,
        r#""failed_at":"2026-03-12T00:05:00.000Z","from":3,"to":9}}"#
    );
    assert!(json.ends_with(end), "{json}");
}

#[test]
fn removed_event_tells_its_reason() {
    let news = News::DeviceRemoved { reason: "disabled" };
    let text = envelope(&event(Some("m"), news), &place());
    assert!(text.starts_with(r#"{"event":"heartbeat.device.removed.v1","meta":"#));
    assert!(
        text.ends_with(r#""context":{"device_id":"m"},"data":{"reason":"disabled"},"error":null}"#)
    );
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let failure = Failure {
        stage: Stage::Heartbeat,
        code: FailureCode::PingTimeout,
        message: "\u{1}".repeat(100_000),
        retryable: true,
        failed_at: at(0),
    };
    let text = envelope(&event(None, News::Failed(failure)), &place());
    assert!(text.len() < 3_500, "{} bytes", text.len());
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
}

proptest! {
    #[test]
    fn rtt_is_a_number_that_prints_as_people_read_it(rtt_us: u32) {
        let json = serde_json::to_string(&RttJson(rtt_us)).unwrap();
        prop_assert_eq!(json, RttMillis(rtt_us).to_string());
    }

    #[test]
    fn rtt_of_everyday_size_prints_as_people_read_it(rtt_us in 0..10_000_000_u32) {
        let json = serde_json::to_string(&RttJson(rtt_us)).unwrap();
        prop_assert_eq!(json, RttMillis(rtt_us).to_string());
    }
}
