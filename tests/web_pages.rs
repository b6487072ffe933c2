//! The pages: what they say, what they escape, where they lead.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode};
use sitebeat::board::{Failing, UplinkState};
use sitebeat::config::settings::Secret;
use sitebeat::web::router;
use web_ask::{ask, asked, basic, get};
use web_front::{ADMIN, Front, HOSTILE};

async fn page(router: &Router, path: &str) -> String {
    let answer = ask(router, get(path)).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    answer.text
}

/// The page less the marks that change with every edit of the assets.
fn golden(page: &str) -> String {
    let mut parts = page.split("?v=");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        text.push_str("?v=MARK");
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    text
}

#[tokio::test]
async fn overview_of_a_site() {
    let router = router(web_front::site().shared);
    insta::assert_snapshot!(golden(&page(&router, "/").await));
}

#[tokio::test]
async fn overview_of_a_site_without_devices() {
    let router = router(web_front::empty().shared);
    insta::assert_snapshot!(golden(&page(&router, "/").await));
}

#[tokio::test]
async fn overview_where_nothing_matches() {
    let router = router(web_front::site().shared);
    let text = page(&router, "/?q=nowhere&status=online").await;
    assert!(text.contains("No device matches") && text.contains("Clear filters"));
    assert!(text.contains("value=\"nowhere\""));
    let text = page(&router, "/?page=99").await;
    assert!(text.contains("There is no such page"));
}

#[tokio::test]
async fn overview_of_a_long_list() {
    let router = router(web_front::many(250).shared);
    let text = page(&router, "/?per_page=250").await;
    insta::assert_snapshot!(golden(
        &text.lines().take(70).collect::<Vec<_>>().join("\n")
    ));
}

#[tokio::test]
async fn page_of_a_device() {
    let router = router(web_front::site().shared);
    let text = page(&router, "/devices/meter-002").await;
    assert!(text.len() < 60_000, "{} bytes", text.len());
    insta::assert_snapshot!(golden(&text));
}

#[tokio::test]
async fn page_of_the_node() {
    let router = router(web_front::site().shared);
    insta::assert_snapshot!(golden(&page(&router, "/node").await));
}

