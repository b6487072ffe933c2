//! Taking leave of the broker.
//!
//! Floor 3. A clean stop says so on the topic of the node heartbeat, so that nobody
//! waits for its end; the Will stays unsaid.

use std::time::Duration;

use tokio::time::timeout;
use tracing::info;

use super::desk::Job;
use super::ledger::What;
use super::{Phase, Uplink};
use crate::broker::{Broker, Happening};
use crate::domain::instant::Mono;

/// How long the last word may take to be taken.
const FAREWELL_MAX: Duration = Duration::from_secs(3);
/// How long the connection may take to end after it.
const CLOSING_MAX: Duration = Duration::from_secs(1);
/// How long the store may take for the job under way, and for the last one.
const KEEPING_MAX: Duration = Duration::from_secs(2);

impl<B: Broker> Uplink<B> {
    /// Says goodbye where there is a connection and ends it.
    pub(super) async fn leave(&mut self, reason: &str) {
        let is_open = matches!(self.phase, Phase::Open(_));
        if is_open {
            let message = self.voice.gone(reason);
            self.hand(What::Farewell, message);
            let taken = timeout(FAREWELL_MAX, self.until_farewell_is_taken()).await;
            if taken.is_err() {
                info!("the broker did not take our leave in time");
            }
        }
        self.forget_what_is_under_way();
        if !matches!(self.phase, Phase::Off | Phase::Waiting { .. }) {
            let closed = timeout(CLOSING_MAX, self.broker.close()).await;
            if closed.is_err() {
                info!("the connection to the broker did not end in time");
            }
        }
    }

    async fn until_farewell_is_taken(&mut self) {
        while self.ledger.holds(|what| what == What::Farewell) {
            let happening = self.broker.next().await;
            let is_over = matches!(happening, Happening::Lost(_) | Happening::Open { .. });
            self.take(happening);
            if is_over {
                return;
            }
        }
    }

    /// The end of the program: the cursor first, because the store closes soon.
    pub(super) async fn leave_for_good(mut self) {
        self.keep_now().await;
        let cursor = self.place.cursor;
        self.leave("stopped").await;
        if self.place.cursor > cursor {
            self.keep_now().await;
        }
    }

    /// Writes cursor and marks; what fails costs that some events are sent twice.
    async fn keep_now(&mut self) {
        if self.access.is_none() {
            return;
        }
        let keep = async {
            if !self.desk.is_free() {
                let ended = self.desk.ended().await;
                self.conclude(ended.map_err(|broken| broken.to_string()));
            }
            let job = Job::Keep(self.marks());
            self.desk
                .start(job, self.place.cursor, self.links.clock.wall());
            let ended = self.desk.ended().await;
            self.conclude(ended.map_err(|broken| broken.to_string()));
        };
        if timeout(KEEPING_MAX, keep).await.is_err() {
            info!("the store did not take the uplink's place in time: some events go up twice");
        }
        self.todo.keep_at = None::<Mono>;
    }
}
