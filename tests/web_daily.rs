//! Daily rows, events and the rollup by hand, as programs see them.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/store_kit.rs"]
mod store_kit;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::to_bytes;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sitebeat::board::command::{Command, NotRolledUp, RolledUp};
use sitebeat::config::settings::Secret;
use sitebeat::domain::day::Day;
use sitebeat::domain::status::Status;
use sitebeat::store::ReadError;
use sitebeat::web::{Shared, events_of, router};
use tower::ServiceExt as _;
use web_ask::{Answer, ask, asked, get, post};
use web_front::{ADMIN, web_days};

fn site() -> Router {
    router(web_front::site().shared)
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

async fn rows_at(router: &Router, query: &str) -> Vec<Value> {
    let answer = ask(router, get(&format!("/api/v1/daily{query}"))).await;
    assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()["rows"].as_array().unwrap().clone()
}

#[tokio::test]
async fn rows_are_the_seven_days_to_yesterday_unless_asked_otherwise() {
    let site = site();
    let rows = rows_at(&site, "").await;
    let of = |row: &Value| (row["day"].to_string(), row["device_id"].to_string());
    assert!(rows.is_sorted_by_key(of), "by day and device");
    assert_eq!(rows.first().unwrap()["day"], "2026-03-05");
    assert_eq!(rows.last().unwrap()["day"], "2026-03-11");
    assert_eq!(rows, rows_at(&site, "?from=2026-03-05&to=2026-03-11").await);
    assert_eq!(
        rows,
        rows_at(&site, "?to=2026-03-11&device_id=&format=").await
    );
    assert_eq!(rows, rows_at(&site, "?from=2026-03-05&format=json").await);
    assert_eq!(
        rows_at(&site, "?from=2026-03-12").await,
        Vec::<Value>::new()
    );
    assert_eq!(
        rows_at(&site, "?device_id=nobody").await,
        Vec::<Value>::new()
    );
    let gone = rows_at(&site, "?to=2026-02-20&device_id=gone-4").await;
    assert!(!gone.is_empty(), "what left the inventory keeps its rows");
}

#[tokio::test]
async fn a_row_has_the_fields_of_the_contract() {
    let rows = rows_at(&site(), "?from=2026-03-08&to=2026-03-08&device_id=pump-7").await;
    assert_eq!(
        rows,
        [json!({
            "day": "2026-03-08", "device_id": "pump-7",
            "online_ratio": 0.8, "degraded_ratio": 0.0, "offline_ratio": 0.2,
            "avg_rtt_ms": 317.911, "p95_rtt_ms": 607.911, "max_missed_count": 58,
            "calc_version": 1,
            "created_at": "2026-03-09T00:05:00.000Z", "updated_at": "2026-03-09T00:15:00.000Z",
            "expected": 1440, "probed": 1440, "replied": 1152, "missed": 288, "late": 0,
            "no_data": 0, "coverage": 1.0, "loss_ratio": 0.2, "longest_offline_ms": 17_280_000,
        })]
    );
}

#[tokio::test]
async fn rows_as_csv() {
    let query = "?from=2026-02-27&to=2026-03-02&device_id=pump-7&format=csv";
    let answer = ask(&site(), get(&format!("/api/v1/daily{query}"))).await;
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(
        answer.text.matches("\r\n").count(),
        answer.text.lines().count()
    );
    insta::assert_snapshot!(answer.text.replace("\r\n", "\n"));
    let none = ask(
        &site(),
        get("/api/v1/daily?from=2030-01-01&to=2030-01-01&format=csv"),
    )
    .await;
    assert_eq!(none.text.lines().count(), 1, "the heading alone");
}

#[tokio::test]
async fn the_heading_of_the_csv_is_the_fields_of_the_json() {
    let json = ask(&site(), get("/api/v1/daily?device_id=pump-7"))
        .await
        .text;
    let csv = ask(&site(), get("/api/v1/daily?device_id=pump-7&format=csv"))
        .await
        .text;
    let first = json.split('{').nth(2).unwrap().split('}').next().unwrap();
    let fields: Vec<&str> = first
        .split(",\"")
        .map(|pair| pair.split("\":").next().unwrap().trim_matches('"'))
        .collect();
    assert_eq!(fields.join(","), csv.lines().next().unwrap());
}

#[tokio::test]
async fn a_long_answer_comes_in_parts_and_is_the_same() {
    let front = web_front::many(300);
    let mut shared = Arc::into_inner(front.shared).unwrap();
    let (read, reads) = (Arc::clone(&shared.summaries), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&reads);
    shared.summaries = Arc::new(move |from, to, device, each| {
        counted.fetch_add(1, Ordering::Relaxed);
        read(from, to, device, each)
    });
    let mut expected = 0;
    let span = (day("2025-12-01"), day("2026-03-11"));
    web_days::rows_of(&shared.board, span, None, &mut |_| {
        expected += 1;
        true
    });
    assert!(expected > 20_000);
    let router = router(Arc::new(shared));
    let query = "?from=2025-12-01&to=2026-03-11";
    let rows = rows_at(&router, query).await;
    assert_eq!(rows.len(), expected);
    let of = |row: &Value| (row["day"].to_string(), row["device_id"].to_string());
    assert!(rows.is_sorted_by_key(of), "none twice, none out of order");
    assert!(reads.load(Ordering::Relaxed) > 10, "in parts");
    let csv = ask(&router, get(&format!("/api/v1/daily{query}&format=csv"))).await;
    assert_eq!(csv.text.lines().count(), expected + 1);
    let before = reads.load(Ordering::Relaxed);
    let head = asked(Method::HEAD, &format!("/api/v1/daily{query}"), &[]);
    assert_eq!(ask(&router, head).await.text, "");
    let after = reads.load(Ordering::Relaxed);
    assert!(
        after - before < 10,
        "whoever has gone is read for no longer"
    );
}

#[tokio::test]
async fn what_breaks_in_the_middle_breaks_the_answer() {
    let front = web_front::many(300);
    let mut shared = Arc::into_inner(front.shared).unwrap();
    let read = Arc::clone(&shared.summaries);
    shared.summaries = Arc::new(move |from, to, device, each| {
        if from > day("2026-02-01") {
            return Err(ReadError {
                deed: "read rows".into(),
                source: Box::new(std::io::Error::other("gone")),
                in_memory: Vec::new(),
            });
        }
        read(from, to, device, each)
    });
    let request = get("/api/v1/daily?from=2026-01-01&to=2026-03-11");
    let response = router(Arc::new(shared)).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = to_bytes(response.into_body(), usize::MAX).await;
    assert!(body.is_err(), "half an answer is no answer");
}

#[tokio::test]
async fn what_is_not_allowed_is_named_with_what_is() {
    let site = site();
    for (query, named) in [
        ("daily?from=2026-3-1", ["from", "2026-3-1", "2026-03-12"]),
        ("daily?to=yesterday", ["to", "yesterday", "2026-03-12"]),
        ("daily?to=2026-02-30", ["to", "2026-02-30", "2026-03-12"]),
        (
            "daily?from=2026-03-09&to=2026-03-08",
            ["from", "2026-03-09", "up to to = 2026-03-08"],
        ),
        (
            "daily?from=2016-01-01&to=2026-03-08",
            ["from", "2016-01-01", "3660 days"],
        ),
        (
            "daily?from=%2B10000-01-01",
            ["from", "+10000-01-01", "a date such as 2026-03-12"],
        ),
        ("daily?format=xml", ["format", "xml", "json and csv"]),
        (
            "events?kind=alarm",
            ["kind", "alarm", "status, failed, daily, clock and removed"],
        ),
        (
            "daily?device_id=a%20b",
            ["device_id", "a b", "1 to 21 letters"],
        ),
        (
            "events?device_id=%3Cb%3E",
            ["device_id", "<b>", "1 to 21 letters"],
        ),
        ("events?limit=0", ["limit", "0", "1..500"]),
        ("events?limit=501", ["limit", "501", "1..500"]),
        ("events?limit=all", ["limit", "all", "1..500"]),
        ("events?before=0", ["before", "0", "from 1"]),
        ("events?before=-1", ["before", "-1", "from 1"]),
        ("events?before=x", ["before", "x", "from 1"]),
    ] {
        let answer = ask(&site, get(&format!("/api/v1/{query}"))).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        for part in named {
            assert!(detail.contains(part), "{query}: {detail}");
        }
    }
}

#[tokio::test]
async fn events_are_given_exactly_as_they_are_stored() {
    let site = site();
    let at = async |query: &str| {
        let answer = ask(&site, get(&format!("/api/v1/events{query}"))).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.text);
        assert_eq!(answer.header("content-type"), "application/json");
        answer.text
    };
    let stored = |before, limit| {
        let log = web_days::log_of(None, before, limit);
        let texts: Vec<String> = log.into_iter().map(|event| event.json).collect();
        format!("{{\"events\":[{}]}}", texts.join(","))
    };
    assert_eq!(at("").await, stored(None, 100));
    assert_eq!(at("?limit=1").await, stored(None, 1));
    assert_eq!(at("?limit=500&before=5").await, stored(Some(5), 500));
    assert_eq!(at("?before=1").await, "{\"events\":[]}");
    let one = at("?device_id=pump-7").await;
    assert!(one.contains("\"device_id\":\"pump-7\"") && !one.contains("meter-002"));
}

