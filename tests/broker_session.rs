//! Sessions with a real mosquitto on loopback.

#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets anything else has failed"
)]

#[path = "support/mosquitto.rs"]
mod mosquitto;

use std::time::{Duration, Instant};

use mosquitto::{
    Mosquitto, access, lost, message, next, next_within, open, refused, settle, until, with_user,
};
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Broker as _, Happening, IN_FLIGHT_MAX, LossKind, Message, packet_bytes};

/// The tokens that come back, all of them within a limit.
async fn taken(mqtt: &mut Mqtt, count: usize) -> Vec<u64> {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        match next(mqtt).await {
            Happening::Taken { token } => tokens.push(token),
            Happening::Came(_) => {}
            other => panic!("{other:?} after {tokens:?}"),
        }
    }
    tokens
}

#[tokio::test]
async fn each_token_comes_back_once_and_in_order_with_two_hundred_in_flight() {
    let broker = Mosquitto::start();
    let listener = broker.listen();
    let mut mqtt = Mqtt::new();
    assert!(!open(&mut mqtt, &access(&broker.url())).await);
    let all: Vec<u64> = (0..3_000).collect();
    let mut tokens = Vec::new();
    let mut given = all.iter();
    for &token in given.by_ref().take(IN_FLIGHT_MAX) {
        mqtt.publish(token, message("t", &token.to_string()));
    }
    while tokens.len() < all.len() {
        tokens.extend(taken(&mut mqtt, 1).await);
        for &token in given.by_ref().take(1) {
            mqtt.publish(token, message("t", &token.to_string()));
        }
    }
    assert_eq!(tokens, all);
    until("all have come", || {
        listener.payloads("t").len() >= all.len()
    })
    .await;
    let texts: Vec<String> = all.iter().map(u64::to_string).collect();
    assert_eq!(listener.payloads("t"), texts, "each once, in order");
}

#[tokio::test]
async fn what_is_too_much_or_too_long_or_too_early_is_dropped() {
    let broker = Mosquitto::start();
    let listener = broker.listen();
    let mut access = access(&broker.url());
    access.uplink.max_packet_bytes = 1_000;
    let mut mqtt = Mqtt::new();
    mqtt.publish(1, message("t", "before anything"));
    mqtt.open(&access);
    mqtt.publish(2, message("t", "before the broker accepts"));
    assert!(matches!(next(&mut mqtt).await, Happening::Open { .. }));
    let long = message("t", &"x".repeat(1_000));
    assert!(packet_bytes(&long) > 1_000);
    mqtt.publish(3, long);
    for token in 0..IN_FLIGHT_MAX as u64 + 10 {
        mqtt.publish(100 + token, message("t", "x"));
    }
    let tokens = taken(&mut mqtt, IN_FLIGHT_MAX).await;
    let expected: Vec<u64> = (100..100 + IN_FLIGHT_MAX as u64).collect();
    assert_eq!(tokens, expected);
    mqtt.publish(999, message("t", "last"));
    assert_eq!(taken(&mut mqtt, 1).await, [999]);
    until("the last has come", || {
        listener
            .payloads("t")
            .last()
            .is_some_and(|last| last == "last")
    })
    .await;
    assert_eq!(listener.payloads("t").len(), IN_FLIGHT_MAX + 1);
}

#[tokio::test]
async fn a_cut_is_followed_by_the_will_and_a_clean_end_is_not() {
    let broker = Mosquitto::start();
    let listener = broker.listen();
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access).await;
    let farewell = Message {
        retain: true,
        ..message("node/gw", "offline")
    };
    mqtt.publish(1, farewell);
    mqtt.close().await;
    open(&mut mqtt, &access).await;
    drop(mqtt);
    until("the Will has come", || {
        listener.payloads("node/gw").iter().any(|p| p == "gone")
    })
    .await;
    assert_eq!(listener.payloads("node/gw"), ["offline", "gone"]);
    // Retained: who comes later sees it too.
    let late = broker.listen();
    until("it is retained", || late.payloads("node/gw") == ["gone"]).await;
}

#[tokio::test]
async fn taking_leave_sends_everything_that_was_handed_over() {
    let broker = Mosquitto::start();
    let listener = broker.listen();
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access(&broker.url())).await;
    for token in 0..IN_FLIGHT_MAX as u64 {
        mqtt.publish(token, message("t", &"x".repeat(1_000)));
    }
    tokio::time::timeout(Duration::from_secs(5), mqtt.close())
        .await
        .unwrap();
    until("all have come", || {
        listener.payloads("t").len() == IN_FLIGHT_MAX
    })
    .await;
    let nothing = tokio::time::timeout(Duration::from_millis(100), mqtt.next()).await;
    assert!(
        nothing.is_err(),
        "nothing happens after leaving: {nothing:?}"
    );
    mqtt.close().await;
}

