//! The monitor on simulated time: slots, verdicts and what it asks of the radio.
#![cfg(test)]

#[path = "support/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use site::{Site, device, roster};
use sitebeat::config::settings::ProbeRules;
use sitebeat::domain::event::{Change, News};
use sitebeat::domain::heartbeat::{Occasion, Outcome};
use sitebeat::domain::instant::{Mono, Wall};
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::edge::monitor::Order;
use sitebeat::edge::report::{Beat, Entry};
use sitebeat::ping::fleet::Scripted;
use tokio::sync::oneshot;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn quick(_: IpAddr, _: f64) -> Scripted {
    Scripted::Reply(Duration::from_millis(300))
}

fn online_since_yesterday(n: u32) -> Liveness {
    let at = Wall::parse("2026-03-11T12:00:00Z");
    let track = Track {
        status: Status::Online,
        since: at,
        last_ping_at: at,
        ..Track::default()
    };
    Liveness {
        device: device(n).id,
        track,
    }
}

fn transitions(beats: &[Beat]) -> Vec<(Status, Status)> {
    let change = |beat: &Beat| match beat.change.as_ref()?.event().news {
        News::StatusChanged {
            previous, current, ..
        } => Some((previous, current)),
        News::Failed(_)
        | News::DeviceRemoved { .. }
        | News::DaySummarised(_)
        | News::SiteSummarised(_)
        | News::ClockStepped { .. } => None,
    };
    beats.iter().filter_map(change).collect()
}

#[tokio::test(start_paused = true)]
async fn every_device_is_asked_once_per_period_within_a_tick_of_its_slot() {
    let mut site = Site::start(&[], quick);
    site.watch(roster(200, &ProbeRules::default())).await;
    site.pass(HOUR).await;
    let mut slots: BTreeMap<_, Vec<Wall>> = BTreeMap::new();
    for sample in site
        .samples()
        .iter()
        .filter(|sample| sample.occasion == Occasion::Scheduled)
    {
        slots.entry(sample.device).or_default().push(sample.at);
    }
    assert_eq!(slots.len(), 200);
    for (device, slots) in slots {
        assert!(
            (59..=60).contains(&slots.len()),
            "{device}: {}",
            slots.len()
        );
        assert!(
            slots
                .windows(2)
                .all(|pair| pair[1].since(pair[0]) == MINUTE),
            "{device}"
        );
    }
    let p99 = site.board.look().gateway.probe.lateness_p99_ms.unwrap();
    assert!(p99 <= 513.0, "{p99} ms");
}

