//! What the recorder does when times become dates, and when they end to be.
//!
//! Floor 3.

use tracing::{error, info, warn};

use super::drawing::draw;
use super::{Fresh, Recorder};
use crate::board::Picture;
use crate::domain::event::FailureCode;
use crate::domain::trust::Offset;
use crate::edge::report::Times;

impl Recorder {
    pub(super) fn take_times(&mut self, times: Times, fresh: &mut Fresh, picture: &mut Picture) {
        match times {
            Times::Dates(offset) => self.date(offset, fresh, picture),
            Times::Provisional => {
                warn!("the clock is not trusted: nothing is written until it is");
                self.undated.get_or_insert_default();
                // What waits for the disk would be drawn over what comes now.
                let mut shown = Vec::new();
                self.pending.release(&mut shown);
                for show in &shown {
                    draw(show, picture);
                }
            }
        }
    }

    /// The clock is trusted: dates all that waited for it and sends it on its way
    /// to the disk, in the order in which it came.
    fn date(&mut self, offset: Offset, fresh: &mut Fresh, picture: &mut Picture) {
        // Reports of before the turn were drawn after it.
        picture.date(offset);
        self.trouble.date(offset);
        let Some(undated) = self.undated.take() else {
            return;
        };
        info!(
            heartbeats = undated.beats(),
            changes = undated.changes(),
            "the clock is trusted: what waited for it is written"
        );
        let lost = undated.lost_sentence();
        let dated = undated.date(offset);
        dated
            .changes
            .into_iter()
            .for_each(|change| self.keep(change));
        fresh.samples.extend(dated.samples);
        fresh.notices.extend(dated.notices);
        if let Some(message) = lost {
            error!("{message}");
            self.tell_failure(FailureCode::RawLost, message);
        }
        self.flush_at = self.links.clock.mono();
    }
}
