//! The pages of days and events: what they say, in which order, of how much.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use sitebeat::board::Progress;
use sitebeat::domain::instant::Wall;
use sitebeat::domain::trust::Distrust;
use sitebeat::store::{EventPage, LoggedEvent, ReadError};
use sitebeat::web::{Shared, router};
use web_ask::{ask, get};
use web_front::web_days;

async fn page(router: &Router, path: &str) -> String {
    let answer = ask(router, get(path)).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    answer.text
}

fn site() -> Router {
    router(web_front::site().shared)
}

/// What a page has around its own matter is held by other tests.
fn matter(page: &str) -> &str {
    let from = page.find("<main").unwrap();
    let to = page.find("</main>").unwrap();
    page.get(from..to).unwrap()
}

/// The devices of a heat map, from the top.
fn listed(page: &str) -> Vec<&str> {
    let links = page
        .split("<th scope=\"row\"><a href=\"/history?device=")
        .skip(1);
    links.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn history_of_a_site() {
    insta::assert_snapshot!(matter(&page(&site(), "/history?days=7").await));
}

#[tokio::test]
async fn history_of_a_device() {
    insta::assert_snapshot!(matter(
        &page(&site(), "/history?device=pump-7&days=7").await
    ));
}

#[tokio::test]
async fn events_of_a_site() {
    insta::assert_snapshot!(matter(&page(&site(), "/events").await));
}

#[tokio::test]
async fn a_fresh_install_says_when_the_first_summary_will_be_there() {
    let front = web_front::empty();
    for path in ["/history", "/history?device_id=meter-001"] {
        let text = page(&router(Arc::clone(&front.shared)), path).await;
        assert!(text.contains(
            "The first summary will be there shortly after 2026-03-13 00:05:00 UTC, for 2026-03-12."
        ));
    }
    let events = page(&router(front.shared), "/events").await;
    assert!(events.contains("No events yet"));
}

#[tokio::test]
async fn before_the_clock_is_set_no_day_is_promised() {
    let front = web_front::empty();
    let boot = Wall::from_millis(60_000);
    *front.clock.0.lock().unwrap() = boot;
    front.shared.board.draw(|picture| {
        picture.gateway.clock.distrust = Some(Distrust::Implausible);
        picture.gateway.started_at = boot;
    });
    for path in ["/history", "/history?device=meter-001"] {
        let text = page(&router(Arc::clone(&front.shared)), path).await;
        let text = matter(&text);
        assert!(text.contains("is not known until the clock"), "{text}");
        assert!(!text.contains("will be there"), "{text}");
    }
}

#[tokio::test]
async fn the_worst_come_first_and_what_is_unknown_last() {
    let text = page(&site(), "/history").await;
    let listed = listed(&text);
    assert_eq!(listed.first(), Some(&"pump-7"), "{listed:?}");
    assert_eq!(listed.last(), Some(&"new-1"), "{listed:?}");
    // It has left the inventory, and has days; a disabled one has none.
    assert!(listed.contains(&"gone-4") && !listed.contains(&"old-9"));
    assert!(text.contains("<i>removed</i>"));
}

#[tokio::test]
async fn lists_follow_filter_and_part() {
    let site = site();
    for (query, expected) in [
        ("?q=METER-", vec!["meter-001", "meter-002"]),
        ("?q=gone", vec!["gone-4"]),
        ("?tag=meter&q=pump", vec!["pump-7"]),
        ("?tag=nobody", vec![]),
        ("?per_page=1&q=pump", vec!["pump-7"]),
        ("?days=7&q=gone", vec![]),
    ] {
        let text = page(&site, &format!("/history{query}")).await;
        let mut listed = listed(&text);
        listed.sort_unstable();
        assert_eq!(listed, expected, "{query}");
    }
    let part = page(&site, "/history?per_page=2&page=2&days=90&q=e").await;
    assert_eq!(listed(&part).len(), 2);
    assert!(part.contains("Devices 3 to 4 of 5"), "{part}");
    for link in [
        "&#38;days=90\" rel=\"prev\"",
        "page=3&#38;days=90\" rel=\"next\"",
    ] {
        assert!(part.contains(link), "{link}: {part}");
    }
    let beyond = page(&site, "/history?page=99").await;
    assert!(beyond.contains("There is no such page"));
    let nothing = page(&site, "/history?tag=nobody").await;
    assert!(nothing.contains("Nothing to show") && nothing.contains("Clear filters"));
}

#[tokio::test]
async fn what_is_not_allowed_is_named_with_what_is() {
    for (path, named) in [
        ("/history?days=8", "7, 30 and 90"),
        ("/history?days=-7", "7, 30 and 90"),
        ("/history?per_page=201", "1..200"),
        ("/history?page=0", "from 1"),
        ("/history?device=a%20b", "1 to 21 letters"),
        ("/history?device_id=a%20b", "1 to 21 letters"),
        ("/events?device_id=a%2Fb", "1 to 21 letters"),
        ("/events?before=0", "from 1"),
        ("/events?before=now", "from 1"),
        (
            "/events?kind=alarm",
            "status, failed, daily, clock and removed",
        ),
    ] {
        let answer = ask(&site(), get(path)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert!(answer.text.contains(named), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn every_cell_has_its_value_in_words_and_no_page_is_too_large() {
    let router = router(web_front::many(1_000).shared);
    for (path, days) in [
        ("/history", 30),
        ("/history?days=90", 90),
        ("/history?days=7", 7),
    ] {
        let text = page(&router, path).await;
        assert!(text.len() < 500_000, "{path}: {} bytes", text.len());
        let body = text.split("<tbody>").nth(1).unwrap();
        let body = body.split("</tbody>").next().unwrap();
        let cells: Vec<&str> = body.split("<td").skip(1).collect();
        assert_eq!(cells.len(), 101 * (days + 1), "{path}");
        for cell in cells {
            let value = cell
                .split('>')
                .nth(1)
                .unwrap()
                .split('<')
                .next()
                .unwrap()
                .trim();
            let is_value = value == "\u{2013}" || value == "&#60;1" || value.parse::<f64>().is_ok();
            assert!(is_value, "{path}: {value:?}");
        }
        assert!(
            text.contains(" p\" title=\"coverage "),
            "what is not covered is marked"
        );
        assert!(!text.contains("style="));
    }
    let largest = page(&router, "/history?days=90&per_page=200").await;
    assert!(largest.len() < 500_000, "{} bytes", largest.len());
}

#[tokio::test]
async fn the_progress_of_summaries_and_their_trouble_is_told() {
    let front = web_front::site();
    let router = router(Arc::clone(&front.shared));
    let day = |text: &str| text.parse().unwrap();
    front.shared.board.draw(|picture| {
        let rollup = &mut picture.gateway.rollup;
        rollup.last_final = Some(day("2026-03-08"));
        rollup.waiting_days = vec![day("2026-03-09"), day("2026-03-10")];
        rollup.failing = Some("rollup of 2026-03-09 failed: disk full; next try 14:05:00Z".into());
    });
    let text = page(&router, "/history").await;
    for said in [
        "Final up to 2026-03-08.",
        "2 days wait to be summarised:</b> 2026-03-09, 2026-03-10.",
        "rollup of 2026-03-09 failed: disk full; next try 14:05:00Z.",
    ] {
        assert!(text.contains(said), "{said}");
    }
    front.shared.board.draw(|picture| {
        picture.gateway.rollup.running = Some(Progress {
            day: day("2026-03-10"),
            done: 1,
            of: 5,
        });
    });
    for path in ["/history", "/history?device=pump-7"] {
        let text = page(&router, path).await;
        assert!(
            text.contains("Summarising 2026-03-10,</b> day 2 of 5."),
            "{path}"
        );
    }
}

#[tokio::test]
async fn events_are_filtered_and_lead_to_older_ones() {
    let front = web_front::site();
    let mut shared = Arc::into_inner(front.shared).unwrap();
    shared.events = Arc::new(|device, before, limit| {
        assert_eq!(device, None);
        let log = web_days::log_of(None, None, 1);
        let newest = before.map_or(120, |before| before - 1);
        let seqs = (1..=newest).rev().take(limit);
        let at = |seq| LoggedEvent {
            seq,
            ..log[0].clone()
        };
        Ok(EventPage {
            events: seqs.map(at).collect(),
            older: None,
        })
    });
    let many = router(Arc::new(shared));
    let first = page(&many, "/events").await;
    assert_eq!(first.matches("<tr>").count(), 51, "50 and the heading");
    assert!(first.contains("/events?before=71\" rel=\"next\"") && !first.contains("Newest"));
    let last = page(&many, "/events?before=21").await;
    assert_eq!(last.matches("<tr>").count(), 21);
    assert!(!last.contains("Older") && last.contains("Newest"));
    assert!(
        page(&many, "/events?before=1")
            .await
            .contains("There are no older events")
    );
    let one = page(&site(), "/events?device_id=pump-7").await;
    assert!(one.contains("HEARTBEAT_PING_TIMEOUT") && !one.contains("meter-00"));
    let none = page(&site(), "/events?device_id=nobody").await;
    assert!(none.contains("No events of nobody"));
}

#[tokio::test]
async fn a_look_that_ended_before_the_log_says_where_it_goes_on() {
    let front = web_front::site();
    let mut shared = Arc::into_inner(front.shared).unwrap();
    shared.events = Arc::new(|device, before, limit| {
        let mut events = web_days::log_of(device, before, limit);
        events.truncate(usize::from(before.is_none()));
        let older = before.map_or(Some(7_001), |_| None);
        Ok(EventPage { events, older })
    });
    let long = router(Arc::new(shared));
    let link = "/events?device_id=pump-7&#38;before=7001\" rel=\"next\"";
    let first = page(&long, "/events?device_id=pump-7").await;
    assert!(first.contains("The look ended after 100") && first.contains(link));
    let last = page(&long, "/events?device_id=pump-7&before=7001").await;
    assert!(last.contains("There are no older events") && !last.contains("rel=\"next\""));
    let told = ask(&long, get("/api/v1/events?device_id=pump-7")).await;
    assert_eq!(told.json()["older"], 7_001);
    let whole = ask(&long, get("/api/v1/events?device_id=pump-7&limit=1")).await;
    assert!(whole.json().get("older").is_none());
}

/// The events that a page lists, as they are called upstream.
fn told(page: &str) -> Vec<&str> {
    let names = page.split("<i>heartbeat.").skip(1);
    names.map(|rest| rest.split('<').next().unwrap()).collect()
}

#[tokio::test]
async fn events_are_chosen_by_their_kind() {
    let site = site();
    for (kind, names) in [
        ("status", vec!["status.changed.v1"; 4]),
        ("failed", vec!["failed.v1"; 2]),
        ("clock", vec!["clock.stepped.v1"]),
        ("removed", vec!["device.removed.v1"]),
        (
            "daily",
            vec![
                "site.summarised.v1",
                "daily.summarised.v1",
                "daily.summarised.v1",
                "daily.summarised.v1",
            ],
        ),
    ] {
        let path = format!("events?kind={kind}");
        let text = page(&site, &format!("/{path}")).await;
        assert_eq!(told(&text), names, "{kind}");
        assert!(text.contains(&format!("<option value=\"{kind}\" selected>")));
        let list = ask(&site, get(&format!("/api/v1/{path}"))).await.json();
        let of = |event: &serde_json::Value| event["event"].as_str().unwrap().to_owned();
        let events: Vec<String> = list["events"].as_array().unwrap().iter().map(of).collect();
        let full: Vec<String> = names
            .iter()
            .map(|name| format!("heartbeat.{name}"))
            .collect();
        assert_eq!(events, full, "{kind}");
        assert!(list.get("older").is_none(), "{kind}");
    }
    let one = page(&site, "/events?kind=status&device_id=pump-7").await;
    assert_eq!(told(&one), ["status.changed.v1"]);
    assert_eq!(told(&page(&site, "/events?kind=").await).len(), 13);
    let none = page(&site, "/events?kind=clock&device_id=pump-7").await;
    assert!(none.contains("No steps of the clock of pump-7"), "{none}");
}

#[tokio::test]
async fn a_kind_is_looked_for_in_a_hundred_thousand_events_and_the_link_leads_on() {
    let front = web_front::site();
    let mut shared = Arc::into_inner(front.shared).unwrap();
    let looked_at = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looked_at);
    // Every thousandth tells of the clock, the others of failures.
    shared.events = Arc::new(move |device, before, limit| {
        assert_eq!(device, None);
        let newest = before.map_or(250_000, |before| before - 1);
        let events: Vec<LoggedEvent> = (1..=newest)
            .rev()
            .take(limit)
            .map(|seq| LoggedEvent {
                seq,
                json: if seq % 1_000 == 0 {
                    format!("{{\"event\":\"heartbeat.clock.stepped.v1\",\"seq\":{seq}}}")
                } else {
                    "{\"event\":\"heartbeat.failed.v1\"}".into()
                },
            })
            .collect();
        counted.fetch_add(events.len() as u64, Ordering::Relaxed);
        let older = events.last().map(|event| event.seq).filter(|&seq| seq > 1);
        Ok(EventPage { events, older })
    });
    let log = router(Arc::new(shared));
    let seqs = |value: &serde_json::Value| -> Vec<u64> {
        let events = value["events"].as_array().unwrap();
        events
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect()
    };
    let mut before = String::new();
    let mut found = Vec::new();
    for expected in [100_000, 200_000, 250_000] {
        let path = format!("/api/v1/events?kind=clock&limit=500{before}");
        let part = ask(&log, get(&path)).await.json();
        assert_eq!(looked_at.load(Ordering::Relaxed), expected);
        found.extend(seqs(&part));
        before = part["older"]
            .as_u64()
            .map_or_else(String::new, |older| format!("&before={older}"));
    }
    assert_eq!(before, "");
    let all: Vec<u64> = (1..=250).rev().map(|n| n * 1_000).collect();
    assert_eq!(found, all, "none twice and none left out");
    // A full page is enough, and goes on below its own last.
    let full = ask(&log, get("/api/v1/events?kind=clock&limit=3"))
        .await
        .json();
    assert_eq!(seqs(&full), [250_000, 249_000, 248_000]);
    assert!(full.get("older").is_none());
    let rare = page(&log, "/events?kind=removed").await;
    assert!(
        rare.contains("No removed devices in this part of the log"),
        "{rare}"
    );
    assert!(rare.contains("/events?kind=removed&#38;before=150001\" rel=\"next\""));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_told_and_the_rest_is_shown() {
    fn broken() -> ReadError {
        ReadError {
            deed: "read data/db".into(),
            source: Box::new(std::io::Error::other("input/output error")),
            in_memory: Vec::new(),
        }
    }
    let front = web_front::site();
    let shared = Arc::into_inner(front.shared).unwrap();
    let router = router(Arc::new(Shared {
        summaries: Arc::new(|_, _, _, _| Err(broken())),
        events: Arc::new(|_, _, _| Err(broken())),
        ..shared
    }));
    for path in [
        "/history",
        "/history?device=pump-7",
        "/events",
        "/devices/pump-7",
    ] {
        let text = page(&router, path).await;
        assert!(
            text.contains("cannot be read now: input/output error"),
            "{path}"
        );
        assert!(!text.contains("data/db"), "where files lie");
    }
    for path in [
        "/api/v1/daily",
        "/api/v1/daily?format=csv",
        "/api/v1/events",
    ] {
        let answer = ask(&router, get(path)).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
}
