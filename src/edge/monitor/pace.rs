//! How probes are paced: slots, ticks and first looks.
//!
//! Floor 3, pure. `edge::monitor` asks here.

use std::time::Duration;

use crate::clock::COMMON_TICK;
use crate::config::settings::ProbeRules;
use crate::domain::instant::Mono;

/// Longest and shortest distance of ticks.
pub(super) const TICK_MAX: Duration = COMMON_TICK;
const TICK_MIN: Duration = Duration::from_millis(10);
/// Ticks at least this long are multiples of it: those sleeps cost one wake-up
/// and not two, see `clock::SystemClock::new`.
const TICK_STEP_MILLIS: u64 = 64;
/// Probes that should leave together where the rate gives so many: 11 kB of small
/// ones, and every receive buffer holds their replies.
const BATCH_TARGET: f64 = 256.0;
/// Devices without a verdict get their first look within this.
const FIRST_LOOK_MAX: Duration = Duration::from_secs(5);
/// First looks are at most this dense.
const FIRST_LOOK_SPACING: Duration = Duration::from_millis(20);

/// The slot after `due` that is still to come, in step with it.
pub(super) fn next_slot(due: Mono, period: Duration, now: Mono) -> Mono {
    let next = due.plus(period);
    if next > now {
        return next;
    }
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    let behind = now.nanos() - next.nanos();
    Mono::from_nanos(next.nanos() + (behind / period + 1).saturating_mul(period))
}

pub(super) fn first_look_spread(devices: usize) -> Duration {
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    FIRST_LOOK_SPACING
        .saturating_mul(devices)
        .min(FIRST_LOOK_MAX)
}

/// The distance of ticks that gives full batches at this roster's rate, yet
/// keeps verdicts prompt where periods and timeouts are short.
pub(super) fn tick<'a>(rules: impl Iterator<Item = &'a ProbeRules>) -> Duration {
    let mut per_second = 0.0;
    let mut longest = TICK_MAX;
    for rules in rules {
        per_second += 1.0 / rules.heartbeat_period.as_secs_f64();
        longest = longest
            .min(rules.heartbeat_period / 20)
            .min(rules.offline_timeout / 4);
    }
    let full_batch = Duration::try_from_secs_f64(BATCH_TARGET / per_second).unwrap_or(TICK_MAX);
    in_steps(full_batch.min(longest)).max(TICK_MIN)
}

/// `tick`, or the multiple of the step below it.
fn in_steps(tick: Duration) -> Duration {
    let millis = u64::try_from(tick.as_millis()).unwrap_or(u64::MAX);
    match millis / TICK_STEP_MILLIS {
        0 => tick,
        steps => Duration::from_millis(steps * TICK_STEP_MILLIS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_passed_are_skipped_and_the_phase_stays() {
        let minute = Duration::from_secs(60);
        let due = Mono::from_nanos(17_000_000_000);
        assert_eq!(next_slot(due, minute, due), due.plus(minute));
        let stalled = due.plus(Duration::from_secs(6 * 3_600 + 1));
        let next = next_slot(due, minute, stalled);
        assert_eq!(next.since(due).as_secs() % 60, 0);
        assert!(next > stalled && next.since(stalled) <= minute);
    }

    #[test]
    fn ticks_are_long_when_little_is_due_and_short_when_much() {
        let rules = ProbeRules::default();
        assert_eq!(tick(std::iter::repeat_n(&rules, 1_000)), TICK_MAX);
        let a_thousand_per_second = tick(std::iter::repeat_n(&rules, 60_000));
        assert_eq!(a_thousand_per_second, Duration::from_millis(256));
        assert_eq!(tick(std::iter::repeat_n(&rules, 10_000_000)), TICK_MIN);
        let quick = ProbeRules {
            heartbeat_period: Duration::from_millis(200),
            offline_timeout: Duration::from_millis(50),
            ..ProbeRules::default()
        };
        assert_eq!(tick([&quick].into_iter()), TICK_MIN);
        assert_eq!(tick(std::iter::empty()), TICK_MAX);
        for n in [1, 5_000, 10_000, 20_000, 40_000] {
            let millis = tick(std::iter::repeat_n(&rules, n)).as_millis();
            assert!(
                millis < 64 || millis.is_multiple_of(64),
                "{n} devices: {millis} ms"
            );
        }
    }

    #[test]
    fn first_looks_come_within_five_seconds_whatever_the_number() {
        assert_eq!(first_look_spread(5), Duration::from_millis(100));
        assert_eq!(first_look_spread(1_000_000), FIRST_LOOK_MAX);
        assert_eq!(first_look_spread(0), Duration::ZERO);
    }
}
