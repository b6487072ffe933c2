//! When in its period a device is probed.
//!
//! Floor 0: pure. `edge::schedule` asks here. Probes are spread over the period
//! by a stable hash of the device id, so that a restart, a reload or another
//! device never moves a device's slot.

use std::hash::Hasher;
use std::time::Duration;

use fnv::FnvHasher;

use super::device::DeviceId;
use super::instant::Wall;

/// How far into each period `device` is probed: 0 up to, not including, `period`.
///
/// FNV-1a 64 of the id, mixed (FNV's low bits follow the last letter of short
/// ids too closely to spread `meter-001`, `meter-002`, ... over a period).
#[must_use]
pub fn phase(device: &DeviceId, period: Duration) -> Duration {
    let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(mixed(hash(device.as_str())) % period)
}

/// The first slot of a device at or after `from`: the earliest time that lies
/// `phase` into a period counted from 1970.
#[must_use]
pub fn slot_at_or_after(from: Wall, period: Duration, phase: Duration) -> Wall {
    let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let phase = i64::try_from(phase.as_millis()).unwrap_or(0);
    let past = from.millis().saturating_sub(phase).rem_euclid(period);
    let wait = if past == 0 { 0 } else { period - past };
    Wall::from_millis(from.millis().saturating_add(wait))
}

/// FNV-1a 64 of a text, the stable hash of this program.
#[must_use]
pub fn hash(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): every bit of `x`
/// moves every bit of the result.
#[must_use]
pub const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn numbered_devices_spread_evenly_over_the_period() {
        let mut per_second = [0_u32; 60];
        for n in 0..6_000 {
            let device: DeviceId = format!("meter-{n:04}").parse().unwrap();
            per_second[usize::try_from(phase(&device, MINUTE).as_secs()).unwrap()] += 1;
        }
        // 100 a second on average; five standard deviations are 50.
        assert!(
            per_second.iter().all(|&n| (50..=150).contains(&n)),
            "{per_second:?}"
        );
    }

    #[test]
    fn slots_are_one_period_apart_and_do_not_move_with_the_asking() {
        let phase = Duration::from_millis(17_250);
        let first = slot_at_or_after(Wall::from_millis(1_773_273_900_007), MINUTE, phase);
        assert_eq!(first.to_string(), "2026-03-12T00:05:17.250Z");
        assert_eq!(slot_at_or_after(first, MINUTE, phase), first);
        let next = slot_at_or_after(first.plus(Duration::from_millis(1)), MINUTE, phase);
        assert_eq!(next, first.plus(MINUTE));
    }

    #[test]
    fn hash_is_the_published_fnv_1a() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn slots_before_1970_and_at_the_ends_of_time_do_not_panic() {
        for millis in [i64::MIN, -1, 0, i64::MAX] {
            let slot = slot_at_or_after(Wall::from_millis(millis), MINUTE, Duration::from_secs(3));
            assert!(slot >= Wall::from_millis(millis));
        }
    }
}
