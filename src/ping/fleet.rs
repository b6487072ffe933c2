//! A fleet of GSM devices inside the process: nothing is ever sent.
//!
//! Floor 2. `app` opens a seeded fleet for `sitebeat simulate`; tests of the
//! flows open a scripted one, in which they say what comes of each probe.
//!
//! # Invariants
//!
//! - The outcome of a probe in a seeded fleet depends on (seed, device, wall
//!   time of the send) alone, so a simulation repeats exactly from its seed.
//! - Each request comes back as exactly one [`Done`], never before it could be
//!   known on the fleet's clock.
//! - An address outside the fleet, such as one of `path.targets`, always answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Counters, Done, Facts, LATE_HELD_MAX, Late, Probe, Request};
use crate::clock::Clock;
use crate::domain::device::{Device, DeviceId};
use crate::domain::heartbeat::{Miss, NoData, Outcome};
use crate::domain::instant::Mono;
use crate::domain::phase::hash;

mod character;
mod dice;
mod inventory;

pub use inventory::DEVICES_MAX;

use character::Character;

/// A second copy of a reply follows the first by this.
const COPY_AFTER: Duration = Duration::from_millis(3);

/// What comes of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripted {
    /// A reply this long after the send; after the timeout it is a late one.
    Reply(Duration),
    /// A miss, and a reply this long after the timeout.
    Late(Duration),
    /// Nothing.
    Silent,
    /// An ICMP error this long after the send; after the timeout it is nothing.
    Unreachable(Duration),
    /// The gateway cannot send.
    SendFails,
    /// A reply this long after the send, and a copy right behind it.
    Duplicate(Duration),
}

/// The simulated engine.
pub struct Fleet {
    clock: Arc<dyn Clock>,
    nature: Nature,
    /// What will be known and its deadline, by the time it is known; the number
    /// keeps equal times apart.
    coming: BTreeMap<(Mono, u64), (Done, Mono)>,
    /// Replies that end nothing, by arrival.
    strays: BTreeMap<(Mono, u64), Stray>,
    /// Late replies, until somebody takes them.
    late: Vec<Late>,
    /// Deadlines of all that is in `coming`.
    deadlines: BTreeSet<(Mono, u64)>,
    next_number: u64,
    counters: Counters,
}

/// Who decides what comes of a probe.
enum Nature {
    Seeded {
        seed: u64,
        devices: HashMap<IpAddr, Character>,
    },
    Scripted(Box<Script>),
}

/// Says what comes of a request sent at this time.
type Script = dyn FnMut(&Request, Mono) -> Scripted + Send;

/// What a reply that ends nothing counts as.
#[derive(Clone, Copy, Debug)]
enum Stray {
    Late(Late),
    Duplicate,
    Foreign,
}

impl Fleet {
    /// The fleet of `seed` at these addresses. Where two devices share an
    /// address, the first one's behaviour answers for both, as one modem would.
    #[must_use]
    pub fn new(seed: u64, devices: &[(DeviceId, IpAddr)], clock: Arc<dyn Clock>) -> Self {
        let mut drawn = HashMap::with_capacity(devices.len());
        for (id, address) in devices {
            drawn
                .entry(*address)
                .or_insert_with(|| Character::drawn(seed, hash(id.as_str())));
        }
        Self::with(
            Nature::Seeded {
                seed,
                devices: drawn,
            },
            clock,
        )
    }

    /// A fleet in which `script` says what comes of each probe; it is asked once
    /// per request, at the time of its send.
    #[must_use]
    pub fn scripted(
        clock: Arc<dyn Clock>,
        script: impl FnMut(&Request, Mono) -> Scripted + Send + 'static,
    ) -> Self {
        Self::with(Nature::Scripted(Box::new(script)), clock)
    }

    /// The first `n` devices of a simulated site, at most [`DEVICES_MAX`]: ids
    /// such as `s1-3f0a-00017`, names such as `Meter 17`, addresses from the
    /// benchmark range 198.18.0.0/15, to which nothing is sent.
    #[must_use]
    pub fn inventory(seed: u64, site: &str, n: usize) -> Vec<Device> {
        inventory::inventory(seed, site, n)
    }

