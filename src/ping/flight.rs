//! The probes in flight of one address family, and those lately ended.
//!
//! Floor 2, pure: time comes as an argument. `batch` launches every probe
//! here, reports what came back and sweeps once per tick; the table says what
//! each thing means.
//!
//! # Invariants
//!
//! - No two probes, in flight or remembered, share identifier and sequence.
//! - A probe ends exactly once: by reply, ICMP error, deadline or `abandon`.
//! - A reply ends a probe only with its address, identifier, sequence, nonce
//!   and a right checksum, and only if it arrived by the deadline.
//! - An ended probe is remembered until its late window closes; only then can
//!   a further reply be taken for foreign. (Sooner only where its sequence is
//!   needed again: above 49,152 probes known that no fresh identifier relieves.)
//! - Per identifier at most 65,536 probes; `launch` refuses beyond.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use self::lines::{Item, Lines};
use self::table::{Slot, Stage, Table};
use super::packet::{Echo, ErrorKind, Mark};
use super::{Done, LATE_HELD_MAX, Late, Request};
use crate::domain::heartbeat::{Miss, Outcome};
use crate::domain::instant::Mono;

mod lines;
#[cfg(test)]
mod model;
mod table;
#[cfg(test)]
mod tests;

/// From this many probes under one identifier on, another one should be taken:
/// a quarter of the sequences stays free, so that a wrap finds room at once.
pub const CROWDED: u32 = 49_152;

/// The probes of one family.
#[derive(Debug)]
pub struct Flight {
    table: Table,
    deadlines: Lines,
    memory: Lines,
    serial: u32,
    nonces: Nonces,
    tally: Tally,
    /// Late replies, until somebody takes them.
    late: Vec<Late>,
}

/// A launched probe, for the case that it cannot be sent after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    slot: u32,
    /// What to write into the packet.
    pub mark: Mark,
}

/// When a packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The kernel's stamp on our monotonic clock, if it gave one.
    pub stamp: Option<Mono>,
    /// When we had read it.
    pub read: Mono,
}

/// What the table has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Replies that ended a probe as replied.
    pub valid: u64,
    /// Replies to a probe that had timed out or ended by an ICMP error.
    pub late: u64,
    /// Further replies to a probe already answered.
    pub duplicate: u64,
    /// Replies from or for something we did not ask.
    pub foreign: u64,
    /// Replies with a wrong checksum, nonce or length.
    pub malformed: u64,
    /// ICMP errors that ended a probe.
    pub errors: u64,
}

/// Nonces nobody can guess from those seen: a keyed hash of a counter.
#[derive(Debug)]
struct Nonces {
    key: RandomState,
    count: u64,
}

impl Flight {
    /// An empty table whose first probe carries `identifier` and `sequence`.
    #[must_use]
    pub fn new(identifier: u16, sequence: u16) -> Self {
        Self {
            table: Table::new(identifier, sequence),
            deadlines: Lines::default(),
            memory: Lines::default(),
            serial: 0,
            nonces: Nonces {
                key: RandomState::new(),
                count: 0,
            },
            tally: Tally::default(),
            late: Vec::new(),
        }
    }

    /// Takes a probe sent at `now` to `request.target` into the table; `None`
    /// where all sequences of the current identifier are in flight. `now` never
    /// goes back from call to call.
    ///
    /// Where only a remembered probe is in the way it is forgotten.
    pub fn launch(&mut self, request: &Request, now: Mono) -> Option<Ticket> {
        let (identifier, sequence) = self.table.free_mark()?;
        let mark = Mark {
            identifier,
            sequence,
            nonce: self.nonces.next(),
        };
        let late_window_ms = u32::try_from(request.late_window.as_millis()).unwrap_or(u32::MAX);
        self.serial = self.serial.wrapping_add(1);
        let slot = self.table.put(Slot {
            key: request.key,
            nonce: mark.nonce,
            sent_at: now,
            deadline: now.plus(request.timeout),
            serial: self.serial,
            late_window_ms,
            target: request.target,
            identifier,
            sequence,
            payload_bytes: request.payload_bytes,
            stage: Stage::InFlight,
        })?;
        let item = |length| Item {
            due: now.plus(length),
            slot,
            serial: self.serial,
        };
        self.deadlines.push(request.timeout, item(request.timeout));
        let late_window = Duration::from_millis(u64::from(late_window_ms));
        let known_for = request.timeout.saturating_add(late_window);
        self.memory.push(known_for, item(known_for));
        Some(Ticket { slot, mark })
    }

    /// Takes back a probe that could not be sent; its sequence is free again.
    pub fn abandon(&mut self, ticket: Ticket) {
        let is_its = |slot: &Slot| slot.nonce == ticket.mark.nonce && slot.stage == Stage::InFlight;
        if self.table.slot(ticket.slot).is_some_and(is_its) {
            self.table.land(ticket.slot, Stage::Missed);
            self.table.release(ticket.slot);
        }
    }

    /// What an echo reply from `from` means; `is_intact` is whether its
    /// checksum was right. Returns the end of a probe, if it is one.
    ///
    /// A reply under an identifier not ours is another program's: not counted.
    pub fn reply(
        &mut self,
        from: IpAddr,
        echo: Echo,
        arrival: Arrival,
        is_intact: bool,
    ) -> Option<Done> {
        let Some(place) = self.table.find(echo) else {
            let is_ours = self.identifiers().any(|ours| ours == echo.identifier);
            self.tally.foreign += u64::from(is_ours);
            return None;
        };
        if !is_intact {
            self.tally.malformed += 1;
            return None;
        }
        let slot = *self.table.slot(place)?;
        let at = arrival.since(slot.sent_at);
        if slot.target != from || at > slot.forget_at() {
            self.tally.foreign += 1;
            return None;
        }
        if echo.nonce != Some(slot.nonce) {
            self.tally.malformed += 1;
            return None;
        }
        self.answer(place, &slot, at)
    }

