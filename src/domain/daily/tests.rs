//! The rules of the day, each on a short script of heartbeats.

use super::*;
use crate::domain::heartbeat::{Miss, NoData};
use crate::domain::status::Status::{Degraded, Offline, Online, Unknown};

const MINUTE: Duration = Duration::from_secs(60);

fn day() -> Day {
    "2026-03-12".parse().unwrap()
}

/// Plays one heartbeat a minute from midnight on: `+` online reply, `~` degraded,
/// `o` a reply that does not end offline yet, `-` missed while online, `=` missed
/// while degraded, `x` missed and offline, `u` missed before a first verdict,
/// `?` no data, `_` nothing sent; `r` a missed recheck, `f` a first look answered.
fn play(carry: Carry, script: &str) -> Figures {
    let mut account = Account::new(day(), carry, MINUTE);
    let mut expected = 0;
    for (minute, letter) in script.chars().enumerate() {
        let (outcome, status) = match letter {
            '+' | 'f' => (Outcome::Replied { rtt_us: 1_000 }, Online),
            '~' => (Outcome::Replied { rtt_us: 2_000_000 }, Degraded),
            'o' => (Outcome::Replied { rtt_us: 1_000 }, Offline),
            '-' | 'r' => (Outcome::Missed(Miss::Timeout), Online),
            '=' => (Outcome::Missed(Miss::Timeout), Degraded),
            'x' => (Outcome::Missed(Miss::Timeout), Offline),
            'u' => (Outcome::Missed(Miss::Timeout), Unknown),
            '?' => (Outcome::NoData(NoData::SendFailed), Online),
            _ => {
                expected += 1;
                continue;
            }
        };
        let occasion = match letter {
            'r' => Occasion::Recheck,
            'f' => Occasion::FirstLook,
            _ => Occasion::Scheduled,
        };
        expected += u32::from(occasion == Occasion::Scheduled);
        let minutes = u32::try_from(minute).unwrap();
        account.take(&Beat {
            at: day().start().plus(MINUTE * minutes),
            outcome,
            occasion,
            status,
        });
    }
    account.close(expected, 0)
}

fn counted(figures: &Figures) -> [u32; 3] {
    [figures.online, figures.degraded, figures.offline]
}

#[test]
fn p95_is_the_value_at_nearest_rank_for_every_number_of_replies() {
    for n in 1..=1_440_usize {
        let rtts: Vec<u32> = (1..=u32::try_from(n).unwrap()).collect();
        // 1-based rank: the least k with 100 k >= 95 n.
        let rank = (1..=n).find(|k| 100 * k >= 95 * n).unwrap();
        assert_eq!(nearest_rank(&rtts, 95), rtts.get(rank - 1).copied(), "{n}");
    }
    let of = |n: u32| nearest_rank(&(1..=n).collect::<Vec<_>>(), 95);
    let known = [1, 2, 3, 19, 20, 21, 40, 100, 1_439, 1_440].map(of);
    let right = [1, 2, 3, 19, 19, 20, 38, 95, 1_368, 1_368].map(Some);
    assert_eq!(known, right);
    assert_eq!(of(0), None);
    assert_eq!(nearest_rank(&[7; 50], 95), Some(7));
}

#[test]
fn nothing_that_came_back_gives_no_number_and_a_loss_of_one() {
    let none = play(Carry::default(), "uuu");
    assert_eq!((none.replied, none.missed), (0, 3));
    assert_eq!((none.avg_rtt_us, none.p95_rtt_us), (None, None));
    assert_eq!(none.loss_ratio(), Some(1.0));
    assert_eq!(none.online_ratio(), None);
    let one = play(Carry::default(), "-+-");
    assert_eq!(one.loss_ratio(), Some(2.0 / 3.0));
    assert_eq!((one.avg_rtt_us, one.p95_rtt_us), (Some(1_000), Some(1_000)));
    assert_eq!(play(Carry::default(), "+++").loss_ratio(), Some(0.0));
    let nothing = play(Carry::default(), "____");
    assert_eq!((nothing.loss_ratio(), nothing.online_ratio()), (None, None));
    assert!(nothing.coverage().abs() < f64::EPSILON);
    assert_eq!(nothing.longest_offline_ms, 0);
}

#[test]
fn gap_of_the_monitor_is_no_downtime() {
    let script = format!("{}{}-", "_".repeat(720), "+".repeat(719));
    let figures = play(Carry::default(), &script);
    assert_eq!((figures.expected, figures.gap()), (1_440, 720));
    assert!((figures.coverage() - 0.5).abs() < f64::EPSILON);
    assert_eq!(figures.loss_ratio(), Some(1.0 / 720.0));
    // The one miss holds the status: it is loss, not time offline.
    assert_eq!(counted(&figures), [720, 0, 0]);
}

