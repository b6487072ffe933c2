//! A day's heartbeats, asked of the store on a blocking thread.
//!
//! Floor 3. The device page and the API call this; at most
//! [`super::READS_AT_ONCE`] reads run at once, the others wait their turn.
//! A store that cannot be read is a state that passes, like a full disk: 503,
//! with the reason and what memory holds of the day.

use std::sync::Arc;

use super::Front;
use super::api::Samples;
use super::fault::Fault;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Sample;
use crate::store::ReadError;

/// What `shape` makes of the heartbeats of `device` on `day`, ascending. It runs
/// on the blocking thread too. A fault holds those still in memory.
pub(super) async fn heartbeats<T: Send + 'static>(
    front: &Front,
    device: DeviceId,
    day: Day,
    shape: impl FnOnce(Vec<Sample>) -> T + Send + 'static,
) -> Result<T, Fault> {
    let broke_off = || {
        Fault::unavailable(format!(
            "The heartbeats of {device} on {day} cannot be read now: the reading broke off; the \
             log says why."
        ))
    };
    let _turn = front.reads.acquire().await.map_err(|_| broke_off())?;
    let read = Arc::clone(&front.shared.heartbeats);
    match tokio::task::spawn_blocking(move || read(device, day).map(shape)).await {
        Ok(Ok(shaped)) => Ok(shaped),
        Ok(Err(error)) => Err(unread(error, device, day)),
        Err(error) => {
            tracing::error!(device.id = %device, %day, %error, "reading heartbeats broke off");
            Err(broke_off())
        }
    }
}

fn unread(error: ReadError, device: DeviceId, day: Day) -> Fault {
    let reason = error.reason();
    tracing::warn!(
        device.id = %device, %day, error = %error, cause = reason,
        "heartbeats cannot be read"
    );
    let detail = format!(
        "The heartbeats of {device} on {day} that are on disk cannot be read now: {reason}. What \
         follows is only what is still in memory; try again when the store is well."
    );
    let mut fault = Fault::unavailable(detail);
    fault.samples = Some(Box::new(Samples(error.in_memory)));
    fault
}
