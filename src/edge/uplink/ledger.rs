//! What was handed over to the broker, in order, until it is acknowledged.
//!
//! Floor 3, pure. `edge::uplink` enters what it hands over and strikes out what the
//! broker takes.
//!
//! # Invariants
//!
//! - An event counts as taken only when all that was handed over before it is, its
//!   device's liveness record included: so the cursor never passes something that
//!   would have to be said again.
//! - At most [`IN_FLIGHT_MAX`](crate::broker::IN_FLIGHT_MAX) entries: who enters
//!   looks at the window first.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::instant::{Mono, Wall};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// An event.
    Event {
        /// Its number.
        seq: u64,
        /// Bytes of its JSON.
        bytes: usize,
    },
    /// A liveness record.
    Liveness,
    /// The node heartbeat.
    Heartbeat,
    /// The last word of a clean stop.
    Farewell,
    /// A heartbeat as it happened.
    Live {
        /// Its scheduled time.
        at: Wall,
    },
    /// A heartbeat of the past, made up for.
    Replayed {
        /// Its scheduled time.
        at: Wall,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    what: What,
    handed_at: Mono,
    is_taken: bool,
}

/// What one acknowledgement brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// What is taken now, with all before it, in order.
    pub(super) whats: Vec<What>,
    /// How long the broker took for the message acknowledged.
    pub(super) delay: Duration,
}

/// The ledger of one connection.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: VecDeque<Entry>,
    /// Token of the first entry.
    first: u64,
}

impl Ledger {
    /// Enters what is handed over now; tells its token, unlike any before it.
    pub(super) fn enter(&mut self, what: What, now: Mono) -> u64 {
        let token = self.first + self.entries.len() as u64;
        self.entries.push_back(Entry {
            what,
            handed_at: now,
            is_taken: false,
        });
        token
    }

    /// Strikes out what the broker has taken; `None`: no such entry, or taken before.
    pub(super) fn strike(&mut self, token: u64, now: Mono) -> Option<Settled> {
        let index = usize::try_from(token.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(index).filter(|one| !one.is_taken)?;
        entry.is_taken = true;
        let mut settled = Settled {
            whats: Vec::new(),
            delay: now.since(entry.handed_at),
        };
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.is_taken) {
            settled.whats.push(entry.what);
            self.first += 1;
        }
        Some(settled)
    }

    /// Forgets everything, because the connection is over; tells what was not taken.
    /// Tokens go on, so that a late word about an old one means nothing.
    pub(super) fn clear(&mut self) -> Vec<What> {
        self.first += self.entries.len() as u64;
        let open = self.entries.drain(..).filter(|entry| !entry.is_taken);
        open.map(|entry| entry.what).collect()
    }

    /// Entries that are not settled.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether something of this kind waits to be taken.
    pub(super) fn holds(&self, is_it: impl Fn(What) -> bool) -> bool {
        self.entries
            .iter()
            .any(|entry| !entry.is_taken && is_it(entry.what))
    }

    /// Since when the oldest of them waits.
    pub(super) fn oldest(&self) -> Option<Mono> {
        self.entries.front().map(|entry| entry.handed_at)
    }

    /// The oldest event not taken: number, bytes, when it was handed over.
    pub(super) fn oldest_event(&self) -> Option<(u64, usize, Mono)> {
        self.entries
            .iter()
            .filter(|entry| !entry.is_taken)
            .find_map(|entry| match entry.what {
                What::Event { seq, bytes } => Some((seq, bytes, entry.handed_at)),
                What::Liveness
                | What::Heartbeat
                | What::Farewell
                | What::Live { .. }
                | What::Replayed { .. } => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn event(seq: u64) -> What {
        What::Event { seq, bytes: 450 }
    }

    fn at(ms: u64) -> Mono {
        Mono::default().plus(Duration::from_millis(ms))
    }

    #[test]
    fn an_event_counts_when_all_before_it_is_taken() {
        let mut ledger = Ledger::default();
        let liveness = ledger.enter(What::Liveness, at(0));
        let first = ledger.enter(event(7), at(1));
        let second = ledger.enter(event(9), at(2));
        assert_eq!(ledger.strike(second, at(5)).unwrap().whats, []);
        assert_eq!(ledger.oldest_event(), Some((7, 450, at(1))));
        let settled = ledger.strike(liveness, at(10)).unwrap();
        assert_eq!(settled.whats, [What::Liveness]);
        assert_eq!(settled.delay, Duration::from_millis(10));
        let settled = ledger.strike(first, at(11)).unwrap();
        assert_eq!(settled.whats, [event(7), event(9)]);
        assert_eq!((ledger.len(), ledger.oldest()), (0, None));
        assert_eq!(ledger.strike(first, at(12)), None, "taken before");
    }

    #[test]
    fn words_about_an_old_connection_mean_nothing() {
        let mut ledger = Ledger::default();
        let old = ledger.enter(event(1), at(0));
        assert_eq!(ledger.clear(), [event(1)]);
        let new = ledger.enter(event(1), at(1));
        assert_ne!(old, new);
        assert_eq!(ledger.strike(old, at(2)), None);
        assert!(ledger.holds(|what| what == event(1)));
    }

    proptest! {
        #[test]
        fn whatever_the_order_of_words_events_settle_in_their_own(
            order in Just((0..60_u64).collect::<Vec<_>>()).prop_shuffle(),
            twice in proptest::collection::vec(0..60_u64, 0..20),
        ) {
            let mut ledger = Ledger::default();
            let tokens: Vec<u64> = (0..60).map(|n| ledger.enter(event(n), at(n))).collect();
            let mut settled = Vec::new();
            let words = order.iter().zip(twice.iter().chain(std::iter::repeat(&0)));
            for (&one, &again) in words {
                for word in [one, again] {
                    let token = tokens[usize::try_from(word).unwrap()];
                    settled.extend(ledger.strike(token, at(100)).into_iter().flat_map(|s| s.whats));
                }
            }
            prop_assert_eq!(settled, (0..60).map(event).collect::<Vec<_>>());
            prop_assert_eq!(ledger.len(), 0);
        }
    }
}
