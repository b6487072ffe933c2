//! Asks every device in its slot and judges what comes back.
//!
//! Floor 3. `app` runs one. A turn is straight-line code: fetch what is known,
//! judge it, send what is due, hand the report to the recorder. Turns follow a
//! grid of ticks, so that probes leave in small batches: wake-ups are what costs.
//!
//! # Invariants
//!
//! - Nothing in a turn waits: no disk, no lock beyond the picture's, no channel.
//! - A device is asked at most once per slot; slots that passed while the process
//!   was stalled are skipped, not made up for.
//! - Slots run on the monotonic clock; a step of the wall moves no slot. Within a
//!   turn the wall takes no step: see `dating`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

mod dating;
mod flying;
mod late;
mod pace;

use flying::{Flight, Flying, tell};
use pace::{TICK_MAX, first_look_spread, next_slot, tick};

use super::agenda::{Agenda, Entry as Due};
use super::lateness::Lateness;
use super::report::{Entry, Report};
use super::seats::{Seats, Watched};
use super::telling;
use super::verdict::{self, Seen};
use crate::board::Board;
use crate::clock::Clock;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::{Occasion, Outcome};
use crate::domain::instant::{Mono, Wall};
use crate::domain::phase::{phase, slot_at_or_after};
use crate::domain::status::{Observation, Status};
use crate::ping::{Done, Late, Probe, Request};

/// The scheduler turns at least this often, so that its health can be seen.
const TURN_MAX: Duration = Duration::from_secs(4);
/// After so many misses, and again after each so many, another identifier is used.
const FRESH_IDENTIFIER_EVERY: u32 = 10;
/// Entries held for a recorder that does not keep up, before the oldest go.
const HELD_MAX: usize = 200_000;

/// What others ask of the monitor.
#[derive(Debug)]
pub enum Order {
    /// Watch these from now on.
    Roster(Vec<Watched>),
    /// Ask this device now.
    Probe {
        /// Which.
        device: DeviceId,
        /// What came of it; `None`: nobody of that name is probed.
        answer: oneshot::Sender<Option<Outcome>>,
    },
}

