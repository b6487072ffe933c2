//! A line between a client and a broker on loopback, that can be slow and can fail.
//!
//! It listens on a port of its own and passes bytes on, in order. All times are real.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test's own tools, shared by test programs each of which uses a part: a fault in \
              them must fail the test"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// What the line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nature {
    /// From end to end.
    pub(crate) latency: Duration,
    /// Each way.
    pub(crate) bytes_per_second: Option<u64>,
    /// Connections are taken and nothing passes.
    pub(crate) is_hanging: bool,
}

/// The line.
pub(crate) struct Line {
    pub(crate) port: u16,
    broker_port: u16,
    nature: watch::Sender<Nature>,
    counts: Arc<Counts>,
    listening: Option<JoinHandle<()>>,
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// Bytes that have entered the line.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    up: AtomicU64,
    down: AtomicU64,
    connections: AtomicU64,
}

impl Line {
    /// A line to a broker's port.
    pub(crate) fn to(broker_port: u16) -> Self {
        let mut line = Self {
            port: 0,
            broker_port,
            nature: watch::Sender::new(Nature::default()),
            counts: Arc::default(),
            listening: None,
            open: Arc::default(),
        };
        line.listen();
        line
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, nature: Nature) {
        self.nature.send_replace(nature);
    }

    /// Nothing passes any more, and nobody is told.
    pub(crate) fn hang(&self, is_hanging: bool) {
        self.nature
            .send_modify(|nature| nature.is_hanging = is_hanging);
    }

    /// Whoever is connected is cut off; who comes then is let in.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// Nobody is let in any more.
    pub(crate) fn refuse(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }

    /// Lets in again, on the same port.
    pub(crate) fn listen(&mut self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        // So that what the far end does not take is seen at the near end soon.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], self.port)))
            .unwrap();
        let listener = socket.listen(16).unwrap();
        self.port = listener.local_addr().unwrap().port();
        let (nature, counts) = (self.nature.subscribe(), Arc::clone(&self.counts));
        let (open, broker_port) = (Arc::clone(&self.open), self.broker_port);
        self.listening = Some(tokio::spawn(async move {
            accept(listener, broker_port, nature, counts, open).await;
        }));
    }

    pub(crate) fn up_bytes(&self) -> u64 {
        self.counts.up.load(Ordering::Relaxed)
    }

    pub(crate) fn down_bytes(&self) -> u64 {
        self.counts.down.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.refuse();
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    broker_port: u16,
    nature: watch::Receiver<Nature>,
    counts: Arc<Counts>,
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        counts.connections.fetch_add(1, Ordering::Relaxed);
        let (nature, counts) = (nature.clone(), Arc::clone(&counts));
        open.lock().unwrap().push(tokio::spawn(async move {
            let Ok(broker) = TcpStream::connect(("127.0.0.1", broker_port)).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_broker, to_broker) = broker.into_split();
            tokio::select! {
                () = pass(from_client, to_broker, &nature, &counts.up) => {}
                () = pass(from_broker, to_client, &nature, &counts.down) => {}
            }
        }));
    }
}

/// Passes bytes on until an end closes.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    nature: &watch::Receiver<Nature>,
    count: &AtomicU64,
) {
    let (entering, mut leaving) = mpsc::channel::<(Instant, Vec<u8>)>(1_000);
    let mut seen = nature.clone();
    let enter = async {
        let mut chunk = [0; 256];
        loop {
            if seen.wait_for(|nature| !nature.is_hanging).await.is_err() {
                return;
            }
            let Ok(bytes) = from.read(&mut chunk).await else {
                return;
            };
            // What is read while the line begins to hang waits too.
            if seen.wait_for(|nature| !nature.is_hanging).await.is_err() || bytes == 0 {
                return;
            }
            count.fetch_add(bytes as u64, Ordering::Relaxed);
            let nature = *seen.borrow();
            if let Some(rate) = nature.bytes_per_second {
                sleep(Duration::from_micros(bytes as u64 * 1_000_000 / rate)).await;
            }
            let due = Instant::now() + nature.latency;
            if entering.send((due, chunk[..bytes].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let leave = async {
        while let Some((due, chunk)) = leaving.recv().await {
            sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = enter => {}
        () = leave => {}
    }
}
