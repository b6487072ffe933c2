//! The batch engine on an uplink that comes and goes, is slow, blocks or
//! bursts: a TUN device in a namespace. Needs root; see `support/net.rs`.

#![expect(clippy::expect_used, reason = "test code may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use sitebeat::clock::{Clock, SystemClock};
use sitebeat::config::settings::SocketChoice;
use sitebeat::domain::instant::Mono;
use sitebeat::ping::batch::{Batch, Tuning};
use sitebeat::ping::packet::Family;
use sitebeat::ping::{Options, Probe, Request};

use asking::{
    BOTH, DGRAM, MISSED, NOT_SENT, RAW, all_done, ask, is_reply, kinds, open, open_tuned, outcome,
    replied, within,
};
use net::Net;
use responder::{Responder, What, after_ms, at_once, identifiers};

#[path = "support/asking.rs"]
mod asking;
#[path = "support/net.rs"]
mod net;
#[path = "support/responder.rs"]
mod responder;
#[path = "support/responder_packet.rs"]
mod responder_packet;

/// Both sockets, both families.
const WAYS: [(SocketChoice, &str); 4] = [
    (RAW, "10.9.0.7"),
    (DGRAM, "10.9.0.7"),
    (RAW, "fd09::7"),
    (DGRAM, "fd09::7"),
];

fn open_with(options: &Options) -> Batch {
    Batch::open(options, Arc::new(SystemClock::new())).expect("open: needs root")
}

#[test]
fn fresh_identifier_gets_past_a_middlebox_that_blocks_the_first() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![at_once(What::AnswerUnlessFirstIdentifier)]);
    for (number, (socket, prefix)) in WAYS.into_iter().enumerate() {
        // An address that has seen no identifier yet.
        let target = &format!("{prefix}{number}");
        net.run(|| {
            let mut batch = open(socket);
            for _ in 0..3 {
                assert_eq!(outcome(&mut batch, within(200, ask(0, target))), MISSED);
            }
            let fresh = Request {
                fresh_identifier: true,
                ..ask(0, target)
            };
            assert!(is_reply(outcome(&mut batch, fresh)), "{socket:?} {target}");
            // And it stays: nobody falls back to what was blocked.
            for _ in 0..3 {
                assert!(is_reply(outcome(&mut batch, ask(0, target))));
            }
        });
        assert_eq!(site.asked(target), 7);
        assert_eq!(identifiers(&site.seen(), target).len(), 2);
    }
}

#[test]
fn ten_thousand_replies_in_one_burst_are_all_read() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![at_once(What::Hold)]);
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            let requests: Vec<_> = (0..10_000_u64)
                .map(|n| ask(n, &format!("10.9.{}.{}", 10 + n / 250, n % 250)))
                .collect();
            let mut done = Vec::new();
            for due in requests.chunks(64) {
                batch.send(due);
                batch.collect(&mut done);
            }
            site.wait_for_held(10_000);
            assert_eq!(done, []);
            site.release();
            burst_is_read(&mut batch, 10_000);
            assert_eq!(
                kinds(&batch),
                [10_000, 0, 0, 0, 0, 0],
                "{:?}",
                batch.counters()
            );
            assert_eq!(batch.counters().overflowed, 0);
        });
    }
}

/// Fetches `count` replies as the monitor does: a tick every 50 ms, sooner
/// only if the engine is pressed.
fn burst_is_read(batch: &mut Batch, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let mut done = Vec::new();
        while done.len() < count {
            let pressed = std::future::poll_fn(|cx| batch.poll_pressed(cx));
            drop(tokio::time::timeout(Duration::from_millis(50), pressed).await);
            batch.collect(&mut done);
        }
        assert!(done.iter().all(|done| is_reply(done.outcome)));
    });
}

