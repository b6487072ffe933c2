//! The slots of the probes known, found by identifier and sequence.
//!
//! Floor 2, pure. Only `flight` calls it; what things mean is decided there.
//!
//! # Invariants
//!
//! - A slot is free, or the index leads to it by its identifier and sequence.
//! - `in_flight`, its bytes and the usage of each identifier are the counts of
//!   the slots: they change in [`put`](Table::put), [`land`](Table::land) and
//!   [`release`](Table::release) alone.

use std::net::IpAddr;
use std::time::Duration;

use super::lines::Item;
use crate::domain::heartbeat::Outcome;
use crate::domain::instant::Mono;
use crate::ping::Done;
use crate::ping::packet::Echo;

/// What the kernel accounts for a small received packet besides its payload;
/// measured between 768 (loopback) and 1,280 bytes (drivers with small buffers).
const PACKET_COST_BYTES: usize = 1_280;

/// All probes known.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The current one last.
    identifiers: Vec<Usage>,
    /// The next to try.
    sequence: u16,
    pub(super) in_flight: usize,
    pub(super) in_flight_bytes: usize,
}

/// The probes that an identifier carries.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) identifier: u16,
    pub(super) in_flight: u32,
    /// In flight or remembered.
    pub(super) known: u32,
    /// The slot of each sequence, as far as sequences were used: neighbours in
    /// time are neighbours in memory, which a hash table would scatter.
    places: Vec<Place>,
}

/// A slot's number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

/// How far a probe has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    InFlight,
    /// Ended without a reply.
    Missed,
    Answered,
}

/// One probe; 64 bytes, a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) key: u64,
    pub(super) nonce: u64,
    pub(super) sent_at: Mono,
    pub(super) deadline: Mono,
    pub(super) serial: u32,
    pub(super) late_window_ms: u32,
    pub(super) target: IpAddr,
    pub(super) identifier: u16,
    pub(super) sequence: u16,
    pub(super) payload_bytes: u16,
    pub(super) stage: Stage,
}

impl Table {
    pub(super) fn new(identifier: u16, sequence: u16) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            identifiers: vec![Usage::new(identifier)],
            sequence,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// The current identifier and its next sequence with no probe in flight;
    /// a remembered probe in its way is forgotten. `None` where all are taken.
    pub(super) fn free_mark(&mut self) -> Option<(u16, u16)> {
        let usage = self.identifiers.last()?;
        let identifier = usage.identifier;
        if usage.in_flight > u32::from(u16::MAX) {
            return None;
        }
        for _ in 0..=u16::MAX {
            let sequence = self.sequence;
            self.sequence = sequence.wrapping_add(1);
            let Some(place) = self.identifiers.last()?.place(sequence) else {
                return Some((identifier, sequence));
            };
            if self
                .slot(place)
                .is_some_and(|slot| slot.stage != Stage::InFlight)
            {
                self.release(place);
                return Some((identifier, sequence));
            }
        }
        None
    }

    /// Takes in a probe in flight under the current identifier.
    pub(super) fn put(&mut self, slot: Slot) -> Option<u32> {
        debug_assert_eq!(slot.stage, Stage::InFlight, "`launch` says so");
        let place = if let Some(place) = self.free.pop() {
            *self.slot_mut(place)? = slot;
            place
        } else {
            let place = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(slot);
            place
        };
        self.in_flight += 1;
        self.in_flight_bytes += slot.cost_bytes();
        if let Some(usage) = self.identifiers.last_mut() {
            debug_assert_eq!(usage.identifier, slot.identifier, "from `free_mark`");
            usage.in_flight += 1;
            usage.known += 1;
            usage.note(slot.sequence, Place(place));
        }
        Some(place)
    }

    /// Ends a probe in flight, which is remembered as `stage`.
    pub(super) fn land(&mut self, place: u32, stage: Stage) {
        let Some(slot) = self.slot_mut(place) else {
            return;
        };
        debug_assert_eq!(slot.stage, Stage::InFlight, "the callers look first");
        slot.stage = stage;
        let slot = *slot;
        self.in_flight -= 1;
        self.in_flight_bytes -= slot.cost_bytes();
        if let Some(usage) = self.usage_mut(slot.identifier) {
            usage.in_flight -= 1;
        }
    }

