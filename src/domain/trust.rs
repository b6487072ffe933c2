//! Whether the wall clock can be believed, and when it was set.
//!
//! Floor 0: pure. `clock::Calendar` shows a [`Trust`] both times again and again;
//! `edge::monitor` acts on what comes of it.
//!
//! A gateway without a battery starts in 1970, or where it was switched off. Until
//! its clock is trusted, the process counts provisional times from 1970 by its
//! monotonic clock: all before [`DATES_BEGIN`], so that nobody takes one for a
//! date. An [`Offset`] turns them into dates once the clock is set.
//!
//! # Invariants
//!
//! - A clock that shows an implausible time is never trusted.
//! - Trust that was won ends by an implausible time alone, not by any other step.
//! - A slow drift is no step, however far it leads.

use std::time::Duration;

use super::instant::{Mono, Wall};

mod offset;
#[cfg(test)]
mod tests;

pub use offset::Offset;

/// 2000-01-01T00:00:00Z: provisional times are before it, dates after.
pub const DATES_BEGIN: Wall = Wall::from_millis(946_684_800_000);

/// What the wall gains or loses more at once was not drift but a step.
pub const STEP_MIN: Duration = Duration::from_secs(2);

/// A clock behind what was kept is trusted after this, whatever the system says:
/// what was kept may be what is wrong.
pub const BEHIND_MAX: Duration = Duration::from_mins(10);

/// Both times, read together, and what the system says of the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The monotonic time.
    pub mono: Mono,
    /// The machine's wall, as it shows.
    pub wall: Wall,
    /// Whether the system says that the wall is synchronised.
    pub is_synchronised: bool,
}

/// What a reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The wall is trusted from now on; provisional times become dates by `offset`.
    Won {
        /// The step that brought it, or that there was none.
        step: Step,
        /// What provisional times lack.
        offset: Offset,
    },
    /// A trusted wall was set to another time that may be true.
    Stepped(Step),
    /// A trusted wall was set to a time that cannot be true.
    Lost(Step),
}

/// How the wall was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it would have shown; the same as `to` where it was not set.
    pub from: Wall,
    /// What it showed.
    pub to: Wall,
}

/// Why the wall is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// It shows a time before the program was built.
    Implausible,
    /// At the start it was behind what was kept, and nothing vouches for it.
    Behind,
}

/// The judgement on one wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    plausible_after: Wall,
    newest_kept: Option<Wall>,
    last: Option<Reading>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Trusted,
    Implausible,
    /// Plausible since this time, yet behind.
    Behind(Mono),
}

impl Trust {
    /// A clock not looked at yet. Times up to `plausible_after` cannot be true;
    /// `newest_kept` is the newest time that was ever kept.
    #[must_use]
    pub fn new(plausible_after: Wall, newest_kept: Option<Wall>) -> Self {
        Self {
            plausible_after: plausible_after.max(DATES_BEGIN),
            newest_kept,
            last: None,
            standing: Standing::Implausible,
        }
    }

    /// Why the clock is not trusted; `None`: it is.
    #[must_use]
    pub const fn distrust(&self) -> Option<Distrust> {
        match self.standing {
            Standing::Trusted => None,
            Standing::Implausible => Some(Distrust::Implausible),
            Standing::Behind(_) => Some(Distrust::Behind),
        }
    }

    /// Whether a reading was taken in.
    #[must_use]
    pub const fn has_looked(&self) -> bool {
        self.last.is_some()
    }

    /// Takes in a reading. The first only says where things stand.
    pub fn look(&mut self, reading: &Reading) -> Option<Turn> {
        let last = self.last.replace(*reading);
        let set = last.and_then(|last| step(&last, reading));
        let before = self.standing;
        self.standing = self.judge(reading, set.is_some());
        last?;
        let step = set.unwrap_or(Step {
            from: reading.wall,
            to: reading.wall,
        });
        match (before == Standing::Trusted, self.standing) {
            (true, Standing::Trusted) => set.map(Turn::Stepped),
            (true, _) => Some(Turn::Lost(step)),
            (false, Standing::Trusted) => Some(Turn::Won {
                step,
                offset: Offset::at(reading),
            }),
            (false, _) => None,
        }
    }

    fn judge(&self, reading: &Reading, was_set: bool) -> Standing {
        if reading.wall <= self.plausible_after {
            return Standing::Implausible;
        }
        let is_behind = self
            .newest_kept
            .is_some_and(|newest| newest.since(reading.wall) > STEP_MIN);
        match self.standing {
            Standing::Trusted => Standing::Trusted,
            _ if reading.is_synchronised => Standing::Trusted,
            Standing::Implausible if is_behind => Standing::Behind(reading.mono),
            Standing::Implausible => Standing::Trusted,
            // By going on alone it gets past what was kept, and is as late as before.
            Standing::Behind(since) => {
                let is_over = reading.mono.since(since) >= BEHIND_MAX;
                if is_over || (was_set && !is_behind) {
                    Standing::Trusted
                } else {
                    Standing::Behind(since)
                }
            }
        }
    }
}

/// The step between two readings, if there was one.
fn step(last: &Reading, now: &Reading) -> Option<Step> {
    let from = last.wall.plus(now.mono.since(last.mono));
    let to = now.wall;
    let by = to.since(from).max(from.since(to));
    (by > STEP_MIN).then_some(Step { from, to })
}

impl Turn {
    /// How the wall was set.
    #[must_use]
    pub const fn step(&self) -> Step {
        match *self {
            Self::Won { step, .. } | Self::Stepped(step) | Self::Lost(step) => step,
        }
    }

    /// What was seen, in one word: `boot` where a clock came into range, `step`.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        match self {
            Self::Won { .. } => "boot",
            Self::Stepped(_) | Self::Lost(_) => "step",
        }
    }
}

impl Distrust {
    /// The reason, for people, in one sentence without its full stop.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Implausible => {
                "The machine's clock shows a time before this program was built: set it, or let \
                 it be synchronised"
            }
            Self::Behind => {
                "The machine's clock is behind the newest heartbeat that was kept: it is believed \
                 once the system says that it is synchronised, or after 10 minutes"
            }
        }
    }
}
