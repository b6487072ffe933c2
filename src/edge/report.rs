//! What the monitor tells the recorder, once per turn.
//!
//! Floor 3. The only link between asking and keeping.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::board::Row;
use crate::config::settings::ProbeRules;
use crate::domain::device::{Device, DeviceId};
use crate::domain::event::{Change, Event};
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::domain::status::Track;
use crate::domain::trust::Offset;

/// One turn of the monitor, in the order in which things happened.
#[derive(Debug, Default)]
pub struct Report {
    /// What happened.
    pub entries: Vec<Entry>,
}

/// One thing that happened.
#[derive(Debug)]
pub enum Entry {
    /// A device's heartbeat.
    Beat(Beat),
    /// The set of devices is now this one, ascending by id.
    Roster(Vec<Member>),
    /// A change without a heartbeat: a device left or moved, the clock was set.
    Change(Box<Change>),
    /// What the times of the entries after this one are.
    Times(Times),
    /// A reply of this device came after its timeout.
    Late {
        /// Whose.
        device: DeviceId,
        /// When the probe was sent.
        at: Wall,
    },
}

/// What times are: told where it turns, so that those who keep agree with those
/// who ask on which times came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Dates from here on; the offset makes dates of those before.
    Dates(Offset),
    /// Provisional from here on: the clock is not trusted any more.
    Provisional,
}

/// A heartbeat and what follows from it.
#[derive(Debug)]
pub struct Beat {
    /// The device's place in the roster in force, see [`Entry::Roster`].
    pub place: usize,
    /// The heartbeat as it is kept.
    pub sample: Sample,
    /// The device's standing after it.
    pub track: Track,
    /// The change of verdict to make durable, if any. Boxed, like the notice:
    /// nearly every beat has neither, and beats are moved by the thousand.
    pub change: Option<Box<Change>>,
    /// A failure event that rides the next flush, if any.
    pub notice: Option<Box<Event>>,
}

/// A device of the roster.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its inventory entry.
    pub device: Arc<Device>,
    /// Its rules.
    pub rules: Arc<ProbeRules>,
    /// Its standing.
    pub track: Track,
}

impl Member {
    /// The member's row of the board, going on from its row of before. A device
    /// that has moved or was switched off starts anew.
    #[must_use]
    pub fn row(self, before: Option<Row>) -> Row {
        let Self {
            device,
            rules,
            track,
        } = self;
        let before = before.filter(|row| row.device.address == device.address && device.enabled);
        match before {
            Some(row) => Row {
                device,
                rules,
                ..row
            },
            None => Row {
                device,
                rules,
                track,
                recent: VecDeque::new(),
            },
        }
    }
}