#[test]
fn few_in_flight_wake_nobody_and_many_do() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![after_ms(30, What::Answer)]);
    net.run(|| {
        let tuning = Tuning {
            buffer_wished_bytes: 40_000,
            ..Tuning::default()
        };
        let mut batch = open_tuned(RAW, tuning);
        // Without a runtime: what registered anything here would panic.
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(batch.poll_pressed(&mut cx), Poll::Pending);
        batch.send(&[ask(1, "10.9.0.7")]);
        assert_eq!(batch.poll_pressed(&mut cx), Poll::Pending);
        let many: Vec<_> = (0..60).map(|n| ask(n, "10.9.0.8")).collect();
        batch.send(&many);
        burst_is_read(&mut batch, 61);
        assert_eq!(batch.poll_pressed(&mut cx), Poll::Pending);
        assert_eq!(batch.counters().overflowed, 0);
    });
}

#[test]
fn rtt_is_true_within_half_a_millisecond_though_the_loop_is_busy() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![after_ms(20, What::Answer)]);
    for socket in BOTH {
        let before = site.delays_us().len();
        let mut rtts = net.run(|| {
            let mut batch = open(socket);
            let mut done = Vec::new();
            for _ in 0..40 {
                let due: Vec<_> = (0..8).map(|n| ask(n, "10.9.0.7")).collect();
                batch.send(&due);
                // The loop is away, as in a long write to the store.
                thread::sleep(Duration::from_millis(27));
                batch.collect(&mut done);
            }
            done.extend(all_done(&mut batch, 320 - done.len()));
            let rtts = done.into_iter().filter_map(|done| done.outcome.rtt_us());
            rtts.collect::<Vec<_>>()
        });
        let mut true_us = site.delays_us()[before..].to_vec();
        assert_eq!(rtts.len(), 320);
        rtts.sort_unstable();
        true_us.sort_unstable();
        let median = u64::from(rtts[rtts.len() / 2]);
        let true_median = true_us[true_us.len() / 2];
        assert!(
            median.abs_diff(true_median) < 500,
            "{socket:?}: {median} of {true_median}"
        );
    }
}

#[test]
fn full_transmit_queue_is_no_data_and_never_a_miss() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    // A radio link of 8 kbit/s whose queue holds nine smallest probes.
    let shaped = "tc qdisc replace dev wwan0 root tbf rate 8kbit burst 200 limit 400";
    let shape = format!("ip netns exec {} {shaped}", net.name());
    let words: Vec<_> = shape.split(' ').collect();
    net::run(words[0], &words[1..]);
    // Linux tells a DGRAM ICMPv6 socket nothing of it, as `Facts` says.
    for (socket, target) in &WAYS[..3] {
        net.run(|| {
            let mut batch = open(*socket);
            let asked: Vec<_> = (0..40).map(|n| ask(n, target)).collect();
            batch.send(&asked);
            let done = all_done(&mut batch, 40);
            let refused = done.iter().filter(|done| done.outcome == NOT_SENT).count();
            assert!(refused > 0, "{socket:?} {target}");
            assert_eq!(replied(&done), 40 - refused);
            let counters = batch.counters();
            assert_eq!(counters.sent + counters.send_failed, 40);
        });
    }
    assert!(site.asked("10.9.0.7") > 0);
}

/// A clock whose wall somebody else can set.
#[derive(Debug, Default)]
struct SteppedClock {
    real: SystemClock,
    step_nanos: AtomicI64,
}

impl Clock for SteppedClock {
    fn mono(&self) -> Mono {
        self.real.mono()
    }

    fn wall_nanos(&self) -> i64 {
        self.real.wall_nanos() + self.step_nanos.load(Ordering::Relaxed)
    }

    fn wake_at(&self, at: Mono) -> tokio::time::Instant {
        self.real.wake_at(at)
    }
}