    /// Forgets a landed probe.
    pub(super) fn release(&mut self, place: u32) {
        let Some(slot) = self
            .slot_mut(place)
            .filter(|slot| slot.stage != Stage::Free)
        else {
            return;
        };
        debug_assert_ne!(
            slot.stage,
            Stage::InFlight,
            "only what has landed is forgotten"
        );
        slot.stage = Stage::Free;
        let slot = *slot;
        self.free.push(place);
        if let Some(usage) = self.usage_mut(slot.identifier) {
            usage.known -= 1;
            usage.note(slot.sequence, Place::NONE);
        }
    }

    /// The place of the probe that an echo belongs to by its header.
    pub(super) fn find(&self, echo: Echo) -> Option<u32> {
        self.identifiers
            .iter()
            .rev()
            .find(|usage| usage.identifier == echo.identifier)?
            .place(echo.sequence)
    }

    /// The probe that a waiting item still stands for, if it does.
    pub(super) fn current(&self, item: Item) -> Option<&Slot> {
        let is_current = |slot: &&Slot| slot.serial == item.serial && slot.stage != Stage::Free;
        self.slot(item.slot).filter(is_current)
    }

    /// Whether a waiting item stands for a probe in flight.
    pub(super) fn is_in_flight(&self, item: Item) -> bool {
        self.current(item)
            .is_some_and(|slot| slot.stage == Stage::InFlight)
    }

    pub(super) fn slot(&self, place: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(place).ok()?)
    }

    pub(super) fn slot_mut(&mut self, place: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(place).ok()?)
    }

    /// How many are known.
    pub(super) fn known(&self) -> usize {
        let known = self.identifiers.iter().map(|usage| usage.known);
        known.sum::<u32>().try_into().unwrap_or(usize::MAX)
    }

    pub(super) fn identifiers(&self) -> &[Usage] {
        &self.identifiers
    }

    pub(super) fn use_identifier(&mut self, identifier: u16) {
        let at = self
            .identifiers
            .iter()
            .position(|usage| usage.identifier == identifier);
        let usage = at.map_or_else(|| Usage::new(identifier), |at| self.identifiers.remove(at));
        self.identifiers.push(usage);
    }

    /// Lets former identifiers go that no known probe carries.
    pub(super) fn retire_unused(&mut self) {
        let current = self.identifiers.last().map(|usage| usage.identifier);
        self.identifiers
            .retain(|usage| Some(usage.identifier) == current || usage.known > 0);
    }

    /// Forgets all that was remembered under former identifiers with none in
    /// flight.
    pub(super) fn forget_former(&mut self) {
        let former = self
            .identifiers
            .split_last()
            .map_or(&[][..], |(_, all)| all);
        let landed: Vec<_> = former
            .iter()
            .filter(|usage| usage.in_flight == 0)
            .map(|usage| usage.identifier)
            .collect();
        for place in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            let is_its = |slot: &Slot| landed.contains(&slot.identifier);
            if self.slot(place).is_some_and(is_its) {
                self.release(place);
            }
        }
    }

    fn usage_mut(&mut self, identifier: u16) -> Option<&mut Usage> {
        // The current one is last and nearly always the one asked for.
        self.identifiers
            .iter_mut()
            .rev()
            .find(|usage| usage.identifier == identifier)
    }
}

impl Slot {
    /// When a reply is no longer taken for late.
    pub(super) fn forget_at(&self) -> Mono {
        self.deadline
            .plus(Duration::from_millis(u64::from(self.late_window_ms)))
    }

    /// This probe's end.
    pub(super) const fn done(&self, known_at: Mono, outcome: Outcome) -> Done {
        Done {
            key: self.key,
            sent_at: self.sent_at,
            known_at,
            outcome,
        }
    }

    fn cost_bytes(&self) -> usize {
        PACKET_COST_BYTES + usize::from(self.payload_bytes)
    }
}

impl Usage {
    const fn new(identifier: u16) -> Self {
        Self {
            identifier,
            in_flight: 0,
            known: 0,
            places: Vec::new(),
        }
    }

    fn place(&self, sequence: u16) -> Option<u32> {
        let place = self.places.get(usize::from(sequence))?;
        (*place != Place::NONE).then_some(place.0)
    }

    fn note(&mut self, sequence: u16, place: Place) {
        let at = usize::from(sequence);
        if self.places.len() <= at {
            self.places.resize(at + 1, Place::NONE);
        }
        if let Some(noted) = self.places.get_mut(at) {
            *noted = place;
        }
    }
}

impl Place {
    const NONE: Self = Self(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_takes_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
