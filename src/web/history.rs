//! `/history`: all devices by days, and one device's days.
//!
//! Floor 3. Folds the daily rows on a blocking thread, picks the part of the
//! list that is shown, and only then makes text.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::Front;
use super::access::Caller;
use super::api::today;
use super::fault::Fault;
use super::frame::{Banner, Frame, Here, answer};
use super::overview::{shown, tags};
use super::query::{Key, PER_PAGE_DEFAULT, Pairs, Wanted, not_allowed};
use super::reading::{self, Span};
use crate::board::Picture;
use crate::domain::day::Day;
use crate::domain::instant::Wall;

mod heat;
mod one;
mod progress;

use heat::{Cell, Heat, Line, Sum, WHOLE};
use progress::Newest;
pub(super) use progress::facts;

/// Numbers of days that are offered.
const DAYS: [usize; 3] = [7, 30, 90];

/// Days shown of all devices, and of one, unless asked otherwise.
const DAYS_DEFAULT: usize = 30;
const DAYS_OF_ONE: usize = 90;

/// Devices of one page: two hundred times ninety days are half a megabyte.
const PER_PAGE: std::ops::RangeInclusive<usize> = 1..=200;

/// Seconds between two refreshes: rows change once a day, progress is shown.
const EVERY_S: u32 = 60;

/// The order of the filter's links; the page has one order of its own.
const KEY: Key = Key::Status;

/// Bytes of a page without its rows, of a row and of a cell: what to reserve.
const PAGE_BYTES: usize = 16 << 10;
const ROW_BYTES: usize = 250;
const CELL_BYTES: usize = 24;

#[derive(Debug, Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    /// Addresses of the same list over other numbers of days.
    spans: Vec<SpanLink>,
    days: usize,
    filter: Filter,
    months: Vec<(String, usize)>,
    columns: Vec<DayView>,
    /// Everything that is listed in one, then the devices.
    rows: Vec<RowView>,
    /// `Devices 101 to 200 of 1000`; empty where there is none.
    shown: String,
    previous: String,
    next: String,
    clear: String,
    /// Whether no row at all was found.
    is_empty: bool,
    /// How far the summaries are.
    newest: Newest,
    /// Why nothing could be read; empty where it was.
    unread: String,
}

#[derive(Debug)]
struct SpanLink {
    days: usize,
    href: String,
    is_chosen: bool,
}

#[derive(Debug)]
struct Filter {
    text: String,
    tag: String,
    tags: Vec<String>,
    /// Empty unless chosen.
    per_page: String,
    is_active: bool,
}

#[derive(Debug)]
struct DayView {
    day: String,
    /// Of the month.
    number: String,
}

#[derive(Debug)]
struct RowView {
    /// Empty: everything in one row.
    href: String,
    name: String,
    aside: String,
    cells: Vec<CellView>,
}

/// A cell as it is printed.
#[derive(Debug)]
struct CellView {
    /// Class in the style sheet; empty for the calm case.
    class: &'static str,
    text: String,
    /// What is said beside it; where it is, the cell is marked.
    title: String,
}

/// What a query asks for.
struct Asked {
    days: usize,
    wanted: Wanted,
}

/// `GET /history`
pub(super) async fn page(
    State(front): State<Arc<Front>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    let now = front.shared.clock.wall();
    let last = today(now)?.previous();
    if let Some(device) = pairs.device("device")?.or(pairs.device("device_id")?) {
        let days = days(&pairs, DAYS_OF_ONE)?;
        return one::page(&front, &caller, (device, days, last), now).await;
    }
    let asked = Asked {
        days: days(&pairs, DAYS_DEFAULT)?,
        wanted: Wanted::read(&pairs, KEY, &PER_PAGE)?,
    };
    let from = first_of(last, asked.days);
    let (look, heat) = {
        let picture = front.shared.board.look();
        let look = Look::of(&picture, &caller, &asked, now);
        (look, Heat::of(&picture, &asked.wanted, from, asked.days))
    };
    let span = Span {
        from,
        to: last,
        device: None,
    };
    let read = reading::summaries(&front, span, heat, |heat, row| {
        heat.take(row);
        true
    });
    let (heat, unread) = match read.await {
        Ok(heat) => (heat.ranked(), String::new()),
        Err(fault) => ((Vec::new(), Vec::new()), fault.detail),
    };
    let mut page = HistoryPage::of(look, heat, &asked, from);
    page.unread = unread;
    let bytes = page.rows.len() * (ROW_BYTES + asked.days * CELL_BYTES);
    answer(&page, PAGE_BYTES + bytes)
}

