//! What the log says of devices: turns of status for people, each heartbeat for
//! those who look for something.
//!
//! Floor 3. `edge::monitor` calls it as soon as a thing is judged, so that the
//! log tells of it even while the store takes nothing.

use tracing::{debug, info, warn};

use super::report::Beat;
use crate::domain::event::{Change, Event, FailureCode, News};

/// Tells of one judged outcome and of what followed from it.
pub(super) fn beat(beat: &Beat) {
    let sample = &beat.sample;
    let rtt_ms = sample.outcome.rtt_us().map(|us| f64::from(us) / 1000.0);
    debug!(
        device.id = %sample.device,
        outcome = sample.outcome.word(),
        reason = sample.outcome.reason(),
        rtt_ms,
        status = sample.status.word(),
        "heartbeat"
    );
    if let Some(told) = beat.change.as_deref() {
        change(told, rtt_ms);
    }
    if let Some(notice) = beat.notice.as_deref() {
        trouble(notice);
    }
}

/// Tells of a change; `rtt_ms` is that of the reply which made it, if one did.
pub(super) fn change(change: &Change, rtt_ms: Option<f64>) {
    let event = change.event();
    let device = event.device.map(tracing::field::display);
    match &event.news {
        News::StatusChanged {
            previous,
            current,
            missed_count,
            last_seen,
        } => info!(
            device.id = device,
            previous = previous.word(),
            missed_count,
            last_seen = last_seen.map(tracing::field::display),
            rtt_ms,
            "device is {}",
            current.word(),
        ),
        News::DeviceRemoved { reason } => {
            info!(device.id = device, reason, "device is no longer watched");
        }
        News::ClockStepped { from, to, source } => {
            warn!(%from, %to, source, "the wall clock was set");
        }
        // Told where they are made.
        News::Failed(_) | News::DaySummarised(_) | News::SiteSummarised(_) => {}
    }
}

/// A miss is the device's affair and shows in its status; a probe that could not
/// be sent is the gateway's, and nothing else tells of it.
fn trouble(notice: &Event) {
    if let News::Failed(failure) = &notice.news
        && failure.code == FailureCode::SendFailed
    {
        let device = notice.device.map(tracing::field::display);
        warn!(
            device.id = device,
            "{}: check the gateway's own network and the route to this address", failure.message
        );
    }
}
