//! `/events`: the event log as people read it, newest first.
//!
//! Floor 3. What stands in the log is read on a blocking thread and told in
//! words by [`told`]; the API has it as it is.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::Front;
use super::access::Caller;
use super::fault::Fault;
use super::frame::{Frame, Here, answer};
use super::query::Pairs;
use super::reading;
use crate::domain::device::DeviceId;

mod told;

use told::Told;

/// Events of one page.
const ROWS_MAX: usize = 50;

/// Seconds between two refreshes: each one reads the log.
const EVERY_S: u32 = 15;

const PAGE_BYTES: usize = 24 << 10;

#[derive(Debug, Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: Frame,
    /// The device filtered by; empty: all.
    device: String,
    rows: Vec<RowView>,
    /// Address of the events before these; empty where there is none.
    older: String,
    /// Whether the look for events of a device ended before the log did.
    broke_off: bool,
    /// Address of the newest events; empty where these are they.
    newest: String,
    /// Address without filter.
    clear: String,
    /// Why the log could not be read; empty where it was.
    unread: String,
}

#[derive(Debug)]
struct RowView {
    told: Told,
    /// Name of the device; empty where it is not about one.
    name: String,
    has_own_name: bool,
    /// Where its link leads.
    href: String,
}

/// `GET /events`
pub(super) async fn page(
    State(front): State<Arc<Front>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    let device = pairs.device("device_id")?;
    let before = pairs.seq("before")?;
    // One more than is shown says whether there is an older page.
    let part = (before, ROWS_MAX + 1);
    let read = reading::events(&front, device, part, |page| {
        let rows = page.events.iter().map(Told::of);
        (rows.collect::<Vec<_>>(), page.older)
    });
    let ((mut told, broke_off_at), unread) = match read.await {
        Ok(read) => (read, String::new()),
        Err(fault) => ((Vec::new(), None), fault.detail),
    };
    let is_full = told.len() > ROWS_MAX;
    told.truncate(ROWS_MAX);
    let older = if is_full {
        told.last().map(|told| told.seq)
    } else {
        broke_off_at
    };
    let now = front.shared.clock.wall();
    let picture = front.shared.board.look();
    let mut frame = Frame::new(&caller, &picture, now, Here::Events);
    frame.every_s = EVERY_S;
    let base = frame.base.clone();
    let name = |id: &DeviceId| picture.devices.get(id).map(|row| row.device.name.clone());
    let rows: Vec<(Told, Option<String>)> = told
        .into_iter()
        .map(|told| {
            let name = told.device.as_ref().and_then(name);
            (told, name)
        })
        .collect();
    drop(picture);
    let page = EventsPage {
        older: match older {
            Some(seq) => href(&base, device, Some(seq)),
            None => String::new(),
        },
        broke_off: older.is_some() && !is_full,
        newest: match before {
            Some(_) => href(&base, device, None),
            None => String::new(),
        },
        clear: href(&base, None, None),
        device: device.map_or_else(String::new, |device| device.to_string()),
        rows: rows
            .into_iter()
            .map(|(told, name)| RowView::of(told, name, &base))
            .collect(),
        unread,
        frame,
    };
    answer(&page, PAGE_BYTES)
}

fn href(base: &str, device: Option<DeviceId>, before: Option<u64>) -> String {
    let device = device.map(|device| format!("device_id={device}"));
    let before = before.map(|seq| format!("before={seq}"));
    let pairs: Vec<String> = device.into_iter().chain(before).collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{base}/events{mark}{}", pairs.join("&"))
}

impl RowView {
    /// A device that the inventory has leads to its page, one that it had to
    /// its days.
    fn of(told: Told, name: Option<String>, base: &str) -> Self {
        let Some(id) = told.device else {
            return Self {
                told,
                name: String::new(),
                has_own_name: false,
                href: String::new(),
            };
        };
        Self {
            href: match name {
                Some(_) => format!("{base}/devices/{id}"),
                None => format!("{base}/history?device={id}"),
            },
            has_own_name: name.as_ref().is_some_and(|name| name != id.as_str()),
            name: name.unwrap_or_else(|| id.to_string()),
            told,
        }
    }
}
