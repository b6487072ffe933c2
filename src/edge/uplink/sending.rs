//! What goes out next, as long as the window has room.
//!
//! Floor 3.

use super::desk::Ready;
use super::ledger::What;
use super::{Phase, Uplink};
use crate::broker::{Broker, IN_FLIGHT_MAX, Message, packet_bytes};
use crate::config::settings::UplinkAck;
use crate::wire::message::Metrics;

/// Of so many turns one is for heartbeats as they happen, while the log waits.
const TURNS: u32 = 4;

impl<B: Broker> Uplink<B> {
    /// Sends what can be sent and asks the store for what is needed next.
    pub(super) fn go_on(&mut self) {
        while matches!(self.phase, Phase::Open(_)) && self.ledger.len() < self.window.size() {
            if !self.send_next() {
                break;
            }
        }
        self.ask();
    }

    /// Hands the next message over, if there is one.
    fn send_next(&mut self) -> bool {
        let Phase::Open(session) = &mut self.phase else {
            return false;
        };
        let has_standings = session.standings_after.is_none();
        session.turn = session.turn.wrapping_add(1);
        let is_turn_of_log = !session.turn.is_multiple_of(TURNS);
        if session.heartbeat_is_due {
            session.heartbeat_is_due = false;
            // Only the newest counts; a slow line must not fill with them.
            if !self.ledger.holds(|what| what == What::Heartbeat) {
                self.send_heartbeat();
                return true;
            }
        }
        if let Some((device, track)) = self.liveness.pop_front() {
            let message = self.voice.liveness(device, track);
            self.hand(What::Liveness, message);
            return true;
        }
        if !has_standings {
            return false;
        }
        let live = |uplink: &mut Self| {
            uplink.metrics.next_live().map(|one| {
                uplink.send_metrics(&one, What::Live { at: one.at });
            })
        };
        if is_turn_of_log {
            return self.send_parcel() || live(self).is_some() || self.send_past();
        }
        live(self).is_some() || self.send_parcel() || self.send_past()
    }

    fn send_heartbeat(&mut self) {
        // What waits is told as of now.
        self.draw();
        let message = {
            let picture = self.links.board.look();
            self.voice.heartbeat(&picture, self.rules.heartbeat_ttl)
        };
        self.hand(What::Heartbeat, message);
    }

    fn send_parcel(&mut self) -> bool {
        let Some(front) = self.queue.front() else {
            return false;
        };
        let seq = front.parcel.seq;
        let asks_central = self.rules.uplink.ack == UplinkAck::Central;
        let is_event = |what: What| matches!(what, What::Event { .. });
        let is_suspect = |what: What| {
            let What::Event { seq, .. } = what else {
                return false;
            };
            self.suspicion.alone() == Some(seq)
        };
        let must_be_alone = self.suspicion.alone() == Some(seq);
        if !self.place.may_hand(seq, asks_central)
            || (must_be_alone && self.ledger.holds(is_event))
            || self.ledger.holds(is_suspect)
        {
            return false;
        }
        let Some(Ready { parcel, liveness }) = self.queue.pop_front() else {
            return false;
        };
        // Before its event, so that the cursor does not pass it alone.
        if let Some((device, track)) = liveness {
            let message = self.voice.liveness(device, track);
            self.hand(What::Liveness, message);
        }
        let message = self.voice.event(&parcel, asks_central);
        let bytes = message.payload.len();
        if packet_bytes(&message) > self.rules.uplink.max_packet_bytes {
            let reason = format!(
                "it takes {} bytes, uplink.max_packet_bytes allows {}",
                packet_bytes(&message),
                self.rules.uplink.max_packet_bytes
            );
            self.todo.set_aside = Some((seq, reason));
            // What stands in its place is read in its turn.
            self.queue.clear();
            self.place.read_to = self.place.sent_to;
            return false;
        }
        self.place.handed(seq);
        self.hand(What::Event { seq, bytes }, message);
        true
    }

    /// Behind the log: only when all of it is taken.
    fn send_past(&mut self) -> bool {
        let is_log_done = self.queue.is_empty()
            && !self.todo.has_news
            && !self.ledger.holds(|what| matches!(what, What::Event { .. }));
        if !is_log_done {
            return false;
        }
        let now = self.links.clock.mono();
        let Some(one) = self.metrics.next_past(now) else {
            return false;
        };
        self.send_metrics(&one, What::Replayed { at: one.at });
        true
    }

    fn send_metrics(&mut self, one: &Metrics, what: What) {
        let message = self.voice.metrics(one, &self.outbox.log_id);
        self.hand(what, message);
    }

    pub(super) fn hand(&mut self, what: What, message: Message) {
        debug_assert!(
            self.ledger.len() < IN_FLIGHT_MAX,
            "the window leaves room for all that is handed over"
        );
        let token = self.ledger.enter(what, self.links.clock.mono());
        self.broker.publish(token, message);
    }
}
