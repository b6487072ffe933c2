//! Sessions over a line that is slow, hangs or breaks, with a real mosquitto behind it.

#[path = "support/line.rs"]
mod line;
#[path = "support/mosquitto.rs"]
mod mosquitto;

use std::time::{Duration, Instant};

use line::{Line, Nature};
use mosquitto::{
    Mosquitto, access, lost, message, next, next_within, open, refused, settle, until,
};
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Access, Broker as _, Happening, LossKind, packet_bytes};

/// A keep-alive short enough for a test.
fn hasty(line: &Line) -> Access {
    let mut access = access(&line.url());
    access.uplink.keep_alive = Duration::from_secs(2);
    access
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that measures how long something takes"
)]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_line_that_falls_silent_breaks_after_one_and_a_half_keep_alives() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &hasty(&line)).await;
    line.hang(true);
    let silent = now();
    let loss = lost(&mut mqtt).await;
    // A ping after 2 s, no answer for 3 s.
    let after = silent.elapsed().as_secs_f64();
    assert!((4.0..6.5).contains(&after), "{after}");
    assert_eq!(loss.kind, LossKind::Broken);
    assert!(loss.reason.contains("the line is dead"), "{loss:?}");
}

#[tokio::test]
async fn a_silent_line_breaks_also_while_we_publish_without_end() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &hasty(&line)).await;
    line.hang(true);
    let silent = now();
    let long = "x".repeat(10_000);
    for token in 0..100 {
        mqtt.publish(token, message("t", &long));
    }
    let loss = lost(&mut mqtt).await;
    let after = silent.elapsed().as_secs_f64();
    assert!((2.5..5.0).contains(&after), "{after}");
    assert_eq!(loss.kind, LossKind::Broken);
}

#[tokio::test]
async fn an_idle_session_lives_by_its_pings_and_a_busy_one_needs_none() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &hasty(&line)).await;
    let before = (line.up_bytes(), line.down_bytes());
    let quiet = tokio::time::timeout(Duration::from_secs(7), mqtt.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    // Three pings of two bytes, at 2, 4 and 6 s.
    assert_eq!(
        (line.up_bytes() - before.0, line.down_bytes() - before.1),
        (6, 6)
    );
    let before = line.up_bytes();
    let short = message("t", "x");
    for token in 0..14 {
        mqtt.publish(token, short.clone());
        assert_eq!(next(&mut mqtt).await, Happening::Taken { token });
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(line.up_bytes() - before, 14 * packet_bytes(&short));
}

#[tokio::test]
async fn traffic_is_what_passes_on_the_line() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &access(&line.url())).await;
    broker.publish("ack/gw", "here", false);
    for token in 0..100 {
        mqtt.publish(token, message("t", &"x".repeat(1_000)));
    }
    let mut left = 101;
    while left > 0 {
        assert!(!matches!(next(&mut mqtt).await, Happening::Lost(_)));
        left -= 1;
    }
    mqtt.close().await;
    let traffic = mqtt.traffic();
    until("the line has passed everything on", || {
        (line.up_bytes(), line.down_bytes()) == (traffic.up_bytes, traffic.down_bytes)
    })
    .await;
    assert!(traffic.up_bytes > 100_000, "{traffic:?}");
}

#[tokio::test]
async fn a_thin_line_with_a_long_way_carries_two_hundred_without_a_break() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    let mut patient = access(&line.url());
    patient.uplink.keep_alive = Duration::from_secs(5);
    open(&mut mqtt, &patient).await;
    line.set(Nature {
        latency: Duration::from_millis(800),
        bytes_per_second: Some(2_000),
        is_hanging: false,
    });
    // 40 KB: 20 s, four keep-alives in which no ping could be answered in time.
    let began = now();
    for token in 0..200 {
        mqtt.publish(token, message("t", &"x".repeat(195)));
    }
    for token in 0..200 {
        let happening = next_within(&mut mqtt, Duration::from_secs(10)).await;
        assert_eq!(happening, Happening::Taken { token });
    }
    let took = began.elapsed();
    assert!((18..60).contains(&took.as_secs()), "{took:?}");
    assert_eq!(line.connections(), 1);
}

#[tokio::test]
async fn one_long_message_on_a_thin_line_is_no_silence() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let mut mqtt = Mqtt::new();
    let mut patient = access(&line.url());
    patient.uplink.keep_alive = Duration::from_secs(10);
    open(&mut mqtt, &patient).await;
    line.set(Nature {
        bytes_per_second: Some(8_000),
        ..Nature::default()
    });
    // 13 s, more than a keep-alive; mosquitto waits one and a half.
    mqtt.publish(1, message("t", &"x".repeat(105_000)));
    let happening = next_within(&mut mqtt, Duration::from_secs(40)).await;
    assert_eq!(happening, Happening::Taken { token: 1 });
}

