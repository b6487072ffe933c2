//! The way up may ask for central's word, and what comes down may be anything.

use serde_json::Value;

use super::*;

/// The same with central's word asked for, made the long way.
fn asked_the_long_way(json: &str) -> Value {
    let mut whole: Value = serde_json::from_str(json).unwrap();
    whole["meta"]["ack"] = "central".into();
    whole
}

fn failed(site: &str, node: &str, message: &str) -> String {
    let failure = Failure {
        stage: Stage::Store,
        code: FailureCode::RawLost,
        message: message.into(),
        retryable: true,
        failed_at: at(0),
    };
    let place = Place {
        site,
        node,
        ..place()
    };
    envelope(&event(None, News::Failed(failure)), &place)
}

#[test]
fn central_is_asked_at_the_end_of_meta() {
    let news = News::DeviceRemoved { reason: "removed" };
    let plain = envelope(&event(Some("meter-7"), news), &place());
    assert_eq!(
        with_central_ack(&plain),
        concat!(
            r#"{"event":"heartbeat.device.removed.v1","meta":{"schema_version":1,"#,
            r#""trace_id":"hb-5f0c1e8a9b2d-42","producer_service":"heartbeat-service","#,
            r#""produced_at":"2026-03-12T00:05:05.000Z","process_ms":3,"site":"site-1","#,
            r#""node":"gw-a","log_id":"5f0c1e8a9b2d","seq":42,"prev_seq":41,"ack":"central"},"#,
            r#""context":{"device_id":"meter-7"},"data":{"reason":"removed"},"error":null}"#
        )
    );
}

#[test]
fn hostile_names_and_messages_move_nothing() {
    let hostile = [
        r#"},"context":{"#,
        r#""},"context":{"device_id":"x"},"#,
        r#"\"},\"context\":{"#,
        r#"\\"},"context":"#,
        "},",
        "\u{0}\u{1f}\n\"\\",
        r#"","ack":"central"#,
    ];
    for name in hostile {
        for message in hostile {
            let plain = failed(name, name, message);
            let asked = with_central_ack(&plain);
            let read: Value = serde_json::from_str(&asked).unwrap();
            assert_eq!(read, asked_the_long_way(&plain), "{asked}");
            assert_eq!(asked.len(), plain.len() + r#","ack":"central""#.len());
        }
    }
}

#[test]
fn what_is_no_envelope_stays_as_it_is() {
    for text in ["", "{}", "nonsense", r#"{"meta":{}}"#] {
        assert_eq!(with_central_ack(text), text);
    }
}

#[test]
fn the_word_of_central_is_read_whatever_else_it_says() {
    let word = |text: &str| applied(text.as_bytes());
    let expected = Applied {
        log_id: "5f0c1e8a9b2d".into(),
        applied_seq: 42,
    };
    for text in [
        r#"{"log_id":"5f0c1e8a9b2d","applied_seq":42}"#,
        r#" {"applied_seq":42,"more":[1,{"a":null}],"log_id":"5f0c1e8a9b2d"} "#,
    ] {
        assert_eq!(word(text), Some(expected.clone()), "{text}");
    }
    for text in [
        "",
        "null",
        "{}",
        r#"["5f0c1e8a9b2d",42]"#,
        r#"{"log_id":"5f0c1e8a9b2d"}"#,
        r#"{"applied_seq":42}"#,
        r#"{"log_id":null,"applied_seq":42}"#,
        r#"{"log_id":"a","applied_seq":null}"#,
        r#"{"log_id":"a","applied_seq":-1}"#,
        r#"{"log_id":"a","applied_seq":4.5}"#,
        r#"{"log_id":"a","applied_seq":"42"}"#,
        r#"{"log_id":"a","applied_seq":18446744073709551616}"#,
        r#"{"log_id":"a","applied_seq":42"#,
        r#"{"log_id":"a","applied_seq":42}{}"#,
    ] {
        assert_eq!(word(text), None, "{text}");
    }
    // Deep nesting ends the reading and not the process.
    let deep = format!("{{\"more\":{}", "[".repeat(100_000));
    assert_eq!(word(&deep), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _either = applied(&bytes);
    }

    #[test]
    fn any_word_of_central_is_read_back(log_id in "\\PC{0,20}", applied_seq: u64, more in "\\PC{0,20}") {
        let text = serde_json::json!({"log_id": log_id, "x": more, "applied_seq": applied_seq});
        let read = applied(text.to_string().as_bytes());
        prop_assert_eq!(read, Some(Applied { log_id, applied_seq }));
    }

    #[test]
    fn asking_central_changes_nothing_else(
        names in prop::array::uniform2("\\PC{0,20}"),
        message in "[\"\\\\{},:a-z]{0,60}",
    ) {
        let [site, node] = names;
        let plain = failed(&site, &node, &message);
        let asked = with_central_ack(&plain);
        let read: Value = serde_json::from_str(&asked).unwrap();
        prop_assert_eq!(read, asked_the_long_way(&plain));
    }
}
