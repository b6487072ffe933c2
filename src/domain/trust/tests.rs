//! Clocks as gateways have them, second by second.

use super::*;
use crate::domain::event::{Event, News};
use crate::domain::status::Track;

const BUILT: &str = "2026-03-01T00:00:00Z";

fn at(text: &str) -> Wall {
    Wall::parse(text).unwrap()
}

/// Looks each second from `start` on. Of each step `(second, wall)` the wall goes
/// on from there. Tells each turn as `second source from to`, less the date's zone.
fn play(trust: &mut Trust, start: &str, steps: &[(u64, &str)], until: u64) -> Vec<String> {
    let mut turns = Vec::new();
    let (mut zero, mut base) = (0, at(start));
    for second in 0..=until {
        if let Some((_, wall)) = steps.iter().find(|(at, _)| *at == second) {
            (zero, base) = (second, at(wall));
        }
        let reading = Reading {
            mono: Mono::default().plus(Duration::from_secs(second)),
            wall: base.plus(Duration::from_secs(second - zero)),
            is_synchronised: false,
        };
        let turn = trust.look(&reading);
        turns.extend(turn.map(|turn| {
            let Step { from, to } = turn.step();
            let word = match turn {
                Turn::Won { .. } => "won",
                Turn::Stepped(_) => "stepped",
                Turn::Lost(_) => "lost",
            };
            format!("{second} {word} {from} {to}").replace(".000Z", "")
        }));
    }
    turns
}

fn fresh() -> Trust {
    Trust::new(at(BUILT), None)
}

fn after(newest: &str) -> Trust {
    Trust::new(at(BUILT), Some(at(newest)))
}

#[test]
fn a_clock_from_1970_is_trusted_when_it_is_set() {
    let mut trust = fresh();
    let turns = play(
        &mut trust,
        "1970-01-01T00:02:00Z",
        &[(180, "2026-03-10T12:00:00Z")],
        300,
    );
    assert_eq!(turns, ["180 won 1970-01-01T00:05:00 2026-03-10T12:00:00"]);
    assert_eq!(trust.distrust(), None);
}

#[test]
fn a_good_clock_is_trusted_at_once_and_without_a_word() {
    let mut trust = after("2026-03-10T11:59:00Z");
    assert!(play(&mut trust, "2026-03-10T12:00:00Z", &[], 10).is_empty());
    assert_eq!(trust.distrust(), None);
    // A second or two behind is the rounding of a restart.
    let mut trust = after("2026-03-10T12:00:01Z");
    play(&mut trust, "2026-03-10T12:00:00Z", &[], 0);
    assert_eq!(trust.distrust(), None);
}

#[test]
fn a_clock_behind_what_was_kept_waits_ten_minutes() {
    let mut trust = after("2026-03-10T12:00:30Z");
    let turns = play(&mut trust, "2026-03-10T12:00:00Z", &[], 599);
    assert!(turns.is_empty(), "past what was kept, as late as before");
    assert_eq!(trust.distrust(), Some(Distrust::Behind));
    let mut trust = after("2026-03-10T12:00:30Z");
    let turns = play(&mut trust, "2026-03-10T12:00:00Z", &[], 900);
    assert_eq!(turns, ["600 won 2026-03-10T12:10:00 2026-03-10T12:10:00"]);
}

#[test]
fn a_clock_behind_what_was_kept_is_trusted_when_it_is_set_past_it() {
    let mut trust = after("2026-03-10T12:00:30Z");
    let steps = [(60, "2026-03-10T11:00:00Z"), (90, "2026-03-10T15:00:00Z")];
    let turns = play(&mut trust, "2026-03-10T12:00:00Z", &steps, 100);
    assert_eq!(turns, ["90 won 2026-03-10T11:00:30 2026-03-10T15:00:00"]);
}

#[test]
fn a_clock_behind_what_was_kept_is_trusted_when_the_system_vouches_for_it() {
    for first in [false, true] {
        let mut trust = after("2031-01-01T00:00:00Z");
        let reading = Reading {
            mono: Mono::default(),
            wall: at("2026-03-10T12:00:00Z"),
            is_synchronised: first,
        };
        assert_eq!(trust.look(&reading), None);
        assert_eq!(trust.distrust().is_none(), first);
        let vouched = Reading {
            is_synchronised: true,
            ..reading
        };
        assert_eq!(trust.look(&vouched).is_some(), !first);
        assert_eq!(trust.distrust(), None);
    }
}

