//! What goes over a metered link stays small: whole MQTT packets, with names of
//! usual length and the largest numbers that can be.

use super::golden::row;
use super::*;
use crate::wire::topic::{TopicKind, Topics};

const SITE: &str = "harbour-depot-07";
const NODE: &str = "gateway-north-01";
const DEVICE: &str = "water-meter-north-042";
const LOG_ID: &str = "5f0c1e8a9b2d";

fn topics() -> Topics {
    Topics::new("cinga/heartbeat", 64, SITE, NODE)
}

fn device() -> DeviceId {
    DEVICE.parse().unwrap()
}

/// Bytes of an acknowledged PUBLISH: type and remaining length, topic with its length,
/// packet id, payload.
fn packet(topic: &str, payload: &str) -> usize {
    let rest = 2 + topic.len() + 2 + payload.len();
    let length_bytes = match rest {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    };
    1 + length_bytes + rest
}

fn largest(news: News) -> String {
    let place = Place {
        site: SITE,
        node: NODE,
        log_id: LOG_ID,
        seq: 9_999_999_999,
        prev_seq: Some(9_999_999_998),
    };
    let event = Event {
        device: Some(device()),
        produced_at: at(0),
        process_ms: 99_999,
        news,
    };
    with_central_ack(&envelope(&event, &place))
}

#[test]
fn names_are_as_long_as_the_promise_has_them() {
    assert_eq!([SITE.len(), NODE.len(), DEVICE.len()], [16, 16, 21]);
}

/// The larger of two changes of status that can be.
fn status_packet() -> usize {
    let packets = [
        (Status::Degraded, Status::Offline),
        (Status::Unknown, Status::Degraded),
    ]
    .map(|(previous, current)| {
        let text = largest(News::StatusChanged {
            previous,
            current,
            missed_count: u32::MAX,
            last_seen: Some(at(0)),
        });
        packet(&topics().of_device(TopicKind::Status, device()), &text)
    });
    packets.into_iter().max().unwrap()
}

fn node_packet() -> usize {
    let heartbeat = NodeHeartbeat {
        node_name: NODE.into(),
        region: "north-west-coast".into(),
        last_heartbeat: Some(at(0)),
        ip: Some([255, 255, 255, 255].into()),
        mem_alloc_mb: 12_345.678,
        num_goroutine: 99_999,
        site: SITE.into(),
        boot_id: format!("{}-0badcafe", u32::MAX),
        ttl_ms: 604_800_000,
        // Ten years.
        uptime_s: 315_360_000,
        devices: [10_000; 4],
        path: "unknown",
        outbox_events: 99_999_999,
        outbox_bytes: 9_999_999_999,
        outbox_oldest_at: Some(at(0)),
        store_bytes: 9_999_999_999,
    };
    packet(&topics().heartbeat(), &node_heartbeat(&heartbeat))
}

fn metrics_packet() -> usize {
    let one = Metrics {
        device: device(),
        at: at(0),
        status: Status::Degraded,
        rtt_us: Some(4_999_999),
        missed_count: 0,
        last_seen: Some(at(0)),
        is_replayed: true,
    };
    let topic = topics().of_device(TopicKind::Metrics, device());
    packet(&topic, &metrics(&one, SITE, NODE, LOG_ID))
}

fn liveness_packet() -> usize {
    let track = Track {
        status: Status::Degraded,
        since: Some(at(0)),
        last_ping_at: Some(at(0)),
        last_seen: Some(at(0)),
        rtt_us: Some(4_999_999),
        missed_count: 999,
        recovering: 0,
        updated_at: Some(at(0)),
    };
    let device = device();
    let topic = topics().of_device(TopicKind::Liveness, device);
    packet(&topic, &liveness(&Liveness { device, track }))
}

fn daily_packet() -> usize {
    let topic = topics().of_device(TopicKind::Daily, device());
    packet(&topic, &largest(News::DaySummarised(Box::new(row(DEVICE)))))
}

#[test]
fn a_status_event_fits_600_bytes_of_mqtt_packet() {
    let packet = status_packet();
    assert!(packet <= 600, "{packet} bytes");
}

#[test]
fn a_node_heartbeat_fits_560_bytes_of_mqtt_packet() {
    let packet = node_packet();
    assert!(packet <= 560, "{packet} bytes");
}

#[test]
fn what_the_readme_says_of_sizes_is_so() {
    let readme = include_str!("../../../../README.md");
    for (name, packet) in [
        ("change of status", status_packet()),
        ("metrics", metrics_packet()),
        ("liveness", liveness_packet()),
        ("summary of a device's day", daily_packet()),
        ("node heartbeat", node_packet()),
    ] {
        let line = readme
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| {name} | ")))
            .unwrap_or_else(|| panic!("{name} is not in the table"));
        let said: usize = line.split(' ').next().unwrap().parse().unwrap();
        // Versions differ in length.
        assert!(packet.abs_diff(said) <= 4, "{name}: {packet} bytes");
    }
}
