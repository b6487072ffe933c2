//! The batch engine against a scripted site behind a TUN device: whatever may
//! come back. Needs root; see `support/net.rs`.

use std::thread;
use std::time::Duration;

use sitebeat::config::settings::SocketChoice;
use sitebeat::domain::heartbeat::{Miss, Outcome};
use sitebeat::ping::{Probe, Request};

use asking::{DGRAM, MISSED, RAW, all_done, ask, is_reply, kinds, open, outcome, until, within};
use net::Net;
use responder::{Responder, SILENT, What, after_ms, at_once};

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

#[test]
fn duplicates_are_counted_and_never_a_second_reply() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![at_once(What::Answer), after_ms(3, What::Answer)]);
    for (socket, target) in WAYS {
        net.run(|| {
            let mut batch = open(socket);
            for round in 1..=10 {
                assert!(is_reply(outcome(&mut batch, ask(0, target))));
                until(&mut batch, |counters| counters.duplicate == round);
            }
            assert_eq!(kinds(&batch), [10, 0, 10, 0, 0, 0], "{socket:?} {target}");
        });
    }
}

#[test]
fn late_reply_is_late_and_never_that_of_the_next_probe() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        net.run(|| {
            let mut batch = open(socket);
            site.behave_all(vec![after_ms(280, What::Answer)]);
            batch.send(&[within(200, ask(1, target))]);
            assert_eq!(all_done(&mut batch, 1)[0].outcome, MISSED);
            site.behave_all(SILENT);
            batch.send(&[within(200, ask(2, target))]);
            assert_eq!(all_done(&mut batch, 1)[0].outcome, MISSED);
            until(&mut batch, |counters| counters.late == 1);
            assert_eq!(kinds(&batch), [0, 1, 0, 0, 0, 0], "{socket:?} {target}");
        });
    }
}

#[test]
fn late_reply_after_the_late_window_is_foreign() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![after_ms(150, What::Answer)]);
    for (socket, target) in WAYS {
        net.run(|| {
            let mut batch = open(socket);
            let short = Request {
                timeout: Duration::from_millis(50),
                late_window: Duration::from_millis(50),
                ..ask(1, target)
            };
            batch.send(&[short]);
            assert_eq!(all_done(&mut batch, 1)[0].outcome, MISSED);
            until(&mut batch, |counters| counters.foreign == 1);
            assert_eq!(kinds(&batch), [0, 0, 0, 1, 0, 0]);
        });
    }
}

#[test]
fn arrival_counts_and_not_the_moment_of_collecting() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave("10.9.1.1", vec![after_ms(300, What::Answer)]);
    site.behave("10.9.1.2", vec![after_ms(1_300, What::Answer)]);
    for socket in [RAW, DGRAM] {
        net.run(|| {
            let mut batch = open(socket);
            batch.send(&[
                within(1_000, ask(1, "10.9.1.1")),
                within(1_000, ask(2, "10.9.1.2")),
            ]);
            // The loop is away for longer than both replies take.
            thread::sleep(Duration::from_millis(1_700));
            let mut done = all_done(&mut batch, 2);
            done.sort_by_key(|done| done.key);
            let rtt_us = done[0].outcome.rtt_us().expect("came in time");
            assert!((299_000..1_000_000).contains(&rtt_us), "{rtt_us}");
            assert_eq!(done[1].outcome, MISSED);
            let deadline = done[1].sent_at.plus(Duration::from_secs(1));
            assert_eq!(done[1].known_at, deadline);
            until(&mut batch, |counters| counters.late == 1);
            assert_eq!(kinds(&batch), [1, 1, 0, 0, 0, 0]);
        });
    }
}

