//! A scripted site behind a TUN device: every address routed to it exists and
//! behaves as the test says, changeable while it runs.
//!
//! ```text
//! let net = Net::new();
//! let site = Responder::start(&net, "wwan0");
//! site.behave("10.9.0.7", vec![after_ms(20, What::Answer)]);
//! site.behave_all(SILENT);
//! ```
//!
//! Include it with its two neighbours, all by `#[path]` in the same module:
//! `net`, `responder` and `responder_packet`. Default: everybody answers at
//! once. The device goes with the value, as an uplink that is unplugged. The
//! namespace gets 10.9.0.1/16 and `fd09::1/64` there and default routes to it.
//! Packets are made and read here by code of its own, not by that under test.

#![allow(
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    reason = "test code: each binary uses its part, and may panic"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::net::Net;
use super::responder_packet::{Asked, Crooked, Packet};

/// What an address does with one echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A right reply.
    Answer,
    /// A reply with one bit of its checksum wrong.
    BadChecksum,
    /// A reply with another nonce.
    WrongNonce,
    /// A reply with all bytes after the nonce changed.
    OtherPayload,
    /// A reply with a payload of this many bytes, cut or padded.
    Sized(usize),
    /// A right reply, but from this address.
    From(IpAddr),
    /// A reply with another sequence.
    WrongSequence,
    /// A reply with another identifier.
    WrongIdentifier,
    /// An echo request to the asker, with the mark of its own request.
    AskBack,
    /// An ICMP error from the site's router that quotes the request, with this
    /// many bytes of its ICMP message.
    Error { kind: u8, code: u8, quoted: usize },
    /// The same, but with a wrong sequence in the quote.
    ErrorForOther { kind: u8, code: u8 },
    /// Nothing, until [`Responder::release`]; then a right reply.
    Hold,
    /// A right reply, unless the identifier is the first this address saw.
    AnswerUnlessFirstIdentifier,
}

/// Something done some time after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    after: Duration,
    what: What,
}

/// No act: the address is silent.
pub(crate) const SILENT: Vec<Act> = Vec::new();

/// This act, at once.
pub(crate) fn at_once(what: What) -> Act {
    after_ms(0, what)
}

/// This act, so many milliseconds later.
pub(crate) fn after_ms(millis: u64, what: What) -> Act {
    Act {
        after: Duration::from_millis(millis),
        what,
    }
}

/// One echo request that reached the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) target: IpAddr,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) payload_bytes: usize,
    /// When it was read, by the monotonic clock.
    pub(crate) read_at: Instant,
}

/// The running site.
#[derive(Debug)]
pub(crate) struct Responder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    usual: Vec<Act>,
    special: BTreeMap<IpAddr, Vec<Act>>,
    first_identifier: BTreeMap<IpAddr, u16>,
    held: Vec<Vec<u8>>,
    is_releasing: bool,
    seen: Vec<Seen>,
    /// Of every delayed answer: how long it really took, in microseconds.
    delays_us: Vec<u64>,
}

/// A packet to write: when, tie-breaker, bytes, when the request was read.
type Due = Reverse<(Instant, u64, Vec<u8>, Instant)>;

impl Responder {
    /// Puts a device of this name into the namespace and starts to answer.
    pub(crate) fn start(net: &Net, interface: &str) -> Self {
        Self::start_at(net, interface, "10.9.0.1/16", "fd09::1/64")
    }

