//! The one door through which time enters.
//!
//! Floor 1. Rules get `now` as an argument; loops own an `Arc<dyn Clock>` and
//! read it once per turn. In simulation both times follow tokio's paused clock,
//! so one knob moves everything. A gateway's own is the [`Calendar`] before the
//! machine's.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::domain::instant::{Mono, Wall};
use crate::domain::trust::{Distrust, Turn};

mod calendar;

pub use calendar::{Calendar, built_on};

/// The grid on which everything wakes that can wait for it.
///
/// A wake-up costs more than most of the work it is for, so tasks share them.
/// Half a second is nothing to a schedule of minutes; 512 ms rather than 500,
/// see [`SystemClock::new`].
pub const COMMON_TICK: Duration = Duration::from_millis(512);

/// systemd-timesyncd makes this file when it has set the clock, and touches it at
/// each contact with its server (systemd-timesyncd.service(8)).
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// Reads both times of the gateway.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The monotonic time of this process.
    fn mono(&self) -> Mono;

    /// The machine's wall time in nanoseconds since 1970, negative before: whether
    /// it is true or not, the kernel stamps by it. Dates come from [`Self::wall`].
    fn wall_nanos(&self) -> i64;

    /// The wall time. While [`Self::distrust`] is not `None` it counts from 1970 and
    /// dates nothing: all such times are before `domain::trust::DATES_BEGIN`.
    fn wall(&self) -> Wall {
        Wall::from_millis(self.wall_nanos().div_euclid(1_000_000))
    }

    /// The moment on tokio's clock that `at` stands for, to sleep until it.
    fn wake_at(&self, at: Mono) -> Instant;

    /// Whether the system says that its wall is synchronised.
    fn is_synchronised(&self) -> bool {
        false
    }

    /// Why the wall is not trusted; `None`: it is. Then nothing of now may be
    /// written under a day.
    fn distrust(&self) -> Option<Distrust> {
        None
    }

    /// Looks whether the machine's wall was set since the last look. The wall
    /// changes its trust and takes a step here and nowhere else; only
    /// `edge::monitor` calls this, once per turn.
    fn look(&self) -> Option<Turn> {
        None
    }

    /// The moment to wake for something that is due at `at`, once in `period`:
    /// with others at the next [`COMMON_TICK`] where that is little of it.
    fn wake_for(&self, at: Mono, period: Duration) -> Instant {
        let can_wait = period >= COMMON_TICK * 4;
        self.wake_at(if can_wait {
            at.up_to_grid(COMMON_TICK)
        } else {
            at
        })
    }
}

/// The clocks of the machine.
#[derive(Debug)]
pub struct SystemClock {
    zero: std::time::Instant,
}

/// Clocks that follow tokio's, for simulations; the wall can be stepped.
#[derive(Debug)]
pub struct SimulatedClock {
    zero: Instant,
    wall_at_zero_nanos: AtomicI64,
    is_synchronised: AtomicBool,
}

impl SystemClock {
    /// Starts the monotonic time 1,024 ms after its zero, so that a time before
    /// the start can be told from the start.
    ///
    /// Made just before the runtime whose timers follow it, its multiples of
    /// 64 ms are those of tokio's timer wheel: a sleep until one of them costs a
    /// single wake-up, any other longer than 64 ms two (the wheel wakes once to
    /// sort the sleeper into its finer level). Correctness does not hang on it.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which time enters"
    )]
    pub fn new() -> Self {
        let now = std::time::Instant::now();
        Self {
            zero: now.checked_sub(Duration::from_millis(1_024)).unwrap_or(now),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> Mono {
        Mono::default().plus(self.zero.elapsed())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which time enters"
    )]
    fn wall_nanos(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos)
            }
        }
    }

    fn wake_at(&self, at: Mono) -> Instant {
        Instant::from_std(self.zero) + Duration::from_nanos(at.nanos())
    }

    fn is_synchronised(&self) -> bool {
        Path::new(SYNCHRONISED).exists()
    }
}

impl SimulatedClock {
    /// A clock that shows `start` now. Must be made inside the runtime whose
    /// clock it follows.
    #[must_use]
    pub fn starting_at(start: Wall) -> Self {
        Self {
            zero: Instant::now(),
            wall_at_zero_nanos: AtomicI64::new(start.millis().saturating_mul(1_000_000)),
            is_synchronised: AtomicBool::new(false),
        }
    }

    /// Says from now on that the wall is synchronised.
    pub fn synchronise(&self) {
        self.is_synchronised.store(true, Ordering::Relaxed);
    }

    /// Steps the wall by `millis`; the monotonic time does not notice.
    pub fn step_wall(&self, millis: i64) {
        let nanos = millis.saturating_mul(1_000_000);
        self.wall_at_zero_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn mono(&self) -> Mono {
        Mono::default().plus(self.zero.elapsed())
    }

    fn wall_nanos(&self) -> i64 {
        let since_zero = i64::try_from(self.mono().nanos()).unwrap_or(i64::MAX);
        self.wall_at_zero_nanos
            .load(Ordering::Relaxed)
            .saturating_add(since_zero)
    }

    fn wake_at(&self, at: Mono) -> Instant {
        self.zero + Duration::from_nanos(at.nanos())
    }

    fn is_synchronised(&self) -> bool {
        self.is_synchronised.load(Ordering::Relaxed)
    }
}
