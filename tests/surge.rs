//! The engine on surge-ping, on a real loopback in a network of the test's own.
//!
//! Each test runs itself again inside a network namespace (`unshare --net`, as
//! root; with a user namespace, as anybody), so no packet leaves it and no
//! setting of the machine changes. Where a device must be silent, late or
//! refused, the kernel is told not to answer and a thread of the test does.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's own tools: a fault in them must fail the test"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sitebeat::clock::{Clock, SystemClock};
use sitebeat::config::settings::SocketChoice;
use sitebeat::domain::heartbeat::{Miss, NoData, Outcome};
use sitebeat::ping::surge::Surge;
use sitebeat::ping::{Done, OpenError, Options, Probe, Request};

#[path = "support/echo_responder.rs"]
mod echo_responder;

use echo_responder::{Answer, Responder};

const OWN_NETWORK: &str = "SITEBEAT_TEST_OWN_NETWORK";
const BOTH: [SocketChoice; 2] = [SocketChoice::Raw, SocketChoice::Dgram];

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs `body` inside a network of its own, in a process of its own; `wrap` is
/// put before the command (to take privileges away).
fn alone_under<F: Future<Output = ()>>(test: &str, wrap: &str, body: impl FnOnce() -> F) {
    if std::env::var(OWN_NETWORK).is_ok() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(body());
    }
    let user = if nix::unistd::geteuid().is_root() {
        ""
    } else {
        "--map-root-user"
    };
    let script = format!(
        "exec unshare {user} --net -- sh -c 'ip link set lo up && exec {wrap} \"$0\" \"$@\"' \"$0\" \"$@\""
    );
    let run = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(OWN_NETWORK, test)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    assert!(
        told.contains("1 passed"),
        "the inner run found no {test}: {told}"
    );
}

fn alone<F: Future<Output = ()>>(test: &str, body: impl FnOnce() -> F) {
    alone_under(test, "", body);
}

fn set(key: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value).unwrap();
}

fn admit_all_groups() {
    set("ping_group_range", "0 0");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

fn options(socket: SocketChoice) -> Options {
    Options {
        socket,
        ..Options::default()
    }
}

fn opened(socket: SocketChoice) -> Surge {
    Surge::open(&options(socket), Arc::new(SystemClock::new())).unwrap()
}

fn host(a: u8, b: u8) -> IpAddr {
    IpAddr::from([127, 0, a, b])
}

fn request(key: u64, target: IpAddr, timeout: Duration) -> Request {
    Request {
        key,
        target,
        timeout,
        late_window: Duration::from_mins(1),
        payload_bytes: 16,
        fresh_identifier: false,
    }
}

/// Collects until nothing is in flight any more.
async fn landed(engine: &mut Surge) -> Vec<Done> {
    let mut done = Vec::new();
    let all = async {
        while engine.is_waiting() {
            tokio::time::sleep(ms(2)).await;
            engine.collect(&mut done);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all)
        .await
        .expect("a probe came to no end");
    done
}

fn assert_replied(done: &[Done], timeout: Duration) {
    for probe in done {
        let rtt_us = probe
            .outcome
            .rtt_us()
            .unwrap_or_else(|| panic!("{probe:?}"));
        let rtt = probe.known_at.since(probe.sent_at);
        assert!(rtt > Duration::ZERO && rtt <= timeout, "{probe:?}");
        assert_eq!(u128::from(rtt_us), rtt.as_micros());
    }
}

#[test]
fn twenty_rounds_on_loopback_are_twenty_replies() {
    alone("twenty_rounds_on_loopback_are_twenty_replies", || async {
        admit_all_groups();
        for socket in BOTH {
            let mut engine = opened(socket);
            for round in 0..20 {
                let v6 = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]);
                engine.send(&[
                    request(round, host(0, 1), ms(1_000)),
                    request(round, v6, ms(1_000)),
                ]);
                let done = landed(&mut engine).await;
                assert_eq!(done.len(), 2);
                assert_replied(&done, ms(1_000));
            }
            let counters = engine.counters();
            assert_eq!(
                (counters.sent, counters.valid, counters.errors),
                (40, 40, 0)
            );
            assert_eq!(counters.sent_bytes, 20 * (44 + 64));
        }
    });
}

