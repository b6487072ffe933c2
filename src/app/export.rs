//! `sitebeat export`: summaries, heartbeats and events of a store that no process
//! runs on, to standard output.
//!
//! Floor 4. Everything is streamed: a year takes no more memory than a day.
//!
//! # Invariants
//!
//! - Rows ascend: summaries by day and device, heartbeats by day, device and time,
//!   events by number.
//! - A reader that closes the pipe ends the export cleanly.

use std::io::{self, BufWriter, ErrorKind, Write};

use serde::{Deserialize, Serialize};

use super::cli::{Export, ExportFormat, ExportWhat};
use super::exit::Failure;
use super::offline::enter;
use crate::config::{self, Request};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::Occasion;
use crate::domain::instant::Wall;
use crate::store::daily::DeviceDay;
use crate::store::{LoggedEvent, ReadError, Reader};
use crate::wire::message::{DailyJson, RttJson};

/// Columns of `raw`.
const RAW_COLUMNS: [&str; 7] = [
    "device_id",
    "at",
    "outcome",
    "rtt_ms",
    "status",
    "reason",
    "recheck",
];
/// Columns of `events`; the last is the whole event as JSON.
const EVENT_COLUMNS: [&str; 6] = ["log_id", "seq", "produced_at", "event", "device_id", "json"];

/// Events read at a time.
const EVENTS_AT_ONCE: usize = 500;

#[derive(Serialize)]
struct RawRow<'a> {
    device_id: &'a str,
    at: String,
    outcome: &'static str,
    rtt_ms: Option<RttJson>,
    status: &'static str,
    reason: Option<&'static str>,
    recheck: bool,
}

#[derive(Serialize)]
struct EventRow<'a> {
    log_id: &'a str,
    seq: u64,
    produced_at: &'a str,
    event: &'a str,
    device_id: Option<&'a str>,
    json: &'a str,
}

/// What of an event's envelope is looked at.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    meta: Meta<'a>,
    #[serde(borrow)]
    context: Context<'a>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow)]
    produced_at: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    log_id: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct Context<'a> {
    #[serde(borrow, default)]
    device_id: Option<std::borrow::Cow<'a, str>>,
}

/// Why an export ended before its end.
enum Stop {
    /// Nobody reads any more.
    PipeClosed,
    Failed(Failure),
}