#[tokio::test]
async fn page_of_an_error() {
    let router = router(web_front::site().shared);
    let answer = ask(&router, get("/devices/nobody")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    insta::assert_snapshot!(golden(&answer.text));
}

#[tokio::test]
async fn banners_say_what_is_wrong() {
    let front = troubled();
    let text = page(&router(front.shared), "/").await;
    for said in [
        "A simulated fleet.",
        "Nothing can be kept since 2026-03-12 13:57:11 UTC:",
        "disk full",
        "The newest configuration was refused; that of 2026-03-11 13:01:10 UTC is in force:",
        "probe.x is not known",
        "25 inventory rows were refused.",
        "and 5 more",
        "mended.db was moved aside",
        "Anyone here can read this page.",
        "two devices on 10.0.0.1",
    ] {
        assert!(text.contains(said), "{said}");
    }
}

fn troubled() -> Front {
    let front = web_front::site();
    front.shared.board.draw(|picture| {
        let gateway = &mut picture.gateway;
        gateway.simulated = Some("A simulated fleet.".into());
        gateway.store.failing = Some(Failing {
            since: web_front::ago(300),
            reason: "disk full".into(),
        });
        gateway.config.last_error = Some("probe.x is not known".into());
        gateway.config.refused_rows = (0..25).map(|n| format!("line {n}")).collect();
        gateway.config.warnings = vec!["two devices on 10.0.0.1".into()];
        gateway.store.mended = vec!["mended.db was moved aside".into()];
    });
    let mut settings = (*front.shared.in_force()).clone();
    settings.web.listen = ([0, 0, 0, 0], 8080).into();
    front.shared.put_in_force(settings);
    front
}

/// Everything that others may say is hostile.
fn hostile() -> Front {
    let front = troubled();
    front.shared.board.draw(|picture| {
        let gateway = &mut picture.gateway;
        for text in [
            &mut gateway.site,
            &mut gateway.site_name,
            &mut gateway.region,
            &mut gateway.node,
        ] {
            *text = HOSTILE.into();
        }
        gateway.simulated = Some(HOSTILE.into());
        gateway.config.last_error = Some(HOSTILE.into());
        gateway.config.refused_rows = vec![HOSTILE.into(), HOSTILE.into()];
        gateway.config.warnings = vec![HOSTILE.into()];
        gateway.config.paths = vec![HOSTILE.into()];
        gateway.config.inventory = Some(HOSTILE.into());
        gateway.store.mended = vec![HOSTILE.into()];
        gateway.store.failing = Some(Failing {
            since: web_front::ago(3),
            reason: HOSTILE.into(),
        });
        gateway.probe.facts.limits = vec![HOSTILE.into()];
        gateway.rollup.failing = Some(HOSTILE.into());
        gateway.uplink.state = UplinkState::Waiting;
        gateway.uplink.reason = Some(HOSTILE.into());
        gateway.uplink.broker = Some(HOSTILE.into());
        for row in picture.devices.values_mut() {
            let device = Arc::make_mut(&mut row.device);
            device.name = HOSTILE.into();
            device.tags = vec![HOSTILE.into()];
            device.profile = Some(HOSTILE.into());
            row.recent = VecDeque::new();
        }
    });
    front
}

#[tokio::test]
async fn nothing_said_by_others_runs_as_a_script() {
    let router = router(hostile().shared);
    let coded =
        "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%22onmouseover%3D%22x%3C/script%3E%3Cscript%3E";
    for path in [
        "/".to_owned(),
        format!("/?q={coded}"),
        format!("/?tag={coded}"),
        format!("/?status={coded}"),
        format!("/?sort={coded}"),
        "/devices/meter-001".to_owned(),
        format!("/devices/{}", coded.replace('/', "%2F")),
        format!("/devices/meter-001?day={coded}"),
        format!("/devices/meter-001?asked={coded}"),
        "/node".to_owned(),
        "/history".to_owned(),
        format!("/history?q={coded}"),
        format!("/history?tag={coded}"),
        format!("/history?days={coded}"),
        format!("/history?device={coded}"),
        "/history?device=meter-001".to_owned(),
        "/events".to_owned(),
        "/events?device_id=valve-3".to_owned(),
        format!("/events?device_id={coded}"),
        format!("/events?before={coded}"),
        format!("/events?kind={coded}"),
        format!("/{coded}"),
    ] {
        let text = ask(&router, get(&path)).await.text;
        for bad in ["<img", "\"onmouseover", "</script><", "<script>"] {
            assert!(!text.contains(bad), "{path} holds {bad}:\n{text}");
        }
        assert!(!text.contains("style="), "{path} has an inline style");
    }
}

#[tokio::test]
async fn security_headers_are_on_every_answer() {
    let router = router(web_front::site().shared);
    for path in [
        "/",
        "/nowhere",
        "/api/v1/devices",
        "/api/nowhere",
        "/healthz",
        "/static/live.js",
    ] {
        let answer = ask(&router, get(path)).await;
        assert_eq!(
            answer.header("content-security-policy"),
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
             connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "same-origin");
        let is_asset = path.starts_with("/static/");
        assert_eq!(
            answer.header("cache-control") == "no-store",
            !is_asset,
            "{path}"
        );
    }
}

/// Every address in the page.
fn links(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in [" href=\"", " src=\"", " action=\""] {
        for part in text.split(name).skip(1) {
            let link = part.split('"').next().unwrap();
            found.insert(link.replace("&#38;", "&").replace("&amp;", "&"));
        }
    }
    found.remove("#main");
    found
}

#[tokio::test]
async fn below_a_prefix_every_link_leads_on_whether_it_is_stripped_or_kept() {
    let front = web_front::site();
    let mut settings = (*front.shared.in_force()).clone();
    settings.web.base_path = "/mon".into();
    settings.web.admin_token = Some(Secret::new(ADMIN.into()));
    front.shared.put_in_force(settings);
    // Nobody carries out what the form asks, and it is told so at once.
    drop(front.commands);
    let router = router(front.shared);
    for keeps in [true, false] {
        let mut open = vec!["/mon/".to_owned(), "/mon".to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(link) = open.pop() {
            if seen.len() > 400 || !seen.insert(link.clone()) {
                continue;
            }
            assert!(link == "/mon" || link.starts_with("/mon/"), "{link}");
            let stripped = link.strip_prefix("/mon").unwrap();
            let path = match (keeps, stripped) {
                (true, _) => link.as_str(),
                (false, "") => "/",
                (false, stripped) => stripped,
            };
            let method = if path.ends_with("/probe") {
                Method::POST
            } else {
                Method::GET
            };
            let token = basic(ADMIN);
            let answer = ask(&router, asked(method, path, &[("authorization", &token)])).await;
            let is_form = path.ends_with("/probe");
            assert!(
                answer.status.is_success() || is_form,
                "{path}: {}",
                answer.status
            );
            assert_ne!(answer.status, StatusCode::NOT_FOUND, "{path}");
            if answer.header("content-type").starts_with("text/html") {
                open.extend(links(&answer.text));
            }
        }
        assert!(seen.len() > 40, "only {} links", seen.len());
    }
}

#[tokio::test]
async fn no_address_leads_elsewhere() {
    let router = router(web_front::site().shared);
    for path in [
        "//e.x",
        "//e.x/..",
        "/%5Ce.x",
        "/%2F%2Fe.x",
        "/devices/",
        "/node/",
        "/%09/e.x",
        "/%0d%0aLocation:%20http://e.x",
        "/?next=//e.x",
        "/devices/meter-001?asked=%0d%0aX:%20y",
    ] {
        let answer = ask(&router, get(path)).await;
        assert!(!answer.status.is_redirection(), "{path}");
        assert_eq!(answer.header("location"), "", "{path}");
    }
}

#[tokio::test]
async fn head_is_a_get_without_its_body() {
    let router = router(web_front::site().shared);
    for path in [
        "/",
        "/node",
        "/devices/meter-001",
        "/api/v1/devices",
        "/healthz",
        "/nowhere",
    ] {
        let full = ask(&router, get(path)).await;
        let head = ask(&router, asked(Method::HEAD, path, &[])).await;
        assert_eq!(head.status, full.status, "{path}");
        assert_eq!(head.text, "");
        assert_eq!(
            head.header("content-length"),
            full.text.len().to_string(),
            "{path}"
        );
        assert_eq!(head.header("content-type"), full.header("content-type"));
    }
}

#[tokio::test]
async fn assets_are_kept_for_good_under_the_name_of_their_content() {
    let router = router(web_front::site().shared);
    let text = page(&router, "/").await;
    let assets: Vec<String> = links(&text)
        .into_iter()
        .filter(|link| link.starts_with("/static/"))
        .collect();
    assert_eq!(assets.len(), 3);
    for asset in &assets {
        let answer = ask(&router, get(asset)).await;
        assert_eq!(
            answer.header("cache-control"),
            "public, max-age=31536000, immutable"
        );
        let tag = answer.header("etag").to_owned();
        let plain = asset.split('?').next().unwrap();
        let again = ask(&router, get(plain)).await;
        assert_eq!(again.header("cache-control"), "no-cache");
        let known = asked(Method::GET, plain, &[("if-none-match", &tag)]);
        let known = ask(&router, known).await;
        assert_eq!(known.status, StatusCode::NOT_MODIFIED);
        assert_eq!(known.text, "");
    }
    let answer = ask(&router, get("/static/..%2F..%2FCargo.toml")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_time_carries_its_zone() {
    let router = router(web_front::site().shared);
    for path in [
        "/",
        "/node",
        "/devices/meter-002",
        "/?per_page=1000",
        "/history",
        "/history?device=pump-7",
        "/events?device_id=pump-7",
    ] {
        let text = page(&router, path).await;
        for (at, _) in text.match_indices(':') {
            // hh:mm:ss
            let before = text.get(at - 2..at).unwrap_or("");
            let after = text.get(at + 1..at + 7).unwrap_or("");
            let is_clock = before.bytes().all(|b| b.is_ascii_digit())
                && after.get(2..3) == Some(":")
                && !before.is_empty();
            if is_clock {
                let zone = text.get(at + 6..).unwrap_or("");
                let has_zone = zone.starts_with('Z') || zone.starts_with(" UTC");
                assert!(has_zone, "{path}: {before}:{after}");
            }
        }
        assert!(text.contains("As of 2026-03-12 14:02:11 UTC; newest heartbeat 20 s ago."));
    }
}

#[tokio::test]
async fn days_lead_back_and_forth_but_not_past_today() {
    let router = router(web_front::site().shared);
    let today = page(&router, "/devices/meter-001").await;
    assert!(today.contains("?day=2026-03-11\" rel=\"prev\""));
    assert!(!today.contains("rel=\"next\""));
    let before = page(&router, "/devices/meter-001?day=2026-03-11").await;
    assert!(before.contains("?day=2026-03-12\" rel=\"next\""));
    let after = page(&router, "/devices/meter-001?day=2026-03-14").await;
    assert!(after.contains("No heartbeats of this day."));
    let answer = ask(&router, get("/devices/meter-001?day=12.03.2026")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
}

#[tokio::test]
async fn a_thousand_rows_stay_below_200_kilobytes() {
    let router = router(web_front::many(1_000).shared);
    let text = page(&router, "/?per_page=1000").await;
    assert!(text.len() < 200_000, "{} bytes", text.len());
    assert_eq!(text.matches("<tr").count(), 1_001);
}

#[tokio::test]
async fn only_a_full_bar_without_a_fault_is_left_to_the_style_sheet() {
    let front = web_front::many(201);
    front.shared.board.draw(|picture| {
        // As after a restart: statuses are known, heartbeats not yet.
        for row in picture.devices.values_mut() {
            row.recent.clear();
        }
    });
    for path in ["/?per_page=201", "/"] {
        let text = page(&router(Arc::clone(&front.shared)), path).await;
        let rows = text.matches("<tr").count() - 1;
        assert_eq!(text.matches("</svg>").count(), rows, "{path}");
    }
    let healthy = page(&router(web_front::many(201).shared), "/?per_page=201").await;
    assert!(healthy.matches("</svg>").count() < 50);
}
