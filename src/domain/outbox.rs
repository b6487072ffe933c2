//! What waits to be sent upstream, and what is given up first where too much waits.
//!
//! Floor 0: pure. `store` keeps the log and counts, `edge::uplink` sends.

use super::instant::Wall;

/// The classes of events, in the order in which they are passed over when the
/// outbox is full: what is told in great numbers goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Failures.
    Failed,
    /// Changes of status, devices that left, steps of the clock.
    Status,
    /// Alarms.
    Alarm,
    /// Summaries of days.
    Daily,
}

/// How much of something there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Events.
    pub events: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

/// What lies past a consumer's cursor and is addressed to it, less what was passed
/// over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// By class, in the order of [`Class::ALL`].
    pub loads: [Load; 4],
    /// When the oldest of them was produced.
    pub oldest_at: Option<Wall>,
}

impl Class {
    /// All of them, in the order in which they are passed over.
    pub const ALL: [Self; 4] = [Self::Failed, Self::Status, Self::Alarm, Self::Daily];

    /// The class in one word, as topics and metrics have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Status => "status",
            Self::Alarm => "alarm",
            Self::Daily => "daily",
        }
    }

    /// Its place in [`Backlog::loads`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Failed => 0,
            Self::Status => 1,
            Self::Alarm => 2,
            Self::Daily => 3,
        }
    }
}

impl Backlog {
    /// All classes together.
    #[must_use]
    pub fn total(&self) -> Load {
        self.loads.iter().fold(Load::default(), |sum, load| Load {
            events: sum.events + load.events,
            bytes: sum.bytes + load.bytes,
        })
    }
}
