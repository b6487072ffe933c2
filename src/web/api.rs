//! The JSON API under `/api/v1`.
//!
//! Floor 3. The shapes are in [`shape`]; `static/openapi.json` describes them to
//! programs, and a test holds the two together.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;

use super::Front;
use super::access::{Caller, Permit};
use super::fault::Fault;
use super::listing::find;
use super::query::{API_PER_PAGE, Key, Pairs, Wanted};
use super::reading;
use super::wish;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;

mod daily;
mod events;
pub(super) mod node;
mod shape;
mod uplink;

pub(super) use self::shape::Samples;

/// Everything under `/api/v1`.
pub(super) fn routes() -> Router<Arc<Front>> {
    Router::new()
        .route("/devices", get(devices))
        .route("/devices/{id}", get(device))
        .route("/devices/{id}/heartbeats", get(heartbeats))
        .route("/devices/{id}/probe", post(probe))
        .route("/daily", get(daily::daily))
        .route("/events", get(events::events))
        .route("/node", get(node))
        .route("/reload", post(reload))
        .route("/rollup", post(rollup))
        .route("/openapi.json", get(openapi))
}

async fn devices(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    let wanted = Wanted::read(&pairs, Key::DeviceId, &API_PER_PAGE)?;
    let (site, counts, found) = {
        let picture = front.shared.board.look();
        (
            picture.gateway.site.clone(),
            picture.counts(),
            find(&picture, &wanted, shape::Device::of),
        )
    };
    json(&shape::Devices {
        site,
        counts: shape::Counts::of(counts),
        total: found.total,
        page: wanted.page,
        per_page: wanted.per_page,
        devices: found.rows,
    })
}

async fn device(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
) -> Result<Response, Fault> {
    let device = {
        let id = id_of(&name)?;
        let picture = front.shared.board.look();
        let row = picture.devices.get(&id);
        shape::DeviceWithThresholds::of(row.ok_or_else(|| Fault::no_device(&name))?)
    };
    json(&device)
}

async fn heartbeats(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Fault> {
    let id = id_of(&name)?;
    let day = day_of(&Pairs::of(&uri)?, front.shared.clock.wall())?;
    if front.shared.board.look().devices.get(&id).is_none() {
        return Err(Fault::no_device(&name));
    }
    // A day can be megabytes of text, so it is printed where it was read: the
    // async threads have pings to send.
    let print = move |samples| {
        json(&shape::Heartbeats {
            device_id: id.to_string(),
            day: day.to_string(),
            samples: Samples(samples),
        })
    };
    reading::heartbeats(&front, id, day, print).await?
}

async fn node(State(front): State<Arc<Front>>, caller: Caller) -> Result<Response, Fault> {
    let now = front.shared.clock.wall();
    let node = {
        let picture = front.shared.board.look();
        node::Node::of(&picture, &caller.in_force, now)
    };
    json(&node)
}

async fn probe(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    _permit: Permit,
) -> Result<Response, Fault> {
    let (device, outcome) = wish::probe(&front, &name).await?;
    json(&shape::Probed::of(device, outcome))
}

async fn reload(State(front): State<Arc<Front>>, _permit: Permit) -> Result<Response, Fault> {
    wish::reload(&front).await?;
    let config = node::Config::of(&front.shared.board.look().gateway.config);
    json(&shape::Reloaded { config })
}

async fn rollup(
    State(front): State<Arc<Front>>,
    uri: Uri,
    _permit: Permit,
) -> Result<Response, Fault> {
    let day = Pairs::of(&uri)?.day("day")?.ok_or_else(|| {
        Fault::bad_request(
            "day is missing; allowed: the date of a finished day such as 2026-03-12.",
        )
    })?;
    let done = wish::rollup(&front, day).await?;
    json(&shape::RolledUp::of(day, done))
}

async fn openapi() -> Response {
    let text = include_str!("../../static/openapi.json");
    of_kind("application/json", text)
}

/// The day that `day=` names; today unless asked otherwise.
pub(super) fn day_of(pairs: &Pairs, now: Wall) -> Result<Day, Fault> {
    match pairs.day("day")? {
        Some(day) => Ok(day),
        None => today(now),
    }
}

/// The day that the clock shows.
pub(super) fn today(now: Wall) -> Result<Day, Fault> {
    Day::of(now)
        .ok_or_else(|| Fault::unavailable("The clock shows no date; try again once it is set."))
}

fn id_of(name: &str) -> Result<DeviceId, Fault> {
    name.parse().map_err(|_| Fault::no_device(name))
}

fn json(value: &impl Serialize) -> Result<Response, Fault> {
    let text = serde_json::to_string(value).map_err(|fault| {
        tracing::error!(error = %fault, "an answer cannot be printed as JSON");
        Fault::of_status(StatusCode::INTERNAL_SERVER_ERROR)
    })?;
    Ok(of_kind("application/json", text))
}

fn of_kind(kind: &'static str, body: impl IntoResponse) -> Response {
    let kind = HeaderValue::from_static(kind);
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}