#[test]
fn two_devices_on_one_address_both_get_their_replies() {
    alone(
        "two_devices_on_one_address_both_get_their_replies",
        || async {
            admit_all_groups();
            for socket in BOTH {
                let mut engine = opened(socket);
                let mut all = Vec::new();
                for round in 0..20 {
                    engine.send(&[
                        request(1, host(0, 5), ms(1_000)),
                        request(2, host(0, 5), ms(1_000)),
                    ]);
                    if round % 4 == 0 {
                        engine.send(&[request(3, host(0, 5), ms(1_000))]);
                    }
                    all.extend(landed(&mut engine).await);
                }
                assert_replied(&all, ms(1_000));
                for (key, expected) in [(1, 20), (2, 20), (3, 5)] {
                    assert_eq!(all.iter().filter(|d| d.key == key).count(), expected);
                }
            }
        },
    );
}

#[test]
fn five_hundred_devices_at_once_are_all_heard() {
    alone("five_hundred_devices_at_once_are_all_heard", || async {
        admit_all_groups();
        for socket in BOTH {
            let mut engine = opened(socket);
            let requests: Vec<Request> = (0..500_u16)
                .map(|n| {
                    let [a, b] = (n + 1).to_be_bytes();
                    request(n.into(), host(a, b), ms(2_000))
                })
                .collect();
            engine.send(&requests);
            let done = landed(&mut engine).await;
            assert_replied(&done, ms(2_000));
            let mut keys: Vec<u64> = done.iter().map(|d| d.key).collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..500).collect::<Vec<_>>());
        }
    });
}

#[test]
fn silence_is_a_miss_at_the_deadline_and_holds_up_nobody() {
    alone(
        "silence_is_a_miss_at_the_deadline_and_holds_up_nobody",
        || async {
            let _living = Responder::start(|target, _| match target.octets() {
                [.., 9, _] => vec![Answer::reply_after(ms(0))],
                _ => vec![],
            });
            let mut engine = opened(SocketChoice::Raw);
            let clock = SystemClock::new();
            let dead = |n: u64| request(n, host(u8::try_from(n / 250).unwrap(), 7), ms(1_500));
            let requests: Vec<Request> = (0..1_000).map(dead).collect();
            engine.send(&requests);
            let living: Vec<Request> = (1..=50)
                .map(|n| request(u64::from(n) + 10_000, host(9, n), ms(1_500)))
                .collect();
            let asked_at = clock.mono();
            engine.send(&living);
            let mut done = Vec::new();
            while done.len() < 50 {
                tokio::time::sleep(ms(2)).await;
                engine.collect(&mut done);
                assert!(clock.mono().since(asked_at) < ms(1_000), "{}", done.len());
            }
            assert_replied(&done, ms(1_000));
            assert!(engine.next_deadline().is_some());

            let missed = landed(&mut engine).await;
            assert_eq!(missed.len(), 1_000);
            for probe in missed {
                assert_eq!(probe.outcome, Outcome::Missed(Miss::Timeout));
                assert_eq!(probe.known_at, probe.sent_at.plus(ms(1_500)));
            }
            assert_eq!(engine.next_deadline(), None);
        },
    );
}

#[test]
fn an_icmp_error_is_a_miss_with_its_reason() {
    alone("an_icmp_error_is_a_miss_with_its_reason", || async {
        let _router = Responder::start(|target, _| match target.octets() {
            [.., kind] => vec![Answer::error(kind)],
        });
        let mut engine = opened(SocketChoice::Raw);
        let kinds = [
            (3, Miss::Unreachable),
            (11, Miss::TtlExceeded),
            (5, Miss::OtherError),
        ];
        for (kind, miss) in kinds {
            engine.send(&[request(1, host(0, kind), ms(800))]);
            let done = landed(&mut engine).await;
            assert_eq!(done[0].outcome, Outcome::Missed(miss));
            assert!(done[0].known_at < done[0].sent_at.plus(ms(800)));
        }
        assert_eq!((engine.counters().errors, engine.counters().valid), (3, 0));
    });
}

