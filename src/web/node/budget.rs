//! The data budget: what thirty days cost a metered link.
//!
//! Floor 3. Pings are computed from the rules in force, the uplink is scaled from
//! what was measured.
//!
//! # Invariants
//!
//! - Nothing is extrapolated from less than an hour.
//! - A rule set is listed where an enabled device follows it, at most
//!   [`SETS_MAX`] by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shares::Shares;
use crate::board::{Gateway, Picture, Row};
use crate::config::settings::ProbeRules;
use crate::web::text::{DASH, bytes, count, span};

/// Rule sets listed by themselves, the costliest first.
const SETS_MAX: usize = 12;

/// IP and ICMP header of an echo, without options.
const HEADER_V4: u64 = 20 + 8;
const HEADER_V6: u64 = 40 + 8;

const DAYS: Duration = Duration::from_hours(24 * 30);

/// Before this the uplink's bytes are no rate: a connection's first minutes hold
/// what waited.
const MEASURED_MIN: Duration = Duration::from_hours(1);

/// The budget, ready to print.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) lines: Vec<Line>,
    pub(super) shares: Option<Shares>,
    pub(super) notes: Vec<String>,
}

/// A line of it.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    /// What else is said of it.
    pub(super) aside: String,
    /// Devices, bytes of one, bytes of all in thirty days.
    pub(super) devices: String,
    pub(super) each: String,
    pub(super) all: String,
    /// Whether it is the sum of the others.
    pub(super) is_sum: bool,
}

/// Devices under one set of rules and of one address family.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    devices: u64,
    /// Of one probe, there and back.
    probe_bytes: u64,
    period: Duration,
    /// Of one device in thirty days.
    each: u64,
    all: u64,
}

impl Budget {
    pub(super) fn of(picture: &Picture) -> Self {
        let sets = sets(picture);
        let pings = sets.iter().map(|(_, set)| set.all).sum::<u64>();
        let mut lines: Vec<Line> = sets.iter().take(SETS_MAX).map(Line::of_set).collect();
        lines.extend(Line::of_rest(sets.get(SETS_MAX..).unwrap_or_default()));
        let mut notes = vec![
            "Requests and replies, IP headers counted; probes beyond one a period, as after a \
             miss, come on top."
                .to_owned(),
        ];
        let uplink = Measured::of(&picture.gateway);
        let (up, down) = match uplink {
            Measured::Off => (0, 0),
            Measured::TooShort { since } => {
                notes.push(format!(
                    "The uplink is measured for {}; what it takes in 30 days is told after an \
                     hour.",
                    span(since)
                ));
                (0, 0)
            }
            Measured::Rate { up, down } => {
                notes.push(
                    "The uplink as measured since the start: MQTT packets, without TLS, TCP and \
                     IP."
                    .to_owned(),
                );
                (up, down)
            }
        };
        lines.extend(uplink.lines());
        let is_whole = !matches!(uplink, Measured::TooShort { .. });
        lines.push(Line {
            name: "Site".to_owned(),
            aside: if is_whole { "" } else { "without the uplink" }.to_owned(),
            all: bytes(pings.saturating_add(up).saturating_add(down)),
            is_sum: true,
            ..Line::default()
        });
        let part = |colour, name, n| (colour, n, format!("{name} {}", bytes(n)));
        let shares = Shares::of(
            "30 days",
            [
                part("a", "pings", pings),
                part("b", "uplink sent", up),
                part("c", "uplink received", down),
            ],
        );
        Self {
            lines,
            // One part alone says nothing that the sum does not.
            shares: shares.filter(|shares| shares.parts.len() > 1),
            notes,
        }
    }
}

impl Line {
    fn of_set((name, set): &(String, Set)) -> Self {
        Self {
            name: name.clone(),
            aside: format!("{} every {}", bytes(set.probe_bytes), period(set.period)),
            devices: count(set.devices),
            each: bytes(set.each),
            all: bytes(set.all),
            is_sum: false,
        }
    }

    fn of_rest(sets: &[(String, Set)]) -> Option<Self> {
        let sum = |of: fn(&Set) -> u64| sets.iter().map(|(_, set)| of(set)).sum::<u64>();
        (!sets.is_empty()).then(|| Self {
            name: format!("{} more", sets.len()),
            devices: count(sum(|set| set.devices)),
            each: DASH.to_owned(),
            all: bytes(sum(|set| set.all)),
            ..Self::default()
        })
    }
}