/// Prints what was asked for.
///
/// # Errors
///
/// Faults of configuration, a store in use or not usable, one that cannot be
/// read, a disk or pipe that takes nothing.
pub fn export(request: &Request, wish: &Export) -> Result<(), Failure> {
    if let (Some(from), Some(to)) = (wish.from, wish.to)
        && from > to
    {
        return Err(Failure::Usage(format!(
            "--from {from} is after --to {to}: give the earlier day first"
        )));
    }
    let settings = config::load(request)
        .map_err(|faults| Failure::Usage(faults.to_string()))?
        .settings;
    let store = enter(&settings.store.path, "export")?.read()?;
    let out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let lines = Lines::begin(out, wish);
    let written = lines.and_then(|mut lines| {
        match wish.what {
            ExportWhat::Daily => daily(&store, wish, &mut lines)?,
            ExportWhat::Raw => raw(&store, wish, &mut lines)?,
            ExportWhat::Events => events(&store, wish, &mut lines)?,
        }
        lines.end()
    });
    match written {
        Ok(()) | Err(Stop::PipeClosed) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn daily<W: Write>(store: &Reader, wish: &Export, lines: &mut Lines<W>) -> Result<(), Stop> {
    let mut stopped = Ok(());
    let (from, to) = (wish.from.unwrap_or(Day::MIN), wish.to.unwrap_or(Day::MAX));
    store.summaries(from, to, wish.device, &mut |row| {
        stopped = lines.add(&DailyJson::from(row));
        stopped.is_ok()
    })?;
    stopped
}

fn raw<W: Write>(store: &Reader, wish: &Export, lines: &mut Lines<W>) -> Result<(), Stop> {
    let days = store.raw_days()?;
    for day in days.into_iter().filter(|day| wish.wants(*day)) {
        let mut stopped = Ok(());
        store.read_day(day, &mut |devices| {
            if stopped.is_ok() {
                stopped = raw_group(devices, wish.device, lines);
            }
        })?;
        stopped?;
    }
    Ok(())
}

fn raw_group<W: Write>(
    mut devices: Vec<DeviceDay>,
    wanted: Option<DeviceId>,
    lines: &mut Lines<W>,
) -> Result<(), Stop> {
    devices.retain(|one| wanted.is_none_or(|wanted| one.device == wanted));
    devices.sort_by_key(|one| one.device);
    for one in &devices {
        for beat in &one.beats {
            lines.add(&RawRow {
                device_id: one.device.as_str(),
                at: beat.at.to_string(),
                outcome: beat.outcome.word(),
                rtt_ms: beat.outcome.rtt_us().map(RttJson),
                status: beat.status.word(),
                reason: beat.outcome.reason(),
                recheck: beat.occasion == Occasion::Recheck,
            })?;
        }
    }
    Ok(())
}

fn events<W: Write>(store: &Reader, wish: &Export, lines: &mut Lines<W>) -> Result<(), Stop> {
    let mut after = 0;
    loop {
        let group = store.events_after(after, EVENTS_AT_ONCE)?;
        let Some(last) = group.last() else {
            return Ok(());
        };
        after = last.seq;
        for logged in &group {
            add_event(logged, wish, lines)?;
        }
    }
}

fn add_event<W: Write>(
    logged: &LoggedEvent,
    wish: &Export,
    lines: &mut Lines<W>,
) -> Result<(), Stop> {
    let envelope: Envelope<'_> = serde_json::from_str(&logged.json).map_err(|fault| {
        Stop::Failed(Failure::Running(format!(
            "event {} of the log cannot be read: {fault}",
            logged.seq
        )))
    })?;
    let device = envelope.context.device_id.as_deref();
    let day = Wall::parse(&envelope.meta.produced_at).and_then(Day::of);
    let is_wanted = day.is_none_or(|day| wish.wants(day))
        && wish
            .device
            .is_none_or(|wanted| device == Some(wanted.as_str()));
    if !is_wanted {
        return Ok(());
    }
    match lines {
        Lines::Json(out) => writeln!(out, "{}", logged.json).map_err(Stop::from),
        Lines::Csv(_) => lines.add(&EventRow {
            log_id: &envelope.meta.log_id,
            seq: logged.seq,
            produced_at: &envelope.meta.produced_at,
            event: &envelope.event,
            device_id: device,
            json: &logged.json,
        }),
    }
}

/// Where rows go.
enum Lines<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Json(W),
}

impl<W: Write> Lines<W> {
    /// A header is there also where no row follows.
    fn begin(out: W, wish: &Export) -> Result<Self, Stop> {
        if wish.format == ExportFormat::Jsonl {
            return Ok(Self::Json(out));
        }
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .terminator(csv::Terminator::CRLF)
            .from_writer(out);
        match wish.what {
            ExportWhat::Daily => writer.write_record(DailyJson::COLUMNS)?,
            ExportWhat::Raw => writer.write_record(RAW_COLUMNS)?,
            ExportWhat::Events => writer.write_record(EVENT_COLUMNS)?,
        }
        Ok(Self::Csv(Box::new(writer)))
    }