#[test]
fn no_word_of_the_system_makes_1970_plausible() {
    let mut trust = fresh();
    let reading = Reading {
        mono: Mono::default(),
        wall: at("1970-01-01T00:00:00Z"),
        is_synchronised: true,
    };
    assert_eq!(trust.look(&reading), None);
    assert_eq!(trust.distrust(), Some(Distrust::Implausible));
    // Nor does a limit that somebody set too early.
    let mut trust = Trust::new(at("1960-01-01T00:00:00Z"), None);
    trust.look(&reading);
    assert_eq!(trust.distrust(), Some(Distrust::Implausible));
}

#[test]
fn each_step_is_told_once_and_costs_no_trust() {
    let steps = [
        (10, "2026-03-10T18:00:10Z"),
        (20, "2026-03-10T17:53:20Z"),
        (30, "2031-01-01T00:00:00Z"),
        (40, "2026-03-10T12:00:40Z"),
    ];
    let mut trust = after("2026-03-10T11:00:00Z");
    let turns = play(&mut trust, "2026-03-10T12:00:00Z", &steps, 60);
    assert_eq!(
        turns,
        [
            "10 stepped 2026-03-10T12:00:10 2026-03-10T18:00:10",
            "20 stepped 2026-03-10T18:00:20 2026-03-10T17:53:20",
            "30 stepped 2026-03-10T17:53:30 2031-01-01T00:00:00",
            "40 stepped 2031-01-01T00:00:10 2026-03-10T12:00:40",
        ]
    );
    assert_eq!(trust.distrust(), None);
}

#[test]
fn a_clock_that_falls_back_to_1970_loses_trust_until_it_returns() {
    let steps = [(10, "1970-01-01T00:00:00Z"), (30, "2026-03-10T12:00:30Z")];
    let mut trust = fresh();
    let turns = play(&mut trust, "2026-03-10T12:00:00Z", &steps, 60);
    assert_eq!(
        turns,
        [
            "10 lost 2026-03-10T12:00:10 1970-01-01T00:00:00",
            "30 won 1970-01-01T00:00:20 2026-03-10T12:00:30",
        ]
    );
}

#[test]
fn a_clock_that_drifts_is_not_set() {
    let mut trust = fresh();
    let start = at("2026-03-10T12:00:00Z");
    for looks in 0..43_200_u64 {
        // 500 ppm over two days of looks 4 s apart: 86 s in all.
        let mono = Mono::default().plus(Duration::from_secs(looks * 4));
        let wall = start.plus(Duration::from_millis(looks * 4_002));
        let reading = Reading {
            mono,
            wall,
            is_synchronised: false,
        };
        assert_eq!(trust.look(&reading), None, "look {looks}");
    }
}

#[test]
fn provisional_times_become_dates_and_dates_stay() {
    let reading = Reading {
        mono: Mono::default().plus(Duration::from_secs(180)),
        wall: at("2026-03-10T12:00:00Z"),
        is_synchronised: false,
    };
    let offset = Offset::at(&reading);
    let mut track = Track {
        since: Some(at("1970-01-01T00:02:00Z")),
        last_seen: Some(at("2026-03-09T10:00:00Z")),
        ..Track::default()
    };
    offset.date_track(&mut track);
    offset.date_track(&mut track);
    assert_eq!(track.since, Some(at("2026-03-10T11:59:00Z")));
    assert_eq!(track.last_seen, Some(at("2026-03-09T10:00:00Z")));
    let news = News::ClockStepped {
        from: at("1970-01-01T00:00:30Z"),
        to: at("2026-03-10T12:00:00Z"),
        source: "boot",
    };
    let mut event = Event {
        device: None,
        produced_at: at("1970-01-01T00:02:30Z"),
        process_ms: 0,
        news: news.clone(),
    };
    offset.date_event(&mut event);
    assert_eq!(event.produced_at, at("2026-03-10T11:59:30Z"));
    assert_eq!(event.news, news);
}