    /// The same with other addresses of the asking side.
    pub(crate) fn start_at(net: &Net, interface: &str, v4: &str, v6: &str) -> Self {
        let device = net.run(|| {
            let mut wanted = tun::Configuration::default();
            wanted.tun_name(interface).mtu(u16::MAX);
            tun::create(&wanted).expect("TUN device: needs root and /dev/net/tun")
        });
        net.ip(&format!("link set {interface} mtu 65535 txqueuelen 20000"));
        net.ip(&format!("link set {interface} up"));
        net.add_address(interface, v4);
        net.add_address(interface, v6);
        net.ip(&format!("route add default dev {interface}"));
        net.ip(&format!("-6 route add default dev {interface}"));
        let shared = Arc::new(Shared::default());
        shared.lock().usual = vec![at_once(What::Answer)];
        let served = Arc::clone(&shared);
        let thread = thread::spawn(move || serve(&device, &served));
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// What this address does from now on.
    pub(crate) fn behave(&self, address: &str, acts: Vec<Act>) {
        let address = address.parse().expect("an address");
        self.shared.lock().special.insert(address, acts);
    }

    /// What every address without a behaviour of its own does from now on.
    pub(crate) fn behave_all(&self, acts: Vec<Act>) {
        self.shared.lock().usual = acts;
    }

    /// Every address behaves as all do again.
    pub(crate) fn forget_special(&self) {
        self.shared.lock().special.clear();
    }

    /// Answers everything held, as fast as it can.
    pub(crate) fn release(&self) {
        self.shared.lock().is_releasing = true;
    }

    /// Waits until `count` requests are held.
    pub(crate) fn wait_for_held(&self, count: usize) {
        self.wait(|state| state.held.len() >= count);
    }

    /// All requests so far, in their order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// How many requests this address got.
    pub(crate) fn asked(&self, address: &str) -> usize {
        let address: IpAddr = address.parse().expect("an address");
        let state = self.shared.lock();
        state
            .seen
            .iter()
            .filter(|seen| seen.target == address)
            .count()
    }

    /// How long the delayed acts really took, in microseconds, in the order in
    /// which they were done.
    pub(crate) fn delays_us(&self) -> Vec<u64> {
        self.shared.lock().delays_us.clone()
    }

    /// Waits until at least `count` requests have come.
    pub(crate) fn wait_for(&self, count: usize) {
        self.wait(|state| state.seen.len() >= count);
    }

    fn wait(&self, is_so: impl Fn(&State) -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !is_so(&self.shared.lock()) {
            assert!(Instant::now() < limit, "the requests did not come in 20 s");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("the responder has not panicked")
    }
}

fn serve(device: &tun::Device, shared: &Shared) {
    let mut due = BinaryHeap::<Due>::new();
    let mut count = 0;
    let mut buffer = vec![0; 70_000];
    while !shared.is_over.load(Ordering::Relaxed) {
        write_due(device, shared, &mut due);
        release_held(device, shared);
        let Ok(read) = device.recv_timeout(&mut buffer, patience(&due)) else {
            continue;
        };
        let read_at = Instant::now();
        let Some(asked) = Asked::read(&buffer[..read]) else {
            continue;
        };
        for (after, packet) in react(shared, &asked, read_at) {
            if after.is_zero() {
                write(device, &packet);
            } else {
                count += 1;
                due.push(Reverse((read_at + after, count, packet, read_at)));
            }
        }
    }
}

/// How long to wait for a request: polls in its last millisecond, since the
/// device's timeout knows whole milliseconds only.
fn patience(due: &BinaryHeap<Due>) -> Duration {
    let idle = Duration::from_millis(5);
    due.peek().map_or(idle, |Reverse((at, ..))| {
        let left = at.saturating_duration_since(Instant::now());
        left.saturating_sub(Duration::from_millis(1)).min(idle)
    })
}

fn write_due(device: &tun::Device, shared: &Shared, due: &mut BinaryHeap<Due>) {
    while due
        .peek()
        .is_some_and(|Reverse((at, ..))| *at <= Instant::now())
    {
        if let Some(Reverse((_, _, packet, read_at))) = due.pop() {
            write(device, &packet);
            let took = u64::try_from(read_at.elapsed().as_micros()).expect("short");
            shared.lock().delays_us.push(took);
        }
    }
}

fn release_held(device: &tun::Device, shared: &Shared) {
    let mut state = shared.lock();
    if !std::mem::take(&mut state.is_releasing) {
        return;
    }
    let held = std::mem::take(&mut state.held);
    drop(state);
    for packet in held {
        write(device, &packet);
    }
}

fn write(device: &tun::Device, packet: &[u8]) {
    // A device that was deleted under us takes nothing more.
    drop(device.send(packet));
}

fn react(shared: &Shared, asked: &Asked, read_at: Instant) -> Vec<(Duration, Vec<u8>)> {
    let mut state = shared.lock();
    state.seen.push(Seen {
        target: asked.target,
        identifier: asked.identifier,
        sequence: asked.sequence,
        payload_bytes: asked.payload.len(),
        read_at,
    });
    let first = *state
        .first_identifier
        .entry(asked.target)
        .or_insert(asked.identifier);
    let acts = state
        .special
        .get(&asked.target)
        .unwrap_or(&state.usual)
        .clone();
    let mut packets = Vec::new();
    for act in acts {
        if act.what == What::Hold {
            state.held.push(Packet::reply(asked).bytes());
        } else if let Some(packet) = perform(act.what, asked, first) {
            packets.push((act.after, packet));
        }
    }
    packets
}

fn perform(what: What, asked: &Asked, first_identifier: u16) -> Option<Vec<u8>> {
    let mut packet = Packet::reply(asked);
    match what {
        What::AnswerUnlessFirstIdentifier if asked.identifier == first_identifier => return None,
        What::Answer | What::AnswerUnlessFirstIdentifier => {}
        What::BadChecksum => packet.crooked = Crooked::Checksum,
        What::WrongNonce => packet.payload[3] ^= 0x40,
        What::OtherPayload => packet.payload[8..].fill(0xee),
        What::Sized(bytes) => packet.payload.resize(bytes, 0x55),
        What::From(address) => packet.from = address,
        What::WrongSequence => packet.sequence ^= 0x8000,
        What::WrongIdentifier => packet.identifier ^= 0x8000,
        What::AskBack => packet.is_request = true,
        What::Error { kind, code, quoted } => {
            return Some(asked.error(kind, code, quoted, asked.sequence));
        }
        What::ErrorForOther { kind, code } => {
            return Some(asked.error(kind, code, 64, asked.sequence ^ 0x8000));
        }
        What::Hold => return None,
    }
    Some(packet.bytes())
}

/// The distinct identifiers under which this address was asked.
pub(crate) fn identifiers(seen: &[Seen], address: &str) -> BTreeSet<u16> {
    let address: IpAddr = address.parse().expect("an address");
    let its = seen.iter().filter(|seen| seen.target == address);
    its.map(|seen| seen.identifier).collect()
}
