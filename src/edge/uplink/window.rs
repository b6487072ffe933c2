//! How many messages may be under way at once.
//!
//! Floor 3, pure. The rate over a radio link is what is under way by the round trip;
//! but what waits in the queue of a slow link for long lets the keep-alive behind it
//! come too late. So the window grows while acknowledgements come at once and shrinks
//! while they are slow.

use std::time::Duration;

use crate::broker::IN_FLIGHT_MAX;

/// Two places stay free: for the liveness record before an event, and for taking
/// leave. What goes beyond the broker's own limit would be dropped.
const MOST: usize = IN_FLIGHT_MAX - 2;
const AT_FIRST: usize = 16;
const LEAST: usize = 4;
/// Acknowledgements as fast as this let it grow.
const FAST: Duration = Duration::from_millis(1_500);
/// As slow as this, and it shrinks. A third of the shortest sensible keep-alive.
const SLOW: Duration = Duration::from_secs(5);

/// The window of one connection.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    /// Acknowledgements until it may shrink again: those of what is under way now
    /// are slow for the same reason.
    spared: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            size: AT_FIRST,
            spared: 0,
        }
    }
}

impl Window {
    /// How many may be under way.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Takes in how long an acknowledgement took.
    pub(super) fn note(&mut self, delay: Duration) {
        self.spared = self.spared.saturating_sub(1);
        if delay <= FAST {
            self.size = (self.size + 1).min(MOST);
        } else if delay >= SLOW && self.spared == 0 {
            self.spared = self.size;
            self.size = (self.size / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_line_opens_it_and_a_slow_one_closes_it_to_a_few() {
        let mut window = Window::default();
        for _ in 0..1_000 {
            window.note(Duration::from_millis(2));
        }
        assert_eq!(window.size(), MOST);
        for _ in 0..2_000 {
            window.note(Duration::from_secs(9));
        }
        assert_eq!(window.size(), LEAST);
    }

    #[test]
    fn one_slow_batch_halves_it_once() {
        let mut window = Window::default();
        for _ in 0..AT_FIRST {
            window.note(Duration::from_secs(6));
        }
        assert_eq!(window.size(), AT_FIRST / 2);
    }
}