#[tokio::test]
async fn what_is_subscribed_to_comes_retained_live_and_after_an_absence() {
    let broker = Mosquitto::start();
    broker.publish("ack/gw", "kept", true);
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    assert!(!open(&mut mqtt, &access).await);
    let came = |payload: &str, retain| {
        Happening::Came(Message {
            retain,
            ..message("ack/gw", payload)
        })
    };
    assert_eq!(next(&mut mqtt).await, came("kept", true));
    broker.publish("ack/gw", "live", false);
    assert_eq!(next(&mut mqtt).await, came("live", false));
    mqtt.close().await;
    broker.publish("ack/gw", "missed", false);
    assert!(open(&mut mqtt, &access).await, "the session lived on");
    let both = [next(&mut mqtt).await, next(&mut mqtt).await];
    assert!(both.contains(&came("missed", false)), "{both:?}");
    assert!(both.contains(&came("kept", true)), "{both:?}");
}

#[tokio::test]
async fn a_broker_that_lost_its_memory_says_so() {
    let mut broker = Mosquitto::start();
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    assert!(!open(&mut mqtt, &access).await);
    broker.kill();
    assert_eq!(lost(&mut mqtt).await.kind, LossKind::Closed);
    let loss = refused(&mut mqtt, &access).await;
    assert_eq!(loss.kind, LossKind::Unreachable);
    assert!(
        loss.reason
            .contains("nothing takes connections at 127.0.0.1:"),
        "{loss:?}"
    );
    broker.restart();
    assert!(!open(&mut mqtt, &access).await);
    mqtt.publish(1, message("t", "again"));
    assert_eq!(taken(&mut mqtt, 1).await, [1]);
}

#[tokio::test]
async fn a_broker_that_remembers_resumes_the_session_after_its_restart() {
    let mut broker =
        Mosquitto::with("allow_anonymous true\npersistence true\npersistence_location FOLDER/\n");
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &access).await;
    broker.stop();
    assert_eq!(lost(&mut mqtt).await.kind, LossKind::Closed);
    broker.restart();
    assert!(open(&mut mqtt, &access).await);
}

#[tokio::test]
async fn a_wrong_password_is_told_without_the_password() {
    let passwords = |path: &std::path::Path| {
        let made = std::process::Command::new("mosquitto_passwd")
            .args(["-b", "-c", path.to_str().unwrap(), "gw", "correct-horse"])
            .status();
        assert!(made.unwrap().success());
    };
    let settings = "allow_anonymous false\npassword_file FOLDER/passwords\n";
    let broker = Mosquitto::with_file(settings, "passwords", passwords);
    let plain = access(&broker.url());
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &with_user(plain.clone(), "gw", "correct-horse")).await;
    let loss = refused(&mut mqtt, &with_user(plain.clone(), "gw", "battery-staple")).await;
    assert_eq!(loss.kind, LossKind::Refused);
    assert!(loss.reason.contains("refuses user \"gw\""), "{loss:?}");
    assert!(!format!("{loss:?}").contains("battery"), "{loss:?}");
    let loss = refused(&mut mqtt, &plain).await;
    assert_eq!(loss.kind, LossKind::Refused);
    assert!(loss.reason.contains("set uplink.username"), "{loss:?}");
}

#[tokio::test]
async fn a_second_client_of_the_same_id_is_named_as_the_cause() {
    let broker = Mosquitto::start();
    let access = access(&broker.url());
    let (mut first, mut second) = (Mqtt::new(), Mqtt::new());
    open(&mut first, &access).await;
    assert!(open(&mut second, &access).await, "the same session");
    let loss = lost(&mut first).await;
    assert_eq!(loss.kind, LossKind::Closed);
    assert!(
        loss.reason.contains("same client id \"sitebeat-depot-gw\""),
        "{loss:?}"
    );
    second.publish(1, message("t", "x"));
    assert_eq!(taken(&mut second, 1).await, [1]);
}

#[tokio::test]
async fn a_message_the_broker_finds_too_long_closes_and_the_next_session_works() {
    let broker = Mosquitto::with("allow_anonymous true\nmax_packet_size 2000\n");
    let access = access(&broker.url());
    let mut mqtt = Mqtt::new();
    open(&mut mqtt, &access).await;
    mqtt.publish(1, message("t", "short"));
    assert_eq!(next(&mut mqtt).await, Happening::Taken { token: 1 });
    // By itself: a broker that closes on it may take acknowledgements with it that
    // were on their way.
    mqtt.publish(2, message("t", &"x".repeat(3_000)));
    let loss = lost(&mut mqtt).await;
    assert_eq!(loss.kind, LossKind::Closed);
    assert!(loss.reason.contains("does not take a message"), "{loss:?}");
    open(&mut mqtt, &access).await;
    mqtt.publish(3, message("t", "short"));
    assert_eq!(taken(&mut mqtt, 1).await, [3]);
}

#[tokio::test]
async fn long_messages_pass_in_both_directions() {
    let broker = Mosquitto::start();
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &access(&broker.url())).await;
    // Published to the topic that we listen to ourselves.
    let long = message("ack/gw", &"x".repeat(250_000));
    mqtt.publish(1, long.clone());
    let both = [next(&mut mqtt).await, next(&mut mqtt).await];
    assert!(both.contains(&Happening::Taken { token: 1 }));
    assert!(both.contains(&Happening::Came(long)));
}