    /// What an ICMP error means that quotes a probe of ours to `target`.
    /// Returns the end of that probe; `None` where it has ended already or the
    /// quote is not of a probe of ours.
    pub fn error(
        &mut self,
        target: IpAddr,
        quote: Echo,
        kind: ErrorKind,
        arrival: Arrival,
    ) -> Option<Done> {
        let place = self.table.find(quote)?;
        let slot = *self.table.slot(place)?;
        let is_ours = slot.target == target && quote.nonce.is_none_or(|nonce| nonce == slot.nonce);
        let at = arrival.since(slot.sent_at);
        // Past the deadline the sweep says timeout, which was true first.
        if !is_ours || slot.stage != Stage::InFlight || at > slot.deadline {
            return None;
        }
        self.table.land(place, Stage::Missed);
        self.tally.errors += 1;
        let miss = match kind {
            ErrorKind::Unreachable => Miss::Unreachable,
            ErrorKind::TtlExceeded => Miss::TtlExceeded,
            ErrorKind::Other => Miss::OtherError,
        };
        Some(slot.done(at, Outcome::Missed(miss)))
    }

    /// Ends all whose deadline is not after `now` and forgets those whose late
    /// window has closed. Report what has arrived before: a reply still unread
    /// would be late.
    pub fn sweep(&mut self, now: Mono, done: &mut Vec<Done>) {
        while let Some(item) = self.deadlines.pop_due(now) {
            if !self.table.is_in_flight(item) {
                continue;
            }
            let ended = self.table.slot(item.slot);
            done.extend(ended.map(|slot| slot.done(slot.deadline, Outcome::Missed(Miss::Timeout))));
            self.table.land(item.slot, Stage::Missed);
        }
        while let Some(item) = self.memory.pop_due(now) {
            if self.table.current(item).is_some() {
                self.table.release(item.slot);
            }
        }
        self.tidy();
    }

    /// Drops deadlines of ended probes that stand first in line, so that
    /// [`next_deadline`](Self::next_deadline) need not step over them.
    pub fn tidy(&mut self) {
        let table = &self.table;
        self.deadlines.trim(|item| !table.is_in_flight(*item));
    }

    /// The earliest deadline in flight.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.deadlines
            .next_due(|item| !self.table.is_in_flight(*item))
    }

    /// How many probes are in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.table.in_flight
    }

    /// What the replies in flight may take of a receive buffer, in bytes.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> usize {
        self.table.in_flight_bytes
    }

    /// Whether no probe is in flight or remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.known() == 0
    }

    /// What was counted.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Launches under `identifier` from now on; the former ones stay known.
    pub fn use_identifier(&mut self, identifier: u16) {
        self.table.use_identifier(identifier);
    }

    /// The identifiers that probes known here carry, the current one last.
    #[must_use]
    pub fn identifiers(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.table
            .identifiers()
            .iter()
            .map(|usage| usage.identifier)
    }

    /// Whether another identifier should be taken soon.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let current = self.table.identifiers().last();
        current.is_none_or(|usage| usage.known >= CROWDED)
    }

    /// Lets former identifiers go that no known probe carries; says whether
    /// there were any.
    pub fn retire_unused(&mut self) -> bool {
        let before = self.identifiers().len();
        if before > 1 {
            self.table.retire_unused();
        }
        self.identifiers().len() < before
    }

    /// Lets former identifiers go that no probe in flight carries, with all
    /// that was remembered under them.
    pub fn retire_landed(&mut self) {
        self.table.forget_former();
        self.table.retire_unused();
    }

    /// Appends the late replies since the last call.
    pub fn take_late(&mut self, late: &mut Vec<Late>) {
        late.append(&mut self.late);
    }

    fn note_late(&mut self, slot: &Slot) {
        self.tally.late += 1;
        if self.late.len() < LATE_HELD_MAX {
            self.late.push(Late {
                key: slot.key,
                sent_at: slot.sent_at,
            });
        }
    }

    fn answer(&mut self, place: u32, slot: &Slot, at: Mono) -> Option<Done> {
        match slot.stage {
            Stage::InFlight if at <= slot.deadline => {
                self.table.land(place, Stage::Answered);
                self.tally.valid += 1;
                Some(slot.done(at, Outcome::replied(at.since(slot.sent_at))))
            }
            Stage::InFlight => {
                self.table.land(place, Stage::Answered);
                self.note_late(slot);
                Some(slot.done(slot.deadline, Outcome::Missed(Miss::Timeout)))
            }
            Stage::Missed => {
                self.note_late(slot);
                if let Some(slot) = self.table.slot_mut(place) {
                    slot.stage = Stage::Answered;
                }
                None
            }
            Stage::Answered => {
                self.tally.duplicate += 1;
                None
            }
            Stage::Free => None,
        }
    }
}

impl Arrival {
    /// When it arrived, if it answers something sent at `sent_at`: the kernel's
    /// stamp where that lies between send and read, else the time of reading.
    /// Outside of that the wall clock was stepped in between.
    fn since(self, sent_at: Mono) -> Mono {
        let is_plausible = |stamp: &Mono| (sent_at..=self.read).contains(stamp);
        self.stamp.filter(is_plausible).unwrap_or(self.read)
    }
}

impl Nonces {
    fn next(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        self.key.hash_one(self.count)
    }
}
