//! The JSON answers, word for word.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_ask.rs"]
mod web_ask;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use sitebeat::store::ReadError;
use sitebeat::web::router;
use web_ask::{ask, get};

fn site() -> Router {
    router(web_front::site().shared)
}

async fn json_at(router: &Router, path: &str) -> Value {
    let answer = ask(router, get(path)).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    answer.json()
}

fn ids(list: &Value) -> Vec<&str> {
    let devices = list["devices"].as_array().unwrap();
    devices
        .iter()
        .map(|device| device["device_id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn devices_are_listed_by_id_with_counts_over_all_enabled_ones() {
    let list = json_at(&site(), "/api/v1/devices?q=meter-").await;
    assert_eq!(
        list,
        json!({
            "site": "site-1",
            "counts": {"online": 2, "degraded": 1, "offline": 1, "unknown": 1},
            "total": 2, "page": 1, "per_page": 100,
            "devices": [
                {
                    "device_id": "meter-001", "status": "online",
                    "last_ping_at": "2026-03-12T14:01:51.000Z",
                    "last_seen": "2026-03-12T14:01:52.000Z",
                    "rtt_ms": 43.219, "missed_count": 0,
                    "updated_at": "2026-03-12T14:01:52.000Z",
                    "name": "Water meter north", "address": "10.64.124.134",
                    "profile": null, "tags": ["north", "meter"],
                    "since": "2026-03-12T11:48:11.000Z",
                },
                {
                    "device_id": "meter-002", "status": "degraded",
                    "last_ping_at": "2026-03-12T14:01:51.000Z",
                    "last_seen": "2026-03-12T14:01:52.000Z",
                    "rtt_ms": 1820.5, "missed_count": 0,
                    "updated_at": "2026-03-12T14:01:52.000Z",
                    "name": "meter-002", "address": "10.64.124.135",
                    "profile": "nb-iot", "tags": ["north", "meter"],
                    "since": "2026-03-12T11:48:11.000Z",
                },
            ],
        })
    );
}

#[tokio::test]
async fn what_is_not_known_yet_is_null() {
    let device = json_at(&site(), "/api/v1/devices/new-1").await;
    for name in [
        "last_ping_at",
        "last_seen",
        "rtt_ms",
        "updated_at",
        "since",
        "profile",
    ] {
        assert_eq!(device[name], Value::Null, "{name}");
    }
    assert_eq!(device["missed_count"], 0);
    assert_eq!(device["status"], "unknown");
}

#[tokio::test]
async fn lists_follow_filter_order_and_part() {
    let site = site();
    for (query, expected) in [
        (
            "",
            vec!["meter-001", "meter-002", "new-1", "pump-7", "valve-3"],
        ),
        ("?status=online", vec!["meter-001", "valve-3"]),
        (
            "?status=&tag=&q=&sort=",
            vec!["meter-001", "meter-002", "new-1", "pump-7", "valve-3"],
        ),
        ("?tag=north&status=offline", vec!["pump-7"]),
        ("?tag=nort", vec![]),
        ("?q=PUMP", vec!["pump-7"]),
        (
            "?sort=status",
            vec!["pump-7", "meter-002", "new-1", "meter-001", "valve-3"],
        ),
        (
            "?sort=-rtt_ms",
            vec!["meter-002", "meter-001", "valve-3", "new-1", "pump-7"],
        ),
        (
            "?sort=rtt_ms",
            vec!["valve-3", "meter-001", "meter-002", "new-1", "pump-7"],
        ),
        (
            "?sort=-device_id&per_page=2&page=2",
            vec!["new-1", "meter-002"],
        ),
        ("?page=9", vec![]),
        ("?enabled=false", vec!["old-9"]),
        ("?page=18446744073709551615&per_page=500", vec![]),
    ] {
        let list = json_at(&site, &format!("/api/v1/devices{query}")).await;
        assert_eq!(ids(&list), expected, "{query}");
        assert_eq!(list["counts"]["online"], 2, "{query}");
    }
    let list = json_at(&site, "/api/v1/devices?per_page=2&page=3").await;
    assert_eq!(
        (&list["total"], &list["page"], &list["per_page"]),
        (&json!(5), &json!(3), &json!(2))
    );
}

#[tokio::test]
async fn faults_are_problem_documents_that_name_what_is_allowed() {
    let site = site();
    for (path, status, named) in [
        (
            "/api/v1/devices?status=up",
            400,
            "online, degraded, offline and unknown",
        ),
        (
            "/api/v1/devices?sort=address",
            400,
            "device_id, name, status",
        ),
        ("/api/v1/devices?per_page=501", 400, "1..500"),
        ("/api/v1/devices?per_page=0", 400, "1..500"),
        ("/api/v1/devices?page=0", 400, "from 1"),
        (
            "/api/v1/devices/meter-001/heartbeats?day=2026-3-12",
            400,
            "2026-03-12",
        ),
        (
            "/api/v1/devices/meter-001/heartbeats?day=today",
            400,
            "2026-03-12",
        ),
        ("/api/v1/devices/nobody", 404, "nobody"),
        ("/api/v1/devices/nobody/heartbeats", 404, "nobody"),
        ("/api/v1/devices/a%2Fb", 404, "a/b"),
        ("/api/v1/devices/%00", 404, "No device"),
        ("/api/v1/devices/%FF", 400, "read"),
        ("/api/v1/nowhere", 404, "nothing"),
        ("/api", 404, "nothing"),
        ("/api/v2/devices", 404, "nothing"),
    ] {
        let answer = ask(&site, get(path)).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(
            answer.header("content-type"),
            "application/problem+json",
            "{path}"
        );
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{path}");
        assert_eq!(problem["type"], "about:blank");
        assert!(problem["title"].is_string());
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(named), "{path}: {detail}");
    }
}

#[tokio::test]
async fn a_device_tells_its_thresholds_and_where_they_come_from() {
    let device = json_at(&site(), "/api/v1/devices/meter-002").await;
    let thresholds = &device["thresholds"];
    assert_eq!(
        thresholds["degraded_rtt_ms"],
        json!({"value": 1500, "from": "profile nb-iot"})
    );
    assert_eq!(
        thresholds["heartbeat_period_ms"],
        json!({"value": 60000, "from": "config"})
    );
    assert_eq!(
        thresholds["offline_missed_count"],
        json!({"value": 3, "from": "default"})
    );
    assert_eq!(
        thresholds["wake_echo"],
        json!({"value": false, "from": "default"})
    );
}

#[tokio::test]
async fn heartbeats_are_those_of_the_day_and_marked_where_unscheduled() {
    let site = site();
    let today = json_at(&site, "/api/v1/devices/meter-001/heartbeats").await;
    let named = json_at(&site, "/api/v1/devices/meter-001/heartbeats?day=2026-03-12").await;
    assert_eq!(today, named);
    assert_eq!(
        (&today["device_id"], &today["day"]),
        (&json!("meter-001"), &json!("2026-03-12"))
    );
    let samples = today["samples"].as_array().unwrap();
    assert_eq!(
        samples[1],
        json!({
            "at": "2026-03-12T00:01:17.250Z", "outcome": "replied", "rtt_ms": 365.8,
            "status": "online", "reason": null,
        })
    );
    assert_eq!(
        samples[501],
        json!({
            "at": "2026-03-12T08:21:17.250Z", "outcome": "missed", "rtt_ms": null,
            "status": "online", "reason": "timeout", "recheck": true,
        })
    );
    assert_eq!(samples[700]["outcome"], "no_data");
    assert_eq!(samples[700]["reason"], "send_failed");
    let old = json_at(&site, "/api/v1/devices/meter-001/heartbeats?day=2026-04-01").await;
    assert_eq!(old["samples"], json!([]));
}

#[tokio::test]
async fn a_store_that_cannot_be_read_tells_why_and_what_is_in_memory() {
    let front = web_front::site();
    let mut shared = Arc::into_inner(front.shared).unwrap();
    shared.heartbeats = Arc::new(|device, day| {
        Err(ReadError {
            deed: "read data/raw/2026-03-12".into(),
            source: Box::new(std::io::Error::other("no space left on device")),
            in_memory: web_front::day_of(device, day).split_off(700),
        })
    });
    let whole = json_at(&site(), "/api/v1/devices/meter-001/heartbeats").await;
    let router = router(Arc::new(shared));
    let answer = ask(&router, get("/api/v1/devices/meter-001/heartbeats")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), "5");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem: Value = serde_json::from_str(&answer.text).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("no space left on device"), "{detail}");
    assert!(!answer.text.contains("data/raw"), "where files lie");
    let told = problem["samples"].as_array().unwrap();
    assert_eq!(told, &whole["samples"].as_array().unwrap()[700..]);
    let page = ask(&router, get("/devices/meter-001")).await;
    assert_eq!(page.status, StatusCode::OK);
    for words in [
        "no space left on device",
        "of those in memory",
        "In memory: ",
    ] {
        assert!(page.text.contains(words), "{words}");
    }
    assert!(
        !page.text.contains("class=\"gap\""),
        "heartbeats on disk are no gap"
    );
}

