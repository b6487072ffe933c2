//! Kernel receive stamps on our own clock.
//!
//! Floor 2. `lane` takes one moment per received batch. The kernel stamps with
//! the wall clock, which may step; RTTs run on the monotonic one.

use crate::clock::Clock;
use crate::domain::instant::Mono;
use crate::ping::flight::Arrival;

/// Two readings of the monotonic clock this close leave the wall between them
/// sharp enough.
const SHARP_NANOS: u64 = 20_000;
/// Readings tried for a sharp one: a busy machine may part them each time.
const READINGS_MAX: usize = 3;

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    mono: Mono,
    /// Monotonic minus wall time in nanoseconds.
    offset_nanos: i128,
}

impl Moment {
    /// Reads both clocks.
    pub(super) fn now(clock: &dyn Clock) -> Self {
        let mut before = clock.mono();
        let mut wall_nanos = clock.wall_nanos();
        let mut after = clock.mono();
        for _ in 1..READINGS_MAX {
            if after.nanos().saturating_sub(before.nanos()) <= SHARP_NANOS {
                break;
            }
            before = after;
            wall_nanos = clock.wall_nanos();
            after = clock.mono();
        }
        Self {
            mono: after,
            offset_nanos: i128::from(before.nanos()) - i128::from(wall_nanos),
        }
    }

    /// The arrival of a message that the kernel stamped so.
    pub(super) fn arrival(self, stamp_nanos: Option<i64>) -> Arrival {
        let converted = stamp_nanos.map(|stamp| i128::from(stamp) + self.offset_nanos);
        Arrival {
            stamp: converted.and_then(|nanos| u64::try_from(nanos).ok().map(Mono::from_nanos)),
            read: self.mono,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::SimulatedClock;
    use crate::domain::instant::Wall;

    const START: Wall = Wall::from_millis(1_773_273_900_000);

    async fn clock_after(time: Duration) -> SimulatedClock {
        let clock = SimulatedClock::starting_at(START);
        tokio::time::advance(time).await;
        clock
    }

    #[tokio::test(start_paused = true)]
    async fn stamp_keeps_its_distance_to_the_reading() {
        let clock = clock_after(Duration::from_secs(9)).await;
        let stamp = clock.wall_nanos() - 4_000_000;
        let arrival = Moment::now(&clock).arrival(Some(stamp));
        assert_eq!(arrival.read, clock.mono());
        assert_eq!(
            arrival.stamp,
            Some(clock.mono().minus(Duration::from_millis(4)))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn stamp_from_before_the_process_or_none_is_no_stamp() {
        let clock = clock_after(Duration::from_secs(1)).await;
        let moment = Moment::now(&clock);
        assert_eq!(moment.arrival(Some(0)).stamp, None);
        assert_eq!(moment.arrival(Some(i64::MIN)).stamp, None);
        assert_eq!(moment.arrival(None).stamp, None);
    }
}
