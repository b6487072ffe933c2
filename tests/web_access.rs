//! Who may read, who may change, and what a foreign page can make a browser do.

#![cfg(test)]

#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use sitebeat::board::command::{Command, RolledUp};
use sitebeat::config::settings::Secret;
use sitebeat::domain::heartbeat::Outcome;
use sitebeat::web::router;
use web_ask::{Answer, ask, asked, basic, get, post};
use web_front::{ADMIN, Front, VIEWER};

const PROBE: &str = "/api/v1/devices/meter-001/probe";
const ROLLUP: &str = "/api/v1/rollup?day=2026-03-11";
const FORM: &str = "/devices/meter-001/probe";

/// A router with these tokens, and somebody who carries out what is asked.
fn guarded(admin: Option<&str>, viewer: Option<&str>) -> Router {
    let front = web_front::site();
    let mut settings = (*front.shared.in_force()).clone();
    let secret = |token: Option<&str>| token.map(|token| Secret::new(token.into()));
    settings.web.admin_token = secret(admin);
    settings.web.viewer_token = secret(viewer);
    settings.web.trusted_proxies = vec![[10, 0, 0, 9].into()];
    front.shared.put_in_force(settings);
    carried_out(front)
}

fn carried_out(front: Front) -> Router {
    let mut commands = front.commands;
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Probe { answer, .. } => {
                    let outcome = Outcome::Replied { rtt_us: 3_270 };
                    answer.send(Some(outcome)).unwrap();
                }
                Command::Reload { answer } => answer.send(Ok(())).unwrap(),
                Command::Rollup { answer, .. } => answer.send(Ok(RolledUp::default())).unwrap(),
            }
        }
    });
    router(front.shared)
}

async fn status(router: &Router, request: Request<Body>) -> u16 {
    ask(router, request).await.status.as_u16()
}

#[tokio::test]
async fn without_an_admin_token_nobody_may_change_anything() {
    let paths = [
        PROBE,
        FORM,
        ROLLUP,
        "/api/v1/reload",
        "/api/v1/devices/nobody/probe",
    ];
    for (viewer, path) in [None, Some(VIEWER)]
        .iter()
        .flat_map(|viewer| paths.map(|path| (*viewer, path)))
    {
        let router = guarded(None, viewer);
        assert_eq!(status(&router, post(path, &[])).await, 403, "{path}");
        let bearer = [("authorization", "Bearer admin-secret")];
        assert_eq!(status(&router, post(path, &bearer)).await, 403, "{path}");
    }
}

#[tokio::test]
async fn changing_needs_the_admin_token_and_no_other() {
    let router = guarded(Some(ADMIN), Some(VIEWER));
    for wrong in [
        "Bearer viewer-secret",
        "Bearer admin-secre",
        "Bearer admin-secret2",
        "Bearer ",
        "Basic nonsense",
        "admin-secret",
    ] {
        let answer = ask(&router, post(PROBE, &[("authorization", wrong)])).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(
            answer
                .header("www-authenticate")
                .starts_with("Basic realm=")
        );
        assert!(!answer.text.contains("admin-secret"), "{}", answer.text);
    }
    assert_eq!(status(&router, post(PROBE, &[])).await, 401);
    for right in ["Bearer admin-secret", &basic(ADMIN)] {
        let answer = ask(&router, post(PROBE, &[("authorization", right)])).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(
            answer.text,
            r#"{"device_id":"meter-001","outcome":"replied","rtt_ms":3.27,"reason":null}"#
        );
    }
    let reload = post(
        "/api/v1/reload",
        &[("authorization", "Bearer admin-secret")],
    );
    assert_eq!(status(&router, reload).await, 200);
}

#[tokio::test]
async fn a_get_changes_nothing() {
    let router = guarded(Some(ADMIN), None);
    let bearer = [("authorization", "Bearer admin-secret")];
    for path in [PROBE, FORM, "/api/v1/reload", ROLLUP] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
            let answer = ask(&router, asked(method, path, &bearer)).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.header("allow"), "POST", "{path}");
        }
    }
}

#[tokio::test]
async fn a_viewer_token_closes_pages_and_api_but_not_the_health_checks() {
    let router = guarded(Some(ADMIN), Some(VIEWER));
    let closed = [
        "/",
        "/node",
        "/devices/meter-001",
        "/metrics",
        "/nowhere",
        "/api/v1/devices",
        "/api/v1/devices/meter-001",
        "/api/v1/devices/meter-001/heartbeats",
        "/api/v1/node",
        "/api/v1/openapi.json",
        "/api/v1/nowhere",
    ];
    for path in closed {
        let answer = ask(&router, get(path)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(
            answer
                .header("www-authenticate")
                .starts_with("Basic realm=")
        );
        assert!(
            !answer.text.contains("Harbour"),
            "{path} tells the site's name"
        );
    }
    for path in ["/healthz", "/readyz"] {
        let answer = ask(&router, get(path)).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (StatusCode::OK, "ok\n")
        );
    }
    let viewer = [basic(VIEWER), format!("Bearer {VIEWER}")];
    for token in viewer.iter().chain(&[basic(ADMIN)]) {
        for path in closed {
            let request = asked(Method::GET, path, &[("authorization", token)]);
            let answer = ask(&router, request).await;
            let is_there = !path.ends_with("nowhere");
            assert_eq!(answer.status.is_success(), is_there, "{path}");
        }
    }
}

