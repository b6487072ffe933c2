//! The door: what holds for every request, before a route is chosen and after
//! it has answered.
//!
//! Floor 3. [`enter`] is the one layer around all routes.
//!
//! # Invariants
//!
//! - Every answer given here carries the security headers.
//! - Every answer of status 400 or above given here has a body that says what is
//!   wrong. What cannot be read as a request never comes here: hyper answers it by
//!   itself with 400, 414 or 431, no body and no headers of ours, and closes.
//! - Nothing is redirected from here, so no address in a request comes back as
//!   a `Location`.

use std::sync::Arc;

use askama::Template as _;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::Front;
use super::access::{BODY_BYTES_MAX, Caller};
use super::fault::Fault;
use super::frame::{ErrorPage, Frame, Here};

/// No script, style, image, font or frame but our own; nothing inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

/// What can be read without a token: states without secrets, and the style of
/// the page that asks for one.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Serves one request.
pub(super) async fn enter(
    State(front): State<Arc<Front>>,
    mut request: Request,
    next: Next,
) -> Response {
    let in_force = front.shared.in_force();
    strip_base(request.uri_mut(), &in_force.web.base_path);
    let caller = Caller::of(&front, in_force, request.headers());
    let path = request.uri().path().to_owned();
    let is_head = request.method() == Method::HEAD;
    let response = if let Some(fault) = refusal(&request, &caller) {
        fault.into_response()
    } else {
        request.extensions_mut().insert(caller.clone());
        next.run(request).await
    };
    let mut response = told(response, &front, &caller, &path);
    if is_head {
        without_body(&mut response);
    }
    secure(response.headers_mut());
    response
}

/// What is refused before a route is asked.
fn refusal(request: &Request, caller: &Caller) -> Option<Fault> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Some(Fault::new(
            axum::http::StatusCode::PAYLOAD_TOO_LARGE,
            format!("The request body is too large; {BODY_BYTES_MAX} bytes are taken."),
        ));
    }
    let path = request.uri().path();
    let is_open = OPEN_PATHS.contains(&path) || path.starts_with("/static/");
    // What changes things asks for the admin token itself, see `access::Permit`.
    let is_reading = request.method() != Method::POST;
    if is_reading && !is_open && !caller.may_read() {
        return Some(Fault::unauthorized(
            "Reading needs the viewer token: in a browser as the password with any user name, from a \
             program as Bearer.",
        ));
    }
    None
}

/// Takes `base` off the front of the path, where it is there.
fn strip_base(uri: &mut Uri, base: &str) {
    if base.is_empty() {
        return;
    }
    let Some(rest) = uri.path().strip_prefix(base) else {
        return;
    };
    if !rest.is_empty() && !rest.starts_with('/') {
        return;
    }
    let path = if rest.is_empty() { "/" } else { rest };
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    // Both halves were a valid URI a moment ago; where the rest should not be
    // one by itself, the request stays as it is and finds no route.
    parts.path_and_query = whole.parse().ok();
    if parts.path_and_query.is_some()
        && let Ok(stripped) = Uri::from_parts(parts)
    {
        *uri = stripped;
    }
}

/// An answer of status 400 or above gets the body that the asker can read.
fn told(response: Response, front: &Front, caller: &Caller, path: &str) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    let fault = parts
        .extensions
        .remove::<Fault>()
        .unwrap_or_else(|| Fault::of_status(status));
    parts.headers.remove(header::CONTENT_LENGTH);
    let (kind, body) = match page(&fault, front, caller, path) {
        Some(page) => ("text/html; charset=utf-8", page),
        None => ("application/problem+json", fault.problem()),
    };
    parts
        .headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Response::from_parts(parts, Body::from(body))
}

/// The fault as a page; `None` where a program asked.
fn page(fault: &Fault, front: &Front, caller: &Caller, path: &str) -> Option<String> {
    let is_api = path == "/api" || path.starts_with("/api/");
    if is_api || path == "/metrics" || OPEN_PATHS.contains(&path) {
        return None;
    }
    let frame = if caller.may_read() {
        let now = front.shared.clock.wall();
        Frame::new(caller, &front.shared.board.look(), now, Here::Nowhere)
    } else {
        Frame::bare(caller)
    };
    let page = ErrorPage {
        frame,
        status: fault.status.as_u16(),
        title: fault.title(),
        detail: &fault.detail,
        way: if fault.status == axum::http::StatusCode::UNAUTHORIZED {
            "Enter the token"
        } else {
            "To the devices"
        },
    };
    page.render().ok()
}

/// The same answer to HEAD: all headers, the length too, and no body.
fn without_body(response: &mut Response) {
    let length = response.body().size_hint().exact().unwrap_or(0);
    if length > 0 && !response.headers().contains_key(header::CONTENT_LENGTH) {
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::empty();
}

fn secure(headers: &mut HeaderMap) {
    let always = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_goes_only_as_whole_segments() {
        let stripped = |uri: &str| {
            let mut uri: Uri = uri.parse().unwrap();
            strip_base(&mut uri, "/mon");
            uri.to_string()
        };
        assert_eq!(stripped("/mon"), "/");
        assert_eq!(stripped("/mon?q=a"), "/?q=a");
        assert_eq!(stripped("/mon/devices/a?day=b"), "/devices/a?day=b");
        assert_eq!(stripped("/monitor"), "/monitor");
        assert_eq!(stripped("/devices/mon"), "/devices/mon");
        assert_eq!(stripped("/mon//e.x/.."), "//e.x/..");
    }
}
