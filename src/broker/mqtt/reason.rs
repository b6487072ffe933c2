//! Why there is no connection: in one sentence for people, with the cure.
//!
//! Floor 2. Called by `connecting` and `session`. No sentence holds a password:
//! nothing here sees one.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "errors of the system and of TLS are open-ended; the rest is printed as it says itself"
)]

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rumqttc::{ConnectReturnCode, StateError, mqttbytes};
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::address::Address;
use super::{Access, Loss, LossKind};
use crate::domain::instant::Wall;

/// The steps of connecting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Files,
    Name,
    Tcp,
    Tls,
    Mqtt,
}

/// How old a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    Young,
    Grown,
}

fn loss(kind: LossKind, reason: String) -> Loss {
    Loss { kind, reason }
}

fn unreachable(reason: String) -> Loss {
    loss(LossKind::Unreachable, reason)
}

pub(super) fn unusable(reason: String) -> Loss {
    loss(LossKind::Unusable, reason)
}

pub(super) fn no_url(url: &str) -> Loss {
    unusable(format!(
        "uplink.url = \"{url}\" names no broker: write mqtt://HOST:PORT or mqtts://HOST:PORT"
    ))
}

pub(super) fn no_server_name(address: &Address) -> Loss {
    unusable(format!(
        "\"{}\" can stand in no certificate: name the broker by a DNS name or an address",
        address.host
    ))
}

pub(super) fn no_name(address: &Address, error: &io::Error) -> Loss {
    unreachable(format!(
        "no address for the name {} ({error}): check uplink.url and the name server",
        address.host
    ))
}

pub(super) fn no_address(address: &Address) -> Loss {
    unreachable(format!(
        "the name {} has no address: check uplink.url",
        address.host
    ))
}

pub(super) fn no_tcp(address: &Address, at: SocketAddr, error: &io::Error) -> Loss {
    let at = if at.ip().to_string() == address.host {
        String::new()
    } else {
        format!(" ({})", at.ip())
    };
    unreachable(match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "nothing takes connections at {address}{at}: check that the broker runs and \
             the port in uplink.url"
        ),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            format!("no route to {address}{at}: check the network of this gateway")
        }
        io::ErrorKind::TimedOut => {
            format!("no answer from {address}{at}: check the network, firewalls and uplink.url")
        }
        _ => format!("no connection to {address}{at}: {error}"),
    })
}

pub(super) fn too_slow(address: &Address, step: Step, limit: Duration) -> Loss {
    let seconds = limit.as_secs();
    unreachable(match step {
        Step::Files => format!(
            "the files of uplink.ca_file, client_cert_file and client_key_file were not read \
             within {seconds} s: check the disk they are on"
        ),
        Step::Name => format!(
            "the name server gave no address for {} within {seconds} s: check the network and \
             the name server",
            address.host
        ),
        Step::Tcp => format!(
            "no answer from {address} within {seconds} s: check the network, firewalls and \
             uplink.url"
        ),
        Step::Tls => format!(
            "{address} did not complete TLS within {seconds} s: the line or the broker hangs, \
             or the port does not speak TLS"
        ),
        Step::Mqtt => format!(
            "{address} took the connection and did not answer within {seconds} s: the line or \
             the broker hangs, or it is no MQTT broker"
        ),
    })
}