#[test]
fn a_late_reply_satisfies_no_later_probe() {
    alone("a_late_reply_satisfies_no_later_probe", || async {
        admit_all_groups();
        for socket in BOTH {
            // The first is answered after the second was sent, the second never.
            let _slow = Responder::start(|_, count| match count {
                1 => vec![Answer::reply_after(ms(450))],
                _ => vec![],
            });
            let mut engine = opened(socket);
            for _ in 0..2 {
                engine.send(&[request(1, host(0, 5), ms(300))]);
                let done = landed(&mut engine).await;
                assert_eq!(
                    done[0].outcome,
                    Outcome::Missed(Miss::Timeout),
                    "{socket:?}"
                );
            }
        }
    });
}

#[test]
fn a_second_copy_of_a_reply_changes_nothing() {
    alone("a_second_copy_of_a_reply_changes_nothing", || async {
        let _twice = Responder::start(|_, _| vec![Answer::reply_after(ms(0)); 2]);
        let mut engine = opened(SocketChoice::Raw);
        for round in 0..10 {
            engine.send(&[request(round, host(0, 5), ms(1_000))]);
            let done = landed(&mut engine).await;
            assert_eq!(done.len(), 1);
            assert_replied(&done, ms(1_000));
        }
        assert_eq!((engine.counters().sent, engine.counters().valid), (10, 10));
    });
}

#[test]
fn what_the_kernel_refuses_to_send_is_no_data() {
    alone("what_the_kernel_refuses_to_send_is_no_data", || async {
        let mut engine = opened(SocketChoice::Auto);
        // No route leads out of this network.
        engine.send(&[request(1, IpAddr::from([198, 18, 0, 1]), ms(500))]);
        let done = landed(&mut engine).await;
        assert_eq!(done[0].outcome, Outcome::NoData(NoData::SendFailed));
        assert_eq!(engine.counters().send_failed, 1);
    });
}

#[test]
fn a_chosen_socket_is_refused_and_never_swapped_for_the_other_kind() {
    alone(
        "a_chosen_socket_is_refused_and_never_swapped_for_the_other_kind",
        || async {
            set("ping_group_range", "1 0");
            let refused = Surge::open(&options(SocketChoice::Dgram), Arc::new(SystemClock::new()));
            assert!(matches!(refused, Err(OpenError::NoPrivilege { .. })));
            assert_eq!(opened(SocketChoice::Auto).facts().socket, "RAW");
            admit_all_groups();
            assert_eq!(opened(SocketChoice::Dgram).facts().socket, "DGRAM");
        },
    );
}

#[test]
fn without_privilege_the_error_names_what_helps() {
    let test = "without_privilege_the_error_names_what_helps";
    alone_under(test, "setpriv --bounding-set=-net_raw", || async {
        set("ping_group_range", "1 0");
        for socket in [SocketChoice::Auto, SocketChoice::Raw, SocketChoice::Dgram] {
            let refused = Surge::open(&options(socket), Arc::new(SystemClock::new()));
            let told = refused.unwrap_err().to_string();
            assert_eq!(
                told.contains("CAP_NET_RAW"),
                socket != SocketChoice::Dgram,
                "{told}"
            );
            assert_eq!(
                told.contains("net.ipv4.ping_group_range"),
                socket != SocketChoice::Raw,
                "{told}"
            );
        }
        // With a group let in, a plain user gets a DGRAM socket.
        admit_all_groups();
        assert_eq!(opened(SocketChoice::Auto).facts().socket, "DGRAM");
    });
}

