//! Asks a router in-process and holds the answer for a look.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}

pub(crate) fn get(path: &str) -> Request<Body> {
    asked(Method::GET, path, &[])
}

pub(crate) fn post(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    asked(Method::POST, path, headers)
}

pub(crate) fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "gw.example:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

pub(crate) async fn ask(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// The value of an HTTP Basic header.
pub(crate) fn basic(token: &str) -> String {
    use base64::Engine as _;
    let pair = format!("anybody:{token}");
    let coded = base64::engine::general_purpose::STANDARD.encode(pair);
    format!("Basic {coded}")
}
