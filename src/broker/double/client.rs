//! One client of a simulated broker, with both ends of its connection.
//!
//! Floor 2. Called by `scene`, which decides what happens when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Line;
use crate::broker::packet::{
    ACK_BYTES, BARE_BYTES, CONNACK_BYTES, SUBACK_BYTES, connect_bytes, publish_bytes,
    subscribe_bytes,
};
use crate::broker::{Access, Happening, Loss, Message, Traffic};
use crate::domain::instant::Mono;

/// What goes to the broker.
#[derive(Debug)]
pub(super) enum Up {
    Connect,
    Subscribe(String),
    Publish(u64, Message),
    Ack,
    Ping,
    Disconnect,
}

/// What comes from the broker, or from the network in its place.
#[derive(Debug)]
pub(super) enum Down {
    Accept { is_resumed: bool },
    Fail(Loss),
    SubscribeAck,
    Ack(u64),
    Message(Message),
    Pong,
}

/// How far the client's end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Connecting,
    Open,
    /// Takes leave: what was handed over is still going out.
    Leaving,
}

/// One direction of a connection, in order.
#[derive(Debug)]
pub(super) struct Lane<T> {
    queue: VecDeque<(Mono, T)>,
    /// When the last byte of what was sent has left.
    free_at: Mono,
}

/// The broker's end of a connection.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) access: Access,
    /// When the broker last heard of the client.
    pub(super) heard_at: Mono,
    /// Which of the client's connections it is.
    pub(super) generation: u64,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// Counts the connections.
    pub(super) generation: u64,
    pub(super) access: Option<Access>,
    pub(super) told: VecDeque<Happening>,
    pub(super) up: Lane<Up>,
    pub(super) down: Lane<Down>,
    pub(super) in_flight: usize,
    /// When the client gives up connecting.
    pub(super) give_up_at: Option<Mono>,
    /// Nothing was sent for long by then: the client sends a ping.
    pub(super) quiet_at: Option<Mono>,
    /// Nothing came for long by then although an answer is due: the client asks, and
    /// gives up the next time.
    pub(super) deaf_at: Option<Mono>,
    pub(super) is_asked: bool,
    /// Answers to pings and subscriptions that are due.
    answers_due: u32,
    pub(super) traffic: Traffic,
    /// `None`: the broker knows of no connection.
    pub(super) seat: Option<Seat>,
    pub(super) changed: Arc<Notify>,
}

impl<T> Lane<T> {
    fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            free_at: Mono::default(),
        }
    }

    fn send(&mut self, now: Mono, bytes: u64, (latency, rate): (Duration, Option<u64>), item: T) {
        self.free_at = self.free_at.max(now).plus(time_of(bytes, rate));
        let order = self.queue.back().map_or(now, |&(at, _)| at);
        self.queue
            .push_back((self.free_at.plus(latency).max(order), item));
    }

    /// When the next of them arrives.
    pub(super) fn due(&self) -> Option<Mono> {
        self.queue.front().map(|&(at, _)| at)
    }

    /// Takes what arrives next.
    pub(super) fn take(&mut self) -> Option<T> {
        self.queue.pop_front().map(|(_, item)| item)
    }

    /// Everything under way is lost.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.free_at = Mono::default();
    }

    /// Nothing arrives before `at`.
    pub(super) fn hold_until(&mut self, at: Mono) {
        for (arrival, _) in &mut self.queue {
            *arrival = (*arrival).max(at);
        }
    }
}

