//! `/`: all devices at a glance.
//!
//! Floor 3. Copies from the picture what one page needs, lets it go, and only
//! then makes text. Values are ready to print; `templates/overview.html` has
//! loops and ifs only.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use fnv::FnvHasher;

use super::Front;
use super::access::Caller;
use super::fault::Fault;
use super::frame::{Frame, Here, answer};
use super::listing::{Found, find};
use super::query::{Key, PAGE_PER_PAGE, Pairs, Sort, Wanted};
use super::text::{DASH, count, rtt, several, short_stamp, span};
use crate::board::{Counts, Picture, Row};
use crate::domain::device::Device;
use crate::domain::instant::Wall;
use crate::domain::status::{Status, Track};

mod bar;

use bar::{Bar, Stroke};

/// The order of the page unless asked otherwise: the worst first.
const DEFAULT_KEY: Key = Key::Status;

/// Beyond this many rows a page leaves out what can be read elsewhere, so that
/// a thousand rows stay below 200 KB.
const LONG_ROWS_MAX: usize = 200;

/// Tags offered to choose from.
const TAGS_MAX: usize = 200;

/// Bytes of a page without its rows, and of one row: what to reserve.
const PAGE_BYTES: usize = 8 << 10;
const ROW_BYTES: usize = 420;

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    /// `3 offline`, for the window's title: seen without looking at the page.
    headline: String,
    tiles: Vec<Tile>,
    filter: Filter,
    columns: Vec<Column>,
    rows: Vec<RowView>,
    /// Whether rows carry titles and labels for their bars.
    is_long: bool,
    /// `Devices 101 to 200 of 1000`; empty where there is none.
    shown: String,
    /// Address of the page before; empty where there is none.
    previous: String,
    /// Address of the page after; empty where there is none.
    next: String,
    /// Whether the inventory has no enabled device at all.
    is_empty_site: bool,
    /// Where the inventory is.
    inventory: String,
    /// Address of the same page without filters.
    clear: String,
    /// `2 disabled devices`; empty where there is none.
    disabled: String,
}

/// A count that filters.
#[derive(Debug)]
struct Tile {
    word: &'static str,
    count: String,
    is_none: bool,
    href: String,
    is_chosen: bool,
}

