//! Real connections: slow clients go, a stop lets requests end.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sitebeat::config::settings::Secret;
use sitebeat::web::{router, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

/// A trusted proxy.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

struct Running {
    at: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn running() -> Running {
    running_over(web_front::site()).await
}

async fn running_over(front: web_front::Front) -> Running {
    let mut settings = (*front.shared.in_force()).clone();
    settings.web.admin_token = Some(Secret::new(web_front::ADMIN.into()));
    front.shared.put_in_force(settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let router = router(front.shared);
    let is_proxy = |address| address == PROXY;
    let ended = tokio::spawn(serve(listener, router, is_proxy, async {
        stopped.await.unwrap();
    }));
    Running { at, stop, ended }
}

/// Connects from `own`.
async fn connect_from(own: IpAddr, at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(own, 0)).unwrap();
    socket.connect(at).await.unwrap()
}

async fn read_some(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4_096];
    let n = timeout(Duration::from_secs(5), stream.read(&mut bytes))
        .await
        .expect("an answer in time")
        .unwrap();
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

/// Waits for the other side to close; how long it may take is the caller's.
async fn closed_within(stream: &mut TcpStream, limit: Duration) {
    let mut rest = Vec::new();
    let end = timeout(limit, stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    for _ in 0..3 {
        stream.write_all(REQUEST).await.unwrap();
        assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_stop_closes_idle_connections_and_the_port() {
    let running = running().await;
    let mut idle = TcpStream::connect(running.at).await.unwrap();
    idle.write_all(REQUEST).await.unwrap();
    assert!(read_some(&mut idle).await.contains("200"));
    let mut silent = TcpStream::connect(running.at).await.unwrap();
    // The silent one is accepted once a later one is answered.
    let mut later = TcpStream::connect(running.at).await.unwrap();
    later.write_all(REQUEST).await.unwrap();
    assert!(read_some(&mut later).await.contains("200"));
    running.stop.send(()).unwrap();
    timeout(Duration::from_secs(5), running.ended)
        .await
        .expect("a stop within a few seconds")
        .unwrap();
    for stream in [&mut idle, &mut silent, &mut later] {
        closed_within(stream, Duration::from_secs(1)).await;
    }
    assert!(TcpStream::connect(running.at).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_head_is_let_go() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        .await
        .unwrap();
    closed_within(&mut stream, Duration::from_mins(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_idle_is_let_go() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    closed_within(&mut stream, Duration::from_mins(1)).await;
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_refused() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    let line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100_000));
    // The server may close while this is still being sent.
    let sent = stream.write_all(line.as_bytes()).await;
    let answer = read_some(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 4") || sent.is_err(),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_ends_the_request() {
    let running = running().await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    let head = "POST /api/v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\
         Authorization: Bearer admin-secret\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let end = timeout(Duration::from_mins(1), stream.read_to_string(&mut answer)).await;
    assert!(end.is_ok(), "the connection is still open");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_let_go() {
    const PAGES: usize = 100;
    let running = running_over(web_front::many(1_000)).await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    // More than the kernel's buffers hold.
    let request = "GET /?per_page=1000 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(PAGES);
    stream.write_all(request.as_bytes()).await.unwrap();
    // On the paused clock this passes once the server can do nothing more.
    tokio::time::sleep(Duration::from_mins(2)).await;
    let mut taken = Vec::new();
    let end = timeout(Duration::from_secs(5), stream.read_to_end(&mut taken)).await;
    assert!(end.is_ok(), "the connection is still open");
    assert!(
        taken.len() < PAGES * 100_000,
        "{} bytes were sent",
        taken.len()
    );
}

#[tokio::test]
async fn one_address_takes_the_page_from_nobody_else() {
    let running = running().await;
    let greedy = IpAddr::from([127, 0, 0, 2]);
    let mut half_sent = Vec::new();
    for _ in 0..600 {
        let mut stream = connect_from(greedy, running.at).await;
        // One that was closed already may refuse it.
        let _sent = stream.write_all(b"GET / HTTP/1.1\r\nX: ").await.is_ok();
        half_sent.push(stream);
    }
    let mut other = TcpStream::connect(running.at).await.unwrap();
    other.write_all(REQUEST).await.unwrap();
    assert!(read_some(&mut other).await.starts_with("HTTP/1.1 200"));
    // The places come back.
    drop(half_sent);
    let answered = async {
        loop {
            let mut stream = connect_from(greedy, running.at).await;
            let is_sent = stream.write_all(REQUEST).await.is_ok();
            let mut byte = [0];
            if is_sent && stream.read(&mut byte).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    };
    timeout(Duration::from_secs(10), answered).await.unwrap();
}

#[tokio::test]
async fn a_trusted_proxy_has_as_many_places_as_there_are() {
    let running = running().await;
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut stream = connect_from(PROXY, running.at).await;
        stream.write_all(REQUEST).await.unwrap();
        assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 200"));
        open.push(stream);
    }
}