impl Client {
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            phase: Phase::Idle,
            generation: 0,
            access: None,
            told: VecDeque::new(),
            up: Lane::new(),
            down: Lane::new(),
            in_flight: 0,
            give_up_at: None,
            quiet_at: None,
            deaf_at: None,
            is_asked: false,
            answers_due: 0,
            traffic: Traffic::default(),
            seat: None,
            changed,
        }
    }

    /// Sends towards the broker.
    pub(super) fn send(&mut self, item: Up, line: Line, now: Mono) {
        let bytes = match &item {
            Up::Connect => self.access.as_ref().map_or(0, connect_bytes),
            Up::Subscribe(topic) => subscribe_bytes(topic),
            Up::Publish(_, message) => publish_bytes(message),
            Up::Ack => ACK_BYTES,
            Up::Ping | Up::Disconnect => BARE_BYTES,
        };
        self.traffic.up_bytes += bytes;
        if matches!(item, Up::Subscribe(_) | Up::Ping) {
            self.answers_due += 1;
        }
        let keep_alive = self.keep_alive().filter(|_| self.phase == Phase::Open);
        self.quiet_at = keep_alive.map(|period| now.plus(period));
        if self.deaf_at.is_none() {
            self.hear(now);
        }
        let way = (line.latency, line.up_bytes_per_second);
        self.up.send(now, bytes, way, item);
    }

    /// Begins a connection in place of the one before. What a clean leave has still
    /// under way goes on.
    pub(super) fn begin(&mut self, access: &Access, give_up_at: Mono) {
        if self.phase != Phase::Leaving {
            self.up.clear();
        }
        self.down.clear();
        self.told.clear();
        self.in_flight = 0;
        self.quiet_at = None;
        self.deaf_at = None;
        self.answers_due = 0;
        self.access = Some(access.clone());
        self.phase = Phase::Connecting;
        self.generation += 1;
        self.give_up_at = Some(give_up_at);
    }

    /// The broker sends on the connection that it knows. Where the client has another
    /// by now, or none, nothing comes of it.
    pub(super) fn reply(&mut self, item: Down, line: Line, now: Mono) {
        let is_ours = |seat: &Seat| seat.generation == self.generation;
        if self.phase != Phase::Idle && self.seat.as_ref().is_some_and(is_ours) {
            self.answer(item, line, now);
        }
    }

    /// Sends towards the client.
    pub(super) fn answer(&mut self, item: Down, line: Line, now: Mono) {
        let way = (line.latency, line.down_bytes_per_second);
        self.down.send(now, item.bytes(), way, item);
    }

    /// The client's end is over.
    pub(super) fn lose(&mut self, loss: Loss) {
        let was_leaving = self.phase == Phase::Leaving;
        if self.phase == Phase::Idle {
            return;
        }
        self.end();
        if !was_leaving {
            self.told.push_back(Happening::Lost(loss));
        }
    }

    /// Something happened on the connection; who takes leave hears no more of it.
    pub(super) fn tell(&mut self, happening: Happening) {
        if self.phase == Phase::Open {
            self.told.push_back(happening);
        }
    }

    /// Nothing comes any more, nothing goes any more.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Idle;
        self.up.clear();
        self.down.clear();
        self.in_flight = 0;
        self.give_up_at = None;
        self.quiet_at = None;
        self.deaf_at = None;
    }

    /// Something came, or what is sent moves.
    pub(super) fn hear(&mut self, now: Mono) {
        let is_due = self.phase == Phase::Open && (self.in_flight > 0 || self.answers_due > 0);
        let keep_alive = self.keep_alive().filter(|_| is_due);
        self.deaf_at = keep_alive.map(|period| now.plus(period));
        self.is_asked = false;
    }

    /// An answer to a ping or a subscription has come.
    pub(super) const fn answered(&mut self) {
        self.answers_due = self.answers_due.saturating_sub(1);
    }

    /// Whether what was sent is still leaving.
    pub(super) fn is_backed_up(&self, now: Mono) -> bool {
        self.up.free_at > now
    }

    /// Whether the message is short enough by the client's own settings.
    pub(super) fn takes(&self, message: &Message) -> bool {
        let access = self.access.as_ref();
        access.is_some_and(|access| publish_bytes(message) <= access.uplink.max_packet_bytes)
    }

    /// The time between two questions whether the other end is there.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        let keep_alive = self.access.as_ref()?.uplink.keep_alive;
        (!keep_alive.is_zero()).then_some(keep_alive)
    }
}

impl Down {
    /// Bytes of the packet.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Accept { .. } => CONNACK_BYTES,
            Self::Fail(_) => 0,
            Self::SubscribeAck => SUBACK_BYTES,
            Self::Ack(_) => ACK_BYTES,
            Self::Message(message) => publish_bytes(message),
            Self::Pong => BARE_BYTES,
        }
    }
}

impl Seat {
    /// When the broker gives the client up: it waits half as long again as agreed.
    pub(super) fn due(&self) -> Option<Mono> {
        let keep_alive = self.access.uplink.keep_alive;
        (!keep_alive.is_zero()).then(|| self.heard_at.plus(keep_alive.mul_f64(1.5)))
    }
}

fn time_of(bytes: u64, rate: Option<u64>) -> Duration {
    rate.map_or(Duration::ZERO, |rate| {
        let micros = bytes.saturating_mul(1_000_000) / rate.max(1);
        Duration::from_micros(micros)
    })
}