#[tokio::test]
async fn a_foreign_page_cannot_make_a_browser_change_anything() {
    let router = guarded(Some(ADMIN), None);
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "http://gw.example:8081"),
        ("origin", "null"),
        ("referer", "http://evil.example/gw.example:8080"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
    ] {
        for token in [basic(ADMIN), format!("Bearer {ADMIN}")] {
            for path in [PROBE, FORM, "/api/v1/reload"] {
                let headers = [("authorization", token.as_str()), (name, value)];
                let answer = ask(&router, post(path, &headers)).await;
                assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}: {value}");
            }
        }
    }
}

/// Posts the form as a browser does, with this ticket.
async fn pressed(router: &Router, token: &str, origin: &str, ticket: &str) -> Answer {
    let request = Request::builder()
        .method(Method::POST)
        .uri(FORM)
        .header("host", "gw.example:8080")
        .header("origin", origin)
        .header("authorization", basic(token))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from(format!("csrf={ticket}")))
        .unwrap();
    ask(router, request).await
}

async fn ticket(router: &Router, token: &str) -> String {
    let path = "/devices/meter-001";
    let request = asked(Method::GET, path, &[("authorization", &basic(token))]);
    let page = ask(router, request).await.text;
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_form_works_with_its_own_ticket_only() {
    let router = guarded(Some(ADMIN), None);
    let own = ticket(&router, ADMIN).await;
    let answer = pressed(&router, ADMIN, "http://gw.example:8080", &own).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(
        answer.header("location"),
        "/devices/meter-001?asked=replied"
    );

    let other = ticket(&guarded(Some(ADMIN), None), ADMIN).await;
    assert_ne!(own, other, "another process makes other tickets");
    for bad in ["", "0", &other] {
        let answer = pressed(&router, ADMIN, "http://gw.example:8080", bad).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bad:?}");
    }
}

#[tokio::test]
async fn a_form_without_origin_still_needs_its_ticket() {
    let router = guarded(Some(ADMIN), None);
    let request = Request::builder()
        .method(Method::POST)
        .uri(PROBE)
        .header("authorization", basic(ADMIN))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("a=b"))
        .unwrap();
    assert_eq!(status(&router, request).await, 403);
}

#[tokio::test]
async fn the_form_is_shown_only_to_an_admin() {
    let nobody = ask(&guarded(None, None), get("/devices/meter-001"))
        .await
        .text;
    assert!(!nobody.contains("Probe now"));
    let router = guarded(Some(ADMIN), None);
    let stranger = ask(&router, get("/devices/meter-001")).await.text;
    assert!(stranger.contains("asks for the admin token first"));
    assert!(!stranger.contains("method=\"post\""));
    assert_eq!(
        status(&router, get("/devices/meter-001?admin=1")).await,
        401
    );
    let page = asked(
        Method::GET,
        "/devices/meter-001?admin=1",
        &[("authorization", &basic(ADMIN))],
    );
    let admin = ask(&router, page).await.text;
    assert!(admin.contains("method=\"post\" action=\"/devices/meter-001/probe\""));
}

#[tokio::test]
async fn a_forwarded_host_counts_only_from_a_trusted_proxy() {
    let router = guarded(Some(ADMIN), None);
    for (peer, expected) in [([10, 0, 0, 9], 200), ([10, 0, 0, 8], 403)] {
        let headers = [
            ("authorization", "Bearer admin-secret"),
            ("origin", "https://mon.example"),
            ("x-forwarded-host", "mon.example"),
        ];
        let mut request = post(PROBE, &headers);
        let peer = std::net::SocketAddr::from((peer, 1));
        request.extensions_mut().insert(ConnectInfo(peer));
        assert_eq!(status(&router, request).await, expected, "{peer}");
    }
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused() {
    let router = guarded(Some(ADMIN), None);
    let announced = asked(Method::POST, PROBE, &[("content-length", "999999999999")]);
    assert_eq!(status(&router, announced).await, 413);
    let sent = Request::builder()
        .method(Method::POST)
        .uri(PROBE)
        .header("authorization", "Bearer admin-secret")
        .body(Body::from(vec![b'a'; 20_000]))
        .unwrap();
    let answer = ask(&router, sent).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn a_wish_for_what_is_not_there_is_told() {
    let router = guarded(Some(ADMIN), None);
    for (path, expected) in [
        ("/api/v1/devices/nobody/probe", 404),
        ("/api/v1/devices/a%00b/probe", 404),
        ("/api/v1/devices/old-9/probe", 409),
    ] {
        let bearer = [("authorization", "Bearer admin-secret")];
        assert_eq!(
            status(&router, post(path, &bearer)).await,
            expected,
            "{path}"
        );
    }
}

#[tokio::test]
async fn busy_flows_and_refused_settings_are_told() {
    let front = web_front::site();
    let mut settings = (*front.shared.in_force()).clone();
    settings.web.admin_token = Some(Secret::new(ADMIN.into()));
    front.shared.put_in_force(settings);
    let mut commands = front.commands;
    tokio::spawn(async move {
        while let Some(Command::Reload { answer }) = commands.recv().await {
            answer.send(Err("probe.x is not known".into())).unwrap();
        }
    });
    let router = router(front.shared);
    let bearer = [("authorization", "Bearer admin-secret")];
    let answer = ask(&router, post("/api/v1/reload", &bearer)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.json()["detail"], "probe.x is not known");
    // The task above ends at the first probe, as flows do that stop.
    let answer = ask(&router, post(PROBE, &bearer)).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}
