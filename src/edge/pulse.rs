//! What the node says of itself at each interval.
//!
//! Floor 3. `app` runs one. Memory and task figures are the process's own, read
//! from the kernel and the runtime; the address is found without sending a packet.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::board::{Board, Pulse};
use crate::clock::Clock;
use crate::domain::instant::Mono;

/// An address set aside for documentation (RFC 5737): connecting a UDP socket
/// to it asks the routing table for a source address and sends nothing.
const SOMEWHERE_ELSE: &str = "192.0.2.1:9";

/// The links of the pulse.
#[derive(Debug)]
pub struct Links {
    /// Where it is shown.
    pub board: Arc<Board>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// `node.heartbeat_interval_ms`; a reload may change it.
    pub interval: watch::Receiver<Duration>,
    /// The page's own runtime, once it runs: its tasks count too.
    pub page_runtime: Arc<OnceLock<Handle>>,
    /// Each pulse, to the uplink.
    pub beat: watch::Sender<()>,
}

/// Takes the pulse at once and then at each interval, until `stop` turns true.
pub async fn run(mut links: Links, mut stop: watch::Receiver<bool>) {
    let started_at = links.clock.mono();
    let mut due = started_at;
    loop {
        let pulse = take(&links, started_at);
        links.board.draw(|picture| picture.gateway.pulse = pulse);
        links.beat.send_replace(());
        let interval = *links.interval.borrow_and_update();
        due = due.plus(interval).max(links.clock.mono());
        tokio::select! {
            _ = stop.wait_for(|&stop| stop) => return,
            changed = links.interval.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(links.clock.wake_for(due, interval)) => {}
        }
    }
}

fn take(links: &Links, started_at: Mono) -> Pulse {
    Pulse {
        at: Some(links.clock.wall()),
        ip: own_address(),
        memory_mb: resident_bytes().map_or(0.0, |bytes| bytes / 1e6),
        tasks: alive_tasks(links),
        uptime_s: links.clock.mono().since(started_at).as_secs(),
    }
}

/// Live tasks of this runtime and the page's.
fn alive_tasks(links: &Links) -> usize {
    let alive = |runtime: &Handle| runtime.metrics().num_alive_tasks();
    alive(&Handle::current()) + links.page_runtime.get().map_or(0, alive)
}

/// The source address that a packet off the site would carry.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(SOMEWHERE_ELSE).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Resident memory of this process, from `/proc/self/status` (proc(5)).
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_is_that_of_a_living_process() {
        let bytes = resident_bytes().unwrap();
        assert!((1e5..1e11).contains(&bytes), "{bytes}");
    }
}