/// What the filter form shows.
#[derive(Debug)]
struct Filter {
    text: String,
    tag: String,
    tags: Vec<String>,
    /// Sort words with their names, to choose from on a narrow screen.
    sorts: Vec<(String, &'static str)>,
    sort: String,
    /// Empty unless chosen.
    per_page: String,
    is_active: bool,
    shows_disabled: bool,
}

/// A column's heading.
#[derive(Debug)]
struct Column {
    name: &'static str,
    /// Sorts by it; empty where that is not offered.
    href: String,
    /// `ascending`, `descending`, or empty.
    order: &'static str,
}

#[derive(Debug)]
struct RowView {
    device: Arc<Device>,
    status: &'static str,
    has_own_name: bool,
    since: String,
    lasting: String,
    seen: String,
    rtt: String,
    missed: u32,
    /// Whether the bar is drawn here; else the style sheet draws the empty cell
    /// as a full bar without a fault.
    has_drawing: bool,
    /// Width of a bar that is not full yet.
    width: Option<usize>,
    strokes: Vec<Stroke>,
    bar_title: String,
}

/// What is copied of one row under the lock.
struct Copied {
    device: Arc<Device>,
    track: Track,
    bar: Bar,
}

/// What is copied of the picture under the lock.
struct Look {
    frame: Frame,
    found: Found<Copied>,
    counts: Counts,
    disabled: usize,
    tags: Vec<String>,
    inventory: String,
}

/// `GET /`
pub(super) async fn page(
    State(front): State<Arc<Front>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Fault> {
    let wanted = Wanted::read(&Pairs::of(&uri)?, DEFAULT_KEY, &PAGE_PER_PAGE)?;
    let now = front.shared.clock.wall();
    let look = look(&front.shared.board.look(), &caller, &wanted, now);
    let bytes_about = PAGE_BYTES + look.found.rows.len() * ROW_BYTES;
    answer(&Overview::of(look, &wanted, now), bytes_about)
}

fn look(picture: &Picture, caller: &Caller, wanted: &Wanted, now: Wall) -> Look {
    let mut frame = Frame::new(caller, picture, now, Here::Status);
    if wanted.per_page > LONG_ROWS_MAX {
        // A long page is heavy to fetch: less often, then.
        frame.every_s = 15;
    }
    let counts = picture.counts();
    let enabled = counts.online + counts.degraded + counts.offline + counts.unknown;
    let inventory = picture.gateway.config.inventory.as_ref();
    Look {
        frame,
        found: find(picture, wanted, Copied::of),
        counts,
        disabled: picture.devices.len() - enabled,
        tags: tags(picture, wanted),
        inventory: inventory.map_or_else(
            || "config/devices.csv".into(),
            |path| path.display().to_string(),
        ),
    }
}

/// The tags in use, the one filtered by among them.
pub(super) fn tags(picture: &Picture, wanted: &Wanted) -> Vec<String> {
    let all: HashSet<&str, BuildHasherDefault<FnvHasher>> = picture
        .devices
        .values()
        .flat_map(|row| row.device.tags.iter())
        .chain(&wanted.tag)
        .map(String::as_str)
        .collect();
    let mut sorted: Vec<&str> = all.into_iter().collect();
    sorted.sort_unstable();
    sorted.truncate(TAGS_MAX);
    sorted.into_iter().map(str::to_owned).collect()
}

impl Copied {
    fn of(row: &Row) -> Self {
        Self {
            device: Arc::clone(&row.device),
            track: row.track,
            bar: Bar::of(&row.recent),
        }
    }
}

impl Overview {
    fn of(look: Look, wanted: &Wanted, now: Wall) -> Self {
        let base = look.frame.base.clone();
        let at = |wanted: &Wanted| format!("{base}/{}", wanted.query(DEFAULT_KEY));
        let found = look.found;
        let first = (wanted.page - 1).saturating_mul(wanted.per_page);
        let last = first.saturating_add(found.rows.len());
        let to_page = |page| {
            at(&Wanted {
                page,
                ..wanted.clone()
            })
        };
        let is_long = found.rows.len() <= LONG_ROWS_MAX;
        Self {
            headline: match look.counts.offline {
                0 => "devices".into(),
                n => format!("{} offline", count(n as u64)),
            },
            tiles: tiles(look.counts, wanted, &at),
            columns: columns(wanted, &at),
            filter: Filter::of(wanted, look.tags),
            shown: shown(first, last, found.total),
            previous: if wanted.page > 1 && found.total > 0 {
                let pages = found.total.div_ceil(wanted.per_page);
                to_page((wanted.page - 1).min(pages))
            } else {
                String::new()
            },
            next: if last < found.total && last > first {
                to_page(wanted.page.saturating_add(1))
            } else {
                String::new()
            },
            is_empty_site: look.counts == Counts::default(),
            inventory: look.inventory,
            clear: format!("{base}/"),
            disabled: match look.disabled {
                0 => String::new(),
                n => several(n, "disabled device", "disabled devices"),
            },
            rows: found
                .rows
                .into_iter()
                .map(|row| RowView::of(row, now, is_long))
                .collect(),
            is_long,
            frame: look.frame,
        }
    }
}

/// `Devices 101 to 200 of 1 000`
pub(super) fn shown(first: usize, last: usize, total: usize) -> String {
    match (last.saturating_sub(first), total) {
        (0, _) => String::new(),
        (n, total) if n == total => several(n, "device", "devices"),
        _ => {
            let [first, last, total] = [first + 1, last, total].map(|n| count(n as u64));
            format!("Devices {first} to {last} of {total}")
        }
    }
}

fn tiles(counts: Counts, wanted: &Wanted, at: &impl Fn(&Wanted) -> String) -> Vec<Tile> {
    [
        (Status::Online, counts.online),
        (Status::Degraded, counts.degraded),
        (Status::Offline, counts.offline),
        (Status::Unknown, counts.unknown),
    ]
    .map(|(status, n)| {
        let is_chosen = wanted.status == Some(status);
        Tile {
            word: status.word(),
            is_none: n == 0,
            count: count(n as u64),
            // A second click takes the filter off again.
            href: at(&Wanted {
                status: (!is_chosen).then_some(status),
                page: 1,
                enabled: true,
                ..wanted.clone()
            }),
            is_chosen,
        }
    })
    .into()
}

fn columns(wanted: &Wanted, at: &impl Fn(&Wanted) -> String) -> Vec<Column> {
    [
        ("Status", Some(Key::Status)),
        ("Device", Some(Key::Name)),
        ("Duration", Some(Key::Since)),
        ("Last seen", Some(Key::LastSeen)),
        ("RTT, ms", Some(Key::Rtt)),
        ("Missed", Some(Key::Missed)),
        ("Tags", None),
        ("Last 30", None),
    ]
    .map(|(name, key)| {
        let is_chosen = key == Some(wanted.sort.key);
        let order = match (is_chosen, wanted.sort.descends) {
            (false, _) => "",
            (true, false) => "ascending",
            (true, true) => "descending",
        };
        let href = key.map(|key| {
            let descends = is_chosen && !wanted.sort.descends;
            at(&Wanted {
                sort: Sort { key, descends },
                page: 1,
                ..wanted.clone()
            })
        });
        Column {
            name,
            href: href.unwrap_or_default(),
            order,
        }
    })
    .into()
}

impl Filter {
    fn of(wanted: &Wanted, tags: Vec<String>) -> Self {
        let names = [
            (Sort::by(Key::Status), "Worst first"),
            (Sort::by(Key::DeviceId), "Id"),
            (Sort::by(Key::Name), "Name"),
            (descending(Key::Since), "Newest change"),
            (Sort::by(Key::LastSeen), "Silent longest"),
            (descending(Key::Rtt), "Slowest"),
            (descending(Key::Missed), "Most missed"),
        ];
        let mut sorts: Vec<(String, &str)> = names.map(|(sort, name)| (sort.word(), name)).into();
        let sort = wanted.sort.word();
        if !sorts.iter().any(|(word, _)| *word == sort) {
            sorts.push((sort.clone(), "As the table"));
        }
        Self {
            text: wanted.text.clone().unwrap_or_default(),
            tag: wanted.tag.clone().unwrap_or_default(),
            tags,
            sorts,
            sort,
            per_page: if wanted.per_page == super::query::PER_PAGE_DEFAULT {
                String::new()
            } else {
                wanted.per_page.to_string()
            },
            is_active: wanted.filters(),
            shows_disabled: !wanted.enabled,
        }
    }
}

const fn descending(key: Key) -> Sort {
    Sort {
        key,
        descends: true,
    }
}

impl RowView {
    fn of(row: Copied, now: Wall, is_long: bool) -> Self {
        let track = &row.track;
        let has_drawing = is_long || !row.bar.is_faultless();
        Self {
            status: track.status.word(),
            has_own_name: row.device.name != row.device.id.as_str(),
            since: match track.since {
                Some(since) if is_long => short_stamp(since, now),
                Some(_) | None => String::new(),
            },
            lasting: track
                .since
                .map_or_else(|| DASH.into(), |since| span(now.since(since))),
            seen: track
                .last_seen
                .map_or_else(|| "never".into(), |seen| short_stamp(seen, now)),
            rtt: track.rtt_us.map_or_else(|| DASH.into(), rtt),
            missed: track.missed_count,
            has_drawing,
            width: row.bar.width(),
            strokes: row.bar.strokes(),
            bar_title: if is_long {
                row.bar.title()
            } else {
                String::new()
            },
            device: row.device,
        }
    }
}
