//! A wall that is believed only where that is sound, and steps for all at once.
//!
//! Floor 1. `app` puts it before the machine's clock, so that all rooms share one
//! opinion; `edge::monitor` alone calls [`Clock::look`], once per turn. The rule is
//! `domain::trust`.
//!
//! # Invariants
//!
//! - Between two looks the wall goes on by the monotonic clock: a step shows only
//!   when it is looked at, and to everyone at the same moment.
//! - While the machine's wall is not trusted, the wall counts from 1970.
//! - Reading either time takes no lock.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Clock;
use crate::domain::instant::{Mono, Wall};
use crate::domain::trust::{Distrust, Reading, Trust, Turn};

/// When the day began on which this program was built, in seconds since 1970.
const BUILT_ON: &str = env!("SITEBEAT_BUILT_ON");

/// Both times must be read within this, or the process was away in between and
/// the wall would seem to have stepped.
const APART_MAX: Duration = Duration::from_millis(20);

/// Tries of the first look.
const FIRST_LOOKS_MAX: u32 = 100;

const TRUSTED: u8 = 0;
const IMPLAUSIBLE: u8 = 1;
const BEHIND: u8 = 2;

/// The clock of a gateway.
#[derive(Debug)]
pub struct Calendar {
    inner: Arc<dyn Clock>,
    plausible_after: Wall,
    /// `None` before [`Self::begin`].
    trust: Mutex<Option<Trust>>,
    /// Wall minus monotonic time, in nanoseconds; zero while the wall counts from
    /// 1970.
    offset_nanos: AtomicI64,
    distrust: AtomicU8,
}

/// Times up to this cannot be true, unless somebody says otherwise: the start of
/// the day on which the program was built. A day of grace, because what builds it
/// may be ahead of what runs it.
#[must_use]
pub fn built_on() -> Wall {
    let seconds: i64 = BUILT_ON.parse().unwrap_or(0);
    Wall::from_millis(seconds.saturating_mul(1_000))
}

impl Calendar {
    /// A calendar over the machine's clock, which is not trusted up to
    /// `plausible_after`, and not at all before [`Self::begin`].
    #[must_use]
    pub const fn new(inner: Arc<dyn Clock>, plausible_after: Wall) -> Self {
        Self {
            inner,
            plausible_after,
            trust: Mutex::new(None),
            offset_nanos: AtomicI64::new(0),
            distrust: AtomicU8::new(IMPLAUSIBLE),
        }
    }

    /// Looks for the first time. `newest_kept` is the newest time in the store: a
    /// clock behind it has been wrong, then or now.
    pub fn begin(&self, newest_kept: Option<Wall>) {
        *self.trust() = Some(Trust::new(self.plausible_after, newest_kept));
        // The first reading must count; a busy machine may part a few.
        for _ in 0..FIRST_LOOKS_MAX {
            self.look();
            if self.trust().is_some_and(|trust| trust.has_looked()) {
                return;
            }
        }
        tracing::warn!("the clocks cannot be read together: the time is not trusted yet");
    }

    fn trust(&self) -> std::sync::MutexGuard<'_, Option<Trust>> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both times together; `None` where the process was away in between.
    fn read(&self) -> Option<(Mono, i64)> {
        let mono = self.inner.mono();
        let wall_nanos = self.inner.wall_nanos();
        let is_sharp = self.inner.mono().since(mono) <= APART_MAX;
        is_sharp.then_some((mono, wall_nanos))
    }
}

impl Clock for Calendar {
    fn mono(&self) -> Mono {
        self.inner.mono()
    }

    /// The machine's, trusted or not: the kernel stamps by it.
    fn wall_nanos(&self) -> i64 {
        self.inner.wall_nanos()
    }

    fn wall(&self) -> Wall {
        let mono = i64::try_from(self.inner.mono().nanos()).unwrap_or(i64::MAX);
        let nanos = mono.saturating_add(self.offset_nanos.load(Ordering::Acquire));
        Wall::from_millis(nanos.div_euclid(1_000_000))
    }

    fn wake_at(&self, at: Mono) -> Instant {
        self.inner.wake_at(at)
    }

    fn is_synchronised(&self) -> bool {
        self.inner.is_synchronised()
    }

    fn distrust(&self) -> Option<Distrust> {
        match self.distrust.load(Ordering::Acquire) {
            TRUSTED => None,
            BEHIND => Some(Distrust::Behind),
            _ => Some(Distrust::Implausible),
        }
    }

    fn look(&self) -> Option<Turn> {
        let (mono, wall_nanos) = self.read()?;
        let mut guard = self.trust();
        let trust = guard.as_mut()?;
        let is_asked = trust.distrust().is_some();
        let turn = trust.look(&Reading {
            mono,
            wall: Wall::from_millis(wall_nanos.div_euclid(1_000_000)),
            is_synchronised: is_asked && self.inner.is_synchronised(),
        });
        let (distrust, offset) = match trust.distrust() {
            None => {
                let mono = i64::try_from(mono.nanos()).unwrap_or(i64::MAX);
                (TRUSTED, wall_nanos.saturating_sub(mono))
            }
            Some(Distrust::Implausible) => (IMPLAUSIBLE, 0),
            Some(Distrust::Behind) => (BEHIND, 0),
        };
        self.offset_nanos.store(offset, Ordering::Release);
        self.distrust.store(distrust, Ordering::Release);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimulatedClock;

    const NOON: Wall = Wall::from_millis(1_773_144_000_000);

    fn calendar(start: Wall) -> (Arc<SimulatedClock>, Calendar) {
        let machine = Arc::new(SimulatedClock::starting_at(start));
        let inner = Arc::clone(&machine) as Arc<dyn Clock>;
        let calendar = Calendar::new(inner, NOON.minus(Duration::from_hours(1)));
        (machine, calendar)
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_counts_from_1970_until_the_machine_knows_the_time() {
        let (machine, calendar) = calendar(Wall::default());
        calendar.begin(None);
        assert_eq!(calendar.distrust(), Some(Distrust::Implausible));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(calendar.look(), None);
        assert_eq!(calendar.wall(), Wall::from_millis(90_000));
        machine.step_wall(NOON.millis());
        assert_eq!(calendar.wall(), Wall::from_millis(90_000), "nobody looked");
        let Some(Turn::Won { offset, .. }) = calendar.look() else {
            panic!("the clock was set")
        };
        let mut start = Wall::default();
        offset.date(&mut start);
        assert_eq!(start, NOON);
        assert_eq!(calendar.wall(), machine.wall());
        assert_eq!(calendar.distrust(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_shows_when_it_is_looked_at() {
        let (machine, calendar) = calendar(NOON);
        calendar.begin(None);
        machine.step_wall(6 * 3_600_000);
        assert_eq!(calendar.wall(), NOON);
        assert!(matches!(calendar.look(), Some(Turn::Stepped(_))));
        assert_eq!(calendar.wall(), NOON.plus(Duration::from_hours(6)));
        assert_eq!(calendar.wall_nanos(), machine.wall_nanos());
    }

    #[test]
    fn the_program_was_built_after_it_was_written_and_at_the_start_of_a_day() {
        let built = built_on();
        assert!(
            built > Wall::parse("2026-01-01T00:00:00Z").unwrap(),
            "{built}"
        );
        assert_eq!(built.millis() % 86_400_000, 0);
    }
}
