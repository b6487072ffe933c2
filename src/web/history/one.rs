//! `/history?device=`: one device's days, drawn and in figures.
//!
//! Floor 3. A device that is not in the inventory any more still has its days.

use std::time::Duration;

use askama::Template;
use axum::response::Response;

use super::super::Front;
use super::super::access::Caller;
use super::super::fault::Fault;
use super::super::frame::{Frame, Here, answer};
use super::super::reading::{self, Span};
use super::super::strip::Strip;
use super::super::text::{DASH, count, rtt, span};
use super::progress::Newest;
use super::{DAYS, DAYS_OF_ONE, PAGE_BYTES, SpanLink, first_of, framed};
use crate::domain::daily::Summary;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;

/// Bytes of one day.
const DAY_BYTES: usize = 400;

#[derive(Debug, Template)]
#[template(path = "history_device.html")]
struct OnePage {
    frame: Frame,
    id: DeviceId,
    name: String,
    has_own_name: bool,
    /// Whether the inventory has it.
    is_known: bool,
    days: usize,
    spans: Vec<SpanLink>,
    strip: Strip,
    /// Newest first.
    rows: Vec<RowView>,
    newest: Newest,
    unread: String,
}

/// A day in figures.
#[derive(Debug)]
struct RowView {
    day: String,
    online: String,
    degraded: String,
    offline: String,
    coverage: String,
    /// Whether coverage is below 1.
    is_partial: bool,
    loss: String,
    avg: String,
    p95: String,
    missed_in_a_row: String,
    longest_offline: String,
}

/// The page of `device` with its last `days` up to `last`.
pub(super) async fn page(
    front: &Front,
    caller: &Caller,
    (device, days, last): (DeviceId, usize, Day),
    now: Wall,
) -> Result<Response, Fault> {
    let from = first_of(last, days);
    let (frame, name, newest) = {
        let picture = front.shared.board.look();
        let row = picture.devices.get(&device);
        let name = row.map(|row| row.device.name.clone());
        let at_utc = caller.in_force.rollup.at_utc;
        let newest = Newest::of(&picture.gateway, at_utc, now);
        (framed(&picture, caller, now), name, newest)
    };
    let span = Span {
        from,
        to: last,
        device: Some(device),
    };
    let (rows, unread) = match reading::rows(front, span).await {
        Ok(rows) => (rows, String::new()),
        Err(fault) => (Vec::new(), fault.detail),
    };
    let base = &frame.base;
    let to_days = |days: usize| SpanLink {
        days,
        href: if days == DAYS_OF_ONE {
            format!("{base}/history?device={device}")
        } else {
            format!("{base}/history?device={device}&days={days}")
        },
        is_chosen: false,
    };
    let page = OnePage {
        id: device,
        has_own_name: name.as_ref().is_some_and(|name| name != device.as_str()),
        is_known: name.is_some(),
        name: name.unwrap_or_else(|| device.to_string()),
        days,
        spans: DAYS
            .map(|offered| SpanLink {
                is_chosen: offered == days,
                ..to_days(offered)
            })
            .into(),
        strip: Strip::of(&rows, from, days),
        rows: rows.iter().rev().map(RowView::of).collect(),
        newest,
        unread,
        frame,
    };
    let bytes = page.rows.len() * DAY_BYTES;
    answer(&page, PAGE_BYTES + bytes)
}

impl RowView {
    fn of(row: &Summary) -> Self {
        let day = &row.figures;
        let rtt_of = |us: Option<u32>| us.map_or_else(|| DASH.to_owned(), rtt);
        Self {
            day: row.day.to_string(),
            online: percent(day.online_ratio()),
            degraded: percent(day.degraded_ratio()),
            offline: percent(day.offline_ratio()),
            coverage: percent(Some(day.coverage())),
            is_partial: day.coverage() < 1.0,
            loss: percent(day.loss_ratio()),
            avg: rtt_of(day.avg_rtt_us),
            p95: rtt_of(day.p95_rtt_us),
            missed_in_a_row: count(day.max_missed_count.into()),
            longest_offline: match day.longest_offline_ms {
                0 => DASH.to_owned(),
                ms => span(Duration::from_millis(ms)),
            },
        }
    }
}

/// Percent with two decimals, rounded, but neither to nothing nor to all what
/// is not.
fn percent(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else {
        return DASH.to_owned();
    };
    let percent = ratio * 100.0;
    if ratio <= 0.0 || ratio >= 1.0 {
        format!("{percent:.0}")
    } else {
        format!("{:.2}", percent.clamp(0.01, 99.99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_nothing_nor_all_is_not_rounded_to_it() {
        let printed = [0.0, 0.000_001, 0.123_456, 0.999_999, 1.0].map(|n| percent(Some(n)));
        assert_eq!(printed, ["0", "0.01", "12.35", "99.99", "100"]);
        assert_eq!(percent(None), DASH);
    }
}