/// A front whose wishes are answered by `answer`.
fn answering(answer: impl Fn(Day) -> Result<RolledUp, NotRolledUp> + Send + 'static) -> Router {
    let front = web_front::site();
    let mut settings = (*front.shared.in_force()).clone();
    settings.web.admin_token = Some(Secret::new(ADMIN.into()));
    front.shared.put_in_force(settings);
    let mut commands = front.commands;
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            if let Command::Rollup { day, answer: to } = command {
                to.send(answer(day)).unwrap();
            }
        }
    });
    router(front.shared)
}

async fn rolled_up(router: &Router, query: &str) -> Answer {
    let bearer = format!("Bearer {ADMIN}");
    let request = post(
        &format!("/api/v1/rollup{query}"),
        &[("authorization", &bearer)],
    );
    ask(router, request).await
}

#[tokio::test]
async fn a_rollup_by_hand_tells_what_it_did() {
    let router = answering(|asked| {
        assert_eq!(asked, day("2026-03-11"));
        Ok(RolledUp {
            rows_changed: 3,
            rows_kept: 997,
        })
    });
    let answer = rolled_up(&router, "?day=2026-03-11").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(
        answer.text,
        r#"{"day":"2026-03-11","rows_changed":3,"rows_kept":997}"#
    );
    for query in ["", "?day=", "?day=yesterday", "?day=2026-02-30"] {
        let answer = rolled_up(&router, query).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("day") && detail.contains("2026-03-12"),
            "{detail}"
        );
    }
}

