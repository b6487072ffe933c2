//! Who asks, and what they may do.
//!
//! Floor 3. `entry` calls [`Caller::of`] once per request; changing routes take
//! a [`Permit`], which only an admin's own request gets.
//!
//! # Invariants
//!
//! - Tokens are compared in constant time and never printed.
//! - A request that a foreign page made a browser send never gets a permit.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq as _;

use super::fault::Fault;
use super::{Front, InForce};
use crate::config::settings::Secret;

/// The largest request body taken: the forms here are a few dozen bytes.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;

/// How long a request body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// The form field that carries the ticket.
pub(super) const TICKET_FIELD: &str = "csrf";

/// What a caller has shown to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// No token, or one that is not ours.
    Nobody,
    /// The viewer token.
    Viewer,
    /// The admin token.
    Admin,
}

/// How a token came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    None,
    /// A browser adds this by itself, on foreign pages' behalf too.
    Basic,
    /// Only a program adds this.
    Bearer,
}

/// Who asks, and by which settings they are answered.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The settings in force when the request came.
    pub(super) in_force: Arc<InForce>,
    /// What they may do.
    pub(super) role: Role,
    /// The ticket that a form made for them must carry.
    pub(super) ticket: String,
    scheme: Scheme,
}

/// Proof that a changing request may go on.
#[derive(Debug)]
pub(super) struct Permit {
    /// Who asks.
    pub(super) caller: Caller,
}

/// Makes the tickets of forms: a keyed hash of the credential, so that nothing
/// need be remembered, and a ticket of one person is no use to another. The keys
/// are random per process: an old form asks to be loaded again after a restart.
#[derive(Debug)]
pub(super) struct Tickets {
    keys: [RandomState; 2],
}

impl Tickets {
    pub(super) fn new() -> Self {
        Self {
            keys: [RandomState::new(), RandomState::new()],
        }
    }

    fn of(&self, credential: &str) -> String {
        let [first, second] = self
            .keys
            .each_ref()
            .map(|key| key.hash_one(("sitebeat form", credential)));
        format!("{first:016x}{second:016x}")
    }
}

impl Caller {
    /// Reads the caller's token, if any. A token that is not ours is as good as
    /// none.
    pub(super) fn of(front: &Front, in_force: Arc<InForce>, headers: &HeaderMap) -> Self {
        let (scheme, token) = credential(headers);
        let is = |secret: &Option<Secret>| secret.as_ref().is_some_and(|own| same(own, &token));
        let role = if scheme == Scheme::None {
            Role::Nobody
        } else if is(&in_force.web.admin_token) {
            Role::Admin
        } else if is(&in_force.web.viewer_token) {
            Role::Viewer
        } else {
            Role::Nobody
        };
        Self {
            ticket: front.tickets.of(&token),
            in_force,
            role,
            scheme,
        }
    }

    /// Whether they may read pages and API.
    pub(super) fn may_read(&self) -> bool {
        self.in_force.web.viewer_token.is_none() || self.role >= Role::Viewer
    }

    /// Whether anybody at all may change things.
    pub(super) fn can_be_admin(&self) -> bool {
        self.in_force.web.admin_token.is_some()
    }

    /// That they hold the admin token; else what is missing.
    pub(super) fn must_be_admin(&self) -> Result<(), Fault> {
        if !self.can_be_admin() {
            return Err(Fault::forbidden(
                "Changing is switched off: no web.admin_token is configured.",
            ));
        }
        if self.role != Role::Admin {
            return Err(Fault::unauthorized(
                "This needs the admin token, as Bearer or as the password of HTTP Basic.",
            ));
        }
        Ok(())
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        // `entry` puts one into every request; without it nobody may do anything.
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Fault::unauthorized("The request has no caller."))
    }
}

impl<S: Sync> FromRequest<S> for Permit {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, state).await?;
        caller.must_be_admin()?;
        let origin = Origin::of(&parts, &caller.in_force);
        if origin == Origin::Foreign {
            return Err(Fault::forbidden(
                "The request was made by a page of another site.",
            ));
        }
        let body = tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, BODY_BYTES_MAX))
            .await
            .map_err(|_| Fault::new(StatusCode::REQUEST_TIMEOUT, "The body came too slowly."))?
            .map_err(|_| Fault::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
        let by_browser = origin == Origin::Own || is_form(&parts.headers, &body);
        if caller.scheme == Scheme::Basic && by_browser && !has_ticket(&caller, &parts, &body) {
            return Err(Fault::forbidden(
                "The form is out of date: load the page again and press the button there.",
            ));
        }
        Ok(Self { caller })
    }
}

/// Where a request comes from, as its browser says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No browser speaks.
    Unsaid,
    /// One of our pages.
    Own,
    /// Somebody else's page.
    Foreign,
}

