//! The simulated broker does what the flows rely on.

use super::*;
use crate::broker::IN_FLIGHT_MAX;
use crate::clock::SimulatedClock;
use crate::config::settings;
use crate::domain::instant::Wall;

fn world() -> World {
    World::new(Arc::new(SimulatedClock::starting_at(Wall::from_millis(
        1_773_273_600_000,
    ))))
}

fn access() -> Access {
    Access {
        uplink: settings::Uplink {
            url: Some("mqtt://broker".into()),
            ..settings::Uplink::default()
        },
        client_id: "sitebeat-s-n".into(),
        will: message("node", b"gone"),
        subscription: Some("ack".into()),
    }
}

fn message(topic: &str, payload: &[u8]) -> Message {
    Message {
        topic: topic.into(),
        payload: payload.into(),
        retain: topic == "node",
    }
}

/// What happens within `limit`.
async fn within(double: &mut Double, limit: Duration) -> Vec<Happening> {
    let mut happened = Vec::new();
    let end = tokio::time::sleep(limit);
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            happening = double.next() => happened.push(happening),
            () = &mut end => return happened,
        }
    }
}

async fn opened(world: &World) -> Double {
    let mut double = world.client();
    double.open(&access());
    let happening = double.next().await;
    assert!(matches!(happening, Happening::Open { .. }), "{happening:?}");
    double
}

