//! One surge-ping client per IP family, opened as the settings say.
//!
//! Floor 2. `Surge` opens them at the start, and again where the interface or
//! source address they are bound to came back.
//!
//! # Invariants
//!
//! - A socket of another kind than the one chosen is never used: surge-ping
//!   falls back to the other kind without a word.
//! - Probes under way keep the clients they were sent on: tasks hold an `Arc`.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use socket2::Type;
use surge_ping::{Client, Config, ICMP};

use crate::config::settings::SocketChoice;
use crate::ping::{OpenError, Options};

/// The clients; a family that cannot be had is `None`.
pub(super) struct Sockets {
    v4: Option<Client>,
    v6: Option<Client>,
    /// Why IPv6 cannot be had, if so.
    pub(super) v6_fault: Option<String>,
}

/// A client, or that its interface or address is not there now.
enum Opened {
    Client(Client),
    Absent,
}

impl Sockets {
    /// Opens both families. Must be called inside a tokio runtime.
    pub(super) fn open(options: &Options) -> Result<Self, OpenError> {
        let v4 = match open(options, ICMP::V4)? {
            Opened::Client(client) => Some(client),
            Opened::Absent => None,
        };
        // A gateway without IPv6 is common and no reason not to start.
        let (v6, v6_fault) = match open(options, ICMP::V6) {
            Ok(Opened::Client(client)) => (Some(client), None),
            Ok(Opened::Absent) => (None, None),
            Err(OpenError::Socket { source, .. }) => (None, Some(source.to_string())),
            Err(other) => (None, Some(other.to_string())),
        };
        Ok(Self { v4, v6, v6_fault })
    }

    /// The client for this address.
    pub(super) const fn for_target(&self, target: IpAddr) -> Option<&Client> {
        match target {
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }

    /// `RAW` or `DGRAM`, or `none` while the interface is not there.
    pub(super) fn word(&self) -> &'static str {
        match self.v4.as_ref().or(self.v6.as_ref()).map(kind) {
            Some(Type::RAW) => "RAW",
            Some(_) => "DGRAM",
            None => "none",
        }
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("kind", &self.word())
            .field("v4", &self.v4.is_some())
            .field("v6", &self.v6.is_some())
            .finish_non_exhaustive()
    }
}

fn open(options: &Options, family: ICMP) -> Result<Opened, OpenError> {
    let wanted = match options.socket {
        SocketChoice::Auto | SocketChoice::Raw => Type::RAW,
        SocketChoice::Dgram => Type::DGRAM,
    };
    let mut config = Config::builder().kind(family).sock_type_hint(wanted);
    if let Some(interface) = &options.interface {
        config = config.interface(interface);
    }
    if let Some(source) = options.source.filter(|&source| is_of(family, source)) {
        config = config.bind(SocketAddr::new(source, 0));
    }
    match Client::new(&config.build()) {
        Ok(client) if options.socket != SocketChoice::Auto && kind(&client) != wanted => {
            Err(no_privilege(options.socket))
        }
        Ok(client) => Ok(Opened::Client(client)),
        Err(fault) if is_absent(&fault) && is_bound(options) => Ok(Opened::Absent),
        Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied => {
            Err(no_privilege(options.socket))
        }
        Err(source) => Err(OpenError::Socket {
            deed: deed(options, family),
            source,
        }),
    }
}

/// Whether the sockets hang on something that can go away.
pub(super) const fn is_bound(options: &Options) -> bool {
    options.interface.is_some() || options.source.is_some()
}

fn is_of(family: ICMP, address: IpAddr) -> bool {
    address.is_ipv4() == (family == ICMP::V4)
}

fn kind(client: &Client) -> Type {
    client.get_socket().get_type()
}

/// The kernel's own words: surge-ping's name a sysctl for IPv6 that is not there.
fn no_privilege(choice: SocketChoice) -> OpenError {
    OpenError::NoPrivilege {
        choice,
        source: Errno::EACCES.into(),
    }
}

/// A modem that is not up yet: its interface or address comes later.
fn is_absent(fault: &io::Error) -> bool {
    let absent = [Errno::ENODEV, Errno::ENXIO, Errno::EADDRNOTAVAIL];
    fault
        .raw_os_error()
        .is_some_and(|code| absent.contains(&Errno::from_raw(code)))
}

fn deed(options: &Options, family: ICMP) -> String {
    let family = if family == ICMP::V4 { "IPv4" } else { "IPv6" };
    let on = options
        .interface
        .as_ref()
        .map_or_else(String::new, |name| format!(" on probe.interface {name}"));
    let from = options
        .source
        .map_or_else(String::new, |source| format!(" from probe.source {source}"));
    format!("open an ICMP socket for {family}{on}{from}")
}