/// What ended the greeting of TLS.
pub(super) fn no_tls(address: &Address, error: &io::Error) -> Loss {
    unreachable(match tls_error(error) {
        Some(error) => tls_reason(address, error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => format!(
            "{address} closed the connection during TLS: check that the port speaks TLS \
             (mqtt:// is without)"
        ),
        None => format!("TLS with {address} failed: {error}"),
    })
}

/// What came instead of the broker's word whether it accepts us.
pub(super) fn not_accepted(address: &Address, error: &mqttbytes::Error) -> Loss {
    let mqttbytes::Error::Io(error) = error else {
        return not_mqtt(address);
    };
    if let Some(error) = tls_error(error) {
        return loss(LossKind::Refused, tls_reason(address, error));
    }
    if is_close(error) {
        return loss(
            LossKind::Refused,
            format!(
                "{address} closed the connection without a word: it has too many clients, or \
                 speaks TLS where uplink.url says mqtt://, or wants a client certificate, or is \
                 no MQTT broker"
            ),
        );
    }
    unreachable(format!("the connection to {address} broke: {error}"))
}

pub(super) fn not_mqtt(address: &Address) -> Loss {
    unreachable(format!(
        "what answers at {address} does not speak MQTT: check host and port in uplink.url"
    ))
}

pub(super) fn refused(code: ConnectReturnCode, access: &Access) -> Loss {
    let id = &access.client_id;
    let user = access.uplink.username.as_deref();
    let reason = match code {
        ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => match user {
            Some(user) => format!(
                "the broker refuses user \"{user}\" with this password as client \"{id}\": \
                 check uplink.username, uplink.password and the broker's access rules"
            ),
            None => format!(
                "the broker refuses client \"{id}\" without a user: set uplink.username and \
                 uplink.password_file"
            ),
        },
        ConnectReturnCode::BadClientId => format!(
            "the broker refuses the client id \"{id}\": it is made of site.id and node.name; \
             allow it there, or choose shorter ones"
        ),
        ConnectReturnCode::ServiceUnavailable => {
            "the broker says that it is not available now".to_owned()
        }
        ConnectReturnCode::RefusedProtocolVersion => {
            "the broker does not speak MQTT 3.1.1: let it".to_owned()
        }
        ConnectReturnCode::Success => "the broker accepts us".to_owned(),
    };
    loss(LossKind::Refused, reason)
}

pub(super) fn closed(address: &Address, access: &Access, age: Age) -> Loss {
    let reason = match age {
        Age::Young => format!(
            "{address} closed the connection soon after it was made: another client may use \
             the same client id \"{}\" (a second gateway with the same site.id and node.name?), \
             or the broker does not take a message; its log says which",
            access.client_id
        ),
        Age::Grown => format!("{address} closed the connection"),
    };
    loss(LossKind::Closed, reason)
}

/// What ended reading or writing. A broker that closes while we write resets the
/// connection, and some end TLS without saying so: both are a close.
pub(super) fn broke(address: &Address, access: &Access, age: Age, error: &io::Error) -> Loss {
    if is_close(error) {
        return closed(address, access, age);
    }
    let reason = match tls_error(error) {
        Some(error) => tls_reason(address, error),
        None => format!("the connection to {address} broke: {error}"),
    };
    loss(LossKind::Broken, reason)
}

pub(super) fn deaf(address: &Address, after: Duration) -> Loss {
    loss(
        LossKind::Broken,
        format!(
            "nothing came from {address} for {} s although an answer was due: the line is dead, \
             or the broker hangs",
            after.as_secs_f64()
        ),
    )
}

pub(super) fn too_long(address: &Address, bytes: usize) -> Loss {
    loss(
        LossKind::Broken,
        format!(
            "{address} sent a packet of {bytes} bytes, more than uplink.max_packet_bytes: raise \
             it, or see who publishes so much on the topic of acknowledgements"
        ),
    )
}

pub(super) fn garbled(address: &Address, error: &dyn Display) -> Loss {
    loss(
        LossKind::Broken,
        format!("{address} sent what is no MQTT packet ({error})"),
    )
}

pub(super) fn out_of_order(address: &Address, error: &StateError) -> Loss {
    loss(
        LossKind::Broken,
        format!("the session with {address} is out of order ({error})"),
    )
}

pub(super) fn never_acknowledged(address: &Address) -> Loss {
    loss(
        LossKind::Broken,
        format!("{address} has not acknowledged a message while it did many later ones"),
    )
}

/// Whether the other end closed the connection.
fn is_close(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::WriteZero
    )
}

/// The fault of TLS inside an error of a stream.
fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

fn tls_reason(address: &Address, error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(fault) => certificate_reason(address, fault),
        TlsError::AlertReceived(alert) => alert_reason(address, *alert),
        TlsError::InvalidMessage(_) => format!(
            "{address} does not speak TLS: write mqtt:// in uplink.url, or the port on which the \
             broker speaks TLS"
        ),
        _ => format!("TLS with {address} failed: {error}"),
    }
}

fn certificate_reason(address: &Address, fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => format!(
            "the certificate of {address} is not from an authority that is trusted here: name \
             the right one in uplink.ca_file"
        ),
        CertificateError::Expired => {
            format!("the certificate of {address} has expired: renew it there")
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the certificate of {address} has expired on {}: renew it there; the clock here \
             shows {}",
            wall(*not_after),
            wall(*time)
        ),
        CertificateError::NotValidYet => format!(
            "the certificate of {address} is not valid yet: check the clock of this gateway"
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the certificate of {address} is valid from {} on, and the clock of this gateway \
             shows {}: set it right",
            wall(*not_before),
            wall(*time)
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the certificate of {address} is for another name: write the name that it is \
                 for in uplink.url"
            )
        }
        _ => format!("the certificate of {address} is not good: {fault}"),
    }
}

fn alert_reason(address: &Address, alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => format!(
            "{address} wants a client certificate: set uplink.client_cert_file and \
             uplink.client_key_file"
        ),
        AlertDescription::CertificateExpired => format!(
            "{address} says that our certificate has expired: renew uplink.client_cert_file"
        ),
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => format!(
            "{address} does not accept our certificate ({alert:?}): check uplink.client_cert_file \
             and the authority that the broker trusts"
        ),
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => format!(
            "{address} and this program have no way of TLS in common, or it wants a client \
             certificate ({alert:?}): the broker needs TLS 1.2 or 1.3"
        ),
        _ => format!("{address} broke TLS off ({alert:?})"),
    }
}

fn wall(time: UnixTime) -> Wall {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Wall::from_millis(seconds.saturating_mul(1_000))
}