#[test]
fn wall_clock_that_steps_under_a_probe_changes_no_outcome() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![after_ms(20, What::Answer)]);
    let clock = Arc::new(SteppedClock::default());
    let options = Options::default();
    net.run(|| {
        let mut batch = Batch::open(&options, Arc::clone(&clock) as _).expect("open: needs root");
        for step_seconds in [-86_400, -3_600, -1, 1, 3_600, 86_400] {
            batch.send(&[ask(0, "10.9.0.7")]);
            clock
                .step_nanos
                .store(step_seconds * 1_000_000_000, Ordering::Relaxed);
            let outcome = all_done(&mut batch, 1)[0].outcome;
            let rtt_us = outcome.rtt_us().expect("a reply");
            assert!(
                (20_000..1_000_000).contains(&rtt_us),
                "{step_seconds}: {rtt_us}"
            );
        }
    });
}

#[test]
fn a_family_that_nobody_asks_has_no_trouble() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let mut batch = open_with(&Options {
                socket,
                interface: Some("wwan0".to_owned()),
                ..Options::default()
            });
            assert_eq!(batch.facts().troubles.len(), 2, "nobody was asked yet");
            assert_eq!(outcome(&mut batch, ask(0, "10.9.0.7")), NOT_SENT);
            let troubles = batch.facts().troubles;
            assert_eq!(troubles.len(), 1, "{troubles:?}");
            assert_eq!(troubles[0].family, Family::V4);
            let site = Responder::start_at(&net, "wwan0", "10.9.0.1/16", "fd09::1/64");
            assert!(is_reply(outcome(&mut batch, ask(0, "10.9.0.7"))));
            assert_eq!(batch.facts().troubles, []);
            drop(site);
            assert_eq!(outcome(&mut batch, ask(0, "fd09::7")), NOT_SENT);
            let troubles = batch.facts().troubles;
            assert!(troubles.iter().any(|one| one.family == Family::V6));
        });
    }
}

#[test]
fn interface_that_comes_late_and_is_recreated_is_followed() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let mut batch = open_with(&Options {
                socket,
                interface: Some("wwan0".to_owned()),
                ..Options::default()
            });
            assert!(batch.facts().troubles[0].text.contains("wwan0"));
            for target in ["10.9.0.7", "fd09::7"] {
                assert_eq!(outcome(&mut batch, ask(0, target)), NOT_SENT);
            }
            let mut open_files = None;
            for round in 1..=3 {
                let (v4, v6) = (format!("10.9.0.{round}/16"), format!("fd09::{round}/64"));
                let site = Responder::start_at(&net, "wwan0", &v4, &v6);
                for target in ["10.9.0.7", "fd09::7"] {
                    assert!(
                        is_reply(outcome(&mut batch, ask(0, target))),
                        "{socket:?} {target} {round}"
                    );
                }
                assert_eq!(batch.facts().troubles, []);
                assert_eq!(
                    *open_files.get_or_insert_with(net::icmp_sockets),
                    net::icmp_sockets()
                );
                drop(site);
                for target in ["10.9.0.7", "fd09::7"] {
                    assert_eq!(outcome(&mut batch, ask(0, target)), NOT_SENT);
                }
            }
            assert_eq!(batch.counters().valid, 6);
        });
    }
}

#[test]
fn source_address_that_comes_late_is_taken_then() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let is_v6 = target.contains(':');
        let source = if is_v6 { "fd09::99" } else { "10.9.0.99" };
        net.run(|| {
            let mut batch = open_with(&Options {
                socket,
                source: Some(source.parse().expect("an address")),
                ..Options::default()
            });
            assert_eq!(outcome(&mut batch, ask(0, target)), NOT_SENT);
            let address = format!("{source}/{}", if is_v6 { 128 } else { 32 });
            net.add_address("wwan0", &address);
            assert!(
                is_reply(outcome(&mut batch, ask(0, target))),
                "{socket:?} {target}"
            );
            net.ip(&format!("addr del {address} dev wwan0"));
        });
    }
    assert_eq!(site.asked("10.9.0.7") + site.asked("fd09::7"), 4);
}
