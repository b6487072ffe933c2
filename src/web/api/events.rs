//! `GET events`: the event log, newest first.
//!
//! Floor 3. Each event is the envelope exactly as it is stored and goes
//! upstream; nothing is parsed or printed again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::of_kind;
use crate::store::EventPage;
use crate::web::Front;
use crate::web::fault::Fault;
use crate::web::kind::Kind;
use crate::web::query::Pairs;
use crate::web::reading::{self, Sought};
use crate::web::text::put;

/// Events of one answer unless asked otherwise, and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 500;

/// `GET /api/v1/events`
pub(super) async fn events(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    let device = pairs.device("device_id")?;
    let limit = pairs.number("limit", LIMIT_DEFAULT, &(1..=LIMIT_MAX))?;
    let sought = Sought {
        device,
        kind: Kind::read(&pairs)?,
        before: pairs.seq("before")?,
        limit,
    };
    let text = reading::events(&front, sought, move |page| listed(&page, limit)).await?;
    Ok(of_kind("application/json", text))
}

/// Where fewer than `limit` came and the log goes on, `before` of the next part is
/// told too.
fn listed(page: &EventPage, limit: usize) -> String {
    let events = &page.events;
    let bytes: usize = events.iter().map(|event| event.json.len() + 1).sum();
    let mut text = String::with_capacity(bytes + 16);
    text.push_str("{\"events\":[");
    for (place, event) in events.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&event.json);
    }
    text.push(']');
    if let Some(older) = page.older.filter(|_| events.len() < limit) {
        put(&mut text, format_args!(",\"older\":{older}"));
    }
    text.push('}');
    text
}
