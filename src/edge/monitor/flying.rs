//! Probes on their way.
//!
//! Floor 3. `edge::monitor` launches a flight per request and lands it when the
//! engine hands the request's key back.

use tokio::sync::oneshot;
use tracing::debug;

use crate::domain::heartbeat::{Occasion, Outcome};
use crate::domain::instant::Wall;
use crate::domain::trust::Offset;

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

const SEAT_SHIFT: u32 = 32;
const PLACE_MASK: u64 = (1 << SEAT_SHIFT) - 1;

/// Probes on their way, by the key that the engine hands back: their place here
/// in its lower half, their seat in its upper, which outlives the flight.
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
    /// Dates what left before the clock was set.
    pub(super) fn date(&mut self, offset: Offset) {
        for flight in self.flights.iter_mut().flatten() {
            offset.date(&mut flight.scheduled_at);
        }
    }

    pub(super) fn launch(&mut self, flight: Flight) -> u64 {
        let seat = u64::from(flight.seat) << SEAT_SHIFT;
        let place = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() as u64 - 1
        });
        if let Some(free) = usize::try_from(place)
            .ok()
            .and_then(|at| self.flights.get_mut(at))
        {
            *free = Some(flight);
        }
        seat | place
    }

    pub(super) fn land(&mut self, key: u64) -> Option<Flight> {
        let place = key & PLACE_MASK;
        let flight = self.flights.get_mut(usize::try_from(place).ok()?)?.take()?;
        self.free.push(place);
        Some(flight)
    }
}

/// The seat that a key's probe was sent for.
pub(super) fn seat_of(key: u64) -> Option<u32> {
    u32::try_from(key >> SEAT_SHIFT).ok()
}

/// Answers someone who asked for a probe.
pub(super) fn tell(answer: oneshot::Sender<Option<Outcome>>, outcome: Option<Outcome>) {
    if answer.send(outcome).is_err() {
        debug!("nobody waits for the outcome of a probe on demand any more");
    }
}