#[test]
fn icmp_errors_end_their_probe_with_their_reason() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    // (type, code) over IPv4, over IPv6.
    let cases = [
        ((3, 1), (1, 3), Miss::Unreachable),
        ((3, 13), (1, 1), Miss::Unreachable),
        ((3, 3), (1, 4), Miss::Unreachable),
        ((11, 0), (3, 0), Miss::TtlExceeded),
        ((12, 0), (4, 0), Miss::OtherError),
    ];
    for (socket, target) in WAYS {
        let mut batch = net.run(|| open(socket));
        for (v4, v6, miss) in cases {
            let (kind, code) = if target.contains(':') { v6 } else { v4 };
            // The whole probe, and the least an old router quotes.
            for quoted in [64, 8] {
                site.behave_all(vec![
                    at_once(What::Error { kind, code, quoted }),
                    after_ms(5, What::Error { kind, code, quoted }),
                ]);
                let ended = outcome(&mut batch, ask(0, target));
                assert_eq!(
                    ended,
                    Outcome::Missed(miss),
                    "{socket:?} {target} {kind}/{code}"
                );
            }
        }
        assert_eq!(kinds(&batch), [0, 0, 0, 0, 0, 10]);
        // An error of one device is never the fault of another's send.
        site.behave_all(vec![at_once(What::Answer)]);
        for _ in 0..5 {
            assert!(is_reply(outcome(&mut batch, ask(0, target))));
        }
        assert_eq!(batch.counters().send_failed, 0);
    }
}

#[test]
fn source_quench_and_fragmentation_needed_are_other_errors() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for socket in [RAW, DGRAM] {
        let mut batch = net.run(|| open(socket));
        let quoted = 64;
        for (kind, code) in [(4, 0), (3, 4)] {
            site.behave_all(vec![at_once(What::Error { kind, code, quoted })]);
            let ended = outcome(&mut batch, ask(0, "10.9.0.7"));
            assert_eq!(
                ended,
                Outcome::Missed(Miss::OtherError),
                "{socket:?} {kind}/{code}"
            );
        }
    }
}

#[test]
fn redirect_or_error_for_something_else_changes_nothing() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let is_v6 = target.contains(':');
        let redirect = if is_v6 { 137 } else { 5 };
        let unreachable = if is_v6 { 1 } else { 3 };
        let mut batch = net.run(|| open(socket));
        let (code, quoted) = (1, 64);
        site.behave_all(vec![
            at_once(What::Error {
                kind: redirect,
                code,
                quoted,
            }),
            at_once(What::ErrorForOther {
                kind: unreachable,
                code,
            }),
            after_ms(5, What::Answer),
            after_ms(
                10,
                What::Error {
                    kind: unreachable,
                    code,
                    quoted,
                },
            ),
        ]);
        for _ in 0..5 {
            assert!(
                is_reply(outcome(&mut batch, ask(0, target))),
                "{socket:?} {target}"
            );
            thread::sleep(Duration::from_millis(15));
        }
        assert_eq!(kinds(&batch), [5, 0, 0, 0, 0, 0]);
        assert_eq!(batch.counters().send_failed, 0);
    }
}

#[test]
fn error_right_behind_a_reply_does_not_undo_it() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let kind = if target.contains(':') { 1 } else { 3 };
        let (code, quoted) = (1, 64);
        site.behave_all(vec![
            at_once(What::Answer),
            at_once(What::Error { kind, code, quoted }),
        ]);
        let mut batch = net.run(|| open(socket));
        for _ in 0..5 {
            batch.send(&[ask(0, target)]);
            // Both have come before either is read.
            thread::sleep(Duration::from_millis(30));
            assert!(is_reply(all_done(&mut batch, 1)[0].outcome));
        }
        assert_eq!(kinds(&batch), [5, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn wrong_nonce_and_short_payload_are_malformed_and_the_probe_waits_on() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![
        at_once(What::WrongNonce),
        at_once(What::Sized(0)),
        at_once(What::Sized(7)),
        after_ms(20, What::Answer),
    ]);
    for (socket, target) in WAYS {
        net.run(|| {
            let mut batch = open(socket);
            let rtt_us = outcome(&mut batch, ask(0, target))
                .rtt_us()
                .expect("the right one came");
            assert!(rtt_us >= 20_000);
            assert_eq!(kinds(&batch), [1, 0, 0, 0, 3, 0], "{socket:?} {target}");
        });
    }
}