    fn with(nature: Nature, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            nature,
            coming: BTreeMap::new(),
            strays: BTreeMap::new(),
            late: Vec::new(),
            deadlines: BTreeSet::new(),
            next_number: 0,
            counters: Counters::default(),
        }
    }

    fn admit(&mut self, request: &Request, now: Mono) {
        let deadline = now.plus(request.timeout);
        let answer = self.nature.answer(request, now, &*self.clock);
        if answer == Scripted::SendFails {
            self.counters.send_failed += 1;
            let outcome = Outcome::NoData(NoData::SendFailed);
            return self.expect(request, now, (now, now), outcome);
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes_on_the_wire(request);
        let lost = Outcome::Missed(Miss::Timeout);
        let (known_at, outcome) = match answer {
            Scripted::Reply(rtt) | Scripted::Duplicate(rtt) if rtt <= request.timeout => {
                (now.plus(rtt), Outcome::replied(rtt))
            }
            Scripted::Unreachable(after) if after <= request.timeout => {
                (now.plus(after), Outcome::Missed(Miss::Unreachable))
            }
            Scripted::Reply(_)
            | Scripted::Duplicate(_)
            | Scripted::Unreachable(_)
            | Scripted::Late(_)
            | Scripted::Silent
            | Scripted::SendFails => (deadline, lost),
        };
        self.note_strays(request, answer, now);
        self.expect(request, now, (known_at, deadline), outcome);
    }

    /// Puts down the replies that will end no probe.
    fn note_strays(&mut self, request: &Request, answer: Scripted, sent_at: Mono) {
        let (first, copy) = match answer {
            Scripted::Reply(rtt) => (Some(rtt), None),
            Scripted::Duplicate(rtt) => (Some(rtt), Some(rtt.saturating_add(COPY_AFTER))),
            Scripted::Late(after) => (Some(request.timeout.saturating_add(after)), None),
            Scripted::Silent | Scripted::Unreachable(_) | Scripted::SendFails => (None, None),
        };
        let is_late_by_nature = matches!(answer, Scripted::Late(_));
        let recognised = request.timeout.saturating_add(request.late_window);
        for after in [first, copy].into_iter().flatten() {
            let kind = if after > recognised {
                Stray::Foreign
            } else if Some(after) == copy {
                Stray::Duplicate
            } else if after > request.timeout || is_late_by_nature {
                Stray::Late(Late {
                    key: request.key,
                    sent_at,
                })
            } else {
                continue;
            };
            let key = (sent_at.plus(after), self.number());
            self.strays.insert(key, kind);
        }
    }

    /// Puts down what will be known at `known_at`.
    fn expect(
        &mut self,
        request: &Request,
        sent_at: Mono,
        (known_at, deadline): (Mono, Mono),
        outcome: Outcome,
    ) {
        let number = self.number();
        let done = Done {
            key: request.key,
            sent_at,
            known_at,
            outcome,
        };
        self.coming.insert((known_at, number), (done, deadline));
        self.deadlines.insert((deadline, number));
    }

    const fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Replied { .. } => self.counters.valid += 1,
            Outcome::Missed(Miss::Timeout) | Outcome::NoData(_) => {}
            Outcome::Missed(_) => self.counters.errors += 1,
        }
    }
}

impl Nature {
    fn answer(&mut self, request: &Request, now: Mono, clock: &dyn Clock) -> Scripted {
        match self {
            Self::Scripted(script) => script(request, now),
            Self::Seeded { seed, devices } => devices
                .get(&request.target)
                .copied()
                .unwrap_or_else(|| Character::neighbour(*seed, hash(&request.target.to_string())))
                .answer(clock.wall(), request.timeout),
        }
    }
}

impl Probe for Fleet {
    fn send(&mut self, requests: &[Request]) {
        let now = self.clock.mono();
        for request in requests {
            self.admit(request, now);
        }
    }

    fn collect(&mut self, done: &mut Vec<Done>) {
        let now = self.clock.mono();
        while let Some(entry) = self.coming.first_entry() {
            let (known_at, number) = *entry.key();
            if known_at > now {
                break;
            }
            let (known, deadline) = entry.remove();
            self.deadlines.remove(&(deadline, number));
            self.count(known.outcome);
            done.push(known);
        }
        while let Some(entry) = self.strays.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Stray::Late(late) => {
                    self.counters.late += 1;
                    if self.late.len() < LATE_HELD_MAX {
                        self.late.push(late);
                    }
                }
                Stray::Duplicate => self.counters.duplicate += 1,
                Stray::Foreign => self.counters.foreign += 1,
            }
        }
    }

    fn take_late(&mut self, late: &mut Vec<Late>) {
        late.append(&mut self.late);
    }

    fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    fn is_waiting(&self) -> bool {
        !self.coming.is_empty()
    }

    fn poll_pressed(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn facts(&self) -> Facts {
        Facts {
            engine: "simulated",
            socket: "none",
            receive_buffer_bytes: 0,
            limits: vec!["Nothing is sent: every outcome is simulated.".into()],
            troubles: Vec::new(),
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nature = match &self.nature {
            Nature::Seeded { seed, devices } => format!("seed {seed}, {} addresses", devices.len()),
            Nature::Scripted(_) => "scripted".into(),
        };
        f.debug_struct("Fleet")
            .field("nature", &nature)
            .field("in_flight", &self.coming.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Bytes of an echo request with its IP header.
const fn bytes_on_the_wire(request: &Request) -> u64 {
    let ip_header = match request.target {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    ip_header + 8 + request.payload_bytes as u64
}

#[cfg(test)]
mod tests;
