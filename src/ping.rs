//! Floor 2: asking devices over ICMP.
//!
//! `edge::monitor` hands over what is due with [`Probe::send`] and fetches what
//! is known with [`Probe::collect`], at its own pace. An engine owns everything
//! between: sockets, matching, timeouts, counters. No engine blocks, sleeps or
//! spawns a timer per device.
//!
//! # Invariants
//!
//! - Each request handed over comes back as exactly one [`Done`], at the latest
//!   at the first `collect` after its timeout.
//! - A reply ends a probe only if it comes from the probed address with the
//!   identifier, sequence and nonce of that probe and a right checksum.
//! - Nothing is ever sent but what was requested.

use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::config::settings::{EngineChoice, SocketChoice};
use crate::domain::heartbeat::Outcome;
use crate::domain::instant::Mono;

#[cfg(target_os = "linux")]
pub mod batch;
pub mod fleet;
pub mod flight;
pub mod packet;
pub mod surge;

/// One echo request to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's own mark, handed back in [`Done`]. Need not be unique.
    pub key: u64,
    /// Whom to ask.
    pub target: IpAddr,
    /// How long a reply may take.
    pub timeout: Duration,
    /// How long after the timeout a reply is still recognised as late.
    pub late_window: Duration,
    /// Bytes of ICMP payload, 16 to 1400; the first 8 carry the nonce.
    pub payload_bytes: u16,
    /// Ask under an identifier this target has not seen lately: some middleboxes
    /// drop a flow for good once it was silent.
    pub fresh_identifier: bool,
}

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The caller's mark.
    pub key: u64,
    /// When it was sent, or when sending failed.
    pub sent_at: Mono,
    /// When the outcome was known: the arrival of the reply or ICMP error, or
    /// the deadline (not the later moment at which it was collected).
    pub known_at: Mono,
    /// The outcome.
    pub outcome: Outcome,
}

/// A reply that came after its probe had timed out or ended by an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The mark of the request, which has come back as [`Done`] already.
    pub key: u64,
    /// When the request was sent.
    pub sent_at: Mono,
}

/// Late replies held for whoever takes them; more are counted alone.
pub const LATE_HELD_MAX: usize = 10_000;

/// What an engine has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Echo requests the kernel took.
    pub sent: u64,
    /// Bytes of those, IP header included.
    pub sent_bytes: u64,
    /// Requests the kernel refused.
    pub send_failed: u64,
    /// Replies that ended a probe as replied.
    pub valid: u64,
    /// Replies after the timeout, within the late window.
    pub late: u64,
    /// Further replies to a probe already answered.
    pub duplicate: u64,
    /// Replies from or for something we did not ask.
    pub foreign: u64,
    /// Replies with a wrong checksum, nonce or length.
    pub malformed: u64,
    /// ICMP errors that ended a probe as missed.
    pub errors: u64,
    /// Replies the kernel dropped because the receive buffer overflowed.
    pub overflowed: u64,
}

/// Which engine runs and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `batch`, `surge` or `simulated`.
    pub engine: &'static str,
    /// `RAW`, `DGRAM` or `none`.
    pub socket: &'static str,
    /// Receive buffer per socket in bytes, as the kernel grants it; 0 unknown.
    pub receive_buffer_bytes: usize,
    /// What this engine cannot do here, one sentence each.
    pub limits: Vec<String>,
    /// What is missing for now and tried again, like a socket on an interface
    /// that is not there yet. Only for families that are asked; for both as long
    /// as nobody was asked anything.
    pub troubles: Vec<Trouble>,
}

impl Facts {
    /// What to know of this engine, one sentence each: what is missing now first.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let troubles = self.troubles.iter().map(|trouble| &trouble.text);
        troubles.chain(&self.limits).cloned().collect()
    }
}

/// What is missing for now, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whose devices cannot be asked.
    pub family: packet::Family,
    /// What, in one sentence.
    pub text: String,
}

/// Asks devices. Second implementations: `batch`, `surge`, `fleet`.
pub trait Probe: Send + std::fmt::Debug {
    /// Sends these now. A request that cannot be sent comes back as no data.
    fn send(&mut self, requests: &[Request]);

    /// Appends every outcome known by now to `done`.
    fn collect(&mut self, done: &mut Vec<Done>);

    /// Appends the late replies since the last call; those of an engine that
    /// cannot tell whose they are stay unnamed.
    fn take_late(&mut self, late: &mut Vec<Late>);

    /// When `collect` has something to tell even if no packet arrives: the
    /// earliest deadline in flight.
    fn next_deadline(&self) -> Option<Mono>;

    /// Whether any probe is in flight, that is whether `collect` may find a
    /// reply before `next_deadline`.
    fn is_waiting(&self) -> bool;

    /// Ready when `collect` should be called at once and not at the next tick:
    /// only while more is in flight than the receive buffer holds. Otherwise
    /// pending without registering for anything, so that single replies wake
    /// nobody.
    fn poll_pressed(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Counts since the engine was opened.
    fn counters(&self) -> Counters;

    /// Which engine this is.
    fn facts(&self) -> Facts;
}

/// How to open an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which engine; `Auto` is batch on Linux, surge elsewhere.
    pub engine: EngineChoice,
    /// Which socket; `Auto` is RAW where the privilege is there, else DGRAM.
    pub socket: SocketChoice,
    /// Source address, if set.
    pub source: Option<IpAddr>,
    /// Interface to bind to, if set.
    pub interface: Option<String>,
}

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither kind of ICMP socket is allowed: exit code 4.
    #[error("no privilege to send ICMP: {}", cure(*.choice))]
    NoPrivilege {
        /// The socket that was asked for, which decides what helps.
        choice: SocketChoice,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The socket could not be set up for another reason.
    #[error("cannot {deed}")]
    Socket {
        /// What was tried, with its subject.
        deed: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The choice cannot be had on this platform.
    #[error("{0}")]
    Unsupported(String),
}

/// What gives the privilege for the socket chosen.
fn cure(choice: SocketChoice) -> String {
    let raw = "give the program CAP_NET_RAW (setcap cap_net_raw+ep, or \
               AmbientCapabilities=CAP_NET_RAW in the unit)";
    let dgram = "let its group into net.ipv4.ping_group_range, which holds for IPv6 too";
    match choice {
        SocketChoice::Auto => format!("{raw}, or {dgram}"),
        SocketChoice::Raw => format!("probe.socket = \"raw\" needs it: {raw}"),
        SocketChoice::Dgram => format!("probe.socket = \"dgram\" needs it: {dgram}"),
    }
}