    fn add(&mut self, row: &impl Serialize) -> Result<(), Stop> {
        match self {
            Self::Csv(writer) => writer.serialize(row)?,
            Self::Json(out) => {
                serde_json::to_writer(&mut *out, row).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), Stop> {
        match self {
            Self::Csv(mut writer) => writer.flush()?,
            Self::Json(mut out) => out.flush()?,
        }
        Ok(())
    }
}

impl Export {
    fn wants(&self, day: Day) -> bool {
        self.from.is_none_or(|from| from <= day) && self.to.is_none_or(|to| day <= to)
    }
}

impl From<io::Error> for Stop {
    fn from(fault: io::Error) -> Self {
        if fault.kind() == ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::Failed(Failure::Running(format!("cannot print: {fault}")))
        }
    }
}

impl From<csv::Error> for Stop {
    fn from(fault: csv::Error) -> Self {
        // The crate's own way to an io::Error forgets which kind it was.
        if let csv::ErrorKind::Io(fault) = fault.kind() {
            return io::Error::from(fault.kind()).into();
        }
        Self::Failed(Failure::Running(format!("cannot print: {fault}")))
    }
}

impl From<ReadError> for Stop {
    fn from(fault: ReadError) -> Self {
        Self::Failed(Failure::Running(crate::fault::chain(&fault)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::daily::{Beat, CALC_VERSION, Figures, Summary};
    use crate::domain::heartbeat::{Miss, Outcome};
    use crate::domain::status::Status;

    /// Standard output whose reader has gone.
    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reader_that_has_gone_ends_the_export_cleanly_in_either_format() {
        for format in [ExportFormat::Csv, ExportFormat::Jsonl] {
            let wish = Export {
                what: ExportWhat::Raw,
                from: None,
                to: None,
                device: None,
                format,
            };
            let mut lines = Lines::begin(ClosedPipe, &wish).ok().unwrap();
            // More than any buffer between holds.
            let row = RawRow {
                device_id: "D7",
                at: String::new(),
                outcome: "missed",
                rtt_ms: None,
                status: "online",
                reason: None,
                recheck: false,
            };
            let added = (0..10_000).try_for_each(|_| lines.add(&row));
            assert!(matches!(added, Err(Stop::PipeClosed)), "{format:?}");
        }
    }

    #[test]
    fn rechecks_alone_are_marked_as_rechecks() {
        let wish = Export {
            what: ExportWhat::Raw,
            from: None,
            to: None,
            device: None,
            format: ExportFormat::Csv,
        };
        let day: Day = "2026-03-12".parse().unwrap();
        let beat = |occasion| Beat {
            at: day.start(),
            outcome: Outcome::Missed(Miss::Timeout),
            occasion,
            status: Status::Online,
        };
        let occasions = [
            Occasion::FirstLook,
            Occasion::Scheduled,
            Occasion::Recheck,
            Occasion::OnDemand,
        ];
        let one = DeviceDay {
            device: "D7".parse().unwrap(),
            beats: occasions.map(beat).into(),
            late: 0,
        };
        let mut printed = Vec::new();
        let mut lines = Lines::begin(&mut printed, &wish).ok().unwrap();
        assert!(raw_group(vec![one], None, &mut lines).is_ok());
        assert!(lines.end().is_ok());
        let text = String::from_utf8(printed).unwrap();
        let marks = text.lines().filter_map(|line| line.rsplit(',').next());
        let marks: Vec<&str> = marks.collect();
        assert_eq!(marks, ["recheck", "false", "false", "true", "false"]);
    }

    fn columns_of(row: &impl Serialize) -> Vec<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(row).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        let header = text.lines().next().unwrap();
        header.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn headers_name_the_fields_in_their_order() {
        let day: Day = "2026-03-12".parse().unwrap();
        let row = Summary {
            day,
            device: "D7".parse().unwrap(),
            figures: Figures::default(),
            calc_version: CALC_VERSION,
            created_at: day.end(),
            updated_at: day.end(),
        };
        assert_eq!(columns_of(&DailyJson::from(&row)), DailyJson::COLUMNS);
        let raw = RawRow {
            device_id: "D7",
            at: day.start().to_string(),
            outcome: "missed",
            rtt_ms: None,
            status: "online",
            reason: Some("timeout"),
            recheck: false,
        };
        assert_eq!(columns_of(&raw), RAW_COLUMNS);
        let event = EventRow {
            log_id: "0123456789ab",
            seq: 1,
            produced_at: "",
            event: "",
            device_id: None,
            json: "{}",
        };
        assert_eq!(columns_of(&event), EVENT_COLUMNS);
    }
}
