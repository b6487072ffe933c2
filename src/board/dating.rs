//! The dates of a picture that was drawn before the clock was set.
//!
//! Floor 2.

use super::{Picture, Row};
use crate::domain::trust::Offset;

impl Picture {
    /// Dates every provisional time in it.
    pub fn date(&mut self, offset: Offset) {
        for row in self.devices.values_mut() {
            row.date(offset);
        }
        let gateway = &mut self.gateway;
        let times = [
            Some(&mut gateway.started_at),
            Some(&mut gateway.config.loaded_at),
            gateway.clock.since.as_mut(),
            gateway.probe.turned_at.as_mut(),
            gateway.store.figures.last_flush.as_mut(),
            gateway
                .store
                .failing
                .as_mut()
                .map(|failing| &mut failing.since),
            gateway.pulse.at.as_mut(),
        ];
        for at in times.into_iter().flatten() {
            offset.date(at);
        }
    }
}

impl Row {
    fn date(&mut self, offset: Offset) {
        offset.date_track(&mut self.track);
        for sample in &mut self.recent {
            offset.date(&mut sample.at);
        }
    }
}
