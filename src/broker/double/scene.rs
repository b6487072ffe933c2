//! What happens when between clients, line and broker of a simulation.
//!
//! Floor 2. Called by `double`, always with the time.
//!
//! # Invariants
//!
//! - [`Scene::advance`] works off what is due in the order of its time, and at equal
//!   times in a fixed order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::central::Central;
use super::client::{Client, Down, Phase, Seat, Up};
use super::server::{Sender, Server};
use super::{Line, Way, loss};
use crate::broker::packet::publish_bytes;
use crate::broker::{
    Access, Happening, IN_FLIGHT_MAX, LossKind, Message, Traffic, Trouble, Validity,
};
use crate::domain::instant::Mono;

/// Longest time to connect, as the true connection has it.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Everything behind a `World`.
#[derive(Debug, Default)]
pub(super) struct Scene {
    pub(super) line: Line,
    way: Way,
    /// How many messages pass until the way is cut.
    pub(super) cut_after: Option<usize>,
    pub(super) server: Server,
    pub(super) central: Central,
    pub(super) attempts: Vec<Mono>,
    pub(super) validity: Option<Validity>,
    pub(super) troubles: Vec<Trouble>,
    clients: Vec<Client>,
    /// Messages whose acknowledgement is held back: client and token.
    held: Vec<(usize, u64)>,
}

/// What can be due, at equal times in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Up,
    Down,
    GiveUp,
    Quiet,
    Deaf,
    Forsaken,
    Central,
}

impl Scene {
    pub(super) fn add_client(&mut self, changed: Arc<Notify>) -> usize {
        self.clients.push(Client::new(changed));
        self.clients.len() - 1
    }

