//! A central consumer behind a simulated broker: applies events in order and says so.
//!
//! Floor 2. Called by `scene`.
//!
//! It follows the contract of `uplink.ack`: with `"ack":"central"` in an event's
//! `meta` an event behind a hole is put aside; without, the hole is counted and the
//! event applied. Equal events take effect once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use crate::broker::Message;
use crate::domain::instant::Mono;

/// Messages that wait for the consumer at most.
const WAITING_MAX: usize = 100_000;

/// Between two acknowledgements to a node at least this.
const ACK_EVERY: Duration = Duration::from_secs(1);

/// The kinds of topics that carry numbered events.
const KINDS: [&str; 4] = ["status", "failed", "daily", "alarm"];

/// An event that the consumer has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// When.
    pub at: Mono,
    /// Site and node it came from.
    pub node: (String, String),
    /// Its log.
    pub log_id: String,
    /// Its number there.
    pub seq: u64,
    /// The whole of it.
    pub event: Value,
}

/// The consumer.
#[derive(Debug, Default)]
pub(super) struct Central {
    prefix: Option<String>,
    is_away: bool,
    waiting: VecDeque<Message>,
    nodes: BTreeMap<(String, String), Applied>,
    effects: Vec<Effect>,
    holes: u64,
}

/// How far one node's log is applied.
#[derive(Debug, Default)]
struct Applied {
    log_id: String,
    seq: u64,
    acked_at: Option<Mono>,
    /// When the node is told.
    due: Option<Mono>,
}

/// What is known of a message that carries an event.
struct Event {
    node: (String, String),
    log_id: String,
    seq: u64,
    prev_seq: Option<u64>,
    is_acked_by_central: bool,
    is_gap: bool,
    whole: Value,
}

impl Central {
    /// Listens from now on; what waited comes at once.
    pub(super) fn start(&mut self, topic_prefix: &str, now: Mono) {
        self.prefix = Some(topic_prefix.to_owned());
        self.is_away = false;
        for message in std::mem::take(&mut self.waiting) {
            self.take_in(&message, now);
        }
    }

    pub(super) fn stop(&mut self) {
        self.is_away = true;
    }

    pub(super) fn lose_waiting(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    pub(super) const fn holes(&self) -> u64 {
        self.holes
    }

    /// A message passes the broker.
    pub(super) fn take_in(&mut self, message: &Message, now: Mono) {
        let Some(prefix) = &self.prefix else {
            return;
        };
        let rest = message.topic.strip_prefix(prefix.as_str());
        let kind = rest.and_then(|rest| rest.strip_prefix('/')?.split('/').next());
        if !kind.is_some_and(|kind| KINDS.contains(&kind)) {
            return;
        }
        if self.is_away {
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back(message.clone());
            }
        } else if let Some(event) = Event::read(&message.payload) {
            self.apply(event, now);
        }
    }

    /// When somebody is told next.
    pub(super) fn due(&self) -> Option<Mono> {
        let nodes = self.nodes.values().filter_map(|applied| applied.due);
        nodes.min().filter(|_| !self.is_away)
    }

    /// The acknowledgements that are due by `now`.
    pub(super) fn answers(&mut self, now: Mono) -> impl Iterator<Item = Message> + use<> {
        let (prefix, is_away) = (self.prefix.clone().unwrap_or_default(), self.is_away);
        let mut answers = Vec::new();
        for ((site, node), applied) in &mut self.nodes {
            if is_away || applied.due.is_none_or(|due| due > now) {
                continue;
            }
            applied.due = None;
            applied.acked_at = Some(now);
            let text = serde_json::json!({
                "log_id": applied.log_id,
                "applied_seq": applied.seq,
            });
            answers.push(Message {
                topic: format!("{prefix}/ack/{site}/{node}"),
                payload: text.to_string().into_bytes(),
                retain: true,
            });
        }
        answers.into_iter()
    }

    fn apply(&mut self, event: Event, now: Mono) {
        let applied = self.nodes.entry(event.node.clone()).or_default();
        let earliest = applied.acked_at.map_or(now, |at| at.plus(ACK_EVERY));
        let due = applied.due.unwrap_or(earliest.max(now));
        applied.due = Some(due);
        if applied.log_id == event.log_id {
            if event.seq <= applied.seq {
                return;
            }
            let is_hole = event.prev_seq.is_some_and(|prev| prev > applied.seq);
            if is_hole && !event.is_gap {
                self.holes += 1;
                if event.is_acked_by_central {
                    return;
                }
            }
        }
        applied.log_id.clone_from(&event.log_id);
        applied.seq = event.seq;
        self.effects.push(Effect {
            at: now,
            node: event.node,
            log_id: event.log_id,
            seq: event.seq,
            event: event.whole,
        });
    }
}

impl Event {
    /// Reads an envelope; `None`: it is none, or has no number.
    fn read(payload: &[u8]) -> Option<Self> {
        let whole: Value = serde_json::from_slice(payload).ok()?;
        let meta = whole.get("meta")?;
        let text = |key: &str| Some(meta.get(key)?.as_str()?.to_owned());
        let code = whole.pointer("/error/error_code").and_then(Value::as_str);
        Some(Self {
            node: (text("site")?, text("node")?),
            log_id: text("log_id")?,
            seq: meta.get("seq")?.as_u64()?,
            prev_seq: meta.get("prev_seq").and_then(Value::as_u64),
            is_acked_by_central: text("ack").as_deref() == Some("central"),
            is_gap: code == Some("OUTBOX_GAP"),
            whole,
        })
    }
}
