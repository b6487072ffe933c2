//! Answers echo requests on loopback in the kernel's place, as a test says.
//!
//! Only inside a network namespace of the test's own: it switches the kernel's
//! answers off.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test's own tool: a fault in it must fail the test"
)]

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sitebeat::clock::{Clock, SystemClock};
use sitebeat::domain::instant::Mono;
use socket2::{Domain, Protocol, Socket, Type};

const IP_HEADER: usize = 20;

/// One packet that comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    after: Duration,
    /// The ICMP type: 0 is a reply, others are errors that quote the request.
    kind: u8,
    is_sum_wrong: bool,
}

impl Answer {
    /// An echo reply after this long.
    pub(crate) fn reply_after(after: Duration) -> Self {
        Self {
            after,
            kind: 0,
            is_sum_wrong: false,
        }
    }

    /// An ICMP error of this type at once.
    pub(crate) fn error(kind: u8) -> Self {
        Self {
            after: Duration::ZERO,
            kind,
            is_sum_wrong: false,
        }
    }

    /// The same with a wrong ICMP checksum.
    pub(crate) fn with_bad_checksum(self) -> Self {
        Self {
            is_sum_wrong: true,
            ..self
        }
    }

    /// The packet that answers `request` (with its IP header).
    fn packet(self, request: &[u8]) -> Vec<u8> {
        let mut icmp = if self.kind == 0 {
            request[IP_HEADER..].to_vec()
        } else {
            let quoted = &request[..IP_HEADER + 8];
            [&[0; 8], quoted].concat()
        };
        icmp[0] = self.kind;
        icmp[2..4].fill(0);
        let sum = checksum(&icmp) ^ u16::from(self.is_sum_wrong);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = request[..IP_HEADER].to_vec();
        // Back to whom it came from; the kernel fills in length and checksum.
        let (source, target) = (&request[12..16], &request[16..20]);
        packet[12..16].copy_from_slice(target);
        packet[16..20].copy_from_slice(source);
        packet.extend(icmp);
        packet
    }
}

/// A thread that answers until it is dropped.
#[derive(Debug)]
pub(crate) struct Responder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Answers each request as `plan(target, n)` says, n counting requests to
    /// all targets from 1.
    pub(crate) fn start(plan: impl Fn(Ipv4Addr, usize) -> Vec<Answer> + Send + 'static) -> Self {
        std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        socket.set_header_included_v4(true).unwrap();
        // A thousand requests at once must fit.
        socket.set_recv_buffer_size(4 << 20).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(2)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&socket, &plan, &stopped));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(socket: &Socket, plan: &impl Fn(Ipv4Addr, usize) -> Vec<Answer>, stop: &AtomicBool) {
    let clock = SystemClock::new();
    let mut count = 0;
    let mut due: Vec<(Mono, Vec<u8>)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(request) = received(socket).filter(|packet| packet[IP_HEADER] == 8) {
            count += 1;
            let target = Ipv4Addr::new(request[16], request[17], request[18], request[19]);
            let now = clock.mono();
            let answers = plan(target, count);
            due.extend(
                answers
                    .iter()
                    .map(|a| (now.plus(a.after), a.packet(&request))),
            );
        }
        let now = clock.mono();
        for (_, packet) in due.extract_if(.., |(at, _)| *at <= now) {
            let [a, b, c, d] = packet[16..20] else {
                unreachable!()
            };
            let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), 0);
            socket.send_to(&packet, &to.into()).unwrap();
        }
    }
}

fn received(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 2_048];
    let length = socket.read(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
