//! From provisional times to dates.
//!
//! Floor 0: pure. Whoever holds provisional times when the clock is set dates
//! them: `edge::monitor`, `edge::recorder` and the board.

use std::time::Duration;

use super::{DATES_BEGIN, Reading};
use crate::domain::event::{Change, Event, News};
use crate::domain::instant::{Mono, Wall};
use crate::domain::status::Track;

/// What provisional times lack to be dates. Dates it leaves alone, so nothing is
/// harmed that is dated twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    millis: i64,
}

/// The wall by the monotonic clock alone, counted from 1970.
fn provisional(mono: Mono) -> Wall {
    Wall::default().plus(Duration::from_nanos(mono.nanos()))
}

impl Offset {
    /// Of a process whose trusted wall shows this.
    #[must_use]
    pub fn at(reading: &Reading) -> Self {
        let counted = provisional(reading.mono).millis();
        Self {
            millis: reading.wall.millis().saturating_sub(counted),
        }
    }

    /// Dates a time, if it is provisional.
    pub fn date(self, at: &mut Wall) {
        if *at < DATES_BEGIN {
            *at = Wall::from_millis(at.millis().saturating_add(self.millis));
        }
    }

    /// Dates a standing.
    pub fn date_track(self, track: &mut Track) {
        let times = [
            &mut track.since,
            &mut track.last_ping_at,
            &mut track.last_seen,
            &mut track.updated_at,
        ];
        for at in times.into_iter().flatten() {
            self.date(at);
        }
    }

    /// Dates an event. What a clock showed before and after a step stays.
    pub fn date_event(self, event: &mut Event) {
        self.date(&mut event.produced_at);
        match &mut event.news {
            News::StatusChanged { last_seen, .. } => {
                if let Some(at) = last_seen {
                    self.date(at);
                }
            }
            News::Failed(failure) => self.date(&mut failure.failed_at),
            News::DeviceRemoved { .. }
            | News::DaySummarised(_)
            | News::SiteSummarised(_)
            | News::ClockStepped { .. } => {}
        }
    }

    /// Dates a step of the store.
    pub fn date_change(self, change: &mut Change) {
        match change {
            Change::Standing { liveness, event } => {
                self.date_track(&mut liveness.track);
                self.date_event(event);
            }
            Change::Removal { event, .. }
            | Change::Notice(event)
            | Change::Announcement { event, .. } => self.date_event(event),
        }
    }
}