/// How many days are asked for.
fn days(pairs: &Pairs, default: usize) -> Result<usize, Fault> {
    let Some(text) = pairs.get("days") else {
        return Ok(default);
    };
    let number = text.parse().ok().filter(|days| DAYS.contains(days));
    number.ok_or_else(|| not_allowed("days", text, "7, 30 and 90"))
}

/// The first of `count` days up to `last`.
fn first_of(last: Day, count: usize) -> Day {
    (1..count).fold(last, |day, _| day.previous())
}

/// What is copied of the picture under the lock.
struct Look {
    frame: Frame,
    tags: Vec<String>,
    newest: Newest,
}

impl Look {
    fn of(picture: &Picture, caller: &Caller, asked: &Asked, now: Wall) -> Self {
        let at_utc = caller.in_force.rollup.at_utc;
        Self {
            frame: framed(picture, caller, now),
            tags: tags(picture, &asked.wanted),
            newest: Newest::of(&picture.gateway, at_utc, now),
        }
    }
}

fn framed(picture: &Picture, caller: &Caller, now: Wall) -> Frame {
    let mut frame = Frame::new(caller, picture, now, Here::History);
    frame.every_s = EVERY_S;
    let told: Vec<Banner> = progress::banners(&picture.gateway.rollup);
    frame.banners.extend(told);
    frame
}

impl Asked {
    /// The address of this on the page at `base`.
    fn href(&self, base: &str) -> String {
        let mut query = self.wanted.query(KEY);
        if self.days != DAYS_DEFAULT {
            let mark = if query.is_empty() { '?' } else { '&' };
            query = format!("{query}{mark}days={}", self.days);
        }
        format!("{base}/history{query}")
    }

    fn on_page(&self, page: usize) -> Self {
        let mut wanted = self.wanted.clone();
        wanted.page = page;
        Self { wanted, ..*self }
    }
}

impl HistoryPage {
    fn of(look: Look, (lines, sums): (Vec<Line>, Vec<Sum>), asked: &Asked, from: Day) -> Self {
        let base = look.frame.base.clone();
        let (total, per_page) = (lines.len(), asked.wanted.per_page);
        let first = (asked.wanted.page - 1).saturating_mul(per_page);
        let is_empty = sums.iter().all(|sum| sum.cell() == Cell::Absent);
        let mut rows: Vec<RowView> = lines
            .iter()
            .skip(first)
            .take(per_page)
            .map(|line| RowView::of(line, &base))
            .collect();
        let last = first.saturating_add(rows.len());
        if !rows.is_empty() {
            rows.insert(0, RowView::of_all(&lines, &sums));
        }
        let to_page = |page| asked.on_page(page).href(&base);
        let columns = columns(from, asked.days);
        Self {
            spans: DAYS
                .map(|days| SpanLink {
                    days,
                    href: Asked {
                        days,
                        ..asked.on_page(1)
                    }
                    .href(&base),
                    is_chosen: days == asked.days,
                })
                .into(),
            days: asked.days,
            filter: Filter::of(&asked.wanted, look.tags),
            months: months(&columns),
            columns,
            shown: shown(first, last, total),
            previous: if asked.wanted.page > 1 && total > 0 {
                to_page((asked.wanted.page - 1).min(total.div_ceil(per_page)))
            } else {
                String::new()
            },
            next: if last < total && last > first {
                to_page(asked.wanted.page.saturating_add(1))
            } else {
                String::new()
            },
            clear: format!("{base}/history"),
            rows,
            is_empty,
            newest: look.newest,
            unread: String::new(),
            frame: look.frame,
        }
    }
}

