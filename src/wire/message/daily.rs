//! The summary rows as they travel: the daily event's data, the API, the export.
//!
//! Floor 1. Ratios are 0 to 1, or null where nothing was observed.

use serde::Serialize;

use super::{Id, RttJson, Time};
use crate::domain::daily::{SiteSummary, Summary};
use crate::domain::day::Day;
use crate::domain::heartbeat::RttMillis;

/// A row of `device_heartbeat_daily`.
#[derive(Clone, Debug, Serialize)]
pub struct DailyJson {
    day: DayJson,
    device_id: Id,
    online_ratio: Option<f64>,
    degraded_ratio: Option<f64>,
    offline_ratio: Option<f64>,
    avg_rtt_ms: Option<RttJson>,
    p95_rtt_ms: Option<RttJson>,
    max_missed_count: u32,
    calc_version: u32,
    created_at: Time,
    updated_at: Time,
    expected: u32,
    probed: u32,
    replied: u32,
    missed: u32,
    late: u32,
    no_data: u32,
    coverage: f64,
    loss_ratio: Option<f64>,
    longest_offline_ms: u64,
}

impl DailyJson {
    /// The names of the fields in their order, the heading of a CSV file.
    pub const COLUMNS: [&str; 20] = [
        "day",
        "device_id",
        "online_ratio",
        "degraded_ratio",
        "offline_ratio",
        "avg_rtt_ms",
        "p95_rtt_ms",
        "max_missed_count",
        "calc_version",
        "created_at",
        "updated_at",
        "expected",
        "probed",
        "replied",
        "missed",
        "late",
        "no_data",
        "coverage",
        "loss_ratio",
        "longest_offline_ms",
    ];

    /// The heading of a CSV file, with its line end.
    #[must_use]
    pub fn csv_heading() -> String {
        let mut line = Self::COLUMNS.join(",");
        line.push_str("\r\n");
        line
    }

    /// Appends the row as a line of CSV (RFC 4180), null as an empty field. No
    /// field ever needs quotes: ids, days and times hold no comma, quote or line
    /// end, all else is a number.
    pub fn push_csv(&self, text: &mut String) {
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |n| n.to_string());
        let rtt = |rtt: Option<RttJson>| {
            rtt.map_or_else(String::new, |RttJson(us)| RttMillis(us).to_string())
        };
        let fields = [
            self.day.0.to_string(),
            self.device_id.0.to_string(),
            ratio(self.online_ratio),
            ratio(self.degraded_ratio),
            ratio(self.offline_ratio),
            rtt(self.avg_rtt_ms),
            rtt(self.p95_rtt_ms),
            self.max_missed_count.to_string(),
            self.calc_version.to_string(),
            self.created_at.0.to_string(),
            self.updated_at.0.to_string(),
            self.expected.to_string(),
            self.probed.to_string(),
            self.replied.to_string(),
            self.missed.to_string(),
            self.late.to_string(),
            self.no_data.to_string(),
            self.coverage.to_string(),
            ratio(self.loss_ratio),
            self.longest_offline_ms.to_string(),
        ];
        for (place, field) in fields.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(field);
        }
        text.push_str("\r\n");
    }
}

/// The row of a whole site.
#[derive(Clone, Debug, Serialize)]
pub struct SiteDailyJson {
    day: DayJson,
    devices: u32,
    online_ratio: Option<f64>,
    degraded_ratio: Option<f64>,
    offline_ratio: Option<f64>,
    loss_ratio: Option<f64>,
    coverage: f64,
    worst: Vec<WorstJson>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct WorstJson {
    device_id: Id,
    online_ratio: f64,
}

#[derive(Clone, Copy, Debug)]
struct DayJson(Day);

impl Serialize for DayJson {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl From<&Summary> for DailyJson {
    fn from(row: &Summary) -> Self {
        let figures = &row.figures;
        Self {
            day: DayJson(row.day),
            device_id: Id(row.device),
            online_ratio: figures.online_ratio(),
            degraded_ratio: figures.degraded_ratio(),
            offline_ratio: figures.offline_ratio(),
            avg_rtt_ms: figures.avg_rtt_us.map(RttJson),
            p95_rtt_ms: figures.p95_rtt_us.map(RttJson),
            max_missed_count: figures.max_missed_count,
            calc_version: row.calc_version,
            created_at: Time(row.created_at),
            updated_at: Time(row.updated_at),
            expected: figures.expected,
            probed: figures.probed(),
            replied: figures.replied,
            missed: figures.missed,
            late: figures.late,
            no_data: figures.no_data,
            coverage: figures.coverage(),
            loss_ratio: figures.loss_ratio(),
            longest_offline_ms: figures.longest_offline_ms,
        }
    }
}

impl From<&SiteSummary> for SiteDailyJson {
    fn from(site: &SiteSummary) -> Self {
        let worst = site.worst.iter().map(|worst| WorstJson {
            device_id: Id(worst.device),
            online_ratio: worst.online_ratio(),
        });
        Self {
            day: DayJson(site.day),
            devices: site.devices,
            online_ratio: site.sum.online_ratio(),
            degraded_ratio: site.sum.degraded_ratio(),
            offline_ratio: site.sum.offline_ratio(),
            loss_ratio: site.sum.loss_ratio(),
            coverage: site.sum.coverage(),
            worst: worst.collect(),
        }
    }
}