#[tokio::test(start_paused = true)]
async fn probes_spread_over_the_period() {
    let site = Site::start(&[], quick);
    site.watch(roster(600, &ProbeRules::default())).await;
    site.pass(Duration::from_secs(10)).await;
    let before = site.sent().len();
    site.pass(MINUTE).await;
    let mut per_second = [0; 60];
    for sent in &site.sent()[before..] {
        per_second[usize::try_from(sent.at.since(Mono::default()).as_secs() % 60).unwrap()] += 1;
    }
    assert!(
        per_second.iter().all(|&n| (1..=28).contains(&n)),
        "{per_second:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn first_looks_bring_every_verdict_within_seconds() {
    let mut site = Site::start(&[], quick);
    site.watch(roster(1_000, &ProbeRules::default())).await;
    site.pass(Duration::from_secs(6)).await;
    let beats = site.beats();
    assert_eq!(transitions(&beats).len(), 1_000);
    // A device whose own slot came first has had no extra probe.
    assert!(site.sent().len() <= 1_000 + 120, "{}", site.sent().len());
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_phase_and_asks_no_extra_probe_of_known_devices() {
    let restored: Vec<Liveness> = (1..=50).map(online_since_yesterday).collect();
    let mut phases = Vec::new();
    for start in ["2026-03-12T12:00:00Z", "2026-03-12T12:07:23.456Z"] {
        let mut site = Site::start_at(Wall::parse(start).unwrap(), &restored, quick);
        site.watch(roster(50, &ProbeRules::default())).await;
        site.pass(MINUTE + Duration::from_secs(1)).await;
        site.stop();
        let samples = site.samples();
        assert!(
            samples
                .iter()
                .all(|sample| sample.occasion == Occasion::Scheduled)
        );
        let phase = |at: Wall| at.millis().rem_euclid(60_000);
        let phases_now: BTreeMap<_, _> = samples
            .iter()
            .map(|sample| (sample.device, phase(sample.at)))
            .collect();
        assert_eq!(phases_now.len(), 50);
        phases.push(phases_now);
    }
    assert_eq!(phases[0], phases[1]);
}

#[tokio::test(start_paused = true)]
async fn a_wall_step_of_six_hours_causes_no_storm_and_no_misses() {
    for step in [6 * 3_600_000, -6 * 3_600_000] {
        let mut site = Site::start(&[], quick);
        site.watch(roster(100, &ProbeRules::default())).await;
        site.pass(10 * MINUTE).await;
        let before = site.sent().len();
        site.clock.step_wall(step);
        site.pass(MINUTE).await;
        let asked = site.sent().len() - before;
        assert!(
            (97..=103).contains(&asked),
            "{asked} probes in the minute after the step"
        );
        let is_reply =
            |beat: &Beat| matches!(beat.sample.outcome, Outcome::Replied { rtt_us: 300_000 });
        assert!(
            site.beats().iter().all(is_reply),
            "a step changed an outcome or an RTT"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_modem_with_a_long_timeout_is_never_offline() {
    // The first reply of each hour takes 8 s, the others 0.3 s.
    let sleepy = |_: IpAddr, at: f64| {
        let is_first_of_hour = at % 3_600.0 < 60.0;
        Scripted::Reply(Duration::from_millis(if is_first_of_hour {
            8_000
        } else {
            300
        }))
    };
    let edrx = ProbeRules {
        offline_timeout: Duration::from_secs(15),
        ..ProbeRules::default()
    };
    let always_on = ProbeRules::default();
    for (rules, slow, missed) in [(edrx, 3, 0), (always_on, 0, 3)] {
        let mut site = Site::start(&[online_since_yesterday(1)], sleepy);
        site.watch(roster(1, &rules)).await;
        site.pass(3 * HOUR + Duration::from_secs(20)).await;
        let beats = site.beats();
        let first = &beats[..180];
        let count =
            |wanted: &dyn Fn(&Beat) -> bool| first.iter().filter(|beat| wanted(beat)).count();
        assert_eq!(count(&|beat| beat.sample.status == Status::Degraded), slow);
        assert_eq!(
            count(&|beat| matches!(beat.sample.outcome, Outcome::Missed(_))),
            missed
        );
        assert_eq!(count(&|beat| beat.sample.status == Status::Offline), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_echo_takes_the_slow_reply_and_the_measured_one_is_quick() {
    let mut last = None;
    let sleepy = move |_: IpAddr, at: f64| {
        let is_awake = last.is_some_and(|last| at - last < 20.0);
        last = Some(at);
        Scripted::Reply(Duration::from_millis(if is_awake { 300 } else { 8_000 }))
    };
    let rules = ProbeRules {
        offline_timeout: Duration::from_secs(15),
        wake_echo: true,
        ..ProbeRules::default()
    };
    let mut site = Site::start(&[online_since_yesterday(1)], sleepy);
    site.watch(roster(1, &rules)).await;
    site.pass(HOUR + Duration::from_secs(30)).await;
    let beats = site.beats();
    assert!(beats.len() >= 60);
    assert!(
        beats
            .iter()
            .all(|beat| beat.sample.outcome == Outcome::Replied { rtt_us: 300_000 })
    );
    assert!(
        (site.sent().len() - 2 * beats.len()) <= 2,
        "two echoes per heartbeat"
    );
}

#[tokio::test(start_paused = true)]
async fn rechecks_repeat_until_a_reply_or_offline_and_stop_there() {
    let rules = ProbeRules {
        recheck: Some(Duration::from_secs(2)),
        ..ProbeRules::default()
    };
    let mut site = Site::start(&[online_since_yesterday(1)], |_, _| Scripted::Silent);
    site.watch(roster(1, &rules)).await;
    site.pass(10 * MINUTE + Duration::from_secs(10)).await;
    let beats = site.beats();
    let rechecks: Vec<_> = beats
        .iter()
        .filter(|beat| beat.sample.occasion == Occasion::Recheck)
        .collect();
    assert_eq!(rechecks.len(), 2, "misses 2 and 3; none while offline");
    assert_eq!(transitions(&beats), [(Status::Online, Status::Offline)]);
    // 5 s timeout, 2 s wait, three times: 19 s after the first probe.
    let Some(Change::Standing { liveness, .. }) = rechecks[1].change.as_deref() else {
        panic!("no verdict")
    };
    let took = liveness.track.since.unwrap().since(beats[0].sample.at);
    assert!((19_000..=20_000).contains(&took.as_millis()), "{took:?}");
    let scheduled = beats.len() - rechecks.len();
    assert!((10..=11).contains(&scheduled), "{scheduled}");
}

#[tokio::test(start_paused = true)]
async fn a_recheck_that_cannot_be_sent_is_asked_again() {
    let mut asked = 0;
    let radio = move |_: IpAddr, _: f64| {
        asked += 1;
        match asked {
            1 => Scripted::Silent,
            2 | 3 => Scripted::SendFails,
            _ => Scripted::Reply(Duration::from_millis(10)),
        }
    };
    let rules = ProbeRules {
        recheck: Some(Duration::from_secs(2)),
        ..ProbeRules::default()
    };
    let mut site = Site::start(&[online_since_yesterday(1)], radio);
    site.watch(roster(1, &rules)).await;
    site.pass(MINUTE + Duration::from_secs(15)).await;
    let asked: Vec<_> = site
        .samples()
        .iter()
        .take(4)
        .map(|s| (s.occasion, s.outcome.word()))
        .collect();
    let recheck = Occasion::Recheck;
    assert_eq!(
        asked,
        [
            (Occasion::Scheduled, "missed"),
            (recheck, "no_data"),
            (recheck, "no_data"),
            (recheck, "replied")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_recheck_with_a_reply_ends_the_run() {
    let mut asked = 0;
    let once_silent = move |_: IpAddr, _: f64| {
        asked += 1;
        if asked == 1 {
            Scripted::Silent
        } else {
            Scripted::Reply(Duration::from_millis(10))
        }
    };
    let rules = ProbeRules {
        recheck: Some(Duration::from_secs(2)),
        ..ProbeRules::default()
    };
    let mut site = Site::start(&[online_since_yesterday(1)], once_silent);
    site.watch(roster(1, &rules)).await;
    site.pass(3 * MINUTE).await;
    let beats = site.beats();
    let missed: Vec<u32> = beats
        .iter()
        .take(3)
        .map(|beat| beat.track.missed_count)
        .collect();
    assert_eq!(missed, [1, 0, 0]);
    assert_eq!(beats[1].sample.occasion, Occasion::Recheck);
    assert!(
        beats[2..]
            .iter()
            .all(|beat| beat.sample.occasion == Occasion::Scheduled)
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_saves_neither_its_own_probe_nor_the_next() {
    let late = |_: IpAddr, _: f64| Scripted::Late(Duration::from_secs(2));
    let mut site = Site::start(&[online_since_yesterday(1)], late);
    site.watch(roster(1, &ProbeRules::default())).await;
    site.pass(3 * MINUTE + Duration::from_secs(10)).await;
    assert!(
        site.samples()
            .iter()
            .all(|sample| matches!(sample.outcome, Outcome::Missed(_)))
    );
    assert!(site.board.look().gateway.probe.counters.late >= 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_says_nothing_about_the_device() {
    let mut site = Site::start(&[online_since_yesterday(1)], |_, _| Scripted::SendFails);
    site.watch(roster(1, &ProbeRules::default())).await;
    site.pass(HOUR).await;
    let beats = site.beats();
    assert!(beats.len() >= 59 && transitions(&beats).is_empty());
    assert!(beats.iter().all(|beat| beat.track.missed_count == 0));
    assert_eq!(beats.iter().filter(|beat| beat.notice.is_some()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_devices_delay_no_live_one() {
    let half_dead = |target: IpAddr, _: f64| {
        let IpAddr::V4(v4) = target else {
            panic!("{target}")
        };
        if v4.octets()[3].is_multiple_of(2) {
            Scripted::Silent
        } else {
            quick(target, 0.0)
        }
    };
    let mut site = Site::start(&[], half_dead);
    site.watch(roster(2_000, &ProbeRules::default())).await;
    site.pass(5 * MINUTE).await;
    let p99 = site.board.look().gateway.probe.lateness_p99_ms.unwrap();
    assert!(p99 <= 513.0, "{p99} ms");
    let live = site
        .samples()
        .iter()
        .filter(|s| matches!(s.outcome, Outcome::Replied { .. }))
        .count();
    assert!((5_000..=6_100).contains(&live), "{live}");
}

#[tokio::test(start_paused = true)]
async fn a_day_costs_one_small_packet_each_way_per_minute_and_disabled_devices_cost_nothing() {
    let site = Site::start(&[online_since_yesterday(1)], quick);
    let mut watched = roster(2, &ProbeRules::default());
    Arc::make_mut(&mut watched[1].device).enabled = false;
    site.watch(watched).await;
    site.pass(24 * HOUR).await;
    let sent = site.sent();
    assert!(
        sent.iter()
            .all(|sent| sent.request.target == device(1).address)
    );
    assert!(sent.iter().all(|sent| sent.request.payload_bytes == 16));
    // 20 bytes of IP header, 8 of ICMP, 16 of payload, there and back.
    assert_eq!(sent.len() * 2 * (20 + 8 + 16), 126_720);
}

#[tokio::test(start_paused = true)]
async fn a_dead_device_costs_no_more_than_a_live_one() {
    let site = Site::start(&[online_since_yesterday(1)], |_, _| Scripted::Silent);
    site.watch(roster(1, &ProbeRules::default())).await;
    site.pass(24 * HOUR).await;
    assert_eq!(site.sent().len(), 1_440);
    let fresh = site
        .sent()
        .iter()
        .filter(|sent| sent.request.fresh_identifier)
        .count();
    assert!((140..=144).contains(&fresh), "every tenth miss: {fresh}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_on_demand_answers_and_leaves_the_schedule_alone() {
    let mut site = Site::start(&[online_since_yesterday(1)], quick);
    site.watch(roster(1, &ProbeRules::default())).await;
    site.pass(MINUTE).await;
    for (n, expected) in [(1, Some(Outcome::Replied { rtt_us: 300_000 })), (9, None)] {
        let (answer, answered) = oneshot::channel();
        site.orders
            .send(Order::Probe {
                device: device(n).id,
                answer,
            })
            .await
            .unwrap();
        assert_eq!(answered.await.unwrap(), expected);
    }
    site.pass(3 * MINUTE).await;
    let scheduled: Vec<Wall> = site
        .samples()
        .iter()
        .filter(|sample| sample.occasion == Occasion::Scheduled)
        .map(|sample| sample.at)
        .collect();
    assert!(
        scheduled
            .windows(2)
            .all(|pair| pair[1].since(pair[0]) == MINUTE)
    );
}

#[tokio::test(start_paused = true)]
async fn a_roster_change_moves_nobody_elses_slot() {
    let mut site = Site::start(&[], quick);
    site.watch(roster(50, &ProbeRules::default())).await;
    for n in [49, 51, 48, 60] {
        site.pass(Duration::from_secs(95)).await;
        site.watch(roster(n, &ProbeRules::default())).await;
    }
    site.pass(2 * MINUTE).await;
    let mut of_first: BTreeMap<_, Vec<Wall>> = BTreeMap::new();
    let mut removed = 0;
    for entry in site.entries() {
        match entry {
            Entry::Beat(beat) if beat.sample.occasion == Occasion::Scheduled => {
                of_first
                    .entry(beat.sample.device)
                    .or_default()
                    .push(beat.sample.at);
            }
            Entry::Change(change) if matches!(*change, Change::Removal { .. }) => removed += 1,
            Entry::Beat(_)
            | Entry::Change(_)
            | Entry::Roster(_)
            | Entry::Times(_)
            | Entry::Late { .. } => {}
        }
    }
    assert_eq!(removed, 1 + 3);
    for n in 1..=48 {
        let slots = &of_first[&device(n).id];
        assert!(
            slots
                .windows(2)
                .all(|pair| pair[1].since(pair[0]) == MINUTE),
            "D{n}: {slots:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_board_follows_what_the_engine_says_of_itself() {
    let site = Site::start(&[], quick);
    site.pass(MINUTE).await;
    let facts = site.board.look().gateway.probe.facts.clone();
    assert_eq!(facts.engine, "simulated");
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_takes_nothing_does_not_stop_probing() {
    let site = Site::start(&[], quick);
    site.watch(roster(100, &ProbeRules::default())).await;
    // Nobody receives: the channel fills, the monitor holds the rest.
    site.pass(24 * HOUR).await;
    assert!(site.sent().len() >= 143_900, "{}", site.sent().len());
}
