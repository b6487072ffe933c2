//! The batch engine against the kernel's own echo server on loopback, in
//! network namespaces of the tests' own. Needs root; see `support/net.rs`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code may panic"
)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sitebeat::clock::SystemClock;
use sitebeat::config::settings::SocketChoice;
use sitebeat::ping::batch::{Batch, Tuning};
use sitebeat::ping::{OpenError, Options, Probe, Request};

use asking::{
    BOTH, DGRAM, MISSED, NOT_SENT, RAW, all_done, ask, ask_address, is_reply, open, open_tuned,
    replied, within,
};
use net::Net;

#[path = "support/asking.rs"]
mod asking;
#[path = "support/net.rs"]
mod net;

fn ask_host(number: u16) -> Request {
    let [high, low] = number.to_be_bytes();
    ask_address(number.into(), Ipv4Addr::new(127, 1, high, low).into())
}

#[test]
fn twenty_rounds_over_loopback_are_twenty_replies_and_nothing_else() {
    let net = Net::new();
    for socket in BOTH {
        for target in ["127.0.0.1", "::1", "::ffff:127.0.0.9"] {
            net.run(|| {
                let mut batch = open(socket);
                for round in 0..20 {
                    batch.send(&[ask(round, target)]);
                    let done = all_done(&mut batch, 1);
                    assert_eq!(done[0].key, round);
                    assert!(is_reply(done[0].outcome), "{socket:?} {done:?}");
                    assert!(done[0].known_at > done[0].sent_at);
                }
                let counters = batch.counters();
                assert_eq!((counters.sent, counters.valid), (20, 20));
                let header = if target == "::1" { 40 } else { 20 };
                assert_eq!(counters.sent_bytes, 20 * (header + 24));
                let others = [
                    counters.send_failed,
                    counters.late,
                    counters.duplicate,
                    counters.foreign,
                    counters.malformed,
                    counters.errors,
                    counters.overflowed,
                ];
                assert_eq!(others, [0; 7], "{socket:?} {target}");
            });
        }
    }
}

#[test]
fn same_host_asked_twice_and_in_between_answers_each() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            let target = "127.0.0.5";
            for round in 0..20 {
                let mut asked = vec![ask(1, target), ask(2, target)];
                batch.send(&asked);
                if round < 5 {
                    asked.push(ask(3, target));
                    batch.send(&asked[2..]);
                }
                let done = all_done(&mut batch, asked.len());
                assert_eq!(replied(&done), asked.len());
                let keys: BTreeSet<_> = done.iter().map(|done| done.key).collect();
                assert_eq!(keys.len(), asked.len());
            }
            assert_eq!(batch.counters().valid, 45);
            assert_eq!(batch.counters().foreign + batch.counters().duplicate, 0);
        });
    }
}

#[test]
fn sequence_wraps_without_losing_anybody() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let tuning = Tuning {
                first_sequence: 65_533,
                ..Tuning::default()
            };
            let mut batch = open_tuned(socket, tuning);
            for _ in 0..8 {
                batch.send(&[ask_host(1), ask_host(2)]);
                let done = all_done(&mut batch, 2);
                assert_eq!(replied(&done), 2);
            }
            assert_eq!(batch.counters().valid, 16);
            assert_eq!(batch.next_deadline(), None);
        });
    }
}

#[test]
fn ten_thousand_targets_at_once_all_answer_with_a_small_buffer() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let tuning = Tuning {
                buffer_wished_bytes: 212_992 / 2,
                ..Tuning::default()
            };
            let mut batch = open_tuned(socket, tuning);
            assert_eq!(batch.facts().receive_buffer_bytes, 212_992);
            let asked: Vec<_> = (0..10_000).map(ask_host).collect();
            batch.send(&asked);
            let done = all_done(&mut batch, asked.len());
            assert_eq!(replied(&done), 10_000, "{socket:?} {:?}", batch.counters());
            let keys: BTreeSet<_> = done.iter().map(|done| done.key).collect();
            assert_eq!(keys.len(), 10_000);
            assert_eq!(batch.counters().overflowed, 0);
        });
    }
}

