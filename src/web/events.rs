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
use super::kind::Kind;
use super::query::Pairs;
use super::reading::{self, Sought};
use crate::board::Picture;
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
    /// The kinds offered: in a query, for people, and whether it is chosen.
    kinds: Vec<(&'static str, &'static str, bool)>,
    /// What is filtered by, for people; empty: nothing is.
    chosen: String,
    rows: Vec<RowView>,
    /// Address of the events before these; empty where there is none.
    older: String,
    /// Whether the look for what is filtered by ended before the log did.
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
    let sought = Sought {
        device: pairs.device("device_id")?,
        kind: Kind::read(&pairs)?,
        before: pairs.seq("before")?,
        // One more than is shown says whether there is an older page.
        limit: ROWS_MAX + 1,
    };
    let read = reading::events(&front, sought, |page| {
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
    let (frame, named) = {
        let picture = front.shared.board.look();
        let mut frame = Frame::new(&caller, &picture, now, Here::Events);
        frame.every_s = EVERY_S;
        (frame, named(told, &picture))
    };
    let mut page = EventsPage::of(frame, sought, named, older);
    page.broke_off = older.is_some() && !is_full;
    page.unread = unread;
    answer(&page, PAGE_BYTES)
}

/// Each with the name of its device, where the inventory has it.
fn named(told: Vec<Told>, picture: &Picture) -> Vec<(Told, Option<String>)> {
    let name = |id: &DeviceId| picture.devices.get(id).map(|row| row.device.name.clone());
    told.into_iter()
        .map(|told| {
            let name = told.device.as_ref().and_then(name);
            (told, name)
        })
        .collect()
}

impl EventsPage {
    fn of(
        frame: Frame,
        sought: Sought,
        named: Vec<(Told, Option<String>)>,
        older: Option<u64>,
    ) -> Self {
        let base = frame.base.clone();
        let device = sought.device.map(|device| device.to_string());
        let kinds = Kind::ALL.map(|kind| (kind.word(), kind.name(), sought.kind == Some(kind)));
        let older = older.map(|seq| href(&base, sought, Some(seq)));
        let newest = sought.before.map(|_| href(&base, sought, None));
        Self {
            device: device.unwrap_or_default(),
            kinds: kinds.into(),
            chosen: chosen(sought),
            rows: named
                .into_iter()
                .map(|(told, name)| RowView::of(told, name, &base))
                .collect(),
            older: older.unwrap_or_default(),
            broke_off: false,
            newest: newest.unwrap_or_default(),
            clear: format!("{base}/events"),
            unread: String::new(),
            frame,
        }
    }
}

/// `failures of pump-7`
fn chosen(sought: Sought) -> String {
    match (sought.kind, sought.device) {
        (None, None) => String::new(),
        (Some(kind), None) => kind.name().to_owned(),
        (None, Some(device)) => format!("events of {device}"),
        (Some(kind), Some(device)) => format!("{} of {device}", kind.name()),
    }
}

fn href(base: &str, sought: Sought, before: Option<u64>) -> String {
    let device = sought.device.map(|device| format!("device_id={device}"));
    let kind = sought.kind.map(|kind| format!("kind={}", kind.word()));
    let before = before.map(|seq| format!("before={seq}"));
    let pairs: Vec<String> = [device, kind, before].into_iter().flatten().collect();
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
