//! The true connection: MQTT 3.1.1 over TCP or TLS.
//!
//! Floor 2. `app` makes one and gives it to `edge::uplink`.
//!
//! Packets and the state of the session are rumqttc's; the loop around them is ours.
//! rumqttc's own (0.25.1, `EventLoop`) does not suit a thin line: it takes a line for
//! dead on which the answer to a ping stands behind a keep-alive's worth of data, does
//! not read while it writes, gives a write no longer than an attempt to connect, waits
//! without limit where its buffer is full, and reaches no IPv6 address over TLS.
//!
//! # Invariants
//!
//! - A connection is a task of its own with channels of its own. [`Mqtt::open`] and
//!   dropping end it, so nothing of an old connection comes through.
//! - Nothing is retried here: after a loss the task is over, and the caller waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turns, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{
    Access, Broker, Happening, IN_FLIGHT_MAX, Loss, LossKind, Message, Traffic, Trouble, Validity,
    packet_bytes,
};

mod address;
mod connecting;
mod files;
mod reason;
mod session;

use files::Files;

/// Happenings that wait for the caller at most; more stay in the network.
const HAPPENINGS_MAX: usize = 64;

/// A connection to an MQTT broker.
#[derive(Debug)]
pub struct Mqtt {
    shared: Arc<Shared>,
    link: Option<Link>,
}

/// What outlives a connection.
#[derive(Debug)]
struct Shared {
    /// Who reads the files. A disk that hangs holds a thread, and must not hold one
    /// for each attempt.
    files: Arc<Turns<Files>>,
    known: Mutex<Known>,
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
    /// Who asks for an address. A name server that hangs holds a thread, and must
    /// not hold one for each attempt.
    resolving: Arc<Semaphore>,
    /// Whether the next connection asks the broker to forget the session: it holds
    /// something that we do not take, and would send it again for ever.
    must_forget: AtomicBool,
}

/// What is known of the files.
#[derive(Debug, Default)]
struct Known {
    validity: Option<Validity>,
    troubles: Vec<Trouble>,
}

/// The connection of now.
#[derive(Debug)]
struct Link {
    orders: mpsc::Sender<Order>,
    happenings: mpsc::Receiver<Happening>,
    task: JoinHandle<()>,
    is_open: bool,
    in_flight: usize,
    packet_bytes_max: u64,
}

/// What the connection is asked to do.
#[derive(Debug)]
enum Order {
    Publish(u64, Message),
    Leave,
}

impl Mqtt {
    /// Not connected.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                files: Arc::default(),
                known: Mutex::default(),
                up_bytes: AtomicU64::new(0),
                down_bytes: AtomicU64::new(0),
                resolving: Arc::new(Semaphore::new(1)),
                must_forget: AtomicBool::new(false),
            }),
            link: None,
        }
    }
}

impl Default for Mqtt {
    fn default() -> Self {
        Self::new()
    }
}

impl Broker for Mqtt {
    /// Must be called inside a runtime.
    fn open(&mut self, access: &Access) {
        // One place more than messages, for taking leave.
        let (orders, coming) = mpsc::channel(IN_FLIGHT_MAX + 1);
        let (telling, happenings) = mpsc::channel(HAPPENINGS_MAX);
        let shared = Arc::clone(&self.shared);
        let packet_bytes_max = access.uplink.max_packet_bytes;
        let access = access.clone();
        // The old task ends first, where there is one.
        self.link = None;
        self.link = Some(Link {
            orders,
            happenings,
            task: tokio::spawn(connection(access, shared, coming, telling)),
            is_open: false,
            in_flight: 0,
            packet_bytes_max,
        });
    }

    fn publish(&mut self, token: u64, message: Message) {
        if let Some(link) = &mut self.link
            && link.is_open
            && link.in_flight < IN_FLIGHT_MAX
            && packet_bytes(&message) <= link.packet_bytes_max
            && link.orders.try_send(Order::Publish(token, message)).is_ok()
        {
            link.in_flight += 1;
        }
    }

    async fn next(&mut self) -> Happening {
        let Some(link) = &mut self.link else {
            return std::future::pending().await;
        };
        let happening = link.happenings.recv().await.unwrap_or_else(|| {
            // Only a task that panicked ends without a word.
            Happening::Lost(Loss {
                kind: LossKind::Broken,
                reason: "the connection ended by a fault of this program".into(),
            })
        });
        match &happening {
            Happening::Open { .. } => link.is_open = true,
            Happening::Taken { .. } => link.in_flight = link.in_flight.saturating_sub(1),
            Happening::Came(_) => {}
            Happening::Lost(_) => self.link = None,
        }
        happening
    }

    async fn close(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        if link.is_open && link.orders.try_send(Order::Leave).is_ok() {
            // Until the task is over; what it still tells is of no interest.
            while link.happenings.recv().await.is_some() {}
        }
        self.link = None;
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            up_bytes: self.shared.up_bytes.load(Ordering::Relaxed),
            down_bytes: self.shared.down_bytes.load(Ordering::Relaxed),
        }
    }

    fn validity(&self) -> Option<Validity> {
        self.shared.known().validity
    }

    fn troubles(&self) -> Vec<Trouble> {
        self.shared.known().troubles.clone()
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As when the process ends: the broker says the Will.
impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// From the first packet to the last.
async fn connection(
    access: Access,
    shared: Arc<Shared>,
    orders: mpsc::Receiver<Order>,
    happenings: mpsc::Sender<Happening>,
) {
    let end = match connecting::connect(&access, &shared).await {
        Ok(connected) => session::run(connected, &access, &shared, orders, &happenings).await,
        Err(loss) => session::End::lost(loss),
    };
    for happening in end.told {
        // Nobody listens any more: nothing more to say.
        if happenings.send(happening).await.is_err() {
            return;
        }
    }
}
