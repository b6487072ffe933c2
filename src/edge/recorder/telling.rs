//! What the recorder has to tell of itself: what could not be kept, and what the
//! store had to repair.
//!
//! Floor 3.

use tracing::error;

use super::Recorder;
use crate::domain::day::Day;
use crate::domain::event::{Change, Event, Failure, FailureCode, News, Stage};

/// Repairs shown; a disk that fails again and again would add to them for ever.
const MENDED_MAX: usize = 100;

impl Recorder {
    pub(super) fn tell_given_up(&mut self) {
        let given_up = self.pending.take_given_up();
        if given_up == 0 {
            return;
        }
        let message = format!("{given_up} changes of status could not be kept");
        error!("{message}");
        self.tell_failure(FailureCode::RawLost, message);
    }

    pub(super) fn show_mended(&mut self, mended: Vec<String>) {
        for what in &mended {
            self.tell_damage(what.clone());
        }
        if !mended.is_empty() {
            self.links.board.draw(|picture| {
                let shown = &mut picture.gateway.store.mended;
                shown.extend(mended);
                let excess = shown.len().saturating_sub(MENDED_MAX);
                shown.drain(..excess);
            });
        }
    }

    pub(super) fn tell_damage(&mut self, message: String) {
        error!("{message}");
        self.tell_failure(FailureCode::StoreDamaged, message);
    }

    pub(super) fn tell_lost_day(&mut self, day: Day) {
        let message = format!(
            "the store is full: the heartbeats of {day} were removed before they were summarised"
        );
        error!("{message}");
        self.tell_failure(FailureCode::RawLost, message);
    }

    pub(super) fn tell_failure(&mut self, code: FailureCode, message: String) {
        let now = self.links.clock.wall();
        let failure = Failure {
            stage: Stage::Store,
            code,
            message,
            retryable: false,
            failed_at: now,
        };
        self.keep(Change::Notice(Event {
            device: None,
            produced_at: now,
            process_ms: 0,
            news: News::Failed(failure),
        }));
    }
}
