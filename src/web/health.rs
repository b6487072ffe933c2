//! Whether the process is alive, and whether it is ready.
//!
//! Floor 3. Supervisors and load balancers ask; no token is needed and nothing
//! is told but the state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use super::Front;
use super::fault::Fault;
use super::frame::STALLED_AFTER;

/// `GET /healthz`: 200 while the scheduler turns.
pub(super) async fn healthz(State(front): State<Arc<Front>>) -> Result<Response, Fault> {
    let now = front.shared.clock.wall();
    let turned_at = front.shared.board.look().gateway.probe.turned_at;
    let Some(turned_at) = turned_at else {
        return Err(Fault::unavailable("The scheduler has not turned yet."));
    };
    let age = now.since(turned_at);
    if age > STALLED_AFTER {
        return Err(Fault::unavailable(format!(
            "The scheduler last turned {} ago.",
            super::text::span(age)
        )));
    }
    Ok(fine())
}

/// `GET /readyz`: 200 once store and socket are open and the first round runs.
pub(super) async fn readyz(State(front): State<Arc<Front>>) -> Result<Response, Fault> {
    let picture = front.shared.board.look();
    let gateway = &picture.gateway;
    let missing: Vec<&str> = [
        (gateway.store.is_open, "the store is not open"),
        (
            !gateway.probe.facts.engine.is_empty(),
            "the probe socket is not open",
        ),
        (gateway.probe.has_begun, "the first round has not begun"),
    ]
    .into_iter()
    .filter_map(|(is_there, missing)| (!is_there).then_some(missing))
    .collect();
    if missing.is_empty() {
        return Ok(fine());
    }
    Err(Fault::unavailable(format!(
        "Not ready: {}.",
        missing.join(", ")
    )))
}

fn fine() -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], "ok\n").into_response()
}
