//! What the system may tell a running gateway.
//!
//! Floor 4. `app::run` listens before it opens anything: until a handler stands,
//! SIGTERM and SIGHUP kill on the spot, and to the first process of a container
//! SIGTERM says nothing at all. What comes meanwhile waits in its stream.

use std::future;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::error;

/// The signals that are heeded, heard from the moment this is made.
#[derive(Debug)]
pub(super) struct Signals {
    /// Those that ask for a clean stop.
    pub(super) stop: StopSignals,
    /// SIGHUP; `None` where it cannot be heard.
    pub(super) hangup: Option<Signal>,
}

/// SIGTERM and SIGINT; `None` where they cannot be heard.
#[derive(Debug)]
pub(super) struct StopSignals(Option<[Signal; 2]>);

impl Signals {
    /// Starts to listen. Must run inside a runtime.
    pub(super) fn hear() -> Self {
        let stop = signal(SignalKind::terminate())
            .and_then(|terminate| Ok([terminate, signal(SignalKind::interrupt())?]));
        if let Err(fault) = &stop {
            error!(%fault, "signals cannot be heard, stop with SIGKILL");
        }
        let hangup = signal(SignalKind::hangup());
        if let Err(fault) = &hangup {
            error!(%fault, "SIGHUP cannot be heard, reload from the page");
        }
        Self {
            stop: StopSignals(stop.ok()),
            hangup: hangup.ok(),
        }
    }
}

impl StopSignals {
    /// Waits for one and tells its name.
    pub(super) async fn next(&mut self) -> &'static str {
        let Some([terminate, interrupt]) = &mut self.0 else {
            return future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    }
}