impl Filter {
    fn of(wanted: &Wanted, tags: Vec<String>) -> Self {
        Self {
            text: wanted.text.clone().unwrap_or_default(),
            tag: wanted.tag.clone().unwrap_or_default(),
            tags,
            per_page: if wanted.per_page == PER_PAGE_DEFAULT {
                String::new()
            } else {
                wanted.per_page.to_string()
            },
            is_active: wanted.tag.is_some() || wanted.text.is_some(),
        }
    }
}

fn columns(from: Day, count: usize) -> Vec<DayView> {
    let mut day = from;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let text = day.to_string();
        let number = text.get(8..).unwrap_or_default();
        columns.push(DayView {
            number: number.trim_start_matches('0').to_owned(),
            day: text,
        });
        day = day.next();
    }
    columns
}

/// Months with how many of the days are theirs.
fn months(columns: &[DayView]) -> Vec<(String, usize)> {
    let month = |column: &DayView| column.day.get(..7).unwrap_or_default().to_owned();
    columns
        .chunk_by(|a, b| month(a) == month(b))
        .map(|days| (days.first().map(month).unwrap_or_default(), days.len()))
        .collect()
}

impl RowView {
    fn of(line: &Line, base: &str) -> Self {
        let id = line.id.as_str();
        let name = line.device.as_ref().map_or(id, |device| &device.name);
        let state = match &line.device {
            None => "removed",
            Some(device) if !device.enabled => "disabled",
            Some(_) => "",
        };
        let own = if name == id { "" } else { id };
        let aside = [own, state].into_iter().filter(|word| !word.is_empty());
        Self {
            href: format!("{base}/history?device={id}"),
            name: name.to_owned(),
            aside: aside.collect::<Vec<_>>().join(", "),
            cells: line
                .cells
                .iter()
                .copied()
                .chain([line.sum.cell()])
                .map(CellView::of)
                .collect(),
        }
    }

    fn of_all(lines: &[Line], days: &[Sum]) -> Self {
        let sum = lines
            .iter()
            .fold(Sum::default(), |sum, line| sum.and(line.sum));
        Self {
            href: String::new(),
            name: "All together".to_owned(),
            aside: super::text::several(lines.len(), "device", "devices"),
            cells: days
                .iter()
                .copied()
                .chain([sum])
                .map(|sum| CellView::of(sum.cell()))
                .collect(),
        }
    }
}

impl CellView {
    fn of(cell: Cell) -> Self {
        match cell {
            Cell::Absent => Self {
                class: "n",
                text: super::text::DASH.to_owned(),
                title: String::new(),
            },
            Cell::Unobserved => Self {
                class: "n",
                text: super::text::DASH.to_owned(),
                title: "nothing observed".to_owned(),
            },
            Cell::Online { share, coverage } => Self {
                class: level(share),
                text: percent(share),
                title: if coverage < WHOLE {
                    format!("coverage {} %", percent(coverage))
                } else {
                    String::new()
                },
            },
        }
    }
}

/// The class of a share online, as in the legend.
const fn level(share: u16) -> &'static str {
    match share {
        WHOLE.. => "",
        9_900.. => "b",
        9_500.. => "c",
        9_000.. => "d",
        7_500.. => "e",
        5_000.. => "f",
        _ => "g",
    }
}

/// Percent of a share, rounded down: what is not all is never `100`.
fn percent(share: u16) -> String {
    match share {
        0 => "0".to_owned(),
        1..100 => "<1".to_owned(),
        9_000..WHOLE => format!("{}.{}", share / 100, share % 100 / 10),
        _ => (share / 100).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_rounded_down_and_only_all_is_a_hundred() {
        let printed = [0, 1, 99, 100, 5_555, 9_049, 9_999, WHOLE].map(percent);
        assert_eq!(printed, ["0", "<1", "<1", "1", "55", "90.4", "99.9", "100"]);
    }

    #[test]
    fn days_are_counted_back_from_the_last_and_grouped_by_month() {
        let last: Day = "2026-03-02".parse().unwrap();
        let first = first_of(last, 7);
        assert_eq!(first.to_string(), "2026-02-24");
        let columns = columns(first, 7);
        assert_eq!(columns[6].number, "2");
        assert_eq!(
            months(&columns),
            [("2026-02".to_owned(), 5), ("2026-03".to_owned(), 2)]
        );
    }
}