/// A period in full: one of 1.5 s is not 1 s.
fn period(length: Duration) -> String {
    let seconds = length.as_secs();
    let is_short = seconds < 60
        || seconds.is_multiple_of(60) && seconds < 86_400
        || seconds.is_multiple_of(3_600);
    if is_short && length.subsec_nanos() == 0 {
        span(length)
    } else {
        format!("{} s", length.as_secs_f64())
    }
}

/// The sets in force, the costliest first.
fn sets(picture: &Picture) -> Vec<(String, Set)> {
    let mut sets: BTreeMap<(Option<&str>, bool), Set> = BTreeMap::new();
    for row in picture.devices.values().filter(|row| row.device.enabled) {
        let key = (row.device.profile.as_deref(), row.device.address.is_ipv6());
        let set = sets.entry(key).or_insert_with(|| Set::under(row));
        set.devices += 1;
        set.all = set.all.saturating_add(set.each);
    }
    let has_both = |profile| [false, true].map(|v6| sets.contains_key(&(profile, v6))) == [true; 2];
    let mut named: Vec<(String, Set)> = sets
        .iter()
        .map(|(&(profile, is_v6), set)| {
            let name = profile.unwrap_or("[probe]");
            let family = match (is_v6, has_both(profile)) {
                (true, _) => " IPv6",
                (false, true) => " IPv4",
                (false, false) => "",
            };
            (format!("{name}{family}"), *set)
        })
        .collect();
    named.sort_by_key(|(_, set)| std::cmp::Reverse(set.all));
    named
}

impl Set {
    fn under(row: &Row) -> Self {
        let rules = &row.rules;
        let probe_bytes = probe_bytes(rules, row.device.address.is_ipv6());
        let probes = DAYS.as_millis() / rules.heartbeat_period.as_millis().max(1);
        let probes = u64::try_from(probes).unwrap_or(u64::MAX);
        Self {
            probe_bytes,
            period: rules.heartbeat_period,
            each: probes.saturating_mul(probe_bytes),
            ..Self::default()
        }
    }
}

/// Bytes of one probe and its reply, with the echo that wakes the modem.
fn probe_bytes(rules: &ProbeRules, is_v6: bool) -> u64 {
    let header = if is_v6 { HEADER_V6 } else { HEADER_V4 };
    let echoes = if rules.wake_echo { 2 } else { 1 };
    (header + u64::from(rules.payload_bytes)) * 2 * echoes
}

/// What is known of the uplink's bytes.
#[derive(Clone, Copy, Debug)]
enum Measured {
    /// There is no uplink.
    Off,
    /// It runs for less than an hour.
    TooShort { since: Duration },
    /// Bytes in thirty days.
    Rate { up: u64, down: u64 },
}

impl Measured {
    fn of(gateway: &Gateway) -> Self {
        if !gateway.uplink.is_configured() {
            return Self::Off;
        }
        let since = Duration::from_secs(gateway.pulse.uptime_s);
        if since < MEASURED_MIN {
            return Self::TooShort { since };
        }
        let scaled = |n: u64| {
            let scaled = u128::from(n) * DAYS.as_millis() / since.as_millis();
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let (up, down) = gateway.uplink.traffic;
        Self::Rate {
            up: scaled(up),
            down: scaled(down),
        }
    }

    fn lines(self) -> Vec<Line> {
        let line = |name: &str, all| Line {
            name: name.to_owned(),
            all,
            ..Line::default()
        };
        match self {
            Self::Off => Vec::new(),
            Self::TooShort { .. } => vec![line("Uplink", DASH.to_owned())],
            Self::Rate { up, down } => vec![
                line("Uplink, sent", bytes(up)),
                line("Uplink, received", bytes(down)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_two_packets_with_their_headers() {
        let rules = ProbeRules::default();
        assert_eq!(probe_bytes(&rules, false), 88);
        assert_eq!(probe_bytes(&rules, true), 128);
        let waking = ProbeRules {
            wake_echo: true,
            payload_bytes: 56,
            ..rules
        };
        assert_eq!(probe_bytes(&waking, false), 336);
    }

    #[test]
    fn periods_are_told_in_full() {
        let told = |millis| period(Duration::from_millis(millis));
        assert_eq!(
            [200, 1_500, 5_000, 60_000, 90_000, 5_400_000].map(told),
            ["0.2 s", "1.5 s", "5 s", "1 min", "90 s", "1 h 30 min"]
        );
    }
}
