//! The uplink over a broken line, on simulated time: what was durable arrives, in
//! order, whatever happens to line, broker, central and gateway.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use sitebeat::broker::double::{Line, Sender, Way, World};
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::UplinkAck;
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;

#[path = "support/life.rs"]
mod life;
#[path = "support/upward.rs"]
mod upward;

use life::{Dice, number};
use upward::{Gateway, Ways, carried, device, once_each, turn, uplink};

const MINUTE: Duration = Duration::from_mins(1);
const PART: &str = "cinga/heartbeat";

fn clock() -> Arc<dyn Clock> {
    let start = Wall::parse("2026-03-12T08:00:00Z").unwrap();
    Arc::new(SimulatedClock::starting_at(start))
}

fn ways<'a>(folder: &'a tempfile::TempDir, clock: &Arc<dyn Clock>, ack: UplinkAck) -> Ways<'a> {
    Ways {
        folder: folder.path(),
        clock: Arc::clone(clock),
        uplink: uplink(ack),
    }
}

fn arrived(world: &World) -> Vec<upward::Carried> {
    let log = world.log();
    carried(log.iter().map(|arrival| arrival.message.payload.as_slice()))
}

/// `count` changes of 50 devices, some at a time, over about as many seconds.
async fn live(gateway: &Gateway, clock: &Arc<dyn Clock>, count: u64, dice: &mut Dice) {
    let mut done = 0;
    while done < count {
        let some = (1 + dice.below(8)).min(count - done);
        let turns = (0..some).map(|_| {
            let status = [Status::Online, Status::Degraded, Status::Offline];
            let status = status[usize::try_from(dice.below(3)).unwrap()];
            turn(dice.below(50), status, clock.wall())
        });
        let turns = turns.collect();
        gateway.commit(turns).await;
        done += some;
        tokio::time::sleep(Duration::from_millis(dice.below(4_000))).await;
    }
}

/// What the broker keeps of each device is what the store says of it.
fn assert_retained(world: &World, gateway: &Gateway) {
    let part = sitebeat::wire::topic::part_word(sitebeat::wire::topic::partition_of("site-1", 64));
    for n in 0..50 {
        let Some((_, track)) = gateway.store.standing_of(device(n)).unwrap() else {
            continue;
        };
        let topic = format!("{PART}/liveness/{part}/site-1/{}", device(n));
        let kept = world.retained(&topic).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!(kept["status"], track.unwrap().status.word(), "{n}");
        assert_eq!(
            kept["updated_at"],
            track.unwrap().updated_at.unwrap().to_string(),
            "{n}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn first_comes_the_node_then_who_changed_then_the_log_in_order() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    world.set_way(Way::Closed);
    let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Broker), world.client());
    live(&gateway, &clock, 200, &mut Dice(7)).await;
    assert!(world.log().is_empty());
    world.set_way(Way::Clear);
    gateway.until_sent(MINUTE * 2).await;
    let log = world.log();
    let kinds: Vec<&str> = log
        .iter()
        .map(|arrival| arrival.message.topic.split('/').nth(2).unwrap())
        .collect();
    assert_eq!(kinds[0], "node");
    let livenesses = kinds.iter().skip(1).take_while(|kind| **kind == "liveness");
    let first = livenesses.count();
    assert!((40..=50).contains(&first), "{first} devices changed");
    let seqs: Vec<u64> = arrived(&world).iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=200).collect::<Vec<_>>());
    let chain = arrived(&world)
        .windows(2)
        .all(|two| two[1].prev_seq == Some(two[0].seq));
    assert!(chain, "each names the one before");
    assert_retained(&world, &gateway);
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn liveness_of_who_changed_is_there_within_a_second_of_the_connection() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    world.set_way(Way::Closed);
    world.set_line(Line {
        latency: Duration::from_millis(50),
        ..Line::default()
    });
    let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Broker), world.client());
    for batch in 0..10 {
        let turns = (0..50).map(|n| {
            turn(
                n,
                if batch % 2 == 0 {
                    Status::Offline
                } else {
                    Status::Online
                },
                clock.wall(),
            )
        });
        let turns = turns.collect();
        gateway.commit(turns).await;
    }
    world.set_way(Way::Clear);
    gateway
        .until(MINUTE * 2, |shown| shown.connections == 1)
        .await;
    let connected = clock.mono();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_retained(&world, &gateway);
    assert!(clock.mono().since(connected) < Duration::from_millis(1_100));
    gateway.stop().await;
}

