//! `GET daily`: the rows of `device_heartbeat_daily`, as JSON or CSV.
//!
//! Floor 3. Five years of a thousand devices are gigabytes of text, so an answer
//! is made and sent in parts of a few whole days.
//!
//! # Invariants
//!
//! - Memory holds one part and two pieces, however many rows are asked for.
//! - A client that reads slowly holds no blocking thread and no lock of the
//!   store: a part is read to its end before any of it is sent.
//! - What cannot be read from the start is a 503; what breaks later breaks the
//!   connection, so that half an answer is never taken for a whole one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use hyper::body::Frame;
use tokio::sync::mpsc;

use super::{of_kind, today};
use crate::domain::daily::Summary;
use crate::domain::day::{DAY_MILLIS, Day};
use crate::domain::instant::Wall;
use crate::web::Front;
use crate::web::fault::Fault;
use crate::web::query::{Pairs, not_allowed};
use crate::web::reading::{self, Span};
use crate::wire::message::DailyJson;

/// Days of one answer at most: ten years, twice what is kept by default.
const DAYS_MAX: i64 = 3_660;

/// Days of one answer unless asked otherwise.
const DAYS_DEFAULT: usize = 7;

/// A part ends with the first day that brings it to so many rows.
const PART_ROWS: usize = 1_000;

/// Bytes of a piece, and how many of them wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_WAITING: usize = 1;

/// More than a row takes.
const ROW_BYTES_MAX: usize = 1 << 10;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

/// Some whole days of an answer.
struct Part {
    /// Its text, cut into pieces.
    pieces: Vec<String>,
    /// Where the next begins; `None`: this is the last.
    next: Option<Day>,
}

/// `GET /api/v1/daily`
pub(super) async fn daily(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Fault> {
    let pairs = Pairs::of(&uri)?;
    let format = match pairs.get("format") {
        None | Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some(other) => return Err(not_allowed("format", other, "json and csv")),
    };
    let span = span_of(&pairs, front.shared.clock.wall())?;
    let first = part(&front, span, format, true).await?;
    let body = if first.next.is_some() {
        in_parts(front, span, format, first)
    } else {
        Body::from(first.pieces.concat())
    };
    Ok(of_kind(format.kind(), body))
}

/// The days asked for: seven up to yesterday, unless said otherwise.
fn span_of(pairs: &Pairs, now: Wall) -> Result<Span, Fault> {
    let device = pairs.device("device_id")?;
    let from = pairs.day("from")?;
    let to = if let Some(to) = pairs.day("to")? {
        to
    } else {
        let yesterday = today(now)?.previous();
        from.map_or(yesterday, |from| from.max(yesterday))
    };
    let default = || (1..DAYS_DEFAULT).fold(to, |day, _| day.previous());
    let from = from.unwrap_or_else(default);
    let days = (to.start().millis() - from.start().millis()) / DAY_MILLIS + 1;
    if !(1..=DAYS_MAX).contains(&days) {
        let allowed = format!("a day up to to = {to}, {DAYS_MAX} days in all at most");
        return Err(not_allowed("from", &from.to_string(), &allowed));
    }
    Ok(Span { from, to, device })
}

/// Reads and writes the part at the front of `span`.
async fn part(front: &Front, span: Span, format: Format, is_first: bool) -> Result<Part, Fault> {
    let mut start = Part {
        pieces: Vec::new(),
        next: None,
    };
    if is_first {
        start.add(|text| text.push_str(&format.opening()));
    }
    let (mut rows, mut last) = (0, None);
    let mut is_begun = !is_first;
    let mut part = reading::summaries(front, span, start, move |part, row| {
        if rows >= PART_ROWS && last != Some(row.day) {
            part.next = Some(row.day);
            return false;
        }
        part.add(|text| format.push(text, row, is_begun));
        (rows, last, is_begun) = (rows + 1, Some(row.day), true);
        true
    })
    .await?;
    if part.next.is_none() {
        part.add(|text| text.push_str(format.closing()));
    }
    Ok(part)
}

/// An answer of `first` and what follows in the days from `next` on.
fn in_parts(front: Arc<Front>, span: Span, format: Format, first: Part) -> Body {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    tokio::spawn(async move {
        let mut ready = first;
        loop {
            for piece in ready.pieces {
                // Whoever asked may have gone.
                if sender.send(Ok(Bytes::from(piece))).await.is_err() {
                    return;
                }
            }
            let Some(from) = ready.next else { return };
            let rest = Span { from, ..span };
            let Ok(next) = part(&front, rest, format, false).await else {
                // Why stands in the log.
                drop(sender.send(Err(BrokenOff)).await);
                return;
            };
            ready = next;
        }
    });
    Body::new(Pieces(receiver))
}

impl Part {
    /// Lets `write` append what is not longer than a row.
    fn add(&mut self, write: impl FnOnce(&mut String)) {
        let last = self.pieces.last_mut();
        let has_room = |piece: &&mut String| piece.len() + ROW_BYTES_MAX <= PIECE_BYTES;
        if let Some(piece) = last.filter(has_room) {
            return write(piece);
        }
        let mut piece = String::with_capacity(PIECE_BYTES);
        write(&mut piece);
        self.pieces.push(piece);
    }
}

/// A body of pieces as they come.
struct Pieces(mpsc::Receiver<Result<Bytes, BrokenOff>>);

#[derive(Debug, thiserror::Error)]
#[error("the rest of the rows cannot be read; the log says why")]
struct BrokenOff;

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Format {
    const fn kind(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }

    fn opening(self) -> String {
        match self {
            Self::Json => "{\"rows\":[".to_owned(),
            Self::Csv => DailyJson::csv_heading(),
        }
    }

    const fn closing(self) -> &'static str {
        match self {
            Self::Json => "]}",
            Self::Csv => "",
        }
    }

    /// Appends a row; `is_begun` says whether one stands before it.
    fn push(self, text: &mut String, row: &Summary, is_begun: bool) {
        let row = DailyJson::from(row);
        match self {
            Self::Json => {
                if is_begun {
                    text.push(',');
                }
                // Plain fields always print.
                text.push_str(&serde_json::to_string(&row).unwrap_or_default());
            }
            Self::Csv => row.push_csv(text),
        }
    }
}