#[test]
fn run_that_reaches_offline_is_offline_from_its_first_miss() {
    let figures = play(Carry::default(), "++--xx+~=~");
    assert_eq!(counted(&figures), [3, 3, 4]);
    assert_eq!(figures.max_missed_count, 4);
    assert_eq!(figures.longest_offline_ms, 4 * 60_000);
    let ratios = [
        figures.online_ratio(),
        figures.degraded_ratio(),
        figures.offline_ratio(),
    ];
    let sum: f64 = ratios.into_iter().flatten().sum();
    assert!((sum - 1.0).abs() < 1e-12);
}

#[test]
fn run_carried_over_midnight_counts_where_it_goes_on() {
    let two_missed = Carry {
        missed_count: 2,
        is_offline: false,
    };
    let figures = play(two_missed, "x+");
    assert_eq!(counted(&figures), [1, 0, 1]);
    assert_eq!(figures.max_missed_count, 3);
    let first = play(Carry::default(), "+--");
    assert_eq!(first.carry, two_missed);
    assert_eq!(counted(&first), [3, 0, 0]);
    let offline = play(
        Carry {
            missed_count: 700,
            is_offline: true,
        },
        "xx",
    );
    assert_eq!(counted(&offline), [0, 0, 2]);
    assert_eq!(offline.max_missed_count, 702);
    assert_eq!(
        offline.carry,
        Carry {
            missed_count: 702,
            is_offline: true
        }
    );
    // Ended before the first heartbeat of the day was missed.
    let ended = play(two_missed, "+");
    assert_eq!((ended.max_missed_count, ended.carry), (0, Carry::default()));
}

#[test]
fn reply_that_does_not_end_offline_counts_as_offline() {
    let figures = play(Carry::default(), "+--xoxo+");
    assert_eq!(counted(&figures), [2, 0, 6]);
    assert_eq!(figures.loss_ratio(), Some(0.5));
    assert_eq!(figures.longest_offline_ms, 6 * 60_000);
}

#[test]
fn no_data_neither_ends_nor_lengthens_a_run_and_is_in_no_ratio() {
    let with = play(Carry::default(), "+-?-?x?+");
    let without = play(Carry::default(), "+--x+");
    assert_eq!(counted(&with), counted(&without));
    assert_eq!(with.max_missed_count, 3);
    assert_eq!(with.no_data, 3);
    assert_eq!((with.probed(), with.observed()), (8, 5));
}

#[test]
fn recheck_lengthens_a_run_and_is_in_no_ratio() {
    let figures = play(Carry::default(), "+-rr+");
    assert_eq!((figures.missed, figures.max_missed_count), (1, 3));
    assert_eq!((figures.expected, figures.observed()), (3, 3));
    let first_look = play(Carry::default(), "f+");
    assert_eq!((first_look.observed(), first_look.online), (1, 1));
}

#[test]
fn misses_before_a_first_verdict_are_loss_alone_unless_they_reach_offline() {
    let figures = play(Carry::default(), "uu++");
    assert_eq!(counted(&figures), [2, 0, 0]);
    assert_eq!(figures.loss_ratio(), Some(0.5));
    assert_eq!(counted(&play(Carry::default(), "uux+")), [1, 0, 3]);
}

#[test]
fn offline_time_stops_where_nobody_looked() {
    let gap = "_".repeat(600);
    let figures = play(Carry::default(), &format!("--x{gap}xx+"));
    assert_eq!(figures.longest_offline_ms, (3 + 3) * 60_000 - 60_000);
    let whole_day = play(
        Carry {
            missed_count: 9,
            is_offline: true,
        },
        &"x".repeat(1_440),
    );
    assert_eq!(whole_day.longest_offline_ms, 86_400_000);
}

#[test]
fn hour_lived_twice_covers_no_more_than_all() {
    let mut figures = play(Carry::default(), &"+".repeat(100));
    figures.expected = 60;
    assert!((figures.coverage() - 1.0).abs() < f64::EPSILON);
    assert_eq!(figures.gap(), 0);
}

#[test]
fn site_sums_samples_and_names_its_worst() {
    let row = |n: u32, script: &str| Summary {
        day: day(),
        device: format!("D{n}").parse().unwrap(),
        figures: play(Carry::default(), script),
        calc_version: CALC_VERSION,
        created_at: day().end(),
        updated_at: day().end(),
    };
    let mut rows: Vec<Summary> = (1..=7)
        .map(|n| row(n, &format!("--x{}", "+".repeat(n as usize))))
        .collect();
    rows.push(row(8, "++++"));
    let site = SiteSummary::of(day(), &rows);
    assert_eq!(
        (site.devices, site.sum.missed, site.sum.replied),
        (8, 21, 32)
    );
    let worst: Vec<String> = site
        .worst
        .iter()
        .map(|worst| worst.device.to_string())
        .collect();
    assert_eq!(worst, ["D1", "D2", "D3", "D4", "D5"]);
    assert_eq!(SiteSummary::of(day(), []).sum.online_ratio(), None);
}