/// Each trouble of line and broker, with a thousand changes through it.
#[tokio::test(start_paused = true)]
async fn a_thousand_changes_come_through_every_trouble_of_line_and_broker() {
    type Trouble = fn(&World, u64);
    let troubles: [(&str, Trouble); 9] = [
        ("cut mid-publish", |world, n| {
            world.cut_after(usize::try_from(n % 7).unwrap());
        }),
        ("restarted with its memory", |world, _| world.kick()),
        ("restarted without its memory", |world, _| world.forget()),
        ("hung", |world, _| world.hold_acks(true)),
        ("half open", |world, _| world.half_open()),
        ("silent line", |world, _| world.set_way(Way::Silent)),
        ("no route", |world, _| world.set_way(Way::Cut)),
        ("refused", |world, _| {
            world.refuse(Some("bad user name or password"));
            world.kick();
        }),
        ("slow", |world, _| {
            world.set_line(Line {
                latency: Duration::from_millis(800),
                up_bytes_per_second: Some(2_000),
                down_bytes_per_second: Some(2_000),
            });
        }),
    ];
    for ack in [UplinkAck::Broker, UplinkAck::Central] {
        for (name, trouble) in troubles {
            let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
            let world = World::new(Arc::clone(&clock));
            if ack == UplinkAck::Central {
                world.start_central(PART);
            }
            let gateway = Gateway::begin(&ways(&folder, &clock, ack), world.client());
            let mut dice = Dice(11);
            for n in 0..10 {
                live(&gateway, &clock, 100, &mut dice).await;
                trouble(&world, n);
                tokio::time::sleep(Duration::from_secs(dice.below(200))).await;
                world.hold_acks(false);
                world.refuse(None);
                world.set_way(Way::Clear);
            }
            gateway.until_sent(MINUTE * 20).await;
            // More than the changes are the uplink's own troubles, each told once.
            let last = gateway.store.outbox().last;
            let events = once_each(&arrived(&world));
            assert_eq!(events.len() as u64, last, "{name} {ack:?}");
            let changes = events
                .values()
                .filter(|event| event.name == "heartbeat.status.changed.v1");
            assert_eq!(changes.count(), 1_000, "{name} {ack:?}");
            if ack == UplinkAck::Central {
                let effects: Vec<u64> = world.effects().iter().map(|effect| effect.seq).collect();
                assert_eq!(effects, (1..=last).collect::<Vec<_>>(), "{name}");
            }
            assert_retained(&world, &gateway);
            gateway.stop().await;
        }
    }
}

/// A broker that loses what it has acknowledged loses nothing with central's word.
#[tokio::test(start_paused = true)]
async fn what_the_broker_loses_is_sent_again_where_central_must_say_so() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    world.start_central(PART);
    let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Central), world.client());
    let mut dice = Dice(5);
    for _ in 0..10 {
        live(&gateway, &clock, 30, &mut dice).await;
        world.stop_central();
        live(&gateway, &clock, 30, &mut dice).await;
        world.lose_what_waits_for_central();
        world.start_central(PART);
    }
    gateway.until_sent(MINUTE * 30).await;
    let effects: Vec<u64> = world.effects().iter().map(|effect| effect.seq).collect();
    assert_eq!(effects, (1..=600).collect::<Vec<_>>());
    gateway.stop().await;
}

#[expect(clippy::print_stdout, reason = "a run must be repeatable")]
fn say(seed: u64) {
    println!("SEED={seed}");
}