#[test]
fn outside_a_runtime_it_says_so() {
    let refused = Surge::open(&Options::default(), Arc::new(SystemClock::new()));
    assert!(matches!(refused, Err(OpenError::Unsupported(_))));
}

#[test]
fn an_interface_that_comes_late_or_comes_again_is_used() {
    alone(
        "an_interface_that_comes_late_or_comes_again_is_used",
        || async {
            let bound = Options {
                interface: Some("modem0".into()),
                ..Options::default()
            };
            let mut engine = Surge::open(&bound, Arc::new(SystemClock::new())).unwrap();
            for address in ["10.9.0.1/24", "10.9.0.2/24"] {
                let gone = probed_until(&mut engine, "no_data").await;
                assert_eq!(gone, Outcome::NoData(NoData::SendFailed));
                ip("link add modem0 type veth peer name far0");
                ip(&format!("addr add {address} dev modem0"));
                ip("link set modem0 up");
                ip("link set far0 up");
                ip("neigh add 10.9.0.77 lladdr 02:00:00:00:00:01 dev modem0 nud permanent");
                // It leaves and nobody is there: a miss, no longer our own fault.
                let missed = probed_until(&mut engine, "missed").await;
                assert_eq!(missed, Outcome::Missed(Miss::Timeout));
                ip("link del modem0");
            }
        },
    );
}

/// Probes 10.9.0.77 until the outcome has this word.
async fn probed_until(engine: &mut Surge, word: &str) -> Outcome {
    for _ in 0..60 {
        engine.send(&[request(1, IpAddr::from([10, 9, 0, 77]), ms(100))]);
        let outcome = landed(engine).await[0].outcome;
        if outcome.word() == word {
            return outcome;
        }
        tokio::time::sleep(ms(200)).await;
    }
    panic!("never {word}");
}

#[test]
fn a_replaced_socket_ends_no_probe_under_way() {
    alone("a_replaced_socket_ends_no_probe_under_way", || async {
        // What the engine relies on when it opens sockets anew: surge-ping closes
        // only with the last handle. Older versions closed with any of them.
        let _slow = Responder::start(|_, _| vec![Answer::reply_after(ms(200))]);
        let config = surge_ping::Config::builder()
            .sock_type_hint(socket2::Type::RAW)
            .build();
        let client = surge_ping::Client::new(&config).unwrap();
        let kept = client.clone();
        let mut pinger = kept.pinger(host(0, 5), surge_ping::PingIdentifier(7)).await;
        drop(client);
        assert!(
            pinger
                .ping(surge_ping::PingSequence(1), &[0; 16])
                .await
                .is_ok()
        );
    });
}

#[test]
fn surge_ping_itself_takes_errors_bad_sums_and_old_replies_for_replies() {
    let test = "surge_ping_itself_takes_errors_bad_sums_and_old_replies_for_replies";
    alone(test, || async {
        // The traps this engine guards against (or, of the checksum, warns of):
        // when one of these claims fails after an update, its guard can go.
        let _responder = Responder::start(|target, count| match (target.octets(), count) {
            ([.., 3], _) => vec![Answer::error(3)],
            ([.., 4], _) => vec![Answer::reply_after(ms(0)).with_bad_checksum()],
            (_, 1) => vec![Answer::reply_after(ms(250))],
            _ => vec![],
        });
        let config = surge_ping::Config::builder()
            .sock_type_hint(socket2::Type::RAW)
            .build();
        let client = surge_ping::Client::new(&config).unwrap();
        let ping = async |last: u8| {
            let target = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let mut pinger = client.pinger(target, surge_ping::PingIdentifier(7)).await;
            pinger.timeout(ms(200));
            pinger.ping(surge_ping::PingSequence(1), &[0; 16]).await
        };
        assert!(ping(5).await.is_err(), "the first is answered too late");
        assert!(ping(5).await.is_ok(), "and its reply satisfies the second");
        assert!(ping(3).await.is_ok(), "host unreachable");
        assert!(ping(4).await.is_ok(), "wrong checksum");
    });
}
