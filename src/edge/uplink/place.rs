//! How far the uplink is in the event log.
//!
//! Floor 3, pure.
//!
//! # Invariants
//!
//! - `cursor` moves only by the acknowledgement that `uplink.ack` asks for.
//! - With `uplink.ack = "central"` no more than [`AHEAD_MAX`] go ahead of its word.

use std::time::Duration;

use crate::domain::instant::Mono;

/// Events that may be with the broker while central has not applied them.
const AHEAD_MAX: u64 = 10_000;
/// Without progress of central for this long, events are sent again from the cursor.
const STALLED: Duration = Duration::from_secs(10);
/// A central that stays away is asked again no more often than this.
const STALLED_MOST: Duration = Duration::from_mins(10);
/// Events that are sent again to see whether central is back.
const FEELER: u64 = 16;

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Everything up to here is acknowledged.
    pub(super) cursor: u64,
    /// Parcels up to here have been read from the log in this connection.
    pub(super) read_to: u64,
    /// The last number handed over in this connection, or what it began behind.
    pub(super) sent_to: u64,
    /// The broker has taken everything up to here in this connection.
    pub(super) taken_to: u64,
    /// With `uplink.ack = "central"`: nothing beyond is sent until central moves on.
    feeler_to: Option<u64>,
    stalled_since: Option<Mono>,
    stalls: u32,
}

impl Place {
    /// Another connection: nothing is under way.
    pub(super) fn begin(&mut self) {
        self.read_to = self.cursor;
        self.sent_to = self.cursor;
        self.taken_to = self.cursor;
        self.stalled_since = None;
    }

    /// The broker has taken all up to `seq`.
    pub(super) fn taken(&mut self, seq: u64, is_enough: bool, now: Mono) {
        self.taken_to = self.taken_to.max(seq);
        if is_enough {
            self.cursor = self.cursor.max(seq);
        } else {
            self.stalled_since.get_or_insert(now);
        }
    }

    /// Central has applied all up to `seq`, of a log that ends at `last`; tells
    /// whether that moved the cursor.
    pub(super) fn applied(&mut self, seq: u64, last: u64, now: Mono) -> bool {
        // More than there is is a word about another log.
        if seq <= self.cursor || seq > last {
            return false;
        }
        self.cursor = seq;
        self.taken_to = self.taken_to.max(seq);
        self.stalls = 0;
        self.feeler_to = None;
        self.stalled_since = (self.taken_to > self.cursor).then_some(now);
        true
    }

    /// What the broker does not take at all, and nothing can stand in for.
    pub(super) fn leave_out(&mut self, seq: u64) {
        self.cursor = self.cursor.max(seq);
        self.taken_to = self.taken_to.max(seq);
        self.sent_to = self.sent_to.max(seq);
    }

    /// Whether the event may be handed over now.
    pub(super) fn may_hand(&self, seq: u64, waits_for_central: bool) -> bool {
        !waits_for_central
            || (seq <= self.cursor.saturating_add(AHEAD_MAX)
                && self.feeler_to.is_none_or(|to| seq <= to))
    }

    /// The event is handed over.
    pub(super) fn handed(&mut self, seq: u64) {
        self.sent_to = seq;
    }

    /// When events are to be sent again because central does not move on.
    pub(super) fn stalled_at(&self) -> Option<Mono> {
        let wait = STALLED.saturating_mul(1 << self.stalls.min(10));
        self.stalled_since
            .map(|since| since.plus(wait.min(STALLED_MOST)))
    }

    /// Sends again from the cursor; a few at first, and each time later.
    pub(super) fn send_again(&mut self) {
        self.read_to = self.cursor;
        self.sent_to = self.cursor;
        self.taken_to = self.cursor;
        self.feeler_to = Some(self.cursor.saturating_add(FEELER));
        self.stalls = self.stalls.saturating_add(1);
        self.stalled_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::default().plus(Duration::from_secs(secs))
    }

    #[test]
    fn the_brokers_word_moves_the_cursor_only_where_it_is_enough() {
        let mut place = Place::default();
        place.taken(4, true, at(0));
        assert_eq!((place.cursor, place.stalled_at()), (4, None));
        place.taken(9, false, at(0));
        assert_eq!((place.cursor, place.stalled_at()), (4, Some(at(10))));
    }

    #[test]
    fn central_moves_it_forward_and_never_beyond_what_was_sent() {
        let mut place = Place::default();
        assert!(!place.applied(10, 9, at(0)));
        assert!(
            place.applied(7, 9, at(0))
                && !place.applied(7, 9, at(1))
                && !place.applied(3, 9, at(1))
        );
        assert_eq!(place.cursor, 7);
    }

    #[test]
    fn a_central_that_is_away_is_asked_with_a_few_and_less_and_less_often() {
        let mut place = Place::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            place.taken(500, false, at(0));
            waits.push(place.stalled_at().unwrap().since(at(0)).as_secs());
            place.send_again();
            assert_eq!(place.read_to, 0);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert!(place.may_hand(16, true) && !place.may_hand(17, true));
        assert!(place.applied(16, 500, at(1)));
        assert!(place.may_hand(500, true) && !place.may_hand(500 + AHEAD_MAX, true));
        place.taken(500, false, at(2));
        assert_eq!(place.stalled_at(), Some(at(12)));
    }
}
