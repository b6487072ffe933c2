//! The way upstream as pages, API and metrics show it, and what a month of it costs.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sitebeat::board::UplinkState;
use sitebeat::domain::status::Status;
use sitebeat::web::router;
use sitebeat::wire::message::node_heartbeat;
use web_ask::{ask, get};
use web_front::Front;

async fn text_at(front: &Front, path: &str) -> String {
    let answer = ask(&router(Arc::clone(&front.shared)), get(path)).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.text
}

async fn node(front: &Front) -> Value {
    serde_json::from_str(&text_at(front, "/api/v1/node").await).unwrap()
}

/// The cards of the page with these headings, as lines of text.
fn card(page: &str, heading: &str) -> String {
    let cards = page.split("<section class=\"card\">");
    let found = cards
        .filter(|card| card.contains(&format!("<h2>{heading}")))
        .map(|card| card.split("</section>").next().unwrap());
    let mut text = String::new();
    let mut is_tag = false;
    for c in found.flat_map(str::chars) {
        match c {
            '<' => is_tag = true,
            '>' => {
                is_tag = false;
                text.push('|');
            }
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    let parts = text.split(['|', '\n']).map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

#[tokio::test]
async fn the_api_tells_how_the_uplink_stands() {
    let away = node(&web_front::away()).await;
    assert_eq!(
        away["uplink"],
        json!({
            "state": "waiting",
            "since": "2026-03-12T11:59:11.000Z",
            "reason": "connection refused at 198.51.100.7:8883",
            "broker": "mqtts://broker.example.org:8883",
            "next_try_at": "2026-03-12T14:02:53.000Z",
            "backlog": {
                "events": 1_290, "bytes": 658_500, "oldest_at": "2026-03-12T12:01:11.000Z",
                "by_class": {
                    "failed": {"events": 1_200, "bytes": 610_000},
                    "status": {"events": 84, "bytes": 43_100},
                    "alarm": {"events": 0, "bytes": 0},
                    "daily": {"events": 6, "bytes": 5_400},
                },
            },
            "autonomy_s": 1_054_800, "cursor": 4_242, "sent_events": 321, "sent_metrics": 7_200,
            "passed_over": 7, "dead_letters": 1, "connections": 3,
            "today": {"day": "2026-03-12", "up_bytes": 1_234_567, "down_bytes": 45_678},
            "replaying_from": "2026-03-12T11:59:11.000Z",
        })
    );
    assert_eq!(
        away["outbox"],
        json!({"events": 1_290, "bytes": 658_500, "oldest_at": "2026-03-12T12:01:11.000Z"})
    );
}

#[tokio::test]
async fn the_node_says_to_the_api_what_it_says_upstream() {
    for front in [web_front::away(), web_front::site(), web_front::empty()] {
        let ttl = front.shared.in_force().node.heartbeat_ttl;
        let upstream = front.shared.board.look().node_heartbeat(ttl);
        let upstream = node_heartbeat(&upstream);
        let answer = text_at(&front, "/api/v1/node").await;
        let common = upstream.strip_suffix('}').unwrap();
        assert!(
            answer.starts_with(&format!("{common},")),
            "{upstream}\n{answer}"
        );
    }
}

#[tokio::test]
async fn page_of_an_uplink_that_is_away() {
    let page = text_at(&web_front::away(), "/node").await;
    insta::assert_snapshot!(card(&page, "Uplink"));
}

#[tokio::test]
async fn page_of_an_uplink_that_is_there() {
    let front = web_front::linked();
    let page = text_at(&front, "/node").await;
    insta::assert_snapshot!(card(&page, "Uplink"));
    assert!(!page.contains("The uplink is away"));
    let off = text_at(&web_front::site(), "/node").await;
    assert!(card(&off, "Uplink").contains("uplink.url is not set"));
}

#[tokio::test]
async fn every_page_says_in_one_line_that_the_uplink_is_away() {
    let front = web_front::away();
    let said = "<b>The uplink is away since 2026-03-12 11:59:11 UTC:</b> connection refused at \
                198.51.100.7:8883; 1\u{202f}290 events (658.5 kB) wait.</div>";
    for path in ["/", "/node", "/history", "/events", "/devices/pump-7"] {
        assert!(text_at(&front, path).await.contains(said), "{path}");
    }
    front.shared.board.draw(|picture| {
        picture.gateway.uplink.state = UplinkState::Off;
    });
    assert!(!text_at(&front, "/").await.contains("uplink"));
}

/// Devices under three sets of rules, one of them of both address families.
fn mixed() -> Front {
    let front = web_front::linked();
    front.shared.board.draw(|picture| {
        picture.devices = sitebeat::board::Devices::default();
        for n in 0..30_u8 {
            let id = format!("m-{n}");
            let mut row = web_front::row(&id, &id, Status::Online, 1_000);
            let device = Arc::make_mut(&mut row.device);
            let rules = Arc::make_mut(&mut row.rules);
            match n {
                0..20 => {}
                20..24 => device.address = "2001:db8::1".parse().unwrap(),
                24..29 => {
                    device.profile = Some("slow-modem".into());
                    rules.heartbeat_period = Duration::from_secs(90);
                    rules.wake_echo = true;
                }
                _ => device.enabled = false,
            }
            picture.devices.put(row);
        }
    });
    front
}

#[tokio::test]
async fn budget_of_a_site_by_its_rules_and_its_uplink() {
    let front = mixed();
    let page = text_at(&front, "/node").await;
    insta::assert_snapshot!(card(&page, "Data budget"));
}

#[tokio::test]
async fn what_was_not_measured_for_an_hour_is_not_extrapolated() {
    let front = mixed();
    front.shared.board.draw(|picture| {
        picture.gateway.pulse.uptime_s = 3_599;
    });
    let told = card(&text_at(&front, "/node").await, "Data budget");
    assert!(told.contains("The uplink is measured for 59 min"), "{told}");
    assert!(told.contains("Uplink\n\u{2013}"), "{told}");
    assert!(told.contains("without the uplink"), "{told}");
    front.shared.board.draw(|picture| {
        picture.gateway.uplink.state = UplinkState::Off;
    });
    let told = card(&text_at(&front, "/node").await, "Data budget");
    assert!(!told.to_lowercase().contains("uplink"), "{told}");
}

#[tokio::test]
async fn many_profiles_do_not_fill_the_page() {
    let front = web_front::linked();
    front.shared.board.draw(|picture| {
        for n in 0..40_u8 {
            let id = format!("m-{n}");
            let mut row = web_front::row(&id, &id, Status::Online, 1_000);
            Arc::make_mut(&mut row.device).profile = Some(format!("profile-{n}"));
            picture.devices.put(row);
        }
    });
    let told = card(&text_at(&front, "/node").await, "Data budget");
    assert_eq!(told.matches("every 1 min").count(), 12, "{told}");
    assert!(told.contains("30 more"), "{told}");
}

#[tokio::test]
async fn metrics_of_the_uplink_are_there_where_it_is_configured() {
    let series = |text: &str| -> String {
        let is_ours = |line: &&str| line.contains("sitebeat_uplink_") || line.contains("_outbox_");
        text.lines().filter(is_ours).collect::<Vec<_>>().join("\n")
    };
    let away = text_at(&web_front::away(), "/metrics").await;
    insta::assert_snapshot!(series(&away));
    let linked = series(&text_at(&web_front::linked(), "/metrics").await);
    assert!(linked.contains("sitebeat_uplink_connected 1"), "{linked}");
    // What is not known is no zero.
    for absent in ["oldest_age", "autonomy"] {
        assert!(!linked.contains(absent), "{linked}");
    }
    assert_eq!(series(&text_at(&web_front::site(), "/metrics").await), "");
}