#[tokio::test]
async fn a_cut_while_publishing_is_told_at_once_and_nothing_old_comes_through() {
    let broker = Mosquitto::start();
    let line = Line::to(broker.port);
    let access = access(&line.url());
    let mut mqtt = Mqtt::new();
    for round in 0..20 {
        open(&mut mqtt, &access).await;
        let first = round * 1_000;
        for token in first..first + 150 {
            mqtt.publish(token, message("t", &"x".repeat(500)));
        }
        let mut expected = first;
        // Cut after a different number of acknowledgements each time.
        for _ in 0..round * 7 {
            assert_eq!(next(&mut mqtt).await, Happening::Taken { token: expected });
            expected += 1;
        }
        line.cut();
        loop {
            match next(&mut mqtt).await {
                Happening::Taken { token } => {
                    assert_eq!(token, expected, "in order, each once, of this session");
                    expected += 1;
                }
                Happening::Lost(loss) => {
                    assert!(matches!(loss.kind, LossKind::Closed | LossKind::Broken));
                    break;
                }
                Happening::Open { .. } | Happening::Came(_) => panic!("nobody asked for that"),
            }
        }
    }
}

#[tokio::test]
async fn opening_again_ends_the_session_before_and_its_tokens() {
    let broker = Mosquitto::start();
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access).await;
    for token in 0..100 {
        mqtt.publish(token, message("t", "old"));
    }
    open(&mut mqtt, &access).await;
    mqtt.publish(1_000, message("t", "new"));
    assert_eq!(next(&mut mqtt).await, Happening::Taken { token: 1_000 });
}

#[tokio::test]
async fn a_port_that_refuses_is_told_at_once_and_its_return_is_taken() {
    let broker = Mosquitto::start();
    let mut line = Line::to(broker.port);
    let access = access(&line.url());
    line.refuse();
    tokio::task::yield_now().await;
    let mut mqtt = Mqtt::new();
    let began = now();
    let loss = refused(&mut mqtt, &access).await;
    assert_eq!(loss.kind, LossKind::Unreachable);
    assert!(began.elapsed() < Duration::from_secs(2));
    // Nothing more happens by itself: the caller decides when to try again.
    let nothing = tokio::time::timeout(Duration::from_millis(300), mqtt.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    line.listen();
    open(&mut mqtt, &access).await;
}

#[tokio::test]
async fn a_broker_that_hangs_is_given_up_after_twenty_seconds() {
    let broker = Mosquitto::start();
    broker.hang();
    let mut mqtt = Mqtt::new();
    let began = now();
    mqtt.open(&access(&broker.url()));
    let happening = next_within(&mut mqtt, Duration::from_secs(25)).await;
    let Happening::Lost(loss) = happening else {
        panic!("{happening:?}");
    };
    assert_eq!(loss.kind, LossKind::Unreachable);
    assert!(
        loss.reason.contains("did not answer within 20 s"),
        "{loss:?}"
    );
    assert!((19..23).contains(&began.elapsed().as_secs()));
    broker.go_on();
    open(&mut mqtt, &access(&broker.url())).await;
}

#[tokio::test]
async fn what_is_no_broker_is_told_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut client, _) = listener.accept().await.unwrap();
        let mut greeting = [0; 1_024];
        assert!(client.read(&mut greeting).await.unwrap() > 0);
        client
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let mut mqtt = Mqtt::new();
    let loss = refused(&mut mqtt, &access(&format!("mqtt://127.0.0.1:{port}"))).await;
    answering.await.unwrap();
    assert_eq!(loss.kind, LossKind::Unreachable);
    assert!(loss.reason.contains("does not speak MQTT"), "{loss:?}");
}

#[tokio::test]
async fn a_name_without_address_is_told_and_localhost_has_one() {
    let broker = Mosquitto::start();
    let mut mqtt = Mqtt::new();
    let loss = refused(&mut mqtt, &access("mqtt://no-such-host.invalid")).await;
    assert_eq!(loss.kind, LossKind::Unreachable);
    assert!(loss.reason.contains("no-such-host.invalid"), "{loss:?}");
    // Where localhost is also ::1, that is refused and 127.0.0.1 is tried.
    let url = format!("mqtt://localhost:{}", broker.port);
    open(&mut mqtt, &access(&url)).await;
}