/// Random troubles, stops and kills from a seed.
async fn chaos(seed: u64, ack: UplinkAck) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    world.start_central(PART);
    let ways = ways(&folder, &clock, ack);
    let mut dice = Dice(seed);
    let mut gateway = Gateway::begin(&ways, world.client());
    for _ in 0..40 {
        live(&gateway, &clock, dice.below(40), &mut dice).await;
        match dice.below(14) {
            0 => world.cut_after(usize::try_from(dice.below(5)).unwrap()),
            1 => world.kick(),
            2 => world.forget(),
            3 => world.hold_acks(true),
            4 => world.half_open(),
            5 => world.set_way(Way::Silent),
            6 => world.set_way(Way::Cut),
            7 => world.set_way(Way::Closed),
            8 => world.stop_central(),
            9 if ack == UplinkAck::Central => world.lose_what_waits_for_central(),
            10 => {
                gateway.stop().await;
                gateway = Gateway::begin(&ways, world.client());
            }
            11 | 12 => {
                gateway.kill().await;
                gateway = Gateway::begin(&ways, world.client());
            }
            _ => gateway.beat(),
        }
        tokio::time::sleep(Duration::from_secs(dice.below(300))).await;
        if dice.below(2) == 0 {
            world.hold_acks(false);
            world.set_way(Way::Clear);
            world.start_central(PART);
        }
    }
    world.hold_acks(false);
    world.set_way(Way::Clear);
    world.start_central(PART);
    gateway.until_sent(Duration::from_hours(2)).await;
    let last = gateway.store.outbox().last;
    let events = once_each(&arrived(&world));
    assert_eq!(events.len() as u64, last, "seed {seed} {ack:?}");
    if ack == UplinkAck::Central {
        let effects: Vec<u64> = world.effects().iter().map(|effect| effect.seq).collect();
        assert_eq!(effects, (1..=last).collect::<Vec<_>>(), "seed {seed}");
    }
    assert_retained(&world, &gateway);
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_event_arrives_whatever_happens_to_line_broker_central_and_gateway() {
    let first = number("SEED", 1);
    for seed in first..first + number("SEEDS", 6) {
        say(seed);
        chaos(seed, UplinkAck::Broker).await;
        chaos(seed, UplinkAck::Central).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_ends_in_the_will_and_a_stop_in_a_farewell() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    let ways = ways(&folder, &clock, UplinkAck::Broker);
    let part = sitebeat::wire::topic::part_word(sitebeat::wire::topic::partition_of("site-1", 64));
    let topic = format!("{PART}/node/{part}/site-1/gateway");
    let kept = || -> serde_json::Value {
        serde_json::from_slice(&world.retained(&topic).unwrap()).unwrap()
    };
    let gateway = Gateway::begin(&ways, world.client());
    gateway.until(MINUTE, |shown| shown.connections == 1).await;
    gateway.beat();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kept()["site"], "site-1");
    gateway.stop().await;
    let told = kept();
    assert_eq!(
        (&told["state"], &told["reason"]),
        (&"offline".into(), &"stopped".into())
    );
    assert!(
        !world
            .log()
            .iter()
            .any(|arrival| matches!(arrival.from, Sender::Will(_)))
    );
    let gateway = Gateway::begin(&ways, world.client());
    gateway.until(MINUTE, |shown| shown.connections == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kept()["site"], "site-1");
    gateway.kill().await;
    tokio::time::sleep(MINUTE).await;
    let told = kept();
    assert_eq!(
        (&told["state"], &told["boot_id"]),
        (&"offline".into(), &"boot-2".into())
    );
    assert!(
        world
            .log()
            .iter()
            .any(|arrival| matches!(arrival.from, Sender::Will(_)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_seconds_whatever_the_broker_does() {
    for trouble in [Way::Clear, Way::Silent, Way::Closed, Way::Cut] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
        let world = World::new(Arc::clone(&clock));
        let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Broker), world.client());
        gateway.until(MINUTE, |shown| shown.connections == 1).await;
        world.set_way(trouble);
        world.hold_acks(trouble == Way::Clear);
        live(&gateway, &clock, 50, &mut Dice(3)).await;
        let begin = clock.mono();
        gateway.stop().await;
        let took = clock.mono().since(begin);
        assert!(took < Duration::from_secs(8), "{trouble:?} {took:?}");
    }
}

/// MQ-01: attempts are spaced, and a connection that is closed at once is no success.
#[tokio::test(start_paused = true)]
async fn attempts_are_spaced_out_and_a_short_session_does_not_begin_anew() {
    type Trouble = fn(&World);
    let cases: [(&str, Trouble); 3] = [
        ("refused", |world| {
            world.refuse(Some("bad user name or password"));
        }),
        ("nobody there", |world| world.set_way(Way::Closed)),
        ("closed at once", |world| world.limit_packets(Some(10))),
    ];
    for (name, trouble) in cases {
        let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
        let world = World::new(Arc::clone(&clock));
        trouble(&world);
        let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Broker), world.client());
        tokio::time::sleep(MINUTE * 10).await;
        let attempts = world.attempts();
        assert!(
            (10..=20).contains(&attempts.len()),
            "{name}: {}",
            attempts.len()
        );
        let waits: Vec<u64> = attempts
            .windows(2)
            .map(|two| two[1].since(two[0]).as_secs())
            .collect();
        assert!(waits.iter().all(|&wait| wait <= 61), "{name}: {waits:?}");
        world.refuse(None);
        world.set_way(Way::Clear);
        world.limit_packets(None);
        let begin = clock.mono();
        let before = gateway.shown().connections;
        gateway
            .until(Duration::from_secs(65), |shown| shown.connections > before)
            .await;
        assert!(
            clock.mono().since(begin) <= Duration::from_secs(65),
            "{name}"
        );
        gateway.stop().await;
    }
}

