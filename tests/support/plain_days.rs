//! Days summed up the plain way: from a list of all heartbeats, with loops over
//! it and nothing remembered in between. Slow, and easy to agree with.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "shared by test programs, each of which uses a part"
)]

use std::time::Duration;

use sitebeat::domain::day::Day;
use sitebeat::domain::heartbeat::{Occasion, Outcome, Sample};
use sitebeat::domain::status::Status;

/// What a row must say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlainDay {
    pub(crate) replied: u32,
    pub(crate) missed: u32,
    pub(crate) no_data: u32,
    pub(crate) online: u32,
    pub(crate) degraded: u32,
    pub(crate) offline: u32,
    pub(crate) avg_rtt_us: Option<u32>,
    pub(crate) p95_rtt_us: Option<u32>,
    pub(crate) max_missed_count: u32,
}

/// Sums up `day` of one device, whose heartbeats of all days these are, ascending.
pub(crate) fn sum_up(all: &[Sample], day: Day) -> PlainDay {
    let mut plain = PlainDay::default();
    let mut rtts = Vec::new();
    for (n, sample) in all.iter().enumerate() {
        if Day::of(sample.at) != Some(day) {
            continue;
        }
        let run = run_of_misses(all, n);
        let length = u32::try_from(run.iter().filter(|&&m| m <= n).count()).unwrap();
        plain.max_missed_count = plain.max_missed_count.max(length);
        if sample.occasion != Occasion::Scheduled {
            continue;
        }
        let class = match sample.outcome {
            Outcome::NoData(_) => {
                plain.no_data += 1;
                continue;
            }
            Outcome::Replied { rtt_us } => {
                plain.replied += 1;
                rtts.push(rtt_us);
                sample.status
            }
            Outcome::Missed(_) => {
                plain.missed += 1;
                let reaches_offline = run
                    .iter()
                    .any(|&m| Day::of(all[m].at) <= Some(day) && all[m].status == Status::Offline);
                if reaches_offline {
                    Status::Offline
                } else {
                    sample.status
                }
            }
        };
        match class {
            Status::Online => plain.online += 1,
            Status::Degraded => plain.degraded += 1,
            Status::Offline => plain.offline += 1,
            Status::Unknown => {}
        }
    }
    rtts.sort_unstable();
    if !rtts.is_empty() {
        let n = rtts.len() as u64;
        let sum: u64 = rtts.iter().copied().map(u64::from).sum();
        plain.avg_rtt_us = Some(u32::try_from((sum + n / 2) / n).unwrap());
        let rank = (1..=rtts.len())
            .find(|k| 100 * k >= 95 * rtts.len())
            .unwrap();
        plain.p95_rtt_us = Some(rtts[rank - 1]);
    }
    plain
}

/// The heartbeats of the run of misses that number `n` is in; none where it was
/// not missed.
fn run_of_misses(all: &[Sample], n: usize) -> Vec<usize> {
    let is_missed = |m: usize| matches!(all[m].outcome, Outcome::Missed(_));
    let is_reply = |m: usize| matches!(all[m].outcome, Outcome::Replied { .. });
    if !is_missed(n) {
        return Vec::new();
    }
    let before = (0..n).rev().take_while(|&m| !is_reply(m));
    let after = (n..all.len()).take_while(|&m| !is_reply(m));
    let mut run: Vec<usize> = before.chain(after).filter(|&m| is_missed(m)).collect();
    run.sort_unstable();
    run
}

/// Whether these fit together: a sanity check on any day.
pub(crate) fn is_sound(plain: &PlainDay, period: Duration) -> bool {
    let day = Duration::from_hours(24);
    u128::from(plain.replied + plain.missed + plain.no_data)
        <= day.as_millis() / period.as_millis() + 400
}
