//! Whatever is asked: no panic, no 500, and a body that says what is wrong.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Uri};
use proptest::prelude::*;
use sitebeat::config::settings::Secret;
use sitebeat::web::router;
use web_ask::ask;

/// A path of likely and unlikely parts.
fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("devices".to_owned()),
        Just("meter-001".to_owned()),
        Just("api/v1".to_owned()),
        Just("heartbeats".to_owned()),
        Just("probe".to_owned()),
        Just("node".to_owned()),
        Just("history".to_owned()),
        Just("events".to_owned()),
        Just("daily".to_owned()),
        Just("mon".to_owned()),
        Just("static".to_owned()),
        Just("..".to_owned()),
        Just(String::new()),
        Just("%00".to_owned()),
        Just("%ff%fe".to_owned()),
        Just("%".to_owned()),
        "[!-~]{0,30}",
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "status",
        "tag",
        "q",
        "sort",
        "page",
        "per_page",
        "enabled",
        "day",
        "admin",
        "asked",
        "x",
        "days",
        "device",
        "device_id",
        "from",
        "to",
        "format",
        "limit",
        "before",
        "kind",
    ]);
    let value = prop_oneof![
        "[!-~]{0,20}",
        Just("online".to_owned()),
        Just("failed".to_owned()),
        Just("-rtt_ms".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("9999-12-31".to_owned()),
        Just("-0001-01-01".to_owned()),
        Just("262142-12-31".to_owned()),
        Just("%F0%9F".to_owned()),
    ];
    let pairs = prop::collection::vec((name, value), 0..5);
    pairs.prop_map(|pairs| {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join("&")
    })
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let name = prop::sample::select(vec![
        "host",
        "origin",
        "referer",
        "authorization",
        "content-length",
        "content-type",
        "sec-fetch-site",
        "if-none-match",
        "x-csrf-token",
        "x-forwarded-host",
    ]);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..30),
        Just(b"Bearer admin-secret".to_vec()),
        Just(b"Basic YTphZG1pbi1zZWNyZXQ=".to_vec()),
        Just(b"same-origin".to_vec()),
        Just(b"application/x-www-form-urlencoded".to_vec()),
    ];
    prop::collection::vec((name, value), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn any_request_is_answered(
        method in prop::sample::select(vec!["GET", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "BREW"]),
        path in path(),
        query in query(),
        headers in headers(),
        body in prop::collection::vec(any::<u8>(), 0..200),
        base in prop::sample::select(vec!["", "/mon"]),
    ) {
        let whole = if query.is_empty() { path } else { format!("{path}?{query}") };
        let Ok(uri) = whole.parse::<Uri>() else { return Ok(()) };
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method.parse::<Method>().unwrap();
        *request.uri_mut() = uri;
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                request.headers_mut().append(name, value);
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(async {
            let front = web_front::away();
            let mut settings = (*front.shared.in_force()).clone();
            settings.web.base_path = base.into();
            settings.web.admin_token = Some(Secret::new("admin-secret".into()));
            front.shared.put_in_force(settings);
            // Nobody carries out what is asked; asking must then be told at once.
            drop(front.commands);
            ask(&router(front.shared), request).await
        });
        let status = answer.status.as_u16();
        prop_assert!(status < 500 || status == 503, "{whole}: {status} {}", answer.text);
        prop_assert!(!answer.header("content-security-policy").is_empty());
        if status >= 400 && method != "HEAD" {
            prop_assert!(!answer.text.is_empty(), "{whole}: {status} without a word");
        }
    }
}

#[tokio::test]
async fn odd_forms_of_address_are_answered() {
    for (method, uri) in [
        ("OPTIONS", "*"),
        ("CONNECT", "e.x:80"),
        ("GET", "http://e.x/devices/meter-001"),
        ("GET", "http://e.x"),
    ] {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        let answer = ask(&router(web_front::site().shared), request).await;
        assert!(
            answer.status.as_u16() < 500,
            "{method} {uri}: {}",
            answer.status
        );
    }
}