/// MQ-04: what the broker does not take is kept aside, told of, and holds up nothing.
#[tokio::test(start_paused = true)]
async fn one_message_the_broker_does_not_take_holds_up_nothing() {
    for ack in [UplinkAck::Broker, UplinkAck::Central] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
        let world = World::new(Arc::clone(&clock));
        world.start_central(PART);
        let gateway = Gateway::begin(&ways(&folder, &clock, ack), world.client());
        gateway.until(MINUTE, |shown| shown.connections == 1).await;
        // Nobody's event is longer than the message of a failure with all its letters.
        world.limit_packets(Some(1_500));
        gateway
            .commit(vec![upward::long_failure(clock.wall())])
            .await;
        live(&gateway, &clock, 100, &mut Dice(2)).await;
        gateway.until_sent(MINUTE * 30).await;
        let events = once_each(&arrived(&world));
        let names: Vec<(u64, &str)> = events
            .values()
            .filter(|event| event.name == "heartbeat.failed.v1")
            .map(|event| {
                (
                    event.seq,
                    event.json["error"]["error_code"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(names[0], (1, "OUTBOX_GAP"), "{ack:?} {names:?}");
        assert!(
            names.iter().any(|(_, code)| *code == "MESSAGE_REFUSED"),
            "{names:?}"
        );
        assert_eq!(gateway.shown().dead_letters, 1);
        let statuses = events
            .values()
            .filter(|event| event.name == "heartbeat.status.changed.v1");
        assert_eq!(statuses.count(), 100);
        assert!(world.attempts().len() <= 12, "{}", world.attempts().len());
        gateway.stop().await;
    }
}

/// A broker with so low a limit that it takes neither an event nor the gap in its place:
/// both are left out, and what is shorter goes up.
#[tokio::test(start_paused = true)]
async fn a_gap_the_broker_does_not_take_holds_up_nothing_either() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let world = World::new(Arc::clone(&clock));
    let gateway = Gateway::begin(&ways(&folder, &clock, UplinkAck::Broker), world.client());
    gateway.until(MINUTE, |shown| shown.connections == 1).await;
    // A node heartbeat and a liveness record are shorter, a gap is longer.
    world.limit_packets(Some(560));
    gateway
        .commit(vec![upward::long_failure(clock.wall())])
        .await;
    live(&gateway, &clock, 20, &mut Dice(2)).await;
    gateway.until_sent(Duration::from_hours(12)).await;
    let events = once_each(&arrived(&world));
    let changes = events
        .values()
        .filter(|event| event.name == "heartbeat.status.changed.v1");
    assert_eq!(changes.count(), 20);
    let told = gateway.store.events(None, None, 100).unwrap();
    let is_rival = |event: &sitebeat::store::LoggedEvent| event.json.contains("CLIENT_ID_CONFLICT");
    assert!(!told.iter().any(is_rival), "nobody else has our client id");
    gateway.stop().await;
}
