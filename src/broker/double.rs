//! A broker in memory, behind a line that can fail; nothing touches the network.
//!
//! Floor 2. Tests of the flows hold the [`World`], and give its [`Double`] to
//! `edge::uplink` in place of the true connection.
//!
//! # Invariants
//!
//! - Equal calls at equal times of the clock give equal happenings: there is no task,
//!   no randomness and no time but the clock's. What is due is worked off in the order
//!   of its time whenever anybody looks, so it does not matter when that is.
//! - A line keeps its order, as TCP does.
//! - The log of what reached the broker forgets nothing, also when the broker does.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Access, Broker, Happening, Loss, LossKind, Message, Traffic, Trouble, Validity};
use crate::clock::Clock;
use crate::domain::instant::Mono;

mod central;
mod client;
mod scene;
mod server;

pub use central::Effect;
pub use server::{Arrival, Sender};

use scene::Scene;

/// How the line between gateway and broker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// From one end to the other.
    pub latency: Duration,
    /// Bytes per second towards the broker; `None`: any number.
    pub up_bytes_per_second: Option<u64>,
    /// Bytes per second from the broker.
    pub down_bytes_per_second: Option<u64>,
}

/// Whether anything passes on the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Everything passes.
    #[default]
    Clear,
    /// Nothing passes, and nobody is told. What is on its way comes when the way is
    /// clear again, as TCP sends it again.
    Silent,
    /// The broker's port takes nobody.
    Closed,
    /// There is no route; who was connected is told at once, on both ends.
    Cut,
}

/// The broker, the line and whoever else is there.
#[derive(Clone)]
pub struct World {
    clock: Arc<dyn Clock>,
    scene: Arc<Mutex<Scene>>,
}

/// A client of the broker in a [`World`].
pub struct Double {
    world: World,
    /// Which of the world's clients it is.
    place: usize,
    changed: Arc<Notify>,
}

