//! The broker of a simulation: sessions, retained messages and a log of everything.
//!
//! Floor 2. Called by `scene`.

use std::collections::{BTreeMap, VecDeque};

use crate::broker::Message;
use crate::domain::instant::Mono;

/// Messages that wait for one subscriber at most; common brokers keep 1,000.
const WAITING_MAX: usize = 1_000;

/// A message that has reached the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Mono,
    /// From whom.
    pub from: Sender,
    /// What.
    pub message: Message,
}

/// Who published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client of this id.
    Client(String),
    /// The broker itself, in place of the client of this id.
    Will(String),
    /// The central consumer.
    Central,
    /// Somebody else.
    Other,
}

/// What the broker remembers of a client.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// What it has subscribed to.
    pub(super) subscription: Option<String>,
    /// What came for it and was not acknowledged, the oldest first.
    waiting: VecDeque<Message>,
    /// How many of them were sent on the connection of now.
    sent: usize,
}

/// The broker.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Why everybody is refused.
    pub(super) refusal: Option<String>,
    /// The longest packet taken.
    pub(super) packet_bytes_max: Option<u64>,
    /// Whether messages are taken without acknowledgement.
    pub(super) is_holding: bool,
    /// By client id.
    pub(super) sessions: BTreeMap<String, Session>,
    retained: BTreeMap<String, Vec<u8>>,
    log: Vec<Arrival>,
    /// How much of the log was taken.
    taken: usize,
}

impl Server {
    /// Keeps a message.
    pub(super) fn take_in(&mut self, from: Sender, message: Message, at: Mono) {
        if message.retain {
            if message.payload.is_empty() {
                self.retained.remove(&message.topic);
            } else {
                self.retained
                    .insert(message.topic.clone(), message.payload.clone());
            }
        }
        self.log.push(Arrival { at, from, message });
    }

    /// What it remembers of the client of this id.
    pub(super) fn session(&mut self, client_id: &str) -> &mut Session {
        self.sessions.entry(client_id.to_owned()).or_default()
    }

    /// Forgets everything but the log.
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
        self.retained.clear();
    }

    /// Everything that came.
    pub(super) fn log(&self) -> &[Arrival] {
        &self.log
    }

    /// What came since this was last called.
    pub(super) fn take_log(&mut self) -> Vec<Arrival> {
        let news = self.log.get(self.taken..).unwrap_or_default().to_vec();
        self.taken = self.log.len();
        news
    }

    /// The retained message of a topic.
    pub(super) fn retained(&self, topic: &str) -> Option<Vec<u8>> {
        self.retained.get(topic).cloned()
    }
}

impl Session {
    /// Keeps a message until it is acknowledged; beyond the limit the newest is
    /// dropped, as mosquitto does it.
    pub(super) fn keep(&mut self, message: Message) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(message);
        }
    }

    /// Sends what was not sent yet.
    pub(super) fn pass_on(&mut self, mut send: impl FnMut(Message)) {
        for message in self.waiting.iter().skip(self.sent) {
            send(message.clone());
        }
        self.sent = self.waiting.len();
    }

    /// Keeps a message that was just sent.
    pub(super) fn sent_alone(&mut self, message: Message) {
        self.waiting.insert(self.sent, message);
        self.sent += 1;
    }

    /// The client has the oldest of what was sent.
    pub(super) fn acked(&mut self) {
        if self.sent > 0 {
            self.sent -= 1;
            self.waiting.pop_front();
        }
    }

    /// On a new connection everything is sent again.
    pub(super) const fn begin_anew(&mut self) {
        self.sent = 0;
    }
}
