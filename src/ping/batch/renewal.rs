//! Fresh identifiers: for who asks for one, and when one is used up.
//!
//! Floor 2. A RAW socket hears several identifiers, so that a new one is a
//! matter of its filter; the identifier of a DGRAM socket is given by the
//! kernel, so that a new one is a new socket. All that is launched afterwards
//! carries the new one: a device that needed it does not fall back to the one
//! that was blocked.

use std::hash::{BuildHasher, RandomState};

use super::lane::Lane;
use super::socket::{Door, Kind};
use crate::domain::instant::Mono;

/// Identifiers a RAW socket hears at the same time.
const RAW_IDENTIFIERS_MAX: usize = 16;

impl Lane {
    /// Takes another identifier for what is launched from now on, where one
    /// can be had; else the current one stays.
    pub(super) fn renew(&mut self, now: Mono) {
        let is_renewed = match self.way.kind {
            Kind::Raw => self.renew_raw(),
            Kind::Dgram => self.renew_dgram(),
        };
        if is_renewed {
            self.renewed_at = now;
        }
    }

    fn renew_raw(&mut self) -> bool {
        if self.flight.identifiers().len() >= RAW_IDENTIFIERS_MAX {
            self.flight.retire_landed();
        }
        let mut heard: Vec<_> = self.flight.identifiers().collect();
        if heard.len() >= RAW_IDENTIFIERS_MAX {
            return false;
        }
        let others = (0..).map(random_identifier);
        let Some(fresh) = others.take(64).find(|fresh| !heard.contains(fresh)) else {
            return false;
        };
        heard.push(fresh);
        let is_heard = self.doors.iter().all(|door| {
            door.listen_for(self.way.family, heard.iter().copied())
                .is_ok()
        });
        if is_heard {
            self.flight.use_identifier(fresh);
        }
        is_heard
    }

    fn renew_dgram(&mut self) -> bool {
        if self.doors.len() > 1 {
            self.flight.retire_landed();
            let old = self.doors.first().and_then(|door| door.identifier);
            if self.flight.identifiers().any(|known| Some(known) == old) {
                return false;
            }
            self.doors.remove(0);
        }
        match Door::open(&self.way, self.flight.identifiers()) {
            Ok(door) => {
                if let Some(identifier) = door.identifier {
                    self.flight.use_identifier(identifier);
                }
                self.doors.push(door);
                true
            }
            Err(fault) => {
                tracing::debug!(deed = fault.deed, fault = %fault.source, "no fresh ICMP identifier");
                false
            }
        }
    }

    pub(super) fn narrow_filter(&self) {
        if self.way.kind == Kind::Dgram {
            return;
        }
        for door in &self.doors {
            // Hearing too much is harmless: the table knows what is ours.
            if let Err(fault) = door.listen_for(self.way.family, self.flight.identifiers()) {
                tracing::debug!(%fault, "the kernel refuses a socket filter");
            }
        }
    }
}

/// Never 0, which some devices do not answer.
pub(super) fn random_identifier(attempt: u32) -> u16 {
    let hash = RandomState::new().hash_one(attempt);
    u16::try_from(hash % u64::from(u16::MAX)).unwrap_or(0) + 1
}
