//! From an address to a session that the broker has accepted.
//!
//! Floor 2. Called by `mqtt`.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use rumqttc::{Connect, ConnectReturnCode, LastWill, Login, Packet, QoS, mqttbytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::Address;
use super::reason::{self, Step};
use super::{Access, Known, Loss, Shared};
use crate::config::settings::Secret;

/// Longest time to connect, all steps together.
const LIMIT: Duration = Duration::from_secs(20);

/// What the kernel holds of what we send. What it holds cannot be seen to move, so
/// it must be little against what a thin line carries in a keep-alive.
const SEND_BUFFER_BYTES: usize = 32 << 10;

/// The longest CONNECT of ours: an MQTT text of it is 64 KiB at most.
const CONNECT_BYTES_MAX: usize = 512 << 10;

/// A stream of bytes to the broker, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A session that the broker has accepted.
pub(super) struct Connected {
    pub(super) stream: Box<dyn Stream>,
    /// What came behind the acceptance.
    pub(super) received: BytesMut,
    pub(super) is_resumed: bool,
    pub(super) address: Address,
}

/// Connects, within 20 s.
pub(super) async fn connect(access: &Access, shared: &Arc<Shared>) -> Result<Connected, Loss> {
    let url = access.uplink.url.as_deref().unwrap_or_default();
    let address = Address::parse(url).ok_or_else(|| reason::no_url(url))?;
    let mut limit = Limit {
        end: pin!(sleep(LIMIT)),
        address: &address,
    };
    let tls = if address.is_tls {
        Some(limit.hold(Step::Files, tls(access, shared)).await??)
    } else {
        *shared.known() = Known::default();
        None
    };
    let resolved = limit
        .hold(Step::Name, address.resolve(&shared.resolving))
        .await?;
    let addresses = resolved.map_err(|error| reason::no_name(&address, &error))?;
    let tcp = limit.hold(Step::Tcp, dial(&address, &addresses)).await??;
    let mut stream: Box<dyn Stream> = match tls {
        None => Box::new(tcp),
        Some(config) => {
            let name = ServerName::try_from(address.host.clone())
                .map_err(|_| reason::no_server_name(&address))?;
            let greeting = TlsConnector::from(config).connect(name, tcp);
            let stream = limit.hold(Step::Tls, greeting).await?;
            Box::new(stream.map_err(|error| reason::no_tls(&address, &error))?)
        }
    };
    let mut received = BytesMut::new();
    let accepted = limit
        .hold(
            Step::Mqtt,
            greet(&mut stream, &mut received, access, shared),
        )
        .await?;
    let acceptance = match accepted {
        Ok(Packet::ConnAck(acceptance)) => acceptance,
        Ok(_) => return Err(reason::not_mqtt(&address)),
        Err(error) => return Err(reason::not_accepted(&address, &error)),
    };
    if acceptance.code != ConnectReturnCode::Success {
        return Err(reason::refused(acceptance.code, access));
    }
    Ok(Connected {
        stream,
        received,
        is_resumed: acceptance.session_present,
        address,
    })
}

/// The time that connecting may take.
struct Limit<'a> {
    end: Pin<&'a mut Sleep>,
    address: &'a Address,
}

impl Limit<'_> {
    /// Waits for `work`, which is `step` of connecting.
    async fn hold<T>(&mut self, step: Step, work: impl Future<Output = T>) -> Result<T, Loss> {
        tokio::select! {
            done = work => Ok(done),
            () = self.end.as_mut() => Err(reason::too_slow(self.address, step, LIMIT)),
        }
    }
}

/// Reads the files on a thread where that may take its time.
async fn tls(access: &Access, shared: &Arc<Shared>) -> Result<Arc<ClientConfig>, Loss> {
    let mut files = Arc::clone(&shared.files).lock_owned().await;
    let uplink = access.uplink.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let config = files.read(&uplink);
        (config, files.known())
    });
    let (config, known) = reading
        .await
        .map_err(|fault| reason::unusable(fault.to_string()))?;
    *shared.known() = known;
    config.map_err(reason::unusable)
}

/// The first of `addresses` that takes a connection; none may use up the time of
/// those behind it.
async fn dial(address: &Address, addresses: &[SocketAddr]) -> Result<TcpStream, Loss> {
    let share = LIMIT / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut loss = reason::no_address(address);
    for &at in addresses {
        loss = match timeout(share, TcpStream::connect(at)).await {
            Ok(Ok(tcp)) => {
                prepare(&tcp);
                return Ok(tcp);
            }
            Ok(Err(error)) => reason::no_tcp(address, at, &error),
            Err(_) => reason::too_slow(address, Step::Tcp, share),
        };
    }
    Err(loss)
}

/// Both are for speed and early notice; a kernel that refuses them does no harm.
fn prepare(tcp: &TcpStream) {
    let socket = socket2::SockRef::from(tcp);
    for (what, done) in [
        ("TCP_NODELAY", tcp.set_nodelay(true)),
        ("SO_SNDBUF", socket.set_send_buffer_size(SEND_BUFFER_BYTES)),
    ] {
        if let Err(fault) = done {
            tracing::debug!(what, %fault, "the kernel refuses a socket setting");
        }
    }
}

/// Sends CONNECT and waits for the first packet.
async fn greet(
    stream: &mut Box<dyn Stream>,
    received: &mut BytesMut,
    access: &Access,
    shared: &Shared,
) -> Result<Packet, mqttbytes::Error> {
    let is_clean = shared.must_forget.swap(false, Ordering::Relaxed);
    let mut out = BytesMut::new();
    let bytes =
        Packet::Connect(connect_packet(access, is_clean)).write(&mut out, CONNECT_BYTES_MAX)?;
    stream.write_all(&out).await?;
    stream.flush().await?;
    shared.up_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    loop {
        match Packet::read(received, CONNECT_BYTES_MAX) {
            Err(mqttbytes::Error::InsufficientBytes(_)) => {}
            packet => return packet,
        }
        let bytes = stream.read_buf(received).await?;
        if bytes == 0 && !received.is_empty() {
            return Err(mqttbytes::Error::MalformedPacket);
        }
        if bytes == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        shared.down_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn connect_packet(access: &Access, is_clean: bool) -> Connect {
    let Access {
        uplink,
        client_id,
        will,
        ..
    } = access;
    let password = uplink.password.as_ref().map(Secret::reveal);
    // The protocol knows no password without a user.
    let login = uplink.username.as_ref().map(|user| Login {
        username: user.clone(),
        password: password.unwrap_or_default().to_owned(),
    });
    let seconds = uplink.keep_alive.as_millis().div_ceil(1_000);
    Connect {
        protocol: mqttbytes::Protocol::V4,
        keep_alive: u16::try_from(seconds).unwrap_or(u16::MAX),
        client_id: client_id.clone(),
        clean_session: is_clean,
        last_will: Some(LastWill {
            topic: will.topic.clone(),
            message: will.payload.clone().into(),
            qos: QoS::AtLeastOnce,
            retain: will.retain,
        }),
        login,
    }
}