#[tokio::test]
async fn the_node_tells_its_heartbeat_and_its_insides() {
    let node = json_at(&site(), "/api/v1/node").await;
    insta::assert_snapshot!(serde_json::to_string_pretty(&node).unwrap());
}

#[tokio::test]
async fn a_new_process_tells_what_it_knows() {
    let front = web_front::empty();
    front
        .shared
        .board
        .draw(|picture| *picture = sitebeat::board::Picture::default());
    let router = router(front.shared);
    let node = json_at(&router, "/api/v1/node").await;
    for name in ["last_heartbeat", "ip"] {
        assert_eq!(node[name], Value::Null);
    }
    assert_eq!(node["store"]["state"], "closed");
    assert_eq!(node["uplink"]["state"], "off");
    for path in ["/", "/node", "/metrics"] {
        assert_eq!(
            ask(&router, get(path)).await.status,
            StatusCode::OK,
            "{path}"
        );
    }
    let ready = ask(&router, get("/readyz")).await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        ready.json()["detail"],
        "Not ready: the store is not open, the probe socket is not open, \
         the first round has not begun."
    );
    let health = ask(&router, get("/healthz")).await;
    assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn health_follows_the_scheduler() {
    let front = web_front::site();
    let clock = Arc::clone(&front.clock);
    let router = router(front.shared);
    assert_eq!(ask(&router, get("/healthz")).await.status, StatusCode::OK);
    let later = web_front::now().plus(std::time::Duration::from_secs(10));
    *clock.0.lock().unwrap() = later;
    let answer = ask(&router, get("/healthz")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        answer.json()["detail"],
        "The scheduler last turned 11 s ago."
    );
    let page = ask(&router, get("/")).await.text;
    assert!(page.contains("Probing stands still."));
}

