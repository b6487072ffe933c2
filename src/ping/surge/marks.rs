//! Which identifier and sequence number the next probe of an address carries.
//!
//! Floor 2. `Surge::send` asks once per probe.
//!
//! # Invariants
//!
//! - Every address has a sequence of its own, so two probes of one address, and
//!   a probe and the late reply of an earlier one, differ for 65,536 probes:
//!   more than any late window lasts. A DGRAM socket of Linux matches by
//!   sequence alone (the kernel owns the identifier), so this holds there too.
//! - The table holds only addresses probed of late: it cannot grow without end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::domain::instant::Mono;
use crate::domain::phase::hash;
use crate::ping::Request;

/// An address is forgotten this long after its last reply could have come.
const KEPT_AFTER: Duration = Duration::from_hours(1);

/// Below this many addresses nothing is forgotten.
const FEW: usize = 1_024;

/// What an echo request is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    /// The identifier; a DGRAM socket of Linux puts its own in its place.
    pub(super) identifier: u16,
    /// The sequence number.
    pub(super) sequence: u16,
}

/// The next mark of each address.
#[derive(Debug)]
pub(super) struct Marks {
    salt: u64,
    newest_identifier: u16,
    of_address: HashMap<IpAddr, Next>,
    forget_beyond: usize,
}

#[derive(Debug)]
struct Next {
    mark: Mark,
    /// When nothing of the last probe can come any more.
    quiet_at: Mono,
}

impl Marks {
    /// Marks that start elsewhere for each `salt`, so that replies to an earlier
    /// run of the program meet none of this one's.
    pub(super) fn starting_from(salt: u64) -> Self {
        Self {
            salt,
            newest_identifier: low_bits(hash(&salt.to_string())),
            of_address: HashMap::new(),
            forget_beyond: FEW,
        }
    }

    /// The mark for this request, handed over at `now`.
    pub(super) fn next(&mut self, request: &Request, now: Mono) -> Mark {
        if self.of_address.len() > self.forget_beyond {
            self.forget(now);
        }
        if request.fresh_identifier {
            self.newest_identifier = self.newest_identifier.wrapping_add(1);
        }
        let (salt, newest) = (self.salt, self.newest_identifier);
        let quiet_at = now.plus(request.timeout).plus(request.late_window);
        let next = self
            .of_address
            .entry(request.target)
            .or_insert_with(|| Next {
                mark: Mark {
                    identifier: newest,
                    sequence: low_bits(hash(&format!("{salt} {}", request.target))),
                },
                quiet_at,
            });
        if request.fresh_identifier {
            next.mark.identifier = newest;
        }
        next.quiet_at = quiet_at;
        let mark = next.mark;
        next.mark.sequence = mark.sequence.wrapping_add(1);
        mark
    }

    fn forget(&mut self, now: Mono) {
        self.of_address
            .retain(|_, next| next.quiet_at.plus(KEPT_AFTER) > now);
        self.forget_beyond = (self.of_address.len() * 2).max(FEW);
    }
}

/// The low 16 bits.
const fn low_bits(x: u64) -> u16 {
    let [a, b, ..] = x.to_le_bytes();
    u16::from_le_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn request(host: u32) -> Request {
        Request {
            key: 0,
            target: IpAddr::from(host.to_be_bytes()),
            timeout: Duration::from_secs(5),
            late_window: Duration::from_mins(1),
            payload_bytes: 16,
            fresh_identifier: false,
        }
    }

    #[test]
    fn no_mark_of_an_address_comes_again_within_65_536_probes() {
        let mut marks = Marks::starting_from(1);
        for host in [1, 2] {
            let seen: HashSet<Mark> = (0..65_536)
                .map(|_| marks.next(&request(host), Mono::default()))
                .collect();
            assert_eq!(seen.len(), 65_536);
        }
    }

    #[test]
    fn the_sequence_wraps_from_65_535_to_0() {
        let mut marks = Marks::starting_from(1);
        let mut last = marks.next(&request(1), Mono::default()).sequence;
        for _ in 0..70_000 {
            let next = marks.next(&request(1), Mono::default()).sequence;
            assert_eq!(next, if last == u16::MAX { 0 } else { last + 1 });
            last = next;
        }
    }

    #[test]
    fn an_address_keeps_its_identifier_until_it_asks_for_a_fresh_one() {
        let mut marks = Marks::starting_from(1);
        let first = marks.next(&request(1), Mono::default());
        let other = marks.next(&request(2), Mono::default());
        assert_eq!(first.identifier, other.identifier);
        let fresh = marks.next(
            &Request {
                fresh_identifier: true,
                ..request(1)
            },
            Mono::default(),
        );
        assert_ne!(fresh.identifier, first.identifier);
        // The fresh one stays, for the flow that it opened works.
        let after = marks.next(&request(1), Mono::default());
        assert_eq!(after.identifier, fresh.identifier);
        let other = marks.next(&request(2), Mono::default());
        assert_eq!(other.identifier, first.identifier);
    }

    #[test]
    fn two_runs_start_elsewhere() {
        let first = |salt| Marks::starting_from(salt).next(&request(1), Mono::default());
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn addresses_not_probed_any_more_are_forgotten() {
        let mut marks = Marks::starting_from(1);
        let mut now = Mono::default();
        for host in 0..50_000 {
            now = now.plus(Duration::from_secs(10));
            marks.next(&request(host), now);
        }
        assert!(
            marks.of_address.len() <= FEW + 1,
            "{}",
            marks.of_address.len()
        );
    }
}