#[tokio::test]
async fn a_rollup_that_cannot_be_says_why() {
    let day = day("2026-03-11");
    let failed = NotRolledUp::Failed {
        day,
        reason: "disk full".into(),
    };
    for (why, status, said) in [
        (
            NotRolledUp::NotOver { day },
            409,
            "2026-03-11 is not over; it can be summarised from 2026-03-12T00:00:00.000Z",
        ),
        (
            NotRolledUp::NotOver {
                day: "9999-12-31".parse().unwrap(),
            },
            409,
            "Not now: 9999-12-31 is not over.",
        ),
        (
            NotRolledUp::NoRaw { day },
            409,
            "no raw heartbeats of 2026-03-11",
        ),
        (
            NotRolledUp::Running { day },
            409,
            "a rollup of 2026-03-11 is running",
        ),
        (failed, 503, "the rollup of 2026-03-11 failed: disk full"),
    ] {
        let router = answering(move |_| Err(why.clone()));
        let answer = rolled_up(&router, "?day=2026-03-11").await;
        assert_eq!(answer.status.as_u16(), status, "{said}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{detail}");
    }
}

#[test]
fn a_device_with_few_events_is_looked_for_in_a_hundred_thousand_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_kit::open(folder.path(), store_kit::at(0)).store;
    let turn = |n: usize| store_kit::turn(usize::from(n > 0), Status::Online, 1_000);
    let changes: Vec<_> = (0..101_000).map(turn).collect();
    store.commit(&changes, store_kit::at(1_000)).unwrap();
    let rare = Some(store_kit::id(0));
    let seqs = |before| {
        let page = events_of(&store, rare, before, 10).unwrap();
        let seqs: Vec<u64> = page.events.iter().map(|event| event.seq).collect();
        (seqs, page.older)
    };
    assert_eq!(seqs(None), (vec![], Some(1_001)));
    assert_eq!(seqs(Some(1_001)), (vec![1], None));
}

#[tokio::test]
async fn rows_and_events_of_a_real_store_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(store_kit::open(folder.path(), store_kit::at(0)).store);
    let changes = [1, 2, 1].map(|n| store_kit::turn(n, Status::Online, 1_000));
    store.commit(&changes, store_kit::at(1_000)).unwrap();
    let yesterday = day("2026-03-11");
    let rows: Vec<_> = (1..)
        .filter_map(|n| web_days::summary(store_kit::id(n), yesterday))
        .take(2)
        .collect();
    store.upsert_summaries(yesterday, &rows).unwrap();
    let shared = Arc::into_inner(web_front::empty().shared).unwrap();
    let [of_days, of_log] = [&store, &store].map(Arc::clone);
    let router = router(Arc::new(Shared {
        summaries: Arc::new(move |from, to, device, each| {
            of_days.summaries(from, to, device, each)
        }),
        events: Arc::new(move |device, before, limit| events_of(&of_log, device, before, limit)),
        ..shared
    }));
    let seqs = async |query: &str| {
        let log = ask(&router, get(&format!("/api/v1/events{query}")))
            .await
            .json();
        let events = log["events"].as_array().unwrap().clone();
        let seqs: Vec<u64> = events
            .iter()
            .map(|event| event["meta"]["seq"].as_u64().unwrap())
            .collect();
        seqs
    };
    assert_eq!(seqs("").await, [3, 2, 1]);
    assert_eq!(seqs("?device_id=meter-0001").await, [3, 1]);
    assert_eq!(seqs("?device_id=meter-0001&limit=1&before=3").await, [1]);
    assert_eq!(seqs("?device_id=meter-9").await, Vec::<u64>::new());
    assert_eq!(seqs("?kind=status&device_id=meter-0001").await, [3, 1]);
    assert_eq!(seqs("?kind=status&limit=1&before=3").await, [2]);
    assert_eq!(seqs("?kind=failed").await, Vec::<u64>::new());
    let told = rows_at(&router, "").await;
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["device_id"], rows[1].device.as_str());
    let page = ask(&router, get("/history")).await.text;
    let link = format!("/history?device={}\"", rows[0].device);
    assert!(page.contains(&link), "{page}");
}