fn kind(happening: &Happening) -> Option<LossKind> {
    if let Happening::Lost(loss) = happening {
        Some(loss.kind)
    } else {
        None
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn messages_arrive_in_order_and_each_token_comes_back_once() {
    let world = world();
    world.set_line(Line {
        latency: Duration::from_millis(400),
        up_bytes_per_second: Some(2_000),
        down_bytes_per_second: Some(2_000),
    });
    let mut double = opened(&world).await;
    for token in 0..=IN_FLIGHT_MAX as u64 {
        double.publish(token, message("t", &[0; 91]));
    }
    let happened = within(&mut double, 60 * SECOND).await;
    let tokens: Vec<Happening> = (0..IN_FLIGHT_MAX as u64)
        .map(|token| Happening::Taken { token })
        .collect();
    assert_eq!(happened, tokens);
    assert_eq!(world.take_log().len(), IN_FLIGHT_MAX);
    assert!(world.take_log().is_empty());
    // 200 packets of 98 bytes at 2,000 bytes a second.
    let took = world.log()[IN_FLIGHT_MAX - 1].at.since(world.log()[0].at);
    assert_eq!(took.as_millis(), 199 * 49);
}

#[tokio::test(start_paused = true)]
async fn a_cut_loses_what_is_under_way_and_says_the_will() {
    let world = world();
    world.set_line(Line {
        latency: SECOND,
        ..Line::default()
    });
    let mut double = opened(&world).await;
    world.cut_after(2);
    for token in 0..3 {
        double.publish(token, message("t", b"x"));
    }
    let happened = within(&mut double, 10 * SECOND).await;
    assert_eq!(happened.len(), 1);
    assert_eq!(kind(&happened[0]), Some(LossKind::Broken));
    let log = world.log();
    assert_eq!(log.len(), 3, "two messages and the Will: {log:?}");
    assert_eq!(log[2].from, Sender::Will("sitebeat-s-n".into()));
    assert_eq!(world.retained("node").as_deref(), Some(&b"gone"[..]));
    double.open(&access());
    assert_eq!(kind(&double.next().await), Some(LossKind::Unreachable));
    world.set_way(Way::Clear);
    double.open(&access());
    let happened = within(&mut double, 10 * SECOND).await;
    assert_eq!(happened, [Happening::Open { is_resumed: true }]);
    assert_eq!(world.attempts().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_breaks_by_its_keep_alive() {
    let world = world();
    let mut double = opened(&world).await;
    world.half_open();
    double.publish(7, message("t", b"x"));
    assert!(within(&mut double, 29 * SECOND).await.is_empty());
    let happened = within(&mut double, 40 * SECOND).await;
    assert_eq!(kind(&happened[0]), Some(LossKind::Broken));
    assert!(world.log().iter().all(|a| a.message.topic != "t"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_line_holds_everything_and_lets_it_come_later() {
    let world = world();
    let mut double = opened(&world).await;
    world.set_way(Way::Silent);
    double.publish(7, message("t", b"x"));
    assert!(within(&mut double, 20 * SECOND).await.is_empty());
    world.set_way(Way::Clear);
    let happened = within(&mut double, SECOND).await;
    assert_eq!(happened, [Happening::Taken { token: 7 }]);
    world.set_way(Way::Silent);
    double.open(&access());
    let happened = within(&mut double, 21 * SECOND).await;
    assert_eq!(kind(&happened[0]), Some(LossKind::Unreachable));
}

#[tokio::test(start_paused = true)]
async fn taking_leave_sends_everything_and_no_will() {
    let world = world();
    world.set_line(Line {
        latency: SECOND,
        ..Line::default()
    });
    let mut double = opened(&world).await;
    double.publish(1, message("node", b"offline"));
    double.close().await;
    assert_eq!(world.log().len(), 1);
    assert_eq!(world.connections(), 0);
    drop(double);
    assert_eq!(world.log().len(), 1);
    drop(opened(&world).await);
    assert_eq!(
        world.log().len(),
        2,
        "a process that ends leaves to the Will"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_subscribed_to_comes_retained_live_and_after_an_absence() {
    let world = world();
    let ack = |text: &[u8], retain| Message {
        topic: "ack".into(),
        payload: text.into(),
        retain,
    };
    world.publish(ack(b"1", true));
    let mut double = opened(&world).await;
    world.publish(ack(b"2", false));
    let happened = within(&mut double, SECOND).await;
    assert_eq!(
        happened,
        [
            Happening::Came(ack(b"1", true)),
            Happening::Came(ack(b"2", false))
        ]
    );
    world.kick();
    let happened = within(&mut double, SECOND).await;
    assert_eq!(kind(&happened[0]), Some(LossKind::Closed));
    world.publish(ack(b"3", false));
    double.open(&access());
    let happened = within(&mut double, SECOND).await;
    assert_eq!(happened[0], Happening::Open { is_resumed: true });
    assert_eq!(happened[1], Happening::Came(ack(b"3", false)));
    assert_eq!(happened[2], Happening::Came(ack(b"1", true)));
    world.forget();
    double.open(&access());
    let happened = within(&mut double, SECOND).await;
    assert_eq!(happened, [Happening::Open { is_resumed: false }]);
}

#[tokio::test(start_paused = true)]
async fn two_clients_of_one_id_drive_each_other_out() {
    let world = world();
    let mut first = opened(&world).await;
    let mut second = opened(&world).await;
    assert_eq!(kind(&first.next().await), Some(LossKind::Closed));
    first.open(&access());
    assert_eq!(
        first.next().await,
        Happening::Open { is_resumed: true },
        "the session lives on"
    );
    assert_eq!(kind(&second.next().await), Some(LossKind::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_broker_refuses_holds_back_and_closes_on_what_is_too_long() {
    let world = world();
    world.refuse(Some("bad password"));
    let mut double = world.client();
    double.open(&access());
    assert_eq!(kind(&double.next().await), Some(LossKind::Refused));
    world.refuse(None);
    double.open(&access());
    assert!(matches!(double.next().await, Happening::Open { .. }));
    world.hold_acks(true);
    double.publish(1, message("t", b"x"));
    assert!(within(&mut double, 100 * SECOND).await.is_empty());
    assert_eq!(world.in_flight(), 1);
    world.hold_acks(false);
    assert_eq!(double.next().await, Happening::Taken { token: 1 });
    world.limit_packets(Some(100));
    double.publish(2, message("t", &[0; 200]));
    assert_eq!(kind(&double.next().await), Some(LossKind::Closed));
}

#[tokio::test(start_paused = true)]
async fn central_applies_in_order_acknowledges_and_waits_at_a_hole() {
    let world = world();
    world.start_central("p");
    let mut double = opened(&world).await;
    let event = |seq: u64, prev: u64| {
        let meta = format!(
            r#"{{"site":"s","node":"n","log_id":"L","seq":{seq},"prev_seq":{prev},"ack":"central"}}"#
        );
        message(
            "p/status/p00/s/d",
            format!(r#"{{"meta":{meta}}}"#).as_bytes(),
        )
    };
    for (token, (seq, prev)) in [(5, 4), (6, 5), (6, 5), (9, 8), (8, 6)]
        .into_iter()
        .enumerate()
    {
        double.publish(token as u64, event(seq, prev));
    }
    within(&mut double, 5 * SECOND).await;
    let seqs: Vec<u64> = world.effects().iter().map(|effect| effect.seq).collect();
    assert_eq!((seqs, world.holes()), (vec![5, 6, 8], 1));
    let ack = world.retained("p/ack/s/n").unwrap();
    assert_eq!(
        String::from_utf8(ack).unwrap(),
        r#"{"applied_seq":8,"log_id":"L"}"#
    );
    let acks = world
        .log()
        .iter()
        .filter(|a| a.from == Sender::Central)
        .count();
    assert_eq!(acks, 2, "at most one a second");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_slow_to_acknowledge_is_asked_and_not_given_up() {
    let world = world();
    let mut double = opened(&world).await;
    world.hold_acks(true);
    for token in 0..20 {
        double.publish(token, message("t", b"x"));
        assert!(within(&mut double, 10 * SECOND).await.is_empty());
    }
    world.hold_acks(false);
    assert_eq!(double.next().await, Happening::Taken { token: 0 });
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_pings_once_a_keep_alive_and_a_busy_one_never() {
    let world = world();
    let mut double = opened(&world).await;
    within(&mut double, SECOND).await;
    let before = double.traffic().up_bytes;
    within(&mut double, 90 * SECOND).await;
    assert_eq!(double.traffic().up_bytes - before, 3 * 2);
    let before = double.traffic().up_bytes;
    for token in 0..10 {
        double.publish(token, message("t", b"x"));
        within(&mut double, 20 * SECOND).await;
    }
    assert_eq!(double.traffic().up_bytes - before, 10 * 8);
}
