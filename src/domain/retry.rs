//! How long to wait before trying again.
//!
//! Floor 0: pure. `edge::uplink` waits so between two attempts to connect.

use std::time::Duration;

/// Waits of 1, 2, 4 ... seconds up to a longest one, each with jitter.
#[derive(Clone, Debug)]
pub struct Backoff {
    longest: Duration,
    tries: u32,
}

impl Backoff {
    /// From the shortest wait on.
    #[must_use]
    pub const fn new(longest: Duration) -> Self {
        Self { longest, tries: 0 }
    }

    /// The next wait: doubled each time, less up to a quarter by `dice` (0 to 1).
    pub fn next_wait(&mut self, dice: f64) -> Duration {
        let doubled = Duration::from_secs(1).saturating_mul(1 << self.tries.min(20));
        self.tries = self.tries.saturating_add(1);
        let whole = doubled.min(self.longest);
        // What is no number cannot be multiplied by.
        let dice = if dice.is_nan() { 0.0 } else { dice };
        whole.mul_f64(1.0 - 0.25 * dice.clamp(0.0, 1.0))
    }

    /// Another longest wait, after a reload.
    pub const fn set_longest(&mut self, longest: Duration) {
        self.longest = longest;
    }

    /// Begins with the shortest wait again. Only after a session that lasted: one
    /// that is closed at once must not be tried at once.
    pub const fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        let waits: Vec<u64> = (0..8).map(|_| backoff.next_wait(0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.next_wait(1.0), Duration::from_secs(45));
        backoff.reset();
        assert_eq!(backoff.next_wait(0.0), Duration::from_secs(1));
        for dice in [0.5, -1.0, 7.0, f64::NAN, f64::INFINITY] {
            for _ in 0..100 {
                assert!(backoff.next_wait(dice) <= Duration::from_secs(60));
            }
        }
        backoff.set_longest(Duration::from_secs(5));
        assert_eq!(backoff.next_wait(0.0), Duration::from_secs(5));
    }
}
