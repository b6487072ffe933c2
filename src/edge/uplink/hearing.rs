//! What the uplink makes of what happens on the connection.
//!
//! Floor 3.

use std::time::Duration;

use tracing::{info, warn};

use super::ledger::What;
use super::suspicion::End;
use super::window::Window;
use super::{Phase, STABLE, Session, Uplink};
use crate::broker::{Broker, Happening, Loss, LossKind, Message};
use crate::config::settings::UplinkAck;
use crate::domain::instant::Mono;
use crate::wire::message;

/// What waits is counted anew so soon after something was taken.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// While somebody else uses our client id, a wait is so many longest ones: each of our
/// attempts throws the other one out, and the other way round.
const RIVAL_WAITS: u32 = 3;

impl<B: Broker> Uplink<B> {
    /// Takes in what happened on the connection.
    pub(super) fn take(&mut self, happening: Happening) {
        let now = self.links.clock.mono();
        match happening {
            Happening::Open { is_resumed } => {
                self.look_at_files();
                self.begin(is_resumed, now);
            }
            Happening::Taken { token } => {
                if let Some(settled) = self.ledger.strike(token, now) {
                    self.window.note(settled.delay);
                    if let Phase::Open(session) = &mut self.phase {
                        session.taken_at = now;
                    }
                    settled
                        .whats
                        .iter()
                        .for_each(|&what| self.settle(what, now));
                }
            }
            Happening::Came(message) => self.hear_central(&message, now),
            Happening::Lost(loss) => {
                self.look_at_files();
                self.lose(&loss, now);
            }
        }
    }

    fn look_at_files(&mut self) {
        if self.links.clock.distrust().is_none() {
            let now = self.links.clock.wall();
            self.trouble.note_validity(self.broker.validity(), now);
        }
        self.trouble.note_files(self.broker.troubles());
    }

    fn begin(&mut self, is_resumed: bool, now: Mono) {
        self.ledger.clear();
        self.queue.clear();
        self.liveness.clear();
        self.window = Window::default();
        self.place.begin();
        self.todo.has_news = true;
        self.counts.connections += 1;
        self.enter(
            Phase::Open(Session {
                opened_at: now,
                taken_at: now,
                heartbeat_is_due: true,
                has_carried: false,
                // A broker that forgot the session may have forgotten what it kept.
                standings_after: Some(if is_resumed { self.place.cursor } else { 0 }),
                turn: 0,
                sends_metrics: false,
            }),
            None,
        );
        self.begin_metrics();
        info!(
            broker = self.rules.uplink.url,
            waiting = self.outbox.backlog.total().events,
            "connected to the broker"
        );
    }

    /// Heartbeats go up from here on, as soon as they have dates.
    pub(super) fn begin_metrics(&mut self) {
        let is_dated = self.links.clock.distrust().is_none();
        if let Phase::Open(session) = &mut self.phase
            && is_dated
            && self.metrics.is_on() != session.sends_metrics
        {
            session.sends_metrics = self.metrics.is_on();
            self.links.flow.turn(session.sends_metrics);
            let (wall, mono) = (self.links.clock.wall(), self.links.clock.mono());
            self.metrics.begin(wall, mono);
        }
    }

    /// The broker has taken this, and all that was handed over before it.
    fn settle(&mut self, what: What, now: Mono) {
        match what {
            What::Event { seq, .. } => {
                let is_enough = self.rules.uplink.ack == UplinkAck::Broker;
                self.place.taken(seq, is_enough, now);
                self.suspicion.clear(seq);
                self.counts.events += 1;
                self.todo.look_at.get_or_insert(now.plus(LOOK_SOON));
                self.keep_soon(now);
            }
            What::Heartbeat => {
                if let Phase::Open(session) = &mut self.phase {
                    session.has_carried = true;
                }
            }
            What::Live { .. } => self.counts.metrics += 1,
            What::Replayed { at } => {
                self.counts.metrics += 1;
                self.metrics.taken(at);
                self.keep_soon(now);
            }
            What::Liveness | What::Farewell => {}
        }
        self.draw_soon(now);
    }

    fn hear_central(&mut self, message: &Message, now: Mono) {
        let is_ours = message.topic == self.voice.topics.ack();
        let word = message::applied(&message.payload);
        let Some(applied) = word.filter(|applied| is_ours && applied.log_id == self.outbox.log_id)
        else {
            return;
        };
        if self.rules.uplink.ack == UplinkAck::Central
            && self
                .place
                .applied(applied.applied_seq, self.outbox.last, now)
        {
            self.keep_soon(now);
            self.draw_soon(now);
        }
    }

    fn lose(&mut self, loss: &Loss, now: Mono) {
        if matches!(self.phase, Phase::Off | Phase::Waiting { .. }) {
            return;
        }
        let mut wait = self.backoff.next_wait((self.links.dice)());
        if let Phase::Open(session) = &self.phase {
            let lasted = now.since(session.opened_at);
            let is_closed = loss.kind == LossKind::Closed;
            let end = End {
                oldest: self
                    .ledger
                    .oldest_event()
                    .map(|(seq, bytes, at)| (seq, bytes, now.since(at))),
                is_closed,
                has_carried: session.has_carried,
            };
            if let Some(seq) = self.suspicion.note(end) {
                let reason = format!("the broker closes the connection at it: {}", loss.reason);
                self.todo.set_aside = Some((seq, reason));
            }
            let is_kicked = is_closed && session.has_carried && !self.suspicion.is_repeated();
            self.trouble.note_end(lasted, is_kicked);
            if self.trouble.has_rival() {
                wait = wait.max(self.rules.uplink.backoff_max.saturating_mul(RIVAL_WAITS));
            } else if lasted >= STABLE {
                self.backoff.reset();
            }
        }
        self.forget_what_is_under_way();
        warn!(
            kind = ?loss.kind,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the uplink is away: {}", loss.reason
        );
        let until = now.plus(wait);
        self.enter(Phase::Waiting { until }, Some(loss.reason.clone()));
        self.keep_soon(now);
    }

    /// What was not taken will be sent again.
    pub(super) fn forget_what_is_under_way(&mut self) {
        self.links.flow.turn(false);
        let open = self.ledger.clear();
        let unsent = open.iter().filter_map(|what| match what {
            What::Live { at } | What::Replayed { at } => Some(*at),
            What::Event { .. } | What::Liveness | What::Heartbeat | What::Farewell => None,
        });
        if matches!(self.phase, Phase::Open(_)) && self.links.clock.distrust().is_none() {
            self.metrics
                .interrupt(unsent.min(), self.links.clock.wall());
        }
        self.queue.clear();
        self.liveness.clear();
    }
}