#[test]
fn another_program_that_pings_the_same_targets_changes_nothing() {
    let net = Net::new();
    net.run(|| {
        let mut ours = open(RAW);
        let mut others = [open(RAW), open(DGRAM)];
        for target in ["127.0.0.1", "::1"] {
            for round in 0..20 {
                ours.send(&[ask(round, target)]);
                for other in &mut others {
                    other.send(&[ask(round, target)]);
                    assert_eq!(replied(&all_done(other, 1)), 1);
                }
                assert_eq!(replied(&all_done(&mut ours, 1)), 1);
            }
        }
        for batch in [&ours, &others[0], &others[1]] {
            let counters = batch.counters();
            assert_eq!((counters.sent, counters.valid), (40, 40));
            assert_eq!(
                counters.foreign + counters.malformed + counters.overflowed,
                0
            );
        }
    });
}

#[test]
fn every_payload_size_is_answered() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            for target in ["127.0.0.1", "::1"] {
                let sized = |payload_bytes| Request {
                    payload_bytes,
                    ..ask(0, target)
                };
                batch.send(&[sized(16), sized(17), sized(1399), sized(1400)]);
                assert_eq!(replied(&all_done(&mut batch, 4)), 4);
            }
        });
    }
}

#[test]
fn fresh_identifiers_never_lose_a_probe_or_leak_a_socket() {
    let net = Net::new();
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            for _ in 0..3 {
                let soon_forgotten = Request {
                    late_window: Duration::from_millis(100),
                    ..within(500, ask_host(7))
                };
                let fresh = Request {
                    fresh_identifier: true,
                    ..soon_forgotten
                };
                // Asked more often than an identifier is fresh for.
                batch.send(&[fresh, soon_forgotten]);
                batch.send(&[fresh]);
                assert_eq!(replied(&all_done(&mut batch, 3)), 3);
                // One per family, and one that drains.
                assert!(net::icmp_sockets() <= 3);
                thread::sleep(Duration::from_millis(1_050));
            }
            batch.collect(&mut Vec::new());
            assert_eq!(net::icmp_sockets(), 2);
            assert_eq!(batch.counters().valid, 9);
        });
    }
}

#[test]
fn request_the_kernel_refuses_is_no_data_and_its_neighbours_are_answered() {
    let net = Net::new();
    // No route but to loopback: ENETUNREACH.
    let nowhere = IpAddr::from([192, 0, 2, 1]);
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            let mut asked: Vec<_> = (0..100).map(ask_host).collect();
            for at in [0, 31, 32, 50, 51, 99] {
                asked[at].target = nowhere;
            }
            batch.send(&asked);
            let done = all_done(&mut batch, 100);
            let failed: BTreeSet<_> = done
                .iter()
                .filter(|done| done.outcome == NOT_SENT)
                .map(|done| done.key)
                .collect();
            assert_eq!(failed, BTreeSet::from([0, 31, 32, 50, 51, 99]));
            assert_eq!(replied(&done), 94);
            let counters = batch.counters();
            assert_eq!((counters.sent, counters.send_failed), (94, 6));
        });
    }
}

#[test]
fn silent_target_is_missed_at_its_deadline_however_late_it_is_collected() {
    let net = Net::new();
    net.set("net/ipv4/icmp_echo_ignore_all", "1");
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            let timeout = Duration::from_millis(50);
            batch.send(&[within(50, ask(1, "127.0.0.1"))]);
            let deadline = batch.next_deadline().unwrap();
            let mut done = Vec::new();
            batch.collect(&mut done);
            assert_eq!(done, []);
            thread::sleep(Duration::from_millis(80));
            let done = all_done(&mut batch, 1);
            assert_eq!(done[0].outcome, MISSED);
            assert_eq!(done[0].known_at, deadline);
            assert_eq!(deadline, done[0].sent_at.plus(timeout));
        });
    }
}