#[test]
fn only_a_malformed_reply_is_none() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        site.behave_all(vec![at_once(What::Sized(0))]);
        let mut batch = net.run(|| open(socket));
        assert_eq!(outcome(&mut batch, within(200, ask(0, target))), MISSED);
        until(&mut batch, |counters| counters.malformed == 1);
        // Only IPv4 RAW sockets are shown bad checksums, as `Facts` says.
        site.behave_all(vec![at_once(What::BadChecksum)]);
        assert_eq!(outcome(&mut batch, within(200, ask(0, target))), MISSED);
        let seen = u64::from(socket == RAW && !target.contains(':'));
        until(&mut batch, |counters| counters.malformed == 1 + seen);
        assert_eq!(kinds(&batch), [0, 0, 0, 0, 1 + seen, 0]);
    }
}

#[test]
fn reply_with_its_nonce_counts_whatever_its_size_or_other_payload() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let mut batch = net.run(|| open(socket));
        for what in [What::OtherPayload, What::Sized(8), What::Sized(1_400)] {
            site.behave_all(vec![at_once(what)]);
            let rtt_us = outcome(&mut batch, ask(0, target)).rtt_us();
            assert!(
                rtt_us.is_some_and(|rtt_us| rtt_us < 1_000_000),
                "{socket:?} {target} {what:?}"
            );
        }
    }
}

#[test]
fn biggest_reply_there_is_harms_nobody() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let mut batch = net.run(|| open(socket));
        site.behave_all(vec![at_once(What::Sized(65_507))]);
        outcome(&mut batch, within(200, ask(0, target)));
        until(&mut batch, |counters| {
            counters.valid + counters.malformed == 1
        });
        site.behave_all(vec![at_once(What::Answer)]);
        assert!(is_reply(outcome(&mut batch, ask(0, target))));
    }
}

#[test]
fn reply_from_or_for_something_else_is_foreign() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    for (socket, target) in WAYS {
        let stranger = if target.contains(':') {
            "fd09::66"
        } else {
            "10.9.0.66"
        };
        site.behave_all(vec![
            at_once(What::From(stranger.parse().expect("an address"))),
            at_once(What::WrongSequence),
        ]);
        let mut batch = net.run(|| open(socket));
        assert_eq!(outcome(&mut batch, within(200, ask(0, target))), MISSED);
        until(&mut batch, |counters| counters.foreign == 2);
        assert_eq!(kinds(&batch), [0, 0, 0, 2, 0, 0], "{socket:?} {target}");
    }
}

#[test]
fn request_or_reply_under_another_identifier_is_not_ours_to_count() {
    let net = Net::new();
    let site = Responder::start(&net, "wwan0");
    site.behave_all(vec![
        at_once(What::AskBack),
        at_once(What::WrongIdentifier),
        after_ms(10, What::Answer),
    ]);
    for (socket, target) in WAYS {
        let mut batch = net.run(|| open(socket));
        for _ in 0..3 {
            assert!(is_reply(outcome(&mut batch, ask(0, target))));
        }
        assert_eq!(kinds(&batch), [3, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn a_payload_larger_than_the_link_takes_goes_in_pieces_and_small_ones_beside_it() {
    let net = Net::new();
    net.ip("link set lo mtu 600");
    for socket in [RAW, DGRAM] {
        net.run(|| {
            let mut batch = open(socket);
            let sized = |key, payload_bytes| Request {
                payload_bytes,
                ..ask(key, "127.0.0.9")
            };
            batch.send(&[sized(1, 16), sized(2, 1_400), sized(3, 548), sized(4, 549)]);
            batch.send(&[sized(5, 16)]);
            let done = all_done(&mut batch, 5);
            assert!(done.iter().all(|done| is_reply(done.outcome)), "{done:?}");
            assert_eq!(kinds(&batch), [5, 0, 0, 0, 0, 0], "{socket:?}");
        });
    }
}
