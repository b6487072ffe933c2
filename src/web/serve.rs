//! Serves connections: how many, how slow they may be, and how they end.
//!
//! Floor 3; `app` calls [`serve`]. `axum::serve` has no limits of its own, so
//! connections are driven here.
//!
//! # Invariants
//!
//! - A client that sends or reads nothing holds a connection for a bounded time.
//! - No address but a trusted proxy's has more than [`PLACES_MAX`] connections.
//! - After `stop`, no request is begun, those under way may end, and the call
//!   returns within [`STOP_TIME_MAX`].

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

/// Connections at once; more wait in the kernel's queue. A browser opens six.
const CONNECTIONS_MAX: usize = 512;

/// Connections of one address at once; one more is closed at once, so that nobody
/// alone takes the page from all others.
const PLACES_MAX: usize = CONNECTIONS_MAX / 8;

/// How long a request's head may take, and how long a connection may idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);

/// How long a client may take nothing of what is being sent to it.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// How long requests under way may take after the stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(3);

/// Wait after a failed accept: out of file handles, mostly, and trying at once
/// would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Bytes of one request's head, and of the buffer behind it.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Serves `router` on `listener` until `stop` is ready. Each request carries its
/// peer's address as `ConnectInfo<SocketAddr>`. Behind an address that `is_proxy`
/// are many.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    is_proxy: impl Fn(IpAddr) -> bool + Send,
    stop: impl Future<Output = ()> + Send,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let places = Places::default();
    let (stopping, stopped) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let next = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, accept(&listener).await)
        };
        let (place, (stream, peer)) = tokio::select! {
            () = &mut stop => break,
            Some(_) = open.join_next() => continue,
            next = next => next,
        };
        let address = peer.ip().to_canonical();
        let Some(own) = places.take(address, is_proxy(address)) else {
            tracing::debug!(%peer, "a connection too many of one address was closed");
            continue;
        };
        let connection = drive(stream, peer, router.clone(), stopped.clone());
        open.spawn(async move {
            connection.await;
            drop((place, own));
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all_ended = async { while open.join_next().await.is_some() {} };
    if timeout(STOP_TIME_MAX, all_ended).await.is_err() {
        tracing::debug!(connections = open.len(), "connections cut off at the stop");
        open.shutdown().await;
    }
}

/// How many connections each address has.
#[derive(Debug, Default)]
struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them; given back when it is dropped.
#[derive(Debug)]
struct Place {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Places {
    /// `None`: the address has all that one may have.
    fn take(&self, address: IpAddr, is_proxy: bool) -> Option<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = all.entry(address).or_default();
        // Where none is left there is an entry already: none is made in vain.
        if *taken >= PLACES_MAX && !is_proxy {
            return None;
        }
        *taken += 1;
        Some(Place {
            all: Arc::clone(&self.0),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = all.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.address);
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection to its end. Faults of a connection are the client's affair.
async fn drive(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) {
    // Pages are written whole, so waiting for more to send only adds delay.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "no TCP_NODELAY");
    }
    let service = TowerToHyperService::new(router.layer(Extension(ConnectInfo(peer))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, %peer, "a connection broke off");
                }
                return;
            }
            _ = stopped.wait_for(|&stopped| stopped), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A stream whose writes fail once the other side has taken nothing for
/// [`WRITE_TIME_MAX`]: otherwise a client that stops reading in the middle of a
/// page holds its place for ever.
struct Patient {
    stream: TcpStream,
    /// Runs while a write waits.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            limit: None,
        }
    }

    /// Passes on a write's result and keeps the limit.
    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.limit = None;
            return written;
        }
        let limit = self
            .limit
            .get_or_insert_with(|| Box::pin(sleep(WRITE_TIME_MAX)));
        ready!(limit.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watched(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watched(cx, shut)
    }
}