impl World {
    /// A broker nobody has been to, at the end of a line without delay.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            scene: Arc::default(),
        }
    }

    /// Another client.
    #[must_use]
    pub fn client(&self) -> Double {
        let changed = Arc::new(Notify::new());
        let place = self.look().add_client(Arc::clone(&changed));
        Double {
            world: self.clone(),
            place,
            changed,
        }
    }

    /// From now on the line is so.
    pub fn set_line(&self, line: Line) {
        self.act(|scene, _| scene.line = line);
    }

    /// From now on the way is so.
    pub fn set_way(&self, way: Way) {
        self.act(|scene, now| scene.set_way(way, now));
    }

    /// Cuts the line as soon as `messages` more have reached the broker; the answers
    /// to those still under way are lost.
    pub fn cut_after(&self, messages: usize) {
        self.act(|scene, now| {
            if messages == 0 {
                scene.set_way(Way::Cut, now);
            } else {
                scene.cut_after = Some(messages);
            }
        });
    }

    /// The broker forgets all connections, and the clients are not told.
    pub fn half_open(&self) {
        self.act(Scene::half_open);
    }

    /// The broker closes all connections.
    pub fn kick(&self) {
        self.act(Scene::kick);
    }

    /// The broker refuses everybody from now on, for this reason; `None`: nobody.
    pub fn refuse(&self, reason: Option<&str>) {
        self.act(|scene, _| scene.server.refusal = reason.map(str::to_owned));
    }

    /// The broker starts anew: connections, sessions, retained messages and whatever
    /// waited for a subscriber are gone.
    pub fn forget(&self) {
        self.act(|scene, now| {
            scene.kick(now);
            scene.server.forget();
            scene.central.lose_waiting();
        });
    }

    /// While `is_holding`, the broker takes messages and acknowledges none; after
    /// that it acknowledges them all.
    pub fn hold_acks(&self, is_holding: bool) {
        self.act(|scene, now| scene.hold_acks(is_holding, now));
    }

    /// The broker closes the connection on which a longer packet comes.
    pub fn limit_packets(&self, bytes: Option<u64>) {
        self.act(|scene, _| scene.server.packet_bytes_max = bytes);
    }

    /// Somebody else publishes.
    pub fn publish(&self, message: Message) {
        self.act(|scene, now| scene.deliver(Sender::Other, message, now));
    }

    /// A central consumer listens from now on, and acknowledges what it has applied.
    pub fn start_central(&self, topic_prefix: &str) {
        self.act(|scene, now| {
            scene.central.start(topic_prefix, now);
        });
    }

    /// The central consumer goes away; the broker keeps messages for it.
    pub fn stop_central(&self) {
        self.act(|scene, _| scene.central.stop());
    }

    /// What waits for the central consumer is lost.
    pub fn lose_what_waits_for_central(&self) {
        self.act(|scene, _| scene.central.lose_waiting());
    }

    /// What the central consumer has applied, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        self.look().central.effects().to_vec()
    }

    /// How many events the central consumer has put aside because one before them
    /// was missing.
    #[must_use]
    pub fn holes(&self) -> u64 {
        self.look().central.holes()
    }

    /// Our own certificate, as the clients report it.
    pub fn set_validity(&self, validity: Option<Validity>) {
        self.act(|scene, _| scene.validity = validity);
    }

    /// Troubles with files, as the clients report them.
    pub fn set_troubles(&self, troubles: Vec<Trouble>) {
        self.act(|scene, _| scene.troubles = troubles);
    }

    /// What has reached the broker, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Arrival> {
        self.look().server.log().to_vec()
    }

    /// What has reached the broker since this was last called.
    #[must_use]
    pub fn take_log(&self) -> Vec<Arrival> {
        self.look().server.take_log()
    }

    /// The retained message of a topic.
    #[must_use]
    pub fn retained(&self, topic: &str) -> Option<Vec<u8>> {
        self.look().server.retained(topic)
    }

    /// When somebody tried to connect.
    #[must_use]
    pub fn attempts(&self) -> Vec<Mono> {
        self.look().attempts.clone()
    }

    /// How many clients the broker has.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.look().connections()
    }

    /// How many messages of all clients were handed over and are not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.look().in_flight()
    }

    /// The scene as it is now.
    fn look(&self) -> MutexGuard<'_, Scene> {
        // A poisoned lock means that another thread's test has failed already.
        let mut scene = self.scene.lock().unwrap_or_else(PoisonError::into_inner);
        scene.advance(self.clock.mono());
        scene
    }

    /// Does `deed` now, and wakes who waits.
    fn act(&self, deed: impl FnOnce(&mut Scene, Mono)) {
        let now = self.clock.mono();
        let mut scene = self.look();
        deed(&mut scene, now);
        scene.advance(now);
        scene.wake_all();
    }
}

impl Broker for Double {
    fn open(&mut self, access: &Access) {
        let place = self.place;
        self.world.act(|scene, now| scene.open(place, access, now));
    }

    fn publish(&mut self, token: u64, message: Message) {
        let place = self.place;
        self.world
            .act(|scene, now| scene.publish(place, token, message, now));
    }

    async fn next(&mut self) -> Happening {
        loop {
            let due = {
                let mut scene = self.world.look();
                if let Some(happening) = scene.take_happening(self.place) {
                    return happening;
                }
                scene.next_due()
            };
            self.wait(due).await;
        }
    }

    async fn close(&mut self) {
        let place = self.place;
        self.world.act(|scene, now| scene.leave(place, now));
        loop {
            let due = {
                let scene = self.world.look();
                if scene.has_left(place) {
                    return;
                }
                scene.next_due()
            };
            self.wait(due).await;
        }
    }

    fn traffic(&self) -> Traffic {
        self.world.look().traffic(self.place)
    }

    fn validity(&self) -> Option<Validity> {
        self.world.look().validity
    }

    fn troubles(&self) -> Vec<Trouble> {
        self.world.look().troubles.clone()
    }
}

impl Double {
    /// Until something is due or was done. A deed before this is not missed: the
    /// notification keeps it.
    async fn wait(&self, due: Option<Mono>) {
        let Some(due) = due else {
            return self.changed.notified().await;
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = tokio::time::sleep_until(self.world.clock.wake_at(due)) => {}
        }
    }
}

/// As when the process ends: nobody takes leave.
impl Drop for Double {
    fn drop(&mut self) {
        let place = self.place;
        self.world.act(|scene, now| scene.vanish(place, now));
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Double")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

fn loss(kind: LossKind, reason: &str) -> Loss {
    Loss {
        kind,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;
