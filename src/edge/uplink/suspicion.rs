//! Whether the broker closes connections because of one message.
//!
//! Floor 3, pure. A broker cannot say that it does not take a message (MQTT 3.1.1 has
//! no word for it): it closes the connection. So does a line that breaks. A message is
//! under suspicion when the connection is closed again and again with it as the oldest
//! one not taken, in sessions whose node heartbeat was taken just before; from the
//! second time on it is sent alone. Large ones are given up after three tries in all,
//! small ones, which no sensible limit stops, after more: only a rule of access does.

use std::time::Duration;

/// From this size of JSON on, a limit of the broker is the likely reason.
const LARGE_BYTES: usize = 2_048;
const TRIES_OF_LARGE: u32 = 3;
const TRIES_OF_SMALL: u32 = 8;
/// A connection closed within this after a message was handed over may be closed for
/// its sake.
const SOON: Duration = Duration::from_secs(10);

/// What is suspected.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    suspect: Option<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    seq: u64,
    tries: u32,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The oldest event not taken, its bytes, and how long ago it was handed over.
    pub(super) oldest: Option<(u64, usize, Duration)>,
    /// Whether the broker closed it, rather than silence or an error of ours.
    pub(super) is_closed: bool,
    /// Whether a node heartbeat had been taken in it: the line carried something.
    pub(super) has_carried: bool,
}

impl Suspicion {
    /// Takes in the end of a connection; tells the event to be set aside, if one is.
    pub(super) fn note(&mut self, end: End) -> Option<u64> {
        let (seq, bytes, age) = end.oldest?;
        if !end.is_closed || !end.has_carried || age > SOON {
            return None;
        }
        let tries = match &self.suspect {
            Some(suspect) if suspect.seq == seq => suspect.tries + 1,
            _ => 1,
        };
        let most = if bytes >= LARGE_BYTES {
            TRIES_OF_LARGE
        } else {
            TRIES_OF_SMALL
        };
        self.suspect = (tries < most).then_some(Suspect { seq, tries });
        (tries >= most).then_some(seq)
    }

    /// Whether the same event was the oldest one at the end of several connections.
    pub(super) fn is_repeated(&self) -> bool {
        self.suspect
            .as_ref()
            .is_some_and(|suspect| suspect.tries > 1)
    }

    /// The event that is to be sent alone.
    pub(super) fn alone(&self) -> Option<u64> {
        self.suspect.as_ref().map(|suspect| suspect.seq)
    }

    /// Everything up to this event is taken.
    pub(super) fn clear(&mut self, upto: u64) {
        self.suspect.take_if(|suspect| suspect.seq <= upto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(seq: u64, bytes: usize) -> End {
        End {
            oldest: Some((seq, bytes, Duration::from_millis(30))),
            is_closed: true,
            has_carried: true,
        }
    }

    #[test]
    fn a_large_message_is_given_up_after_three_tries_and_a_small_one_after_eight() {
        let mut suspicion = Suspicion::default();
        assert_eq!(suspicion.note(end(5, 70_000)), None);
        assert_eq!(suspicion.alone(), Some(5));
        assert_eq!(suspicion.note(end(5, 70_000)), None);
        assert_eq!(suspicion.note(end(5, 70_000)), Some(5));
        assert_eq!(suspicion.alone(), None);
        let given_up = (0..8).filter_map(|_| suspicion.note(end(6, 450)));
        assert_eq!(given_up.collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn a_line_that_breaks_here_and_there_makes_nobody_a_suspect_for_long() {
        let mut suspicion = Suspicion::default();
        for seq in 1..100 {
            assert_eq!(suspicion.note(end(seq, 450)), None);
        }
        suspicion.clear(98);
        assert_eq!(suspicion.alone(), Some(99));
        suspicion.clear(99);
        assert_eq!(suspicion.alone(), None);
        let silent = End {
            is_closed: false,
            ..end(1, 90_000)
        };
        let dead = End {
            has_carried: false,
            ..end(1, 90_000)
        };
        let late = End {
            oldest: Some((1, 90_000, Duration::from_secs(60))),
            ..end(1, 90_000)
        };
        for end in [silent, dead, late] {
            assert!((0..20).all(|_| suspicion.note(end).is_none()), "{end:?}");
        }
    }
}
