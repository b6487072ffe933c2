//! What readers ask of the flows.
//!
//! Floor 2. `web` sends, `app` and `edge::monitor` carry out; the answer comes
//! back through the command itself.

use tokio::sync::oneshot;

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
}