#[tokio::test]
async fn a_packet_over_our_own_limit_ends_the_session_and_names_the_setting() {
    let broker = Mosquitto::start();
    let mut access = access(&broker.url());
    access.uplink.max_packet_bytes = 1_000;
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &access).await;
    broker.publish("ack/gw", &"x".repeat(2_000), false);
    let loss = lost(&mut mqtt).await;
    assert_eq!(loss.kind, LossKind::Broken);
    assert!(loss.reason.contains("uplink.max_packet_bytes"), "{loss:?}");
}

#[tokio::test]
async fn too_many_clients_are_told() {
    let broker = Mosquitto::with("allow_anonymous true\nmax_connections 1\n");
    let (mut first, mut second) = (Mqtt::new(), Mqtt::new());
    open(&mut first, &access(&broker.url())).await;
    let mut other = access(&broker.url());
    other.client_id = "sitebeat-depot-gw2".into();
    let loss = refused(&mut second, &other).await;
    assert_eq!(loss.kind, LossKind::Refused);
    assert!(loss.reason.contains("too many clients"), "{loss:?}");
}

#[tokio::test]
async fn a_thousand_messages_a_second_come_while_we_publish_and_nothing_freezes() {
    // Without the last line mosquitto holds back its acknowledgements for 40 ms.
    let broker = Mosquitto::with(
        "allow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n\
         set_tcp_nodelay true\n",
    );
    let mut feeder_access = access(&broker.url());
    feeder_access.client_id = "feeder".into();
    feeder_access.subscription = None;
    let (mut mqtt, mut feeder) = (Mqtt::new(), Mqtt::new());
    settle(&mut mqtt, &access(&broker.url())).await;
    open(&mut feeder, &feeder_access).await;
    let count = 5_000;
    let feeder_began = now();
    let feeding = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for turn in 0..count / 10 {
            ticks.tick().await;
            for number in 0..10 {
                let number = turn * 10 + number;
                feeder.publish(number, message("ack/gw", &number.to_string()));
            }
            for _ in 0..10 {
                assert!(matches!(next(&mut feeder).await, Happening::Taken { .. }));
            }
        }
    });
    let (mut came, mut tokens, mut in_flight) = (Vec::new(), 0_u64, 0);
    let mut given = 0;
    while came.len() < usize::try_from(count).unwrap() || in_flight > 0 {
        while in_flight < IN_FLIGHT_MAX && given < 20_000 {
            mqtt.publish(given, message("t", "x"));
            (given, in_flight) = (given + 1, in_flight + 1);
        }
        // Never a second in which nothing happens.
        match next_within(&mut mqtt, Duration::from_secs(1)).await {
            Happening::Taken { token } => {
                assert_eq!(token, tokens);
                (tokens, in_flight) = (tokens + 1, in_flight - 1);
            }
            Happening::Came(message) => came.push(String::from_utf8(message.payload).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    feeding.await.unwrap();
    let took = feeder_began.elapsed();
    assert!(
        took < Duration::from_secs(10),
        "less than 500 a second: {took:?}"
    );
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(came, numbers);
    assert_eq!(tokens, 20_000);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that measures how long something takes"
)]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_wait_that_is_given_up_loses_nothing() {
    let broker = Mosquitto::start();
    let mut mqtt = Mqtt::new();
    mqtt.open(&access(&broker.url()));
    let mut happened = Vec::new();
    let mut given = 0;
    while happened.len() < 1_001 {
        // Given up after a time that differs from turn to turn.
        let patience = Duration::from_micros(given * 37 % 500);
        if let Ok(happening) = tokio::time::timeout(patience, mqtt.next()).await {
            happened.push(happening);
        }
        let is_open = !happened.is_empty();
        if is_open && given < 1_000 && given < happened.len() as u64 + 100 {
            mqtt.publish(given, message("t", "x"));
            given += 1;
        }
    }
    assert_eq!(happened[0], Happening::Open { is_resumed: false });
    let tokens: Vec<Happening> = (0..1_000).map(|token| Happening::Taken { token }).collect();
    assert_eq!(happened[1..], tokens);
}

#[tokio::test]
async fn a_caller_that_does_not_listen_holds_up_neither_broker_nor_keep_alive() {
    let broker = Mosquitto::start();
    let mut access = access(&broker.url());
    access.uplink.keep_alive = Duration::from_secs(1);
    let mut mqtt = Mqtt::new();
    settle(&mut mqtt, &access).await;
    for number in 0..50 {
        broker.publish("ack/gw", &number.to_string(), false);
    }
    // The broker gives up after 1.5 keep-alives without a word from us.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for number in 0..50 {
        assert_eq!(
            next(&mut mqtt).await,
            Happening::Came(message("ack/gw", &number.to_string()))
        );
    }
    mqtt.publish(1, message("t", "x"));
    assert_eq!(taken(&mut mqtt, 1).await, [1]);
}
