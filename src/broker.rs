//! Floor 2: a connection to an MQTT broker, one at a time.
//!
//! `edge::uplink` decides what is sent and when; this room carries it. Everything
//! is sent with `QoS` 1: the broker's acknowledgement comes back under the token that
//! the message was handed over with. Nothing is remembered over a connection's end:
//! the event log is the memory.
//!
//! A trait because simulations have a broker and a broken line of their own.

pub mod double;
pub mod mqtt;
mod packet;

use std::future::Future;

pub use packet::publish_bytes as packet_bytes;

use crate::config::settings;
use crate::domain::instant::Wall;

/// Messages handed over and not yet acknowledged at most; more is the caller's
/// mistake. MQTT's own limit is 65,535, the default window of common brokers less.
pub const IN_FLIGHT_MAX: usize = 200;

/// One message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub topic: String,
    /// What.
    pub payload: Vec<u8>,
    /// Whether the broker keeps it for those who come later.
    pub retain: bool,
}

/// Who connects, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `[uplink]`; its `url` is set. Files it names are read anew at each
    /// connection, so that renewed certificates count.
    pub uplink: settings::Uplink,
    /// Client id, the same at every connection.
    pub client_id: String,
    /// What the broker says in our place when the connection breaks: `QoS` 1, retained.
    pub will: Message,
    /// A topic to be subscribed to at each connection.
    pub subscription: Option<String>,
}

/// What happened on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The broker has accepted us.
    Open {
        /// Whether it remembers the session of before: it has lost nothing since.
        is_resumed: bool,
    },
    /// The broker has taken the message handed over under this token.
    Taken {
        /// Which.
        token: u64,
    },
    /// A message came on the topic subscribed to.
    Came(Message),
    /// The connection is over or could not be made. Nothing follows until the next
    /// [`Broker::open`].
    Lost(Loss),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What kind it is.
    pub kind: LossKind,
    /// Why, for people, in one sentence with the cure where there is one; never
    /// holds a password.
    pub reason: String,
}

/// Kinds of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// No connection: name, route, port, TLS.
    Unreachable,
    /// The broker does not want us: user, password, client id, its own state.
    Refused,
    /// The broker closed a connection that was open.
    Closed,
    /// An open connection went silent or broke.
    Broken,
    /// What is configured cannot be used: a file that cannot be read.
    Unusable,
}

/// MQTT packet bytes since the start of the process, without TLS, TCP and IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent.
    pub up_bytes: u64,
    /// Received.
    pub down_bytes: u64,
}

/// From when to when our own certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub not_before: Wall,
    /// Until then.
    pub not_after: Wall,
}

/// A file that cannot be used; its last good content stands in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The setting that names it.
    pub key: &'static str,
    /// What is wrong, for people, with the cure.
    pub reason: String,
}

/// A connection to a broker.
pub trait Broker: Send {
    /// Begins a connection, in place of the one before.
    fn open(&mut self, access: &Access);

    /// Hands a message over. Never waits: what is handed over while no connection is
    /// open, beyond [`IN_FLIGHT_MAX`], or with more than `uplink.max_packet_bytes` by
    /// [`packet_bytes`], is dropped and never acknowledged.
    fn publish(&mut self, token: u64, message: Message);

    /// What happened next; pending while nothing is open. Nothing is lost when the
    /// future is dropped.
    fn next(&mut self) -> impl Future<Output = Happening> + Send;

    /// Takes leave: what was handed over goes out first, the Will does not. Returns
    /// when that is done, or at once where nothing is open; the caller limits the wait.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// Bytes so far.
    fn traffic(&self) -> Traffic;

    /// How long our own certificate is valid; `None`: there is none. As of the last
    /// [`Happening::Open`] or [`Happening::Lost`].
    fn validity(&self) -> Option<Validity>;

    /// Files that could not be used at the last [`Self::open`] and did not stop it. As
    /// of the last [`Happening::Open`] or [`Happening::Lost`].
    fn troubles(&self) -> Vec<Trouble>;
}
