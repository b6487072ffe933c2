//! Probes on their way.
//!
//! Floor 3. `edge::monitor` launches a flight per request and lands it when the
//! engine hands the request's key back.

use tokio::sync::oneshot;
use tracing::debug;

use crate::domain::heartbeat::{Occasion, Outcome};
use crate::domain::instant::Wall;

/// A probe on its way, and what to do with its outcome.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) seat: u32,
    pub(super) generation: u32,
    pub(super) occasion: Occasion,
    pub(super) scheduled_at: Wall,
    /// A wake echo: its outcome is ignored, the measured probe follows.
    pub(super) is_wake_echo: bool,
    pub(super) answer: Option<oneshot::Sender<Option<Outcome>>>,
}

/// Probes on their way, by the key that the engine hands back.
#[derive(Debug, Default)]
pub(super) struct Flying {
    flights: Vec<Option<Flight>>,
    free: Vec<u64>,
}

impl Flight {
    pub(super) fn reply_to_asker(self, outcome: Option<Outcome>) {
        if let Some(answer) = self.answer {
            tell(answer, outcome);
        }
    }
}

impl Flying {
    pub(super) fn launch(&mut self, flight: Flight) -> u64 {
        let key = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() as u64 - 1
        });
        if let Some(place) = usize::try_from(key)
            .ok()
            .and_then(|at| self.flights.get_mut(at))
        {
            *place = Some(flight);
        }
        key
    }

    pub(super) fn land(&mut self, key: u64) -> Option<Flight> {
        let flight = self.flights.get_mut(usize::try_from(key).ok()?)?.take()?;
        self.free.push(key);
        Some(flight)
    }
}

/// Answers someone who asked for a probe.
pub(super) fn tell(answer: oneshot::Sender<Option<Outcome>>, outcome: Option<Outcome>) {
    if answer.send(outcome).is_err() {
        debug!("nobody waits for the outcome of a probe on demand any more");
    }
}