#[test]
fn no_socket_allowed_is_one_clear_error() {
    let net = Net::new();
    net.set("net/ipv4/ping_group_range", "1 0");
    net.run(|| {
        let options = Options {
            socket: SocketChoice::Dgram,
            ..Options::default()
        };
        let opened = Batch::open(&options, Arc::new(SystemClock::new()));
        let Err(fault @ OpenError::NoPrivilege { .. }) = opened else {
            panic!("{opened:?}");
        };
        let said = fault.to_string();
        for word in ["net.ipv4.ping_group_range", "IPv6"] {
            assert!(said.contains(word), "{said}");
        }
        assert!(!said.contains("CAP_NET_RAW"), "no help for dgram: {said}");
    });
}

#[test]
fn facts_name_the_socket_that_runs() {
    let net = Net::new();
    net.run(|| {
        let facts = open(SocketChoice::Auto).facts();
        assert_eq!((facts.engine, facts.socket), ("batch", "RAW"));
        assert!(facts.receive_buffer_bytes >= 4 << 20);
        assert_eq!(facts.limits.len(), 1);
        assert!(facts.limits[0].starts_with("over IPv6"));
        let facts = open(DGRAM).facts();
        assert_eq!(facts.socket, "DGRAM");
        assert!(facts.limits[0].contains("checksum"));
    });
}

#[test]
fn machine_without_ipv6_runs_on_ipv4_alone() {
    let net = Net::new();
    net.set("net/ipv6/conf/all/disable_ipv6", "1");
    for socket in BOTH {
        net.run(|| {
            let mut batch = open(socket);
            batch.send(&[ask(4, "127.0.0.1"), ask(6, "::1")]);
            let mut done = all_done(&mut batch, 2);
            done.sort_by_key(|done| done.key);
            assert!(is_reply(done[0].outcome));
            assert_eq!(done[1].outcome, NOT_SENT);
        });
    }
}

/// Set in the environment of this test program where it runs once more,
/// without any privilege.
const AS_CHILD: &str = "SITEBEAT_TEST_UNPRIVILEGED";

#[test]
fn without_privilege_the_group_range_decides() {
    if let Some(expected) = std::env::var_os(AS_CHILD) {
        return unprivileged(expected.to_str().unwrap());
    }
    let net = Net::new();
    for (range, expected) in [("0 2147483647", "DGRAM"), ("1 0", "nothing")] {
        net.set("net/ipv4/ping_group_range", range);
        let program = std::env::current_exe().unwrap();
        let output = net
            .command("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(program)
            .args(["--exact", "without_privilege_the_group_range_decides"])
            .env(AS_CHILD, expected)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{expected}: {said}");
        assert!(said.contains("1 passed"), "{said}");
    }
}

fn unprivileged(expected: &str) {
    let raw = Options {
        socket: SocketChoice::Raw,
        ..Options::default()
    };
    let raw = Batch::open(&raw, Arc::new(SystemClock::new()));
    let said = raw.expect_err("RAW is refused").to_string();
    assert!(
        said.contains("CAP_NET_RAW") && !said.contains("ping_group_range"),
        "{said}"
    );
    let opened = Batch::open(&Options::default(), Arc::new(SystemClock::new()));
    if expected == "nothing" {
        assert!(matches!(opened, Err(OpenError::NoPrivilege { .. })));
        let said = opened.expect_err("nothing is allowed").to_string();
        assert!(
            said.contains("CAP_NET_RAW") && said.contains("net.ipv4.ping_group_range"),
            "{said}"
        );
        return;
    }
    let mut batch = opened.expect("DGRAM is allowed");
    let facts = batch.facts();
    assert_eq!(facts.socket, expected);
    // The kernel grants twice net.core.rmem_max at most.
    let granted = facts.receive_buffer_bytes;
    let is_told = facts
        .limits
        .iter()
        .any(|limit| limit.contains("net.core.rmem_max"));
    assert_eq!(is_told, granted < 4 << 20);
    for target in ["127.0.0.1", "::1"] {
        batch.send(&[ask(0, target)]);
        assert!(is_reply(all_done(&mut batch, 1)[0].outcome));
    }
}
