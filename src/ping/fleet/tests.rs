//! What the simulated engine promises to `edge` and to other tests.

use super::*;
use crate::clock::SimulatedClock;
use crate::domain::instant::Wall;

const SECOND: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::starting_at(
        Wall::parse("2026-03-12T12:00:00Z").unwrap(),
    ))
}

fn request(key: u64, target: IpAddr) -> Request {
    Request {
        key,
        target,
        timeout: 5 * SECOND,
        late_window: 60 * SECOND,
        payload_bytes: 16,
        fresh_identifier: false,
    }
}

fn home() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

/// A fleet in which every probe comes to `fate`, with one probe sent.
fn asked(fate: Scripted) -> (Fleet, Mono) {
    let clock = clock();
    let sent_at = clock.mono();
    let mut fleet = Fleet::scripted(clock, move |_, _| fate);
    fleet.send(&[request(7, home())]);
    (fleet, sent_at)
}

fn collected(fleet: &mut Fleet) -> Vec<Done> {
    let mut done = Vec::new();
    fleet.collect(&mut done);
    done
}

async fn after(fleet: &mut Fleet, wait: Duration) -> Vec<Done> {
    tokio::time::advance(wait).await;
    collected(fleet)
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_known_at_its_arrival_and_not_before() {
    let (mut fleet, sent_at) = asked(Scripted::Reply(ms(820)));
    assert!(after(&mut fleet, ms(819)).await.is_empty());
    assert!(fleet.is_waiting());
    assert_eq!(fleet.next_deadline(), Some(sent_at.plus(5 * SECOND)));
    // Collected much later, the arrival stays what it was.
    let expected = Done {
        key: 7,
        sent_at,
        known_at: sent_at.plus(ms(820)),
        outcome: Outcome::Replied { rtt_us: 820_000 },
    };
    assert_eq!(after(&mut fleet, 20 * SECOND).await, [expected]);
    assert!(!fleet.is_waiting());
    assert_eq!(fleet.next_deadline(), None);
    assert_eq!(fleet.counters().valid, 1);
    assert_eq!(fleet.counters().sent_bytes, 20 + 8 + 16);
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_miss_at_the_deadline() {
    let (mut fleet, sent_at) = asked(Scripted::Silent);
    assert!(after(&mut fleet, ms(4_999)).await.is_empty());
    let done = after(&mut fleet, ms(1)).await;
    assert_eq!(done[0].outcome, Outcome::Missed(Miss::Timeout));
    assert_eq!(done[0].known_at, sent_at.plus(5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_leaves_the_miss_and_is_counted_when_it_comes() {
    let (mut fleet, _) = asked(Scripted::Late(2 * SECOND));
    let done = after(&mut fleet, 5 * SECOND).await;
    assert_eq!(done[0].outcome, Outcome::Missed(Miss::Timeout));
    assert_eq!(fleet.counters().late, 0);
    assert!(after(&mut fleet, 2 * SECOND).await.is_empty());
    assert_eq!(fleet.counters().late, 1);
    assert_eq!(fleet.counters().valid, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reply_after_the_late_window_is_nobodys() {
    let (mut fleet, _) = asked(Scripted::Late(61 * SECOND));
    assert_eq!(after(&mut fleet, 100 * SECOND).await.len(), 1);
    assert_eq!(fleet.counters().late, 0);
    assert_eq!(fleet.counters().foreign, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_at_the_deadline_counts_and_one_past_it_is_late() {
    let (mut fleet, _) = asked(Scripted::Reply(5 * SECOND));
    let done = after(&mut fleet, 5 * SECOND).await;
    assert_eq!(done[0].outcome, Outcome::Replied { rtt_us: 5_000_000 });
    let (mut fleet, _) = asked(Scripted::Reply(ms(5_001)));
    let done = after(&mut fleet, 6 * SECOND).await;
    assert_eq!(done[0].outcome, Outcome::Missed(Miss::Timeout));
    assert_eq!(fleet.counters().late, 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_counted_and_ends_nothing() {
    let (mut fleet, _) = asked(Scripted::Duplicate(ms(300)));
    assert_eq!(after(&mut fleet, SECOND).await.len(), 1);
    let counters = fleet.counters();
    assert_eq!((counters.valid, counters.duplicate), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_icmp_error_is_known_when_it_arrives() {
    let (mut fleet, sent_at) = asked(Scripted::Unreachable(ms(90)));
    let done = after(&mut fleet, ms(90)).await;
    assert_eq!(done[0].outcome, Outcome::Missed(Miss::Unreachable));
    assert_eq!(done[0].known_at, sent_at.plus(ms(90)));
    assert_eq!(fleet.counters().errors, 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_no_data_at_once() {
    let (mut fleet, sent_at) = asked(Scripted::SendFails);
    assert!(fleet.is_waiting());
    assert_eq!(fleet.next_deadline(), Some(sent_at));
    let done = collected(&mut fleet);
    assert_eq!(done[0].outcome, Outcome::NoData(NoData::SendFailed));
    assert_eq!(fleet.counters().send_failed, 1);
    assert_eq!(fleet.counters().sent, 0);
}

#[tokio::test(start_paused = true)]
async fn a_script_sees_each_request_once_and_may_remember() {
    let mut asked_before = false;
    let mut fleet = Fleet::scripted(clock(), move |request, _now| {
        assert_eq!(request.target, home());
        let is_first = !std::mem::replace(&mut asked_before, true);
        if is_first {
            Scripted::Silent
        } else {
            Scripted::Reply(ms(5))
        }
    });
    fleet.send(&[request(1, home()), request(2, home())]);
    let words: Vec<_> = after(&mut fleet, 5 * SECOND)
        .await
        .iter()
        .map(|done| (done.key, done.outcome.word()))
        .collect();
    assert_eq!(words, [(2, "replied"), (1, "missed")]);
}

/// Runs `devices` through `rounds` rounds of one minute and tells all outcomes.
async fn history(seed: u64, sizes: &[usize], rounds: u64) -> Vec<Done> {
    let clock = clock();
    let devices: Vec<(DeviceId, IpAddr)> = Fleet::inventory(5, "s1", 200)
        .iter()
        .map(|device| (device.id, device.address))
        .collect();
    let mut fleet = Fleet::new(seed, &devices, clock);
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut requests = (0_u64..).zip(&devices).map(|(n, (_, address))| Request {
            key: round * 1_000 + n,
            ..request(0, *address)
        });
        for size in sizes.iter().cycle() {
            let batch: Vec<Request> = requests.by_ref().take(*size).collect();
            if batch.is_empty() {
                break;
            }
            fleet.send(&batch);
            // How often it is collected must not matter either.
            fleet.collect(&mut all);
        }
        tokio::time::advance(60 * SECOND).await;
    }
    fleet.collect(&mut all);
    assert!(!fleet.is_waiting());
    all.sort_by_key(|done| done.key);
    all
}

#[tokio::test(start_paused = true)]
async fn each_request_comes_back_exactly_once() {
    let all = history(1, &[64], 60).await;
    let keys: Vec<u64> = all.iter().map(|done| done.key).collect();
    let expected: Vec<u64> = (0..60)
        .flat_map(|round| (0..200).map(move |n| round * 1_000 + n))
        .collect();
    assert_eq!(keys, expected);
    for done in all {
        assert!(done.known_at >= done.sent_at);
        assert!(done.known_at.since(done.sent_at) <= 5 * SECOND);
        if let Outcome::Replied { rtt_us } = done.outcome {
            let rtt = Duration::from_micros(rtt_us.into());
            assert_eq!(done.known_at, done.sent_at.plus(rtt));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_repeats_from_its_seed_however_it_is_called() {
    let outcomes = |all: Vec<Done>| all.into_iter().map(|d| d.outcome).collect::<Vec<_>>();
    let once = outcomes(history(1, &[200], 20).await);
    assert_eq!(outcomes(history(1, &[200], 20).await), once);
    assert_eq!(outcomes(history(1, &[1, 7, 64], 20).await), once);
    assert_ne!(outcomes(history(2, &[200], 20).await), once);
}

#[tokio::test(start_paused = true)]
async fn most_of_a_fleet_answers_and_some_of_it_does_not() {
    let all = history(1, &[64], 60).await;
    let share = |word| {
        let hits = all
            .iter()
            .filter(|done| done.outcome.word() == word)
            .count();
        f64::from(u32::try_from(hits).unwrap()) / f64::from(u32::try_from(all.len()).unwrap())
    };
    assert!(
        (0.75..0.95).contains(&share("replied")),
        "{}",
        share("replied")
    );
    assert!(
        (0.05..0.25).contains(&share("missed")),
        "{}",
        share("missed")
    );
    assert!(share("no_data") < 0.002, "{}", share("no_data"));
}

#[tokio::test(start_paused = true)]
async fn an_address_outside_the_fleet_always_answers() {
    let mut fleet = Fleet::new(1, &[], clock());
    for key in 0..500 {
        fleet.send(&[request(key, home())]);
        tokio::time::advance(60 * SECOND).await;
    }
    let done = collected(&mut fleet);
    let replied = done.iter().filter(|done| done.outcome.rtt_us().is_some());
    // But for the rare sends that fail locally.
    assert!(replied.count() >= 497);
}

#[tokio::test(start_paused = true)]
async fn nothing_piles_up_once_all_is_known() {
    let (mut fleet, _) = asked(Scripted::Duplicate(ms(5)));
    for key in 0..1_000 {
        fleet.send(&[request(key, home())]);
    }
    drop(after(&mut fleet, 100 * SECOND).await);
    assert!(fleet.coming.is_empty() && fleet.strays.is_empty() && fleet.deadlines.is_empty());
    assert!(format!("{fleet:?}").contains("in_flight: 0"));
}