    /// Works off everything that is due by `now`.
    pub(super) fn advance(&mut self, now: Mono) {
        while let Some((at, due, place)) = self.first_due().filter(|&(at, ..)| at <= now) {
            self.step(due, place, at);
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.first_due().map(|(at, ..)| at)
    }

    pub(super) fn wake_all(&self) {
        for client in &self.clients {
            client.changed.notify_one();
        }
    }

    /// A client begins to connect.
    pub(super) fn open(&mut self, place: usize, access: &Access, now: Mono) {
        self.attempts.push(now);
        let (line, way) = (self.line, self.way);
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        client.begin(access, now.plus(CONNECT_LIMIT));
        let failure = match way {
            _ if access.uplink.url.is_none() => Some(LossKind::Unusable),
            Way::Clear | Way::Silent => None,
            Way::Closed | Way::Cut => Some(LossKind::Unreachable),
        };
        match failure {
            // TCP's greeting takes one way there and back.
            None => client.send(Up::Connect, line, now.plus(line.latency * 2)),
            Some(kind) => {
                let reason = if way == Way::Cut {
                    "there is no route to the broker"
                } else {
                    "the broker's port takes no connection"
                };
                client.answer(Down::Fail(loss(kind, reason)), line, now.plus(line.latency));
            }
        }
    }

    /// A client hands a message over.
    pub(super) fn publish(&mut self, place: usize, token: u64, message: Message, now: Mono) {
        let line = self.line;
        if let Some(client) = self.clients.get_mut(place)
            && client.phase == Phase::Open
            && client.in_flight < IN_FLIGHT_MAX
            && client.takes(&message)
        {
            client.in_flight += 1;
            client.send(Up::Publish(token, message), line, now);
        }
    }

    /// A client's process ends: the network tells the broker.
    pub(super) fn vanish(&mut self, place: usize, now: Mono) {
        if let Some(client) = self.clients.get_mut(place) {
            client.end();
        }
        if self.way == Way::Clear {
            self.drop_seat(place, now);
        }
    }

    /// A client takes leave.
    pub(super) fn leave(&mut self, place: usize, now: Mono) {
        let line = self.line;
        if let Some(client) = self.clients.get_mut(place) {
            if client.phase == Phase::Open {
                client.phase = Phase::Leaving;
                client.send(Up::Disconnect, line, now);
            } else {
                client.end();
            }
            client.told.clear();
        }
    }

    pub(super) fn has_left(&self, place: usize) -> bool {
        let client = self.clients.get(place);
        client.is_none_or(|client| client.phase == Phase::Idle)
    }

    pub(super) fn take_happening(&mut self, place: usize) -> Option<Happening> {
        self.clients.get_mut(place)?.told.pop_front()
    }

    pub(super) fn traffic(&self, place: usize) -> Traffic {
        let client = self.clients.get(place);
        client.map_or_else(Traffic::default, |client| client.traffic)
    }

    pub(super) fn connections(&self) -> usize {
        let clients = self.clients.iter();
        clients.filter(|client| client.seat.is_some()).count()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.clients.iter().map(|client| client.in_flight).sum()
    }

    pub(super) fn set_way(&mut self, way: Way, now: Mono) {
        let was_silent = self.way == Way::Silent;
        self.way = way;
        self.cut_after = None;
        let earliest = now.plus(self.line.latency);
        for place in 0..self.clients.len() {
            if way == Way::Cut {
                self.drop_seat(place, now);
            }
            let Some(client) = self.clients.get_mut(place) else {
                continue;
            };
            if way == Way::Cut && client.phase == Phase::Connecting {
                client.lose(loss(LossKind::Unreachable, "the line broke"));
            } else if way == Way::Cut {
                client.lose(loss(LossKind::Broken, "the line broke"));
            } else if was_silent {
                client.up.hold_until(earliest);
                client.down.hold_until(earliest);
            }
        }
    }

    pub(super) fn half_open(&mut self, now: Mono) {
        for place in 0..self.clients.len() {
            self.drop_seat(place, now);
        }
    }

    pub(super) fn kick(&mut self, now: Mono) {
        for place in 0..self.clients.len() {
            if self.clients.get(place).is_some_and(|c| c.seat.is_some()) {
                self.close_seat(place, "the broker closed the connection", now);
            }
        }
    }

    pub(super) fn hold_acks(&mut self, is_holding: bool, now: Mono) {
        self.server.is_holding = is_holding;
        if !is_holding {
            for (place, token) in std::mem::take(&mut self.held) {
                self.answer(place, Down::Ack(token), now);
            }
        }
    }

    /// The broker gets a message, and passes it on.
    pub(super) fn deliver(&mut self, from: Sender, message: Message, now: Mono) {
        let mut waiting = vec![(from, message)];
        while let Some((from, message)) = waiting.pop() {
            if from != Sender::Central {
                self.central.take_in(&message, now);
            }
            self.pass_on(&message, now);
            self.server.take_in(from, message, now);
            waiting.extend(self.central.answers(now).map(|m| (Sender::Central, m)));
        }
    }

    fn pass_on(&mut self, message: &Message, now: Mono) {
        let live = Message {
            retain: false,
            ..message.clone()
        };
        for (id, session) in &mut self.server.sessions {
            if session.subscription.as_ref() != Some(&message.topic) {
                continue;
            }
            let is_his = |client: &&mut Client| {
                let seat = client.seat.as_ref();
                seat.is_some_and(|seat| &seat.access.client_id == id)
            };
            session.keep(live.clone());
            if let Some(client) = self.clients.iter_mut().find(is_his) {
                session.pass_on(|message| client.reply(Down::Message(message), self.line, now));
            }
        }
    }

    fn first_due(&self) -> Option<(Mono, Due, usize)> {
        let passes = self.way != Way::Silent;
        let of_client = |(place, client): (usize, &Client)| {
            let seat = client.seat.as_ref();
            [
                (client.up.due().filter(|_| passes), Due::Up),
                (client.down.due().filter(|_| passes), Due::Down),
                (client.give_up_at, Due::GiveUp),
                (client.quiet_at, Due::Quiet),
                (client.deaf_at, Due::Deaf),
                (seat.and_then(Seat::due), Due::Forsaken),
            ]
            .into_iter()
            .filter_map(|(at, due)| Some((at?, due, place)))
            .min()
        };
        let clients = self.clients.iter().enumerate().filter_map(of_client);
        let central = self.central.due().map(|at| (at, Due::Central, 0));
        clients.chain(central).min()
    }

    fn step(&mut self, due: Due, place: usize, now: Mono) {
        match due {
            Due::Up => self.step_up(place, now),
            Due::Down => self.step_down(place, now),
            Due::GiveUp => self.lose(place, LossKind::Unreachable, "no answer within 20 s"),
            Due::Quiet => self.ping(place, now),
            Due::Deaf => self.deaf(place, now),
            Due::Forsaken => self.close_seat(place, "the broker heard nothing", now),
            Due::Central => {
                let answers: Vec<Message> = self.central.answers(now).collect();
                for message in answers {
                    self.deliver(Sender::Central, message, now);
                }
            }
        }
    }

    /// Something arrives at the broker.
    fn step_up(&mut self, place: usize, now: Mono) {
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        let item = client.up.take();
        if let Some(seat) = &mut client.seat {
            seat.heard_at = now;
        }
        let is_seated = client.seat.is_some();
        if is_seated && client.is_backed_up(now) {
            client.hear(now);
        }
        match item {
            Some(Up::Connect) => self.admit(place, now),
            Some(Up::Disconnect) => {
                client.seat = None;
                if client.phase == Phase::Leaving {
                    client.end();
                }
            }
            Some(Up::Publish(token, message)) if is_seated => {
                self.publish_arrived(place, token, message, now);
            }
            Some(Up::Subscribe(topic)) if is_seated => self.subscribe(place, topic, now),
            Some(Up::Ping) if is_seated => self.answer(place, Down::Pong, now),
            Some(Up::Ack) if is_seated => self.server.session(&self.client_id(place)).acked(),
            // The broker has no such connection: it drops what comes on it.
            Some(Up::Publish(..) | Up::Subscribe(_) | Up::Ping | Up::Ack) | None => {}
        }
    }

    fn admit(&mut self, place: usize, now: Mono) {
        let Some(access) = self.clients.get(place).and_then(|c| c.access.clone()) else {
            return;
        };
        if let Some(reason) = self.server.refusal.clone() {
            let refused = Down::Fail(loss(LossKind::Refused, &reason));
            let line = self.line;
            if let Some(client) = self.clients.get_mut(place) {
                client.answer(refused, line, now);
            }
            return;
        }
        for other in 0..self.clients.len() {
            let seat = self.clients.get(other).and_then(|c| c.seat.as_ref());
            if seat.is_none_or(|seat| seat.access.client_id != access.client_id) {
                continue;
            }
            if other == place {
                self.drop_seat(other, now);
            } else {
                self.close_seat(other, "another client came under the same id", now);
            }
        }
        let id = access.client_id.clone();
        let is_resumed = self.server.sessions.contains_key(&id);
        let session = self.server.session(&id);
        session.begin_anew();
        if let Some(client) = self.clients.get_mut(place) {
            client.seat = Some(Seat {
                access,
                heard_at: now,
                generation: client.generation,
            });
            client.reply(Down::Accept { is_resumed }, self.line, now);
            session.pass_on(|message| client.reply(Down::Message(message), self.line, now));
        }
    }

    fn publish_arrived(&mut self, place: usize, token: u64, message: Message, now: Mono) {
        let limit = self.server.packet_bytes_max;
        if limit.is_some_and(|limit| publish_bytes(&message) > limit) {
            self.close_seat(place, "the broker closed the connection", now);
            return;
        }
        let client_id = self.client_id(place);
        self.deliver(Sender::Client(client_id), message, now);
        if let Some(left) = &mut self.cut_after {
            *left -= 1;
            if *left == 0 {
                self.set_way(Way::Cut, now);
                return;
            }
        }
        if self.server.is_holding {
            self.held.push((place, token));
        } else {
            self.answer(place, Down::Ack(token), now);
        }
    }

    fn subscribe(&mut self, place: usize, topic: String, now: Mono) {
        self.answer(place, Down::SubscribeAck, now);
        if let Some(payload) = self.server.retained(&topic) {
            let message = Message {
                topic: topic.clone(),
                payload,
                retain: true,
            };
            let id = self.client_id(place);
            self.server.session(&id).sent_alone(message.clone());
            self.answer(place, Down::Message(message), now);
        }
        let id = self.client_id(place);
        self.server.session(&id).subscription = Some(topic);
    }

    /// Something arrives at the client.
    fn step_down(&mut self, place: usize, now: Mono) {
        let line = self.line;
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        let Some(item) = client.down.take() else {
            return;
        };
        client.traffic.down_bytes += item.bytes();
        match item {
            Down::Fail(loss) => client.lose(loss),
            Down::Accept { is_resumed } => {
                client.phase = Phase::Open;
                client.give_up_at = None;
                client.quiet_at = client.keep_alive().map(|period| now.plus(period));
                client.told.push_back(Happening::Open { is_resumed });
                let topic = client.access.as_ref().and_then(|a| a.subscription.clone());
                if let Some(topic) = topic {
                    client.send(Up::Subscribe(topic), line, now);
                }
            }
            Down::Ack(token) => {
                client.in_flight = client.in_flight.saturating_sub(1);
                client.tell(Happening::Taken { token });
            }
            Down::Message(message) => {
                client.send(Up::Ack, line, now);
                client.tell(Happening::Came(message));
            }
            Down::SubscribeAck | Down::Pong => client.answered(),
        }
        client.hear(now);
    }

    /// As the true connection does it; what still leaves tells the broker as much.
    fn ping(&mut self, place: usize, now: Mono) {
        let line = self.line;
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        if client.is_backed_up(now) {
            client.quiet_at = client.keep_alive().map(|period| now.plus(period));
        } else {
            client.send(Up::Ping, line, now);
        }
    }

    fn deaf(&mut self, place: usize, now: Mono) {
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        if client.is_asked {
            let reason = "nothing came from the broker although an answer was due";
            client.lose(loss(LossKind::Broken, reason));
            return;
        }
        client.is_asked = true;
        client.deaf_at = client.keep_alive().map(|period| now.plus(period / 2));
        self.ping(place, now);
    }

    fn lose(&mut self, place: usize, kind: LossKind, reason: &str) {
        if let Some(client) = self.clients.get_mut(place) {
            client.lose(loss(kind, reason));
        }
    }

    /// The broker answers on the connection that it knows.
    fn answer(&mut self, place: usize, item: Down, now: Mono) {
        let line = self.line;
        if let Some(client) = self.clients.get_mut(place) {
            client.reply(item, line, now);
        }
    }

    fn client_id(&self, place: usize) -> String {
        let access = self.clients.get(place).and_then(|c| c.access.as_ref());
        access.map_or_else(String::new, |access| access.client_id.clone())
    }

    /// The broker closes a connection, and the client hears of it.
    fn close_seat(&mut self, place: usize, reason: &str, now: Mono) {
        let closed = Down::Fail(loss(LossKind::Closed, reason));
        self.answer(place, closed, now);
        self.drop_seat(place, now);
    }

    /// The broker ends a connection without a word to the client, and says its Will.
    fn drop_seat(&mut self, place: usize, now: Mono) {
        self.held.retain(|&(of, _)| of != place);
        let seat = self.clients.get_mut(place).and_then(|c| c.seat.take());
        if let Some(seat) = seat {
            let will = seat.access.will;
            self.deliver(Sender::Will(seat.access.client_id), will, now);
        }
    }
}
