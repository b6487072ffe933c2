//! Every event of the contract and the node's own words, byte for byte.

use super::*;
use crate::domain::daily::{CALC_VERSION, Figures, SiteSummary, Summary};
use crate::domain::day::Day;

/// One line per event: the topic says where it goes, these what it says.
fn lines(events: impl IntoIterator<Item = String>) -> String {
    events.into_iter().collect::<Vec<_>>().join("\n")
}

fn told(device: Option<&str>, news: News) -> String {
    envelope(&event(device, news), &place())
}

pub(super) fn row(device: &str) -> Summary {
    let day: Day = "2026-03-11".parse().unwrap();
    Summary {
        day,
        device: device.parse().unwrap(),
        figures: Figures {
            expected: 1_440,
            replied: 1_400,
            missed: 30,
            late: 2,
            no_data: 10,
            online: 1_390,
            degraded: 10,
            offline: 30,
            avg_rtt_us: Some(312_345),
            p95_rtt_us: Some(820_000),
            max_missed_count: 20,
            longest_offline_ms: 1_200_000,
            ..Figures::default()
        },
        calc_version: CALC_VERSION,
        created_at: at(0),
        updated_at: at(600_000),
    }
}

fn failed(device: Option<&str>, stage: Stage, code: FailureCode, message: &str) -> String {
    let failure = Failure {
        stage,
        code,
        message: message.into(),
        retryable: !matches!(code, FailureCode::MessageRefused),
        failed_at: at(0),
    };
    told(device, News::Failed(failure))
}

#[test]
fn every_event_of_the_log_reads_as_documented() {
    let (from, to) = (at(0), at(-3_600_000));
    let turn = News::StatusChanged {
        previous: Status::Unknown,
        current: Status::Degraded,
        missed_count: 0,
        last_seen: Some(at(4_820)),
    };
    let text = lines([
        told(Some("meter-7"), turn),
        told(Some("meter-7"), News::DeviceRemoved { reason: "removed" }),
        told(
            Some("meter-7"),
            News::DaySummarised(Box::new(row("meter-7"))),
        ),
        told(
            None,
            News::SiteSummarised(Box::new(SiteSummary::of(
                row("meter-7").day,
                &[row("meter-7"), row("pump-2")],
            ))),
        ),
        told(
            None,
            News::ClockStepped {
                from,
                to,
                source: "step",
            },
        ),
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn a_day_without_anything_observed_is_told_with_nulls() {
    let mut empty = row("meter-7");
    empty.figures = Figures {
        expected: 1_440,
        ..Figures::default()
    };
    let site = SiteSummary::of(empty.day, &[empty]);
    let text = lines([
        told(Some("meter-7"), News::DaySummarised(Box::new(empty))),
        told(None, News::SiteSummarised(Box::new(site))),
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn every_failure_reads_as_documented() {
    use FailureCode as Code;
    use Stage::{Heartbeat, Rollup, Store, Uplink};
    let device = Some("meter-7");
    let text = lines([
        failed(
            device,
            Heartbeat,
            Code::PingTimeout,
            "no reply within 5000 ms",
        ),
        failed(device, Heartbeat, Code::Unreachable, "host unreachable"),
        failed(device, Heartbeat, Code::SendFailed, "no route to host"),
        failed(None, Store, Code::RawLost, "disk \"full\""),
        failed(None, Store, Code::StoreDamaged, "state was moved aside"),
        failed(None, Rollup, Code::RollupFailed, "2026-03-11: no space"),
        failed(None, Uplink, Code::MessageRefused, "70000 bytes"),
        failed(None, Uplink, Code::ClientIdConflict, "sitebeat-site-1-gw-a"),
        failed(None, Uplink, Code::Certificate, "client.pem ends in 3 days"),
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn heartbeats_that_travel_read_as_documented() {
    let live = Metrics {
        device: "meter-7".parse().unwrap(),
        at: at(0),
        status: Status::Online,
        rtt_us: Some(43_219),
        missed_count: 0,
        last_seen: Some(at(43)),
        is_replayed: false,
    };
    let replayed = Metrics {
        status: Status::Offline,
        rtt_us: None,
        missed_count: 4,
        is_replayed: true,
        ..live
    };
    let never_seen = Metrics {
        status: Status::Unknown,
        last_seen: None,
        rtt_us: None,
        missed_count: 1,
        ..live
    };
    let told = |one| metrics(&one, "site-1", "gw-a", "5f0c1e8a9b2d");
    let text = lines([live, replayed, never_seen].map(told));
    insta::assert_snapshot!(text);
    let (first, again) = (
        told(live),
        told(Metrics {
            is_replayed: true,
            ..live
        }),
    );
    let trace = |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        json["meta"]["trace_id"].clone()
    };
    assert_eq!(trace(&first), trace(&again), "one heartbeat, one name");
}

#[test]
fn the_node_speaks_as_documented() {
    let heartbeat = NodeHeartbeat {
        node_name: "gw-a".into(),
        region: "north".into(),
        last_heartbeat: Some(at(0)),
        ip: Some([10, 64, 0, 2].into()),
        mem_alloc_mb: 21.26,
        num_goroutine: 9,
        site: "site-1".into(),
        boot_id: "7-0badcafe".into(),
        ttl_ms: 15_000,
        uptime_s: 90_061,
        devices: [2, 1, 1, 0],
        path: "unknown",
        outbox_events: 12,
        outbox_bytes: 6_345,
        outbox_oldest_at: Some(at(-60_000)),
        store_bytes: 12_345_678,
    };
    let new = NodeHeartbeat {
        last_heartbeat: None,
        ip: None,
        outbox_oldest_at: None,
        mem_alloc_mb: 20.0,
        ..heartbeat.clone()
    };
    let version = concat!("\"version\":\"", env!("CARGO_PKG_VERSION"), "\"");
    let told = [node_heartbeat(&heartbeat), node_heartbeat(&new)];
    let told = told.map(|text| text.replace(version, "\"version\":\"VERSION\""));
    let gone = node_gone("gw-a", "7-0badcafe", "connection lost");
    let text = lines(told.into_iter().chain([gone]));
    insta::assert_snapshot!(text);
}
