//! `/devices/{id}`: one device, its thresholds, a day of its RTTs, its last days.
//!
//! Floor 3. Also takes the form that probes it now.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use super::Front;
use super::access::{Caller, Permit};
use super::api::{day_of, today};
use super::chart::{Chart, Terms};
use super::fault::Fault;
use super::frame::{Frame, Here, answer};
use super::query::Pairs;
use super::reading::{self, Span};
use super::strip::Strip;
use super::text::{DASH, ago, count, long_stamp, quote, rtt, rtt_mark, short_stamp, span};
use super::wish;
use crate::board::Row;
use crate::config::settings::{Threshold, ThresholdValue};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::{Occasion, Outcome, Sample};
use crate::domain::instant::Wall;

/// Heartbeats in the table.
const ROWS_MAX: usize = 50;

/// Days of the strip.
const STRIP_DAYS: usize = 90;

/// Bytes of a page with a full day.
const PAGE_BYTES: usize = 64 << 10;

/// Seconds between two refreshes: each one reads a day from the store.
const EVERY_S: u32 = 15;

#[derive(Debug, Template)]
#[template(path = "device.html")]
struct DevicePage {
    frame: Frame,
    id: DeviceId,
    name: String,
    has_own_name: bool,
    status: &'static str,
    is_enabled: bool,
    facts: Vec<Fact>,
    tags: Vec<(String, String)>,
    parent: String,
    thresholds: Vec<ThresholdView>,
    day: String,
    previous_day: String,
    /// Empty where the day shown is today or later.
    next_day: String,
    view: DayView,
    /// The last days, from their summaries.
    strip: Strip,
    /// Why these could not be read; empty where they were.
    strip_unread: String,
    probe: ProbeForm,
    /// What came of the probe just asked for; empty where none was.
    asked: &'static str,
}

/// What is known of a device: term, value, and what is said beside it.
type Fact = (&'static str, String, String);

/// A day's heartbeats, ready to print.
#[derive(Debug)]
struct DayView {
    chart: Chart,
    threshold_words: String,
    /// Why the day could not be read; empty where it was.
    unread: String,
    /// Newest first.
    rows: Vec<RowView>,
    /// `Newest 50 of 1 440`
    rows_words: String,
}

/// How a probe can be asked for here.
#[derive(Debug)]
enum ProbeForm {
    /// Not at all: nobody can be admin, or the device is disabled.
    Off,
    /// After showing the admin token.
    SignIn,
    /// With this ticket.
    Open(String),
}

#[derive(Debug)]
struct ThresholdView {
    key: &'static str,
    value: String,
    from: String,
}

#[derive(Debug)]
struct RowView {
    at: String,
    status: &'static str,
    outcome: &'static str,
    rtt: String,
    reason: &'static str,
    occasion: &'static str,
}

/// `GET /devices/{id}`; `?admin` asks for the admin token first.
pub(super) async fn page(
    State(front): State<Arc<Front>>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    if pairs.has("admin") {
        caller.must_be_admin()?;
    }
    let id: DeviceId = name.parse().map_err(|_| Fault::no_device(&name))?;
    let now = front.shared.clock.wall();
    let day = day_of(&pairs, now)?;
    let (row, frame) = {
        let picture = front.shared.board.look();
        let row = picture.devices.get(&id).cloned();
        let row = row.ok_or_else(|| Fault::no_device(&name))?;
        (row, Frame::new(&caller, &picture, now, Here::Device))
    };
    let terms = Terms {
        degraded_rtt_us: row.rules.status.degraded_rtt_us,
        period: row.rules.heartbeat_period,
        now,
    };
    let shape = move |samples: Vec<Sample>| DayView::of(&samples, day, terms);
    let view = match reading::heartbeats(&front, id, day, shape).await {
        Ok(view) => view,
        Err(fault) => DayView::unread(&row, day, terms, fault),
    };
    let mut page = DevicePage::of(&row, frame, (day, view), now);
    page.frame.every_s = EVERY_S;
    match strip(&front, id, now).await {
        Ok(strip) => page.strip = strip,
        Err(fault) => page.strip_unread = fault.detail,
    }
    page.probe = match (
        caller.can_be_admin() && row.device.enabled,
        caller.must_be_admin(),
    ) {
        (false, _) => ProbeForm::Off,
        (true, Err(_)) => ProbeForm::SignIn,
        (true, Ok(())) => ProbeForm::Open(caller.ticket),
    };
    page.asked = pairs.get("asked").map_or("", asked_words);
    answer(&page, PAGE_BYTES)
}

/// `POST /devices/{id}/probe`: asks, and leads back to the page.
pub(super) async fn ask(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    permit: Permit,
) -> Result<Response, Fault> {
    let (device, outcome) = wish::probe(&front, &name).await?;
    let base = &permit.caller.in_force.web.base_path;
    // Only a checked id gets into the address, so it stays on this host.
    let place = format!("{base}/devices/{device}?asked={}", outcome.word());
    let place = HeaderValue::try_from(place)
        .map_err(|_| Fault::of_status(StatusCode::INTERNAL_SERVER_ERROR))?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response())
}

/// The last finished days, drawn.
async fn strip(front: &Front, device: DeviceId, now: Wall) -> Result<Strip, Fault> {
    let to = today(now)?.previous();
    let from = (1..STRIP_DAYS).fold(to, |day, _| day.previous());
    let device = Some(device);
    let rows = reading::rows(front, Span { from, to, device }).await?;
    Ok(Strip::of(&rows, from, STRIP_DAYS))
}

/// The words for an outcome; any other word in the address says nothing, so
/// that a link cannot put words on the page.
fn asked_words(word: &str) -> &'static str {
    match word {
        "replied" => "Reply to the probe just sent.",
        "missed" => "No reply to the probe just sent.",
        "no_data" => "The probe could not be sent.",
        _ => "",
    }
}

