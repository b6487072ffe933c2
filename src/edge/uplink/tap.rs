//! From the recorder to the uplink: heartbeats as they happen.
//!
//! Floor 3. `edge::recorder` offers each report's heartbeats; `edge::uplink` takes
//! them while it has a connection. What is offered while it has none, or faster than
//! it takes, is not kept here: raw has it, and the uplink makes up for it from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::metrics::goes_up;
use crate::edge::report::Beat;
use crate::wire::message::Metrics;

/// Reports that may wait.
const WAITING_MAX: usize = 64;

/// The recorder's end.
#[derive(Clone, Debug)]
pub struct Tap {
    flags: Arc<Flags>,
    into: mpsc::Sender<Vec<Metrics>>,
}

/// The uplink's end.
#[derive(Debug)]
pub struct Flow {
    flags: Arc<Flags>,
    from: mpsc::Receiver<Vec<Metrics>>,
}

#[derive(Debug, Default)]
struct Flags {
    is_open: AtomicBool,
    has_spilled: AtomicBool,
}

/// Both ends.
#[must_use]
pub fn tap() -> (Tap, Flow) {
    let flags = Arc::new(Flags::default());
    let (into, from) = mpsc::channel(WAITING_MAX);
    let tap = Tap {
        flags: Arc::clone(&flags),
        into,
    };
    (tap, Flow { flags, from })
}

impl Tap {
    /// Whether anybody wants heartbeats just now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.flags.is_open.load(Ordering::Relaxed)
    }

    /// The heartbeat of this beat as a metrics event, if anybody wants it and it is one.
    pub(in crate::edge) fn wish(&self, beat: &Beat) -> Option<Metrics> {
        let (sample, track) = (&beat.sample, &beat.track);
        (self.is_open() && goes_up(sample)).then(|| Metrics {
            device: sample.device,
            at: sample.at,
            status: sample.status,
            rtt_us: sample.outcome.rtt_us(),
            missed_count: track.missed_count,
            last_seen: track.last_seen,
            is_replayed: false,
        })
    }

    /// Offers heartbeats.
    pub fn offer(&self, heartbeats: Vec<Metrics>) {
        if !heartbeats.is_empty() && self.into.try_send(heartbeats).is_err() {
            self.flags.has_spilled.store(true, Ordering::Relaxed);
        }
    }
}

impl Flow {
    /// Wants heartbeats from now on, or none.
    pub(super) fn turn(&mut self, is_on: bool) {
        self.flags.is_open.store(is_on, Ordering::Relaxed);
        self.flags.has_spilled.store(false, Ordering::Relaxed);
        while self.from.try_recv().is_ok() {}
    }

    /// The next heartbeats; pending for ever once the recorder is gone.
    pub(super) async fn next(&mut self) -> Vec<Metrics> {
        match self.from.recv().await {
            Some(heartbeats) => heartbeats,
            None => std::future::pending().await,
        }
    }

    /// Whether some did not fit since this was last asked.
    pub(super) fn has_spilled(&self) -> bool {
        self.flags.has_spilled.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::instant::Wall;
    use crate::domain::status::Status;

    #[tokio::test]
    async fn what_does_not_fit_is_told_and_never_waited_for() {
        let beat = Metrics {
            device: "D7".parse().unwrap(),
            at: Wall::from_millis(1),
            status: Status::Online,
            rtt_us: Some(1),
            missed_count: 0,
            last_seen: None,
            is_replayed: false,
        };
        let (tap, mut flow) = tap();
        assert!(!tap.is_open());
        flow.turn(true);
        assert!(tap.is_open() && !flow.has_spilled());
        for _ in 0..=WAITING_MAX {
            tap.offer(vec![beat]);
        }
        assert!(flow.has_spilled() && !flow.has_spilled());
        assert_eq!(flow.next().await, [beat]);
    }
}
