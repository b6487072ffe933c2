//! Chance that repeats: every throw is a hash of what it is about.
//!
//! Floor 2. `character` throws; nobody else. There is no state to advance, so
//! a throw depends on its subject alone and never on who threw before.

use crate::domain::phase::mixed;

/// The golden ratio in 64 bits: the step of `SplitMix64` (Steele, Lea, Flood 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// One subject's dice; `throw(n)` is its n-th number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dice(u64);

impl Dice {
    /// Dice for the subject `b` of the subject `a`.
    pub(super) const fn about(a: u64, b: u64) -> Self {
        Self(mixed(a ^ mixed(b.wrapping_add(STEP))))
    }

    /// Dice for a part of this subject.
    pub(super) const fn part(self, b: u64) -> Self {
        Self::about(self.0, b)
    }

    /// The n-th number, any 64 bits.
    pub(super) const fn number(self, n: u64) -> u64 {
        mixed(self.0.wrapping_add(STEP.wrapping_mul(n.wrapping_add(1))))
    }

    /// The n-th number, evenly in 0 to 1 (1 not included).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub(super) fn throw(self, n: u64) -> f64 {
        const TWO_TO_53: f64 = 9_007_199_254_740_992.0;
        (self.number(n) >> 11) as f64 / TWO_TO_53
    }

    /// Whether something of this probability happens.
    pub(super) fn hits(self, n: u64, probability: f64) -> bool {
        self.throw(n) < probability
    }

    /// A number between two others.
    pub(super) fn between(self, n: u64, low: f64, high: f64) -> f64 {
        self.throw(n).mul_add(high - low, low)
    }

    /// A waiting time of this mean, exponential.
    pub(super) fn waiting(self, n: u64, mean: f64) -> f64 {
        // 1 - throw is never 0, so the logarithm is finite.
        -mean * (1.0 - self.throw(n)).ln()
    }

    /// A time of this median with this spread, lognormal (Box and Muller).
    pub(super) fn lognormal(self, n: u64, median: f64, spread: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.throw(n)).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.throw(n.wrapping_add(1 << 32));
        median * (spread * radius * angle.cos()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THROWS: u32 = 20_000;

    fn many(draw: impl Fn(Dice) -> f64) -> Vec<f64> {
        let mut drawn: Vec<f64> = (0..THROWS)
            .map(|n| draw(Dice::about(7, u64::from(n))))
            .collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    #[test]
    fn throws_are_even_between_0_and_1() {
        let drawn = many(|dice| dice.throw(0));
        assert!(drawn[0] >= 0.0 && *drawn.last().unwrap() < 1.0);
        let mean = drawn.iter().sum::<f64>() / f64::from(THROWS);
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }

    #[test]
    fn lognormal_has_the_median_asked_for() {
        let drawn = many(|dice| dice.lognormal(3, 400.0, 0.5));
        let median = drawn[drawn.len() / 2];
        assert!((390.0..410.0).contains(&median), "{median}");
        // 84 % lie below the median times e^spread.
        let upper = drawn[drawn.len() * 84 / 100];
        assert!((630.0..690.0).contains(&upper), "{upper}");
    }

    #[test]
    fn waiting_has_the_mean_asked_for() {
        let drawn = many(|dice| dice.waiting(5, 60.0));
        let mean = drawn.iter().sum::<f64>() / f64::from(THROWS);
        assert!((58.0..62.0).contains(&mean), "{mean}");
    }

    #[test]
    fn neighbouring_subjects_share_no_numbers() {
        let mut seen: Vec<u64> = (0..1_000)
            .flat_map(|a| (0..10).map(move |n| Dice::about(a, 1).number(n)))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
    }
}
