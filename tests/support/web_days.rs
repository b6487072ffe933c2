//! What the pages of a front find in the store: made-up rows and events.

use std::time::Duration;

use sitebeat::board::Board;
use sitebeat::domain::daily::{CALC_VERSION, Figures, SiteSummary, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::event::{Event, Failure, FailureCode, News, Stage};
use sitebeat::domain::status::Status;
use sitebeat::store::LoggedEvent;
use sitebeat::wire::message::{Place, envelope};

use super::{HOSTILE, ago, now};

/// Rows of the finished days of all devices on the board that have a status,
/// and of one that has left it.
pub(crate) fn rows_of(
    board: &Board,
    (from, to): (Day, Day),
    device: Option<DeviceId>,
    each: &mut dyn FnMut(&Summary) -> bool,
) {
    let first: Day = "2025-12-20".parse().unwrap();
    let today = Day::of(now()).unwrap();
    let mut ids: Vec<DeviceId> = board
        .look()
        .devices
        .values()
        .filter(|row| row.track.status != Status::Unknown)
        .map(|row| row.device.id)
        .collect();
    if !ids.is_empty() {
        ids.push("gone-4".parse().unwrap());
        ids.sort();
    }
    let mut day = from.max(first);
    while day <= to && day < today {
        for id in ids.iter().filter(|id| device.is_none_or(|one| one == **id)) {
            if let Some(row) = summary(*id, day)
                && !each(&row)
            {
                return;
            }
        }
        day = day.next();
    }
}

/// A day of a device: most are well, some for a part of it; now and then the
/// gateway was away.
pub(crate) fn summary(device: DeviceId, day: Day) -> Option<Summary> {
    let text = format!("{device} {day}");
    let hash = text.bytes().fold(0_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let dice = hash >> 8;
    let is_gone = device.as_str() == "gone-4" && day.to_string().as_str() > "2026-02-20";
    if is_gone || dice.is_multiple_of(61) {
        return None;
    }
    let observed = match dice % 23 {
        3 => 1_440 - dice % 700,
        7 if dice % 3 == 0 => 0,
        _ => 1_440,
    };
    let is_bad = device.as_str() == "pump-7" || device.as_str().ends_with('7');
    let offline = match dice % 13 {
        0 if is_bad => observed * 2 / 3,
        1 | 2 if is_bad => observed / 5,
        3 => observed / 17,
        4 | 5 => observed.min(3),
        _ => 0,
    };
    let degraded = if dice % 9 == 4 { observed / 40 } else { 0 };
    let is_seen = observed > offline;
    let figures = Figures {
        expected: 1_440,
        replied: observed - offline,
        missed: offline,
        late: dice % 3,
        no_data: 0,
        online: observed - offline - degraded,
        degraded,
        offline,
        avg_rtt_us: is_seen.then_some(310_000 + dice % 90_000),
        p95_rtt_us: is_seen.then_some(520_000 + dice % 400_000),
        max_missed_count: offline.min(58),
        longest_offline_ms: u64::from(offline) * 60_000,
        ..Figures::default()
    };
    Some(Summary {
        day,
        device,
        figures,
        calc_version: CALC_VERSION,
        created_at: day.end().plus(Duration::from_mins(5)),
        updated_at: day.end().plus(Duration::from_mins(15)),
    })
}

/// The newest `limit` events below `before`: one of each kind, and what a later
/// version might write.
pub(crate) fn log_of(
    device: Option<DeviceId>,
    before: Option<u64>,
    limit: usize,
) -> Vec<LoggedEvent> {
    let news = news();
    let mut logged = Vec::new();
    for (seq, (minutes, device, news)) in (1..).zip(news) {
        let event = Event {
            device: device.map(|id: &str| id.parse().unwrap()),
            produced_at: ago(minutes * 60),
            process_ms: 3,
            news,
        };
        let place = Place {
            site: "site-1",
            node: "gw-1",
            log_id: "0badcafe",
            seq,
            prev_seq: (seq > 1).then(|| seq - 1),
        };
        let json = envelope(&event, &place);
        logged.push((event.device, LoggedEvent { seq, json }));
    }
    let seq = logged.len() as u64 + 1;
    let json = format!(
        "{{\"event\":\"heartbeat.new.v9\",\"meta\":{{\"produced_at\":\"2026-03-12T14:02:00.000Z\"}},\
         \"context\":{{}},\"data\":{}}}",
        serde_json::to_string(HOSTILE).unwrap()
    );
    logged.push((None, LoggedEvent { seq, json }));
    logged
        .into_iter()
        .rev()
        .filter(|(own, _)| device.is_none() || *own == device)
        .map(|(_, logged)| logged)
        .filter(|logged| before.is_none_or(|before| logged.seq < before))
        .take(limit)
        .collect()
}

/// Minutes ago, whom it is about, and what happened; oldest first.
fn news() -> Vec<(u64, Option<&'static str>, News)> {
    let mut news = vec![
        turned(1_500, "new-1", (Status::Unknown, Status::Online), 0),
        (
            1_400,
            Some("gone-4"),
            News::DeviceRemoved { reason: "removed" },
        ),
    ];
    let (from, to) = (ago(90_000), ago(83_400));
    let source = "step";
    news.push((1_390, None, News::ClockStepped { from, to, source }));
    let yesterday = Day::of(now()).unwrap().previous();
    let mut rows = Vec::new();
    for id in ["meter-001", "pump-7", "valve-3"] {
        let row = summary(id.parse().unwrap(), yesterday).unwrap();
        news.push((827, Some(id), News::DaySummarised(Box::new(row))));
        rows.push(row);
    }
    let site = SiteSummary::of(yesterday, &rows);
    let silence = "no reply from 10.64.12.7 within 5000 ms";
    news.extend([
        (827, None, News::SiteSummarised(Box::new(site))),
        failed(
            60,
            None,
            (Stage::Rollup, FailureCode::RollupFailed),
            HOSTILE,
        ),
        turned(20, "meter-002", (Status::Online, Status::Degraded), 0),
        failed(
            5,
            Some("pump-7"),
            (Stage::Heartbeat, FailureCode::PingTimeout),
            silence,
        ),
        turned(3, "pump-7", (Status::Online, Status::Offline), 3),
        turned(2, "valve-3", (Status::Offline, Status::Online), 0),
    ]);
    news
}

fn turned(
    minutes: u64,
    device: &'static str,
    (previous, current): (Status, Status),
    missed_count: u32,
) -> (u64, Option<&'static str>, News) {
    let last_seen = Some(ago(320));
    let news = News::StatusChanged {
        previous,
        current,
        missed_count,
        last_seen,
    };
    (minutes, Some(device), news)
}

fn failed(
    minutes: u64,
    device: Option<&'static str>,
    (stage, code): (Stage, FailureCode),
    message: &str,
) -> (u64, Option<&'static str>, News) {
    let failure = Failure {
        stage,
        code,
        message: message.into(),
        retryable: true,
        failed_at: ago(minutes * 60),
    };
    (minutes, device, News::Failed(failure))
}
