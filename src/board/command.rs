//! What readers ask of the flows.
//!
//! Floor 2. `web` sends, `app` and `edge::monitor` carry out; the answer comes
//! back through the command itself.

use tokio::sync::oneshot;

use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Outcome;

/// Commands waiting at most; more are refused as busy.
pub const WAITING_MAX: usize = 64;

/// One wish.
#[derive(Debug)]
pub enum Command {
    /// Ask this device now; the outcome counts for the verdict, not the ratios.
    Probe {
        /// Which.
        device: DeviceId,
        /// What came of it; `None`: no such device, or it is disabled.
        answer: oneshot::Sender<Option<Outcome>>,
    },
    /// Read configuration and inventory again.
    Reload {
        /// `Err`: why the old stays in force.
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// Summarise this finished day now, whether or not it was before.
    Rollup {
        /// Which.
        day: Day,
        /// What was written, or why nothing was.
        answer: oneshot::Sender<Result<RolledUp, NotRolledUp>>,
    },
}

/// What a rollup by hand did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledUp {
    /// Rows written, new or with another content.
    pub rows_changed: usize,
    /// Rows that stayed as they were: they say the same, or rest on more.
    pub rows_kept: usize,
}

/// Why a rollup by hand cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRolledUp {
    /// The day still goes on, or has not begun.
    #[error("{day} is not over{}", from_when(*.day))]
    NotOver {
        /// The day asked for.
        day: Day,
    },
    /// There is nothing to summarise.
    #[error("no raw heartbeats of {day} are kept any more, so nothing can be summarised")]
    NoRaw {
        /// The day asked for.
        day: Day,
    },
    /// One run at a time.
    #[error("a rollup of {day} is running; try again when it is done")]
    Running {
        /// The day being summarised.
        day: Day,
    },
    /// It was tried.
    #[error("the rollup of {day} failed: {reason}")]
    Failed {
        /// The day asked for.
        day: Day,
        /// Why, for people.
        reason: String,
    },
}

/// From when a day can be summarised; nothing where that is past the year 9999,
/// which RFC 3339 cannot write.
fn from_when(day: Day) -> String {
    let end = day.end().to_string();
    if end.starts_with('+') {
        String::new()
    } else {
        format!("; it can be summarised from {end}")
    }
}