#[tokio::test]
async fn metrics_are_in_the_prometheus_format() {
    let answer = ask(&site(), get("/metrics")).await;
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    insta::assert_snapshot!(answer.text);
    let mut typed = std::collections::BTreeSet::new();
    for line in answer.text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(
                typed.insert(rest.split(' ').next().unwrap()),
                "twice: {rest}"
            );
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(typed.contains(name), "{name} has no TYPE");
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

#[tokio::test]
async fn metrics_of_ten_thousand_devices_stay_below_three_megabytes() {
    let router = router(web_front::many(10_000).shared);
    let answer = ask(&router, get("/metrics")).await;
    assert!(answer.text.len() < 3_000_000, "{}", answer.text.len());
}

/// Every field of `value` is in `schema`, and every required one in `value`.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return check(
            document,
            &document["components"]["schemas"][name],
            value,
            at,
        );
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for value in values {
            check(document, items, value, at);
        }
    }
    let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object())
    else {
        return;
    };
    for (name, value) in fields {
        let schema = properties.get(name);
        let schema = schema.unwrap_or_else(|| panic!("{at}.{name} is not in openapi.json"));
        check(document, schema, value, &format!("{at}.{name}"));
    }
    for name in schema["required"].as_array().unwrap() {
        assert!(
            fields.contains_key(name.as_str().unwrap()),
            "{at}.{name} is missing"
        );
    }
}

#[tokio::test]
async fn openapi_describes_what_is_answered() {
    // With an uplink that has something to tell of.
    let site = router(web_front::away().shared);
    let document = json_at(&site, "/api/v1/openapi.json").await;
    for (path, schema) in [
        ("/api/v1/devices", "Devices"),
        ("/api/v1/devices/meter-001/heartbeats", "Heartbeats"),
        ("/api/v1/daily", "DailyRows"),
        ("/api/v1/events?device_id=pump-7", "Events"),
        ("/api/v1/events?kind=failed", "Events"),
        ("/api/v1/node", "Node"),
        ("/api/v1/devices/nobody", "Problem"),
    ] {
        let value = ask(&site, get(path)).await.json();
        check(
            &document,
            &document["components"]["schemas"][schema],
            &value,
            schema,
        );
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = format!("/api/v1{}", path.replace("{id}", "meter-001"));
            let method = method.to_uppercase().parse().unwrap();
            let status = ask(&site, web_ask::asked(method, &path, &[])).await.status;
            assert!(
                status == StatusCode::OK || status == StatusCode::FORBIDDEN,
                "{path} is described but answers {status}"
            );
        }
    }
}

#[tokio::test]
async fn every_route_is_described() {
    let document = json_at(&site(), "/api/v1/openapi.json").await;
    let source = include_str!("../src/web/api.rs");
    let routes: Vec<(&str, &str)> = source
        .split(".route(\"")
        .skip(1)
        .map(|rest| {
            let (path, rest) = rest.split_once("\", ").unwrap();
            (path, rest.split('(').next().unwrap())
        })
        .filter(|(path, _)| *path != "/openapi.json")
        .collect();
    assert!(routes.len() > 8, "{routes:?}");
    for (path, method) in routes {
        let described = &document["paths"][path][method];
        assert!(described.is_object(), "{method} {path}");
    }
}