impl Origin {
    fn of(parts: &Parts, in_force: &InForce) -> Self {
        let said = |name: &str| {
            let value = parts.headers.get(name)?;
            Some(value.to_str().unwrap_or("null").to_owned())
        };
        let site = said("sec-fetch-site");
        if let Some(site) = &site
            && site != "same-origin"
        {
            return Self::Foreign;
        }
        let Some(page) = said("origin").or_else(|| said("referer")) else {
            return site.map_or(Self::Unsaid, |_| Self::Own);
        };
        // A browser that vouches for the origin is right even where a proxy
        // has rewritten the Host header.
        let is_own = site.is_some() || own_hosts(parts, in_force).any(|host| is_at(&page, &host));
        if is_own { Self::Own } else { Self::Foreign }
    }
}

/// The names under which this page was asked: the Host header, and what a
/// trusted proxy says it was before.
fn own_hosts<'a>(parts: &'a Parts, in_force: &InForce) -> impl Iterator<Item = String> + 'a {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let is_trusted = peer.is_some_and(|ConnectInfo(peer)| {
        let peer = peer.ip().to_canonical();
        in_force.web.trusted_proxies.contains(&peer)
    });
    let forwarded = if is_trusted { "x-forwarded-host" } else { "" };
    ["host", forwarded]
        .into_iter()
        .filter(|name| !name.is_empty())
        .filter_map(|name| parts.headers.get(name)?.to_str().ok())
        .map(|host| host.trim().to_owned())
        .chain(parts.uri.authority().map(ToString::to_string))
}

/// Whether the URL or origin `page` is at `host`.
fn is_at(page: &str, host: &str) -> bool {
    let rest = page
        .strip_prefix("http://")
        .or_else(|| page.strip_prefix("https://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Whether this is what a form without script sends: one with a body. A bare
/// POST of a program has none.
fn is_form(headers: &HeaderMap, body: &Bytes) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let forms = [
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain",
    ];
    !body.is_empty() && forms.iter().any(|form| kind.starts_with(form))
}

fn has_ticket(caller: &Caller, parts: &Parts, body: &Bytes) -> bool {
    let by_header = parts.headers.get("x-csrf-token");
    let by_header = by_header.map(|value| value.as_bytes().to_vec());
    let by_field = || {
        let text = std::str::from_utf8(body).ok()?;
        let value = text.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            (name == TICKET_FIELD).then_some(value)
        })?;
        Some(value.as_bytes().to_vec())
    };
    by_header
        .or_else(by_field)
        .is_some_and(|shown| shown.ct_eq(caller.ticket.as_bytes()).into())
}

/// The token in the Authorization header. An empty one is none.
fn credential(headers: &HeaderMap) -> (Scheme, String) {
    let value = headers.get(header::AUTHORIZATION);
    let Some((scheme, rest)) = value
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
    else {
        return (Scheme::None, String::new());
    };
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        return (Scheme::Bearer, rest.to_owned());
    }
    let password = || {
        let plain = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
        let (_, password) = plain.split_once(':')?;
        (!password.is_empty()).then(|| password.to_owned())
    };
    if scheme.eq_ignore_ascii_case("basic")
        && let Some(password) = password()
    {
        return (Scheme::Basic, password);
    }
    (Scheme::None, String::new())
}

fn same(own: &Secret, shown: &str) -> bool {
    own.reveal().as_bytes().ct_eq(shown.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_ours_only_with_exactly_our_host() {
        for (page, host) in [
            ("http://gw.example", "gw.example"),
            ("https://GW.example:8443", "gw.example:8443"),
            ("http://[::1]:8080/devices/a", "[::1]:8080"),
        ] {
            assert!(is_at(page, host), "{page} {host}");
        }
        for (page, host) in [
            ("http://gw.example.evil.x", "gw.example"),
            ("http://evil.x/gw.example", "gw.example"),
            ("http://gw.example@evil.x", "gw.example"),
            ("null", "gw.example"),
            ("null", "null"),
            ("http://", ""),
            ("javascript:gw.example", "gw.example"),
            ("http://gw.example:81", "gw.example"),
        ] {
            assert!(!is_at(page, host), "{page} {host}");
        }
    }

    #[test]
    fn tokens_are_read_from_bearer_and_basic_alone() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            credential(&headers)
        };
        assert_eq!(read("Bearer s3cret"), (Scheme::Bearer, "s3cret".into()));
        assert_eq!(read("bearer s3cret"), (Scheme::Bearer, "s3cret".into()));
        // any:s3:cret, since a password may hold a colon.
        assert_eq!(
            read("Basic YW55OnMzOmNyZXQ="),
            (Scheme::Basic, "s3:cret".into())
        );
        for nothing in [
            "Bearer",
            "Bearer ",
            "Basic",
            "Basic !!",
            "Basic YW55",
            "Basic YW55Og==",
            "Digest x",
        ] {
            assert_eq!(read(nothing), (Scheme::None, String::new()), "{nothing}");
        }
    }
}