impl DevicePage {
    fn of(row: &Row, frame: Frame, (day, view): (Day, DayView), now: Wall) -> Self {
        let device = &row.device;
        let base = frame.base.clone();
        let today = Day::of(now).unwrap_or(day);
        let at_day = |day: Day| format!("{base}/devices/{}?day={day}", device.id);
        Self {
            id: device.id,
            name: device.name.clone(),
            has_own_name: device.name != device.id.as_str(),
            status: row.track.status.word(),
            is_enabled: device.enabled,
            facts: facts(row, now),
            tags: device
                .tags
                .iter()
                .map(|tag| {
                    (
                        format!("{base}/?tag={}", super::text::query_value(tag)),
                        tag.clone(),
                    )
                })
                .collect(),
            parent: device
                .parent
                .map_or_else(String::new, |parent| parent.to_string()),
            thresholds: row
                .rules
                .thresholds()
                .iter()
                .map(ThresholdView::of)
                .collect(),
            day: day.to_string(),
            previous_day: at_day(day.previous()),
            next_day: if day < today {
                at_day(day.next())
            } else {
                String::new()
            },
            view,
            strip: Strip::default(),
            strip_unread: String::new(),
            probe: ProbeForm::Off,
            asked: "",
            frame,
        }
    }
}

impl DayView {
    fn of(samples: &[Sample], day: Day, terms: Terms) -> Self {
        let chart = Chart::of(samples, day, terms);
        Self {
            threshold_words: threshold_words(terms.degraded_rtt_us, &chart),
            chart,
            unread: String::new(),
            rows: samples
                .iter()
                .rev()
                .take(ROWS_MAX)
                .map(RowView::of)
                .collect(),
            rows_words: rows_words(samples.len()),
        }
    }

    /// What can be shown where the store cannot be read: why, and what of the
    /// day is still in memory, be it the store's or the page's own.
    fn unread(row: &Row, day: Day, terms: Terms, fault: Fault) -> Self {
        let recent = row.recent.iter().copied();
        let recent = recent.filter(|sample| Day::of(sample.at) == Some(day));
        let mut samples = fault.samples.map_or_else(Vec::new, |samples| samples.0);
        let since = samples.first().map(|sample| sample.at);
        let earlier = recent.filter(|sample| since.is_none_or(|since| sample.at < since));
        samples.splice(0..0, earlier.collect::<Vec<_>>());
        let view = Self::of(&samples, day, terms);
        Self {
            chart: Chart {
                // Where nothing is drawn there may well be heartbeats on disk.
                gaps: String::new(),
                words: format!("In memory: {}", view.chart.words),
                ..view.chart
            },
            unread: fault.detail,
            rows_words: if samples.len() > ROWS_MAX {
                format!("Newest {ROWS_MAX} of those in memory")
            } else {
                "Those in memory".to_owned()
            },
            ..view
        }
    }
}

fn facts(row: &Row, now: Wall) -> Vec<Fact> {
    let track = &row.track;
    let time = |at: Option<Wall>, none: &str| {
        at.map_or_else(
            || (none.to_owned(), String::new()),
            |at| (long_stamp(at), ago(at, now)),
        )
    };
    let since = track.since.map_or_else(
        || (DASH.to_owned(), String::new()),
        |since| (long_stamp(since), format!("for {}", span(now.since(since)))),
    );
    let last_rtt = track
        .rtt_us
        .map_or_else(|| DASH.to_owned(), |us| format!("{} ms", rtt(us)));
    let profile = row.device.profile.clone();
    let plain = |value: String| (value, String::new());
    [
        ("Status since", since),
        ("Last seen", time(track.last_seen, "never")),
        ("Last RTT", plain(last_rtt)),
        ("Missed in a row", plain(count(track.missed_count.into()))),
        ("Last probe", time(track.last_ping_at, "none yet")),
        ("Address", plain(row.device.address.to_string())),
        ("Profile", plain(profile.unwrap_or_else(|| DASH.to_owned()))),
    ]
    .map(|(term, (value, aside))| (term, value, aside))
    .into()
}

fn threshold_words(degraded_rtt_us: u32, chart: &Chart) -> String {
    let limit = rtt_mark(degraded_rtt_us);
    if chart.threshold_y.is_some() {
        format!("degraded above {limit} ms")
    } else {
        format!("degraded above {limit} ms, beyond this scale")
    }
}

fn rows_words(total: usize) -> String {
    if total > ROWS_MAX {
        format!("Newest {ROWS_MAX} of {}", count(total as u64))
    } else {
        String::new()
    }
}

impl ThresholdView {
    fn of(threshold: &Threshold) -> Self {
        let value = match threshold.value {
            ThresholdValue::Number(n) => n.to_string(),
            ThresholdValue::Switch(on) => on.to_string(),
        };
        Self {
            key: threshold.key,
            value,
            from: quote(&threshold.from.to_string(), 80),
        }
    }
}

impl RowView {
    fn of(sample: &Sample) -> Self {
        Self {
            at: short_stamp(sample.at, sample.at),
            status: sample.status.word(),
            outcome: match sample.outcome {
                Outcome::Replied { .. } => "replied",
                Outcome::Missed(_) => "missed",
                Outcome::NoData(_) => "no data",
            },
            rtt: sample.outcome.rtt_us().map_or_else(|| DASH.to_owned(), rtt),
            reason: sample.outcome.reason().unwrap_or(""),
            occasion: match sample.occasion {
                Occasion::Scheduled => "",
                Occasion::Recheck => "recheck",
                Occasion::FirstLook => "first look",
                Occasion::OnDemand => "probed now",
            },
        }
    }
}
