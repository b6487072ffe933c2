//! What went wrong with a request, and how it is told.
//!
//! Floor 3. Handlers return a [`Fault`]; `entry` prints it: as
//! `application/problem+json` (RFC 9457) to a program, as a page to a browser.
//! A fault carries only what the asker may know; causes go to the log.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::api::Samples;

/// A request that was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The HTTP status, 400 or above.
    pub(super) status: StatusCode,
    /// One sentence for people: what, and what would help.
    pub(super) detail: String,
    /// A header that belongs to the status.
    header: Option<(HeaderName, HeaderValue)>,
    /// What could be told of the heartbeats asked for, where the rest could not.
    pub(super) samples: Option<Box<Samples>>,
}

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<&'a Samples>,
}

impl Fault {
    /// A fault with its own words.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            header: None,
            samples: None,
        }
    }

    /// 400
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 404 for a device, whose name may be anything somebody typed.
    pub(super) fn no_device(name: &str) -> Self {
        let name = super::text::quote(name, 40);
        Self::new(
            StatusCode::NOT_FOUND,
            format!("No device is named \u{201c}{name}\u{201d} in the inventory in force."),
        )
    }

    /// 401, which makes a browser ask for the token.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Self {
        Self {
            header: Some((
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"sitebeat\", charset=\"UTF-8\""),
            )),
            ..Self::new(StatusCode::UNAUTHORIZED, detail)
        }
    }

    /// 403
    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 503 that is worth another try soon.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self {
            header: Some((header::RETRY_AFTER, HeaderValue::from_static("5"))),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    /// The words for a status that a layer below set without any.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let detail = match status {
            StatusCode::NOT_FOUND => "There is nothing at this address.",
            StatusCode::METHOD_NOT_ALLOWED => {
                "This address does not take that method; the Allow header names those it takes."
            }
            StatusCode::BAD_REQUEST => "The request cannot be read.",
            StatusCode::PAYLOAD_TOO_LARGE => "The request body is too large.",
            _ => "The request was not served.",
        };
        Self::new(status, detail)
    }

    /// The status in words.
    pub(super) fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Error")
    }

    /// The problem document.
    pub(super) fn problem(&self) -> String {
        let problem = Problem {
            r#type: "about:blank",
            title: self.title(),
            status: self.status.as_u16(),
            detail: &self.detail,
            samples: self.samples.as_deref(),
        };
        // Plain fields always print.
        serde_json::to_string(&problem).unwrap_or_default()
    }
}

impl IntoResponse for Fault {
    /// Status, headers and the fault itself as an extension; `entry` writes the
    /// body, because only it knows whether a page or an API was asked.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some((name, value)) = self.header.clone() {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(self);
        response
    }
}
