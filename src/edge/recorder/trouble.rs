//! Whether the store takes what it is given, and since when not: writes that fail,
//! and one that does not end.
//!
//! Floor 3. Pure data; `edge::recorder` owns it.

use std::time::Duration;

use tracing::{error, info};

use crate::board::Failing;
use crate::domain::instant::Wall;
use crate::domain::trust::Offset;
use crate::fault::chain;
use crate::store::WriteError;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Changes of status, with their events.
    Changes,
    /// Raw heartbeats.
    Raw,
}

/// The failures that last.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    changes: Option<Failing>,
    raw: Option<Failing>,
    /// The write that does not end.
    stall: Option<Failing>,
}

impl Trouble {
    /// Whether changes of status cannot be made durable.
    pub(super) const fn holds_up_changes(&self) -> bool {
        self.changes.is_some() || self.stall.is_some()
    }

    /// What the board says: that the disk does not answer, or else that changes
    /// fail, or else that raw does.
    pub(super) fn shown(&self) -> Option<Failing> {
        let failing = self.stall.as_ref().or(self.changes.as_ref());
        failing.or(self.raw.as_ref()).cloned()
    }

    /// The write under way has taken this long.
    pub(super) fn note_stall(&mut self, taken: Duration, now: Wall) {
        let reason = format!("the disk has not answered for {} s", taken.as_secs());
        let before = self.stall.take();
        if before.is_none() {
            error!("{reason}: nothing is kept until it does");
        }
        let since = before.map_or(now.minus(taken), |before| before.since);
        self.stall = Some(Failing { since, reason });
    }

    /// A write has ended. What was shown while the disk did not answer may wait for
    /// it still, `is_behind`; then it stays said, unless there is a fault to say.
    pub(super) fn end_stall(&mut self, is_behind: bool) {
        if is_behind && self.changes.is_none() {
            return;
        }
        if let Some(stall) = self.stall.take() {
            info!(since = %stall.since, "the disk answers again");
        }
    }

    /// Dates what began before the clock was set.
    pub(super) fn date(&mut self, offset: Offset) {
        let all = [&mut self.changes, &mut self.raw, &mut self.stall];
        for failing in all.into_iter().flatten() {
            offset.date(&mut failing.since);
        }
    }

    /// A write has come to this.
    pub(super) fn note(&mut self, kind: Kind, result: &Result<(), WriteError>, now: Wall) {
        let reason = result.as_ref().err().map(|fault| chain(fault));
        let place = self.of(kind);
        match (place.take(), reason) {
            (None, None) => {}
            (Some(before), None) => {
                info!(since = %before.since, "the store takes {} again", kind.words());
            }
            (before, Some(reason)) => {
                if before.as_ref().is_none_or(|before| before.reason != reason) {
                    error!(error = %reason, "the store takes no {}, trying again", kind.words());
                }
                let since = before.map_or(now, |before| before.since);
                *place = Some(Failing { since, reason });
            }
        }
    }

    /// A write broke off, nobody knows which: everything fails until it is seen
    /// to work.
    pub(super) fn note_break(&mut self, reason: &str, now: Wall) {
        error!(error = reason, "a write to the store broke off");
        for kind in [Kind::Changes, Kind::Raw] {
            let reason = format!("a write broke off: {reason}");
            let since = self.of(kind).take().map_or(now, |before| before.since);
            *self.of(kind) = Some(Failing { since, reason });
        }
    }

    const fn of(&mut self, kind: Kind) -> &mut Option<Failing> {
        match kind {
            Kind::Changes => &mut self.changes,
            Kind::Raw => &mut self.raw,
        }
    }
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Changes => "changes of status",
            Self::Raw => "raw heartbeats",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Result<(), WriteError> = Err(WriteError::Full { bytes: 2, limit: 1 });

    #[test]
    fn trouble_lasts_from_the_first_failure_to_the_first_success() {
        let mut trouble = Trouble::default();
        let at = Wall::from_millis;
        trouble.note(Kind::Raw, &FULL, at(1));
        trouble.note(Kind::Raw, &FULL, at(2));
        assert_eq!(trouble.shown().map(|failing| failing.since), Some(at(1)));
        assert!(!trouble.holds_up_changes());
        trouble.note(Kind::Changes, &FULL, at(3));
        assert!(trouble.holds_up_changes());
        assert_eq!(trouble.shown().map(|failing| failing.since), Some(at(3)));
        trouble.note(Kind::Changes, &Ok(()), at(4));
        assert_eq!(trouble.shown().map(|failing| failing.since), Some(at(1)));
        trouble.note(Kind::Raw, &Ok(()), at(5));
        assert_eq!(trouble.shown(), None);
        trouble.note_break("a panic", at(6));
        assert!(trouble.holds_up_changes());
    }

    #[test]
    fn a_write_that_does_not_end_is_said_until_nothing_shown_waits_for_it() {
        let mut trouble = Trouble::default();
        let at = Wall::from_millis;
        trouble.note_stall(Duration::from_secs(30), at(31_000));
        trouble.note_stall(Duration::from_secs(40), at(41_000));
        let shown = trouble.shown().unwrap();
        assert_eq!(shown.since, at(1_000));
        assert_eq!(shown.reason, "the disk has not answered for 40 s");
        assert!(trouble.holds_up_changes());
        trouble.end_stall(true);
        assert!(trouble.shown().is_some());
        trouble.end_stall(false);
        assert_eq!(trouble.shown(), None);
        trouble.note_stall(Duration::from_secs(30), at(90_000));
        trouble.note(Kind::Changes, &FULL, at(91_000));
        trouble.end_stall(true);
        assert_eq!(
            trouble.shown().map(|failing| failing.since),
            Some(at(91_000))
        );
    }
}