/// The links of a monitor to its neighbours.
#[derive(Debug)]
pub struct Links {
    /// Orders in.
    pub orders: mpsc::Receiver<Order>,
    /// Reports out.
    pub reports: mpsc::Sender<Report>,
    /// The picture, for the probe engine's figures.
    pub board: Arc<Board>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// The monitor.
#[derive(Debug)]
pub struct Monitor {
    links: Links,
    probe: Box<dyn Probe>,
    seats: Seats,
    agenda: Agenda,
    flying: Flying,
    lateness: Lateness,
    held: Vec<Entry>,
    tick: Duration,
    due: Vec<Due>,
    requests: Vec<Request>,
    done: Vec<Done>,
    late: Vec<Late>,
}

/// Both times of one turn, read once.
#[derive(Clone, Copy, Debug)]
struct Now {
    mono: Mono,
    wall: Wall,
}

impl Monitor {
    /// A monitor that goes on from the standings in `seats`. It watches nobody
    /// until an [`Order::Roster`] comes.
    #[must_use]
    pub fn new(links: Links, probe: Box<dyn Probe>, seats: Seats) -> Self {
        let lateness = Lateness::new(links.clock.mono());
        Self {
            links,
            probe,
            seats,
            agenda: Agenda::default(),
            flying: Flying::default(),
            lateness,
            held: Vec::new(),
            tick: TICK_MAX,
            due: Vec::new(),
            requests: Vec::new(),
            done: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Runs until `stop` turns true. Probes in flight are given up then.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            self.turn();
            let wake_at = self.links.clock.wake_at(self.next_turn());
            tokio::select! {
                biased;
                _ = stop.wait_for(|&stop| stop) => return,
                order = self.links.orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                () = poll_fn(|cx| self.probe.poll_pressed(cx)) => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.links.clock.mono(),
            wall: self.links.clock.wall(),
        }
    }

    fn turn(&mut self) {
        self.look_at_clock();
        self.collect();
        self.send_due();
        // Replies on fast links are there already; taking them now saves a turn.
        self.collect();
        self.hand_over();
        self.show();
    }

    fn next_turn(&self) -> Mono {
        let now = self.links.clock.mono();
        let mut next = now.plus(TURN_MAX);
        if self.probe.is_waiting() {
            next = next.min(now.plus(self.tick));
        }
        for due in [self.agenda.next_due(), self.probe.next_deadline()]
            .into_iter()
            .flatten()
        {
            next = next.min(due);
        }
        if !self.held.is_empty() {
            next = next.min(now.plus(self.tick));
        }
        // Never at once: a turn has just been, and a spin would starve the rest.
        next.max(now.plus(Duration::from_millis(1)))
            .up_to_grid(self.tick)
    }

    fn collect(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.probe.collect(&mut done);
        self.name_late();
        if !done.is_empty() {
            let now = self.now();
            for done in done.drain(..) {
                self.land(&done, now);
            }
            self.send_requests();
        }
        self.done = done;
    }

    fn land(&mut self, done: &Done, now: Now) {
        let Some(flight) = self.flying.land(done.key) else {
            debug_assert!(false, "ping hands back each key once");
            return;
        };
        if self.seats.get_mut(flight.seat, flight.generation).is_none() {
            return flight.reply_to_asker(None);
        }
        if flight.is_wake_echo {
            let measured = Flight {
                is_wake_echo: false,
                ..flight
            };
            return self.launch(measured);
        }
        self.judge(done, &flight, now);
        flight.reply_to_asker(Some(done.outcome));
    }

    fn judge(&mut self, done: &Done, flight: &Flight, now: Now) {
        let Some(seat) = self.seats.get_mut(flight.seat, flight.generation) else {
            return;
        };
        let seen = Seen {
            device: seat.id,
            place: seat.place,
            scheduled_at: flight.scheduled_at,
            occasion: flight.occasion,
            observation: Observation {
                sent_at: now.wall_of(done.sent_at),
                known_at: now.wall_of(done.known_at),
                outcome: done.outcome,
            },
            now: now.wall,
        };
        let beat = verdict::judge(
            &seen,
            &seat.rules.status,
            &mut seat.track,
            &mut seat.trouble,
        );
        telling::beat(&beat);
        // A recheck that could not be sent has not answered its question.
        let is_open = match done.outcome {
            Outcome::Missed(_) => true,
            Outcome::NoData(_) => flight.occasion == Occasion::Recheck,
            Outcome::Replied { .. } => false,
        };
        let wants_recheck = is_open && seat.track.status != Status::Offline && !seat.is_recheck_due;
        if let Some(wait) = seat.rules.recheck.filter(|_| wants_recheck) {
            seat.is_recheck_due = true;
            self.agenda.enter(Due {
                due: now.mono.plus(wait),
                seat: flight.seat,
                generation: flight.generation,
                occasion: Occasion::Recheck,
            });
        }
        self.held.push(Entry::Beat(beat));
    }

    fn send_due(&mut self) {
        let now = self.now();
        let mut due = std::mem::take(&mut self.due);
        self.agenda.take_due(now.mono, &mut due);
        for due in due.drain(..) {
            self.send_one(due, now);
        }
        self.due = due;
        self.send_requests();
    }

    fn send_one(&mut self, due: Due, now: Now) {
        let Some(seat) = self.seats.get_mut(due.seat, due.generation) else {
            return;
        };
        match due.occasion {
            Occasion::Recheck => {
                seat.is_recheck_due = false;
                if seat.track.status == Status::Offline || seat.track.missed_count == 0 {
                    return;
                }
            }
            // Its own slot came first and brought a verdict.
            Occasion::FirstLook if seat.track.status != Status::Unknown => return,
            Occasion::Scheduled => {
                let next = next_slot(due.due, seat.rules.heartbeat_period, now.mono);
                self.agenda.enter(Due { due: next, ..due });
                self.lateness.note(due.due, now.mono);
            }
            Occasion::FirstLook | Occasion::OnDemand => {}
        }
        let is_wake_echo = seat.rules.wake_echo;
        self.launch(Flight {
            seat: due.seat,
            generation: due.generation,
            occasion: due.occasion,
            scheduled_at: now.wall_of(due.due),
            is_wake_echo,
            answer: None,
        });
    }

    /// Puts a probe on its way; it leaves with the next [`Self::send_requests`].
    fn launch(&mut self, flight: Flight) {
        let Some(seat) = self.seats.get_mut(flight.seat, flight.generation) else {
            return;
        };
        let missed = seat.track.missed_count;
        let fresh_identifier = missed > 0 && missed.is_multiple_of(FRESH_IDENTIFIER_EVERY);
        if missed == FRESH_IDENTIFIER_EVERY && fresh_identifier {
            info!(device.id = %seat.id, missed, "still silent, asking under a fresh identifier");
        }
        let key = self.flying.launch(flight);
        self.requests.push(Request {
            key,
            target: seat.address,
            timeout: seat.rules.offline_timeout,
            late_window: seat.rules.late_window,
            payload_bytes: seat.rules.payload_bytes,
            fresh_identifier,
        });
    }

    fn send_requests(&mut self) {
        if !self.requests.is_empty() {
            self.probe.send(&self.requests);
            self.requests.clear();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Roster(roster) => self.reseat(&roster),
            Order::Probe { device, answer } => self.probe_now(device, answer),
        }
    }

    fn probe_now(&mut self, device: DeviceId, answer: oneshot::Sender<Option<Outcome>>) {
        let Some((index, seat)) = self.seats.find(device) else {
            return tell(answer, None);
        };
        let (generation, is_wake_echo) = (seat.generation, seat.rules.wake_echo);
        self.launch(Flight {
            seat: index,
            generation,
            occasion: Occasion::OnDemand,
            scheduled_at: self.links.clock.wall(),
            is_wake_echo,
            answer: Some(answer),
        });
        self.send_requests();
    }

    fn reseat(&mut self, roster: &[Watched]) {
        let now = self.now();
        let changed = self.seats.change(roster, now.wall);
        for entry in &changed.entries {
            if let Entry::Change(change) = entry {
                telling::change(change, None);
            }
        }
        self.held.extend(changed.entries);
        // Many reloads within one long period would else pile up dead entries.
        let seats = &self.seats;
        self.agenda
            .retain(|due| seats.has(due.seat, due.generation));
        let spread = first_look_spread(changed.reseated.len());
        for &index in &changed.reseated {
            self.enter(index, spread, now);
        }
        self.tick = tick(self.seats.iter().map(|seat| &*seat.rules));
        let devices = self.seats.iter().count();
        if devices == 0 {
            // A round that asks nobody has begun: a gateway without devices is ready.
            self.links
                .board
                .draw(|picture| picture.gateway.probe.has_begun = true);
        }
        info!(devices, "watching");
    }

    /// Enters a seat's slot, and its first look where that comes before.
    fn enter(&mut self, index: u32, first_look_spread: Duration, now: Now) {
        let Some(seat) = self.seats.get(index) else {
            return;
        };
        let period = seat.rules.heartbeat_period;
        let first = slot_at_or_after(now.wall, period, phase(&seat.id, period));
        let due = now.mono.plus(first.since(now.wall));
        let generation = seat.generation;
        self.agenda.enter(Due {
            due,
            seat: index,
            generation,
            occasion: Occasion::Scheduled,
        });
        let spread = first_look_spread.min(period);
        let look = now.mono.plus(phase(&seat.id, spread));
        if seat.track.status == Status::Unknown && look < due {
            let occasion = Occasion::FirstLook;
            self.agenda.enter(Due {
                due: look,
                seat: index,
                generation,
                occasion,
            });
        }
    }

    fn hand_over(&mut self) {
        if self.held.is_empty() {
            return;
        }
        match self.links.reports.try_reserve() {
            Ok(permit) => {
                let next = Vec::with_capacity(self.held.len());
                permit.send(Report {
                    entries: std::mem::replace(&mut self.held, next),
                });
            }
            Err(_) if self.held.len() > HELD_MAX => {
                let excess = self.held.len() - HELD_MAX;
                warn!(
                    excess,
                    "the recorder does not keep up, giving up the oldest heartbeats"
                );
                give_up_oldest_beats(&mut self.held, excess);
            }
            Err(_) => {}
        }
    }

    fn show(&mut self) {
        let now = self.now();
        // Sockets come and go with their interface, and what they lack with them.
        let facts = self.probe.facts();
        let p99 = self.lateness.p99_ms(now.mono);
        self.links.board.draw(|picture| {
            let shown = &mut picture.gateway.probe;
            shown.facts = facts;
            shown.counters = self.probe.counters();
            shown.lateness_p99_ms = p99;
            shown.turned_at = Some(now.wall);
            shown.has_begun |= shown.counters.sent > 0;
        });
    }
}

impl Now {
    /// The wall time at which the monotonic clock showed `at`, by today's wall.
    fn wall_of(&self, at: Mono) -> Wall {
        if at <= self.mono {
            self.wall.minus(self.mono.since(at))
        } else {
            self.wall.plus(at.since(self.mono))
        }
    }
}

/// Changes are never given up here; the recorder keeps or counts those.
fn give_up_oldest_beats(held: &mut Vec<Entry>, mut excess: usize) {
    held.retain(|entry| {
        let is_plain = match entry {
            Entry::Beat(beat) => beat.change.is_none(),
            Entry::Late { .. } => true,
            Entry::Roster(_) | Entry::Change(_) | Entry::Times(_) => false,
        };
        let goes = is_plain && excess > 0;
        excess -= usize::from(goes);
        !goes
    });
}
