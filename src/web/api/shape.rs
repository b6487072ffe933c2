//! The shapes of the API's answers about devices.
//!
//! Floor 3. Field names are the contract; `null` means not known yet. Times are
//! RFC 3339 in UTC with milliseconds, RTTs milliseconds.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::board::{self, command};
use crate::config::settings::ThresholdValue;
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::{Occasion, Outcome};
use crate::domain::instant::Wall;
use crate::domain::{heartbeat, status};

/// `GET devices`
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the contract")]
pub(super) struct Devices {
    pub(super) site: String,
    pub(super) counts: Counts,
    pub(super) total: usize,
    pub(super) page: usize,
    pub(super) per_page: usize,
    pub(super) devices: Vec<Device>,
}

/// Enabled devices by status.
#[derive(Debug, Serialize)]
pub(super) struct Counts {
    online: usize,
    degraded: usize,
    offline: usize,
    unknown: usize,
}

/// One device: its liveness record, and what the inventory says of it.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the contract")]
pub(super) struct Device {
    device_id: String,
    status: &'static str,
    last_ping_at: Option<Time>,
    last_seen: Option<Time>,
    rtt_ms: Option<Millis>,
    missed_count: u32,
    updated_at: Option<Time>,
    name: String,
    address: String,
    profile: Option<String>,
    tags: Vec<String>,
    since: Option<Time>,
}

/// `GET devices/{id}`
#[derive(Debug, Serialize)]
pub(super) struct DeviceWithThresholds {
    #[serde(flatten)]
    device: Device,
    thresholds: BTreeMap<&'static str, Threshold>,
}

#[derive(Debug, Serialize)]
struct Threshold {
    value: Value,
    from: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Switch(bool),
}

/// `GET devices/{id}/heartbeats`
#[derive(Debug, Serialize)]
pub(super) struct Heartbeats {
    pub(super) device_id: String,
    pub(super) day: String,
    pub(super) samples: Samples,
}

/// A day's heartbeats, shaped one by one as they are printed: a device asked
/// five times a second has 432,000 a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::web) struct Samples(pub(in crate::web) Vec<heartbeat::Sample>);

/// One heartbeat; the marks of unscheduled probes stand only where they hold.
#[derive(Debug, Serialize)]
struct Sample {
    at: Time,
    outcome: &'static str,
    rtt_ms: Option<Millis>,
    status: &'static str,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recheck: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    first_look: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    on_demand: bool,
}

/// `POST devices/{id}/probe`
#[derive(Debug, Serialize)]
pub(super) struct Probed {
    device_id: String,
    outcome: &'static str,
    rtt_ms: Option<Millis>,
    reason: Option<&'static str>,
}

/// `POST rollup`
#[derive(Debug, Serialize)]
pub(super) struct RolledUp {
    day: String,
    rows_changed: usize,
    rows_kept: usize,
}

/// `POST reload`
#[derive(Debug, Serialize)]
pub(super) struct Reloaded {
    pub(super) config: super::node::Config,
}

/// A time, printed as RFC 3339.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) Wall);

/// An RTT in microseconds, printed in milliseconds: `820`, `3.27`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Millis(pub(super) u32);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            return serializer.serialize_u32(self.0 / 1_000);
        }
        // The shortest text that reads back as this double has three decimals.
        serializer.serialize_f64(f64::from(self.0) / 1_000.0)
    }
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Sample::of))
    }
}

impl Counts {
    pub(super) const fn of(counts: board::Counts) -> Self {
        Self {
            online: counts.online,
            degraded: counts.degraded,
            offline: counts.offline,
            unknown: counts.unknown,
        }
    }
}

impl Device {
    pub(super) fn of(row: &board::Row) -> Self {
        let (device, track): (_, &status::Track) = (&row.device, &row.track);
        Self {
            device_id: device.id.to_string(),
            status: track.status.word(),
            last_ping_at: track.last_ping_at.map(Time),
            last_seen: track.last_seen.map(Time),
            rtt_ms: track.rtt_us.map(Millis),
            missed_count: track.missed_count,
            updated_at: track.updated_at.map(Time),
            name: device.name.clone(),
            address: device.address.to_string(),
            profile: device.profile.clone(),
            tags: device.tags.clone(),
            since: track.since.map(Time),
        }
    }
}

impl DeviceWithThresholds {
    pub(super) fn of(row: &board::Row) -> Self {
        let thresholds = row.rules.thresholds().into_iter().map(|threshold| {
            let value = match threshold.value {
                ThresholdValue::Number(n) => Value::Number(n),
                ThresholdValue::Switch(on) => Value::Switch(on),
            };
            let from = threshold.from.to_string();
            (threshold.key, Threshold { value, from })
        });
        Self {
            device: Device::of(row),
            thresholds: thresholds.collect(),
        }
    }
}

impl Sample {
    fn of(sample: &heartbeat::Sample) -> Self {
        Self {
            at: Time(sample.at),
            outcome: sample.outcome.word(),
            rtt_ms: sample.outcome.rtt_us().map(Millis),
            status: sample.status.word(),
            reason: sample.outcome.reason(),
            recheck: sample.occasion == Occasion::Recheck,
            first_look: sample.occasion == Occasion::FirstLook,
            on_demand: sample.occasion == Occasion::OnDemand,
        }
    }
}

impl RolledUp {
    pub(super) fn of(day: Day, done: command::RolledUp) -> Self {
        Self {
            day: day.to_string(),
            rows_changed: done.rows_changed,
            rows_kept: done.rows_kept,
        }
    }
}

impl Probed {
    pub(super) fn of(device: DeviceId, outcome: Outcome) -> Self {
        Self {
            device_id: device.to_string(),
            outcome: outcome.word(),
            rtt_ms: outcome.rtt_us().map(Millis),
            reason: outcome.reason(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::heartbeat::RttMillis;

    #[test]
    fn whole_milliseconds_have_no_decimals() {
        let printed = |us| serde_json::to_string(&Millis(us)).unwrap();
        assert_eq!(printed(820_000), "820");
        assert_eq!(printed(3_270), "3.27");
        assert_eq!(printed(42), "0.042");
        assert_eq!(printed(0), "0");
    }

    proptest! {
        #[test]
        fn json_prints_an_rtt_as_pages_do(us: u32) {
            prop_assert_eq!(
                serde_json::to_string(&Millis(us)).unwrap(),
                RttMillis(us).to_string()
            );
        }
    }
}
