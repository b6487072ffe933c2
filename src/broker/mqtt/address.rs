//! Where a broker is: its URL taken apart, and its addresses.
//!
//! Floor 2. Called by `connecting`. `config` has checked the URL.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Addresses of one name that are tried at most.
const ADDRESSES_MAX: usize = 4;

/// Host and port of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

impl Address {
    /// `None`: it is no URL of a broker.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_tls, port) = match scheme {
            "mqtt" => (false, 1883),
            "mqtts" => (true, 8883),
            _ => return None,
        };
        let authority = rest.trim_end_matches('/');
        let (host, rest) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => authority
                .find(':')
                .map_or((authority, ""), |at| authority.split_at(at)),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None => port,
        };
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
            is_tls,
        })
    }

    /// Its addresses; an error of the name server where there are none. Waits while
    /// an earlier question is still with the name server.
    pub(super) async fn resolve(
        &self,
        resolving: &Arc<Semaphore>,
    ) -> std::io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let permit = Arc::clone(resolving)
            .acquire_owned()
            .await
            .map_err(std::io::Error::other)?;
        let question = (self.host.clone(), self.port);
        let asking = tokio::task::spawn_blocking(move || {
            let answer = question.to_socket_addrs();
            drop(permit);
            answer.map(|addresses| addresses.take(ADDRESSES_MAX).collect())
        });
        asking.await.map_err(std::io::Error::other)?
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_apart() {
        let apart = |url| Address::parse(url).map(|a| (a.to_string(), a.is_tls));
        let fine = |text: &str, is_tls| Some((text.to_owned(), is_tls));
        assert_eq!(apart("mqtt://broker"), fine("broker:1883", false));
        assert_eq!(apart("mqtts://b.example/"), fine("b.example:8883", true));
        assert_eq!(apart("mqtt://10.0.0.1:7"), fine("10.0.0.1:7", false));
        assert_eq!(apart("mqtts://[::1]:7"), fine("[::1]:7", true));
        assert_eq!(apart("mqtt://[::1]"), fine("[::1]:1883", false));
        for bad in ["", "http://b", "mqtt://", "mqtt://b:x", "mqtt://[::1"] {
            assert_eq!(apart(bad), None, "{bad}");
        }
    }
}
