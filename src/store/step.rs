//! From what should become true to records: a change with its number.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use super::state;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::Change;
use crate::wire::message::{self, Place};
use crate::wire::record::logged::{Kind, LogPlace};
use crate::wire::record::standing::Standing;

/// One change with its place in the log, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The event's number.
    pub(super) seq: u64,
    /// Which kind of event.
    pub(super) kind: Kind,
    /// The event's envelope.
    pub(super) json: String,
    /// The standing that becomes true with it, if any.
    pub(super) standing: Option<(DeviceId, Standing)>,
    /// That it was announced, if it is an announcement.
    pub(super) mark: Option<Mark>,
}

/// What was last told of a row of a final day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Of which day.
    pub(super) day: Day,
    /// Of which device; `None`: of the site.
    pub(super) device: Option<DeviceId>,
    /// A hash of what was told.
    pub(super) content: u64,
}

impl Mark {
    /// The mark of this change, if it is an announcement.
    pub(super) fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Announcement {
                day,
                content,
                event,
            } => Some(Self {
                day: *day,
                device: event.device,
                content: *content,
            }),
            Change::Standing { .. } | Change::Removal { .. } | Change::Notice(_) => None,
        }
    }

    /// Its key in the state database.
    pub(super) fn key(&self) -> Vec<u8> {
        let device = self.device.as_ref().map_or("", DeviceId::as_str);
        [&state::day_key(self.day), device.as_bytes()].concat()
    }
}

/// Whose events these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Voice {
    /// Site id.
    pub(super) site: String,
    /// Node name.
    pub(super) node: String,
}

impl Step {
    /// The change as number `seq` of the log.
    pub(super) fn of(change: &Change, seq: u64, place: &LogPlace, voice: &Voice) -> Self {
        let event = change.event();
        let standing = match change {
            Change::Standing { liveness, .. } => {
                let track = liveness.track;
                Some((liveness.device, Standing::Watched { seq, track }))
            }
            Change::Removal { device, .. } => {
                let at = event.produced_at;
                Some((*device, Standing::Gone { seq, at }))
            }
            Change::Notice(_) | Change::Announcement { .. } => None,
        };
        let envelope = Place {
            site: &voice.site,
            node: &voice.node,
            log_id: &place.log_id,
            seq,
            // Every event of the log is addressed to MQTT.
            prev_seq: (seq > place.base_seq).then(|| seq - 1),
        };
        Self {
            seq,
            kind: Kind::of(&event.news),
            json: message::envelope(event, &envelope),
            standing,
            mark: Mark::of(change),
        }
    }
}

/// A name for a new log: 48 random bits, so that no two logs of any site are
/// likely to share one.
pub(super) fn new_log_id() -> String {
    // The standard library seeds this from the system's randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("{:012x}", random & 0xffff_ffff_ffff)
}
