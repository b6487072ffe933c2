//! The write under way, and what is said where it does not end.
//!
//! Floor 3. `edge::recorder` has one at most.
//!
//! # Invariants
//!
//! - A write that takes longer than [`LOOK_EVERY`] times [`LOOKS_MAX`] is shown as
//!   the store failing, until it ends.

use std::future;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::Recorder;
use super::writing::Written;
use crate::clock::Clock;
use crate::domain::instant::Mono;

/// Time between two looks at a write that takes long.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Looks after which it is said. Counted, and not measured alone: a process that was
/// stopped and goes on finds its write old, and the disk is not to blame.
const LOOKS_MAX: u32 = 3;

/// A write under way.
#[derive(Debug)]
pub(super) struct Underway {
    job: JoinHandle<Written>,
    began: Mono,
    look_at: Mono,
    looks: u32,
}

impl Underway {
    pub(super) fn new(job: JoinHandle<Written>, now: Mono) -> Self {
        Self {
            job,
            began: now,
            look_at: now.plus(LOOK_EVERY),
            looks: 0,
        }
    }

    /// When it is looked at next.
    pub(super) fn wake(&self, clock: &dyn Clock) -> Instant {
        clock.wake_for(self.look_at, LOOK_EVERY)
    }

    /// Its end.
    pub(super) async fn ended(self) -> Result<Written, JoinError> {
        self.job.await
    }

    /// How long it has taken, where that is too long.
    fn look(&mut self, now: Mono) -> Option<Duration> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now.plus(LOOK_EVERY);
        self.looks = self.looks.saturating_add(1);
        (self.looks >= LOOKS_MAX).then(|| now.since(self.began))
    }
}

/// Waits for the end of the write under way; for ever, where there is none.
pub(super) async fn ended(writing: &mut Option<Underway>) -> Result<Written, JoinError> {
    match writing {
        Some(writing) => (&mut writing.job).await,
        None => future::pending().await,
    }
}

impl Recorder {
    /// Says it where the write under way does not end. What waits behind it is shown
    /// then, as where the disk takes nothing.
    pub(super) fn look_at_writing(&mut self) {
        let now = self.links.clock.mono();
        let taken = self.writing.as_mut().and_then(|writing| writing.look(now));
        let Some(taken) = taken else { return };
        self.trouble.note_stall(taken, self.links.clock.wall());
        let mut shown = Vec::new();
        self.pending.release(&mut shown);
        self.show(&shown);
        self.show_store();
    }
}
