//! From what should become true to records: a change with its number.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use super::state;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event, News, Stage};
use crate::domain::outbox::{Class, Load};
use crate::wire::message::{self, Place};
use crate::wire::record::logged::Kind;
use crate::wire::record::standing::Standing;
use crate::wire::record::uplink::{DeadLetter, Gap};

/// One change with its place in the log, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The event's number.
    pub(super) seq: u64,
    /// Which kind of event.
    pub(super) kind: Kind,
    /// Whether it is kept for the page alone and not addressed to MQTT.
    pub(super) is_local: bool,
    /// The event's envelope.
    pub(super) json: String,
    /// The standing that becomes true with it, if any.
    pub(super) standing: Option<(DeviceId, Standing)>,
    /// That it was announced, if it is an announcement.
    pub(super) mark: Option<Mark>,
    /// The event that is kept aside with it, if it tells of one.
    pub(super) aside: Option<Box<Aside>>,
}

/// An event of the log that is not sent but kept aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aside {
    /// Its number.
    pub(super) seq: u64,
    /// What is sent in its place.
    pub(super) gap: Gap,
    /// What is kept of it.
    pub(super) letter: DeadLetter,
    /// Letters that make room for it, by number.
    pub(super) dropped: Vec<u64>,
}

/// The place of a change in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'a> {
    /// The log.
    pub(super) log_id: &'a str,
    /// The number.
    pub(super) seq: u64,
    /// Number of the log's previous event addressed to MQTT.
    pub(super) previous: Option<u64>,
    /// Whether it is kept for the page alone.
    pub(super) is_local: bool,
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

impl Aside {
    /// What waits no more once it is aside.
    pub(super) fn load(&self) -> (Class, Load) {
        let bytes = bytes_of(&self.letter.json);
        (self.letter.kind.class(), Load { events: 1, bytes })
    }
}

impl Step {
    /// The change in its place in the log.
    pub(super) fn of(change: &Change, seat: &Seat<'_>, voice: &Voice) -> Self {
        let event = change.event();
        let seq = seat.seq;
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
        Self {
            seq,
            kind: Kind::of(&event.news),
            is_local: seat.is_local,
            json: envelope(event, seat, voice),
            standing,
            mark: Mark::of(change),
            aside: None,
        }
    }

    /// Bytes of its envelope.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(&self.json)
    }
}

/// An event as it goes upstream from its place in the log.
pub(super) fn envelope(event: &Event, seat: &Seat<'_>, voice: &Voice) -> String {
    let place = Place {
        site: &voice.site,
        node: &voice.node,
        log_id: seat.log_id,
        seq: seat.seq,
        prev_seq: seat.previous,
    };
    message::envelope(event, &place)
}

/// Whether an event tells of a heartbeat that failed.
pub(super) fn is_miss(event: &Event) -> bool {
    matches!(&event.news, News::Failed(failure) if failure.stage == Stage::Heartbeat)
}

/// How much an envelope counts against `uplink.outbox_max_bytes`.
pub(super) fn bytes_of(json: &str) -> u64 {
    u64::try_from(json.len()).unwrap_or(u64::MAX)
}

/// A name for a new log: 48 random bits, so that no two logs of any site are
/// likely to share one.
pub(super) fn new_log_id() -> String {
    // The standard library seeds this from the system's randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("{:012x}", random & 0xffff_ffff_ffff)
}
