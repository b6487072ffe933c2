//! The uplink as the board shows it.
//!
//! Floor 3.

use std::time::Duration;

use super::{Phase, Uplink};
use crate::board::{self, UplinkState};
use crate::broker::Broker;

/// A rate needs some time to mean anything.
const RATE_OVER: Duration = Duration::from_mins(10);

impl<B: Broker> Uplink<B> {
    /// Shows how things stand now.
    pub(super) fn draw(&mut self) {
        self.todo.draw_at = None;
        let now = self.links.clock.mono();
        let wall = self.links.clock.wall();
        let next_try_at = match &self.phase {
            Phase::Waiting { until } => Some(wall.plus(until.since(now))),
            Phase::Off | Phase::Opening { .. } | Phase::Open(_) => None,
        };
        let traffic = self.traffic.of_process();
        let uplink = board::Uplink {
            state: match &self.phase {
                Phase::Off => UplinkState::Off,
                Phase::Opening { .. } => UplinkState::Connecting,
                Phase::Open(_) => UplinkState::Connected,
                Phase::Waiting { .. } => UplinkState::Waiting,
            },
            since: Some(self.phase_since),
            reason: self.reason.clone(),
            broker: self.access.as_ref().and(self.rules.uplink.url.clone()),
            next_try_at,
            backlog: self.outbox.backlog,
            autonomy: self.autonomy(),
            cursor: self.place.cursor,
            sent_events: self.counts.events,
            sent_metrics: self.counts.metrics,
            passed_over: self.outbox.passed_over,
            dead_letters: self.outbox.dead_letters,
            connections: self.counts.connections,
            today: self.traffic.today(),
            traffic: (traffic.up_bytes, traffic.down_bytes),
            replaying_from: self.metrics.replaying_from(),
        };
        self.links
            .board
            .draw(|picture| picture.gateway.uplink = uplink);
    }

    /// How long the outbox takes in events at the rate since the start.
    fn autonomy(&self) -> Option<Duration> {
        let (waiting, most) = (
            self.outbox.backlog.total().bytes,
            self.rules.uplink.outbox_max_bytes,
        );
        // Room is made a little below the bound.
        if waiting > most / 100 * 94 {
            return Some(Duration::ZERO);
        }
        let lived = self.links.clock.mono().since(self.started_at);
        if lived < RATE_OVER || self.outbox.logged_bytes == 0 {
            return None;
        }
        let room = most.saturating_sub(waiting);
        #[expect(
            clippy::cast_precision_loss,
            reason = "an estimate; sizes are far below 2^53 bytes"
        )]
        let shares = room as f64 / self.outbox.logged_bytes as f64;
        Duration::try_from_secs_f64(lived.as_secs_f64() * shares).ok()
    }
}
