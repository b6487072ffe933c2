//! Every key of the configuration.
//!
//! Floor 1. `layer` finds written keys in these tables, `check` takes their
//! values through them, and `tests/config.rs` holds the shipped
//! `config/default.toml` against them. Bounds above are wide, but such that no
//! sum or product of settings overflows anywhere: ten years at the most.
//!
//! # Invariants
//!
//! - [`RULES`] are the keys of [`ProbeRules`]: the ones a profile may set.
//! - [`PROCESS`] are all others; no name stands in both.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::key::{Key, Shape};
use super::settings::{EngineChoice, ProbeRules, Settings, SocketChoice, UplinkAck};
use super::{rule, url};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const TEN_YEARS_DAYS: u64 = 3_650;
const TEN_YEARS_HOURS: u64 = TEN_YEARS_DAYS * 24;
/// Large enough for any disk, small enough for sums.
const EXABYTE: u64 = 1 << 60;
const COUNT_MAX: u64 = 1_000_000;

/// `[probe]` and `[profile.NAME]`: what holds for a device. The thresholds of
/// the verdict are kept in microseconds in 32 bits, hence one hour.
pub(super) static RULES: &[Key<ProbeRules>] = &[
    number("heartbeat_period_ms", 200..=DAY_MS, |r, n| {
        r.heartbeat_period = millis(n);
    }),
    number("degraded_rtt_ms", 1..=HOUR_MS, |r, n| {
        r.status.degraded_rtt_us = narrow(n * 1_000);
    }),
    number("degraded_leave_rtt_ms", 1..=HOUR_MS, |r, n| {
        r.status.degraded_leave_rtt_us = narrow(n * 1_000);
    }),
    number("offline_timeout_ms", 50..=HOUR_MS, |r, n| {
        r.offline_timeout = millis(n);
    }),
    number("offline_missed_count", 1..=COUNT_MAX, |r, n| {
        r.status.offline_missed_count = narrow(n);
    }),
    number("recover_count", 1..=COUNT_MAX, |r, n| {
        r.status.recover_count = narrow(n);
    }),
    number("payload_bytes", 16..=1_400, |r, n| {
        r.payload_bytes = u16::try_from(n).unwrap_or(u16::MAX);
    }),
    number("late_window_ms", 0..=DAY_MS, |r, n| {
        r.late_window = millis(n);
    }),
    Key {
        name: "recheck_ms",
        shape: Shape::NumberOrOff(50..=DAY_MS, |r, n| {
            r.recheck = (n != 0).then(|| millis(n));
        }),
    },
    switch("wake_echo", |r, on| r.wake_echo = on),
];

/// All keys outside [`RULES`], in the order of `config/default.toml`.
pub(super) static PROCESS: &[Key<Settings>] = &[
    text("site.id", |s, t| rule::name(t).map(|id| s.site.id = id)),
    optional("site.name", |s, t| {
        rule::label(t).map(|name| s.site.name = name)
    }),
    text("site.region", |s, t| {
        rule::name(t).map(|region| s.site.region = region)
    }),
    optional("node.name", |s, t| {
        rule::name(t).map(|name| s.node.name = name)
    }),
    number("node.heartbeat_interval_ms", 500..=DAY_MS, |s, n| {
        s.node.heartbeat_interval = millis(n);
    }),
    number("node.heartbeat_ttl_ms", 1_000..=7 * DAY_MS, |s, n| {
        s.node.heartbeat_ttl = millis(n);
    }),
    optional("probe.source", |s, t| {
        rule::host_address(t).map(|address| s.sockets.source = Some(address))
    }),
    optional("probe.interface", |s, t| {
        rule::interface(t).map(|name| s.sockets.interface = Some(name))
    }),
    text("probe.socket", |s, t| {
        s.sockets.socket = match t {
            "auto" => SocketChoice::Auto,
            "raw" => SocketChoice::Raw,
            "dgram" => SocketChoice::Dgram,
            _ => return Err("must be \"auto\", \"raw\" or \"dgram\"".into()),
        };
        Ok(())
    }),
    text("probe.engine", |s, t| {
        s.sockets.engine = match t {
            "auto" => EngineChoice::Auto,
            "batch" => EngineChoice::Batch,
            "surge" => EngineChoice::Surge,
            _ => return Err("must be \"auto\", \"batch\" or \"surge\"".into()),
        };
        Ok(())
    }),
    Key {
        name: "path.targets",
        shape: Shape::Texts(|s, list| {
            s.path_targets = addresses(list)?;
            Ok(())
        }),
    },
    optional("inventory.file", |s, t| {
        s.inventory.file = rule::inventory_path(t)?;
        s.inventory.is_set = true;
        Ok(())
    }),
    text("store.path", |s, t| {
        rule::path(t).map(|()| s.store.path = t.into())
    }),
    number("store.flush_every_ms", 500..=DAY_MS, |s, n| {
        s.store.flush_every = millis(n);
    }),
    number("store.max_bytes", 1..=EXABYTE, |s, n| s.store.max_bytes = n),
    number("store.min_free_bytes", 0..=EXABYTE, |s, n| {
        s.store.min_free_bytes = n;
    }),
    number("store.raw_retention_hours", 0..=TEN_YEARS_HOURS, |s, n| {
        s.store.raw_retention = millis(n * HOUR_MS);
    }),
    text("rollup.at_utc", |s, t| {
        rule::time_of_day(t).map(|at| s.rollup.at_utc = at)
    }),
    number("rollup.late_tolerance_ms", 0..=12 * HOUR_MS, |s, n| {
        s.rollup.late_tolerance = millis(n);
    }),
    Key {
        name: "rollup.retry_ms",
        shape: Shape::Numbers(1..=DAY_MS, |s, list| {
            s.rollup.retry = list.into_iter().map(millis).collect();
        }),
    },
    number("rollup.backfill_days", 0..=TEN_YEARS_DAYS, |s, n| {
        s.rollup.backfill_days = narrow(n);
    }),
    number(
        "history.daily_retention_days",
        0..=TEN_YEARS_DAYS,
        |s, n| {
            s.history.daily_retention_days = narrow(n);
        },
    ),
    number(
        "history.events_retention_days",
        0..=TEN_YEARS_DAYS,
        |s, n| {
            s.history.events_retention_days = narrow(n);
        },
    ),
    optional("uplink.url", |s, t| {
        url::check(t, &["mqtt", "mqtts"]).map(|()| s.uplink.url = Some(t.into()))
    }),
    optional("uplink.username", |s, t| {
        rule::credential(t).map(|()| s.uplink.username = Some(t.into()))
    }),
    secret("uplink.password", rule::credential, |s, v| {
        s.uplink.password = Some(v);
    }),
    secret_file("uplink.password_file"),
    path("uplink.ca_file", |s, p| s.uplink.ca_file = Some(p)),
    path("uplink.client_cert_file", |s, p| {
        s.uplink.client_cert_file = Some(p);
    }),
    path("uplink.client_key_file", |s, p| {
        s.uplink.client_key_file = Some(p);
    }),
    // The upper bound is MQTT's own.
    number("uplink.max_packet_bytes", 1_024..=268_435_455, |s, n| {
        s.uplink.max_packet_bytes = n;
    }),
    switch("uplink.miss_events", |s, on| s.uplink.miss_events = on),
    text("uplink.topic_prefix", |s, t| {
        rule::topic_prefix(t).map(|prefix| s.uplink.topic_prefix = prefix)
    }),
    number("uplink.partitions", 1..=65_536, |s, n| {
        s.uplink.partitions = narrow(n);
    }),
    text("uplink.ack", |s, t| {
        s.uplink.ack = match t {
            "broker" => UplinkAck::Broker,
            "central" => UplinkAck::Central,
            _ => return Err("must be \"broker\" or \"central\"".into()),
        };
        Ok(())
    }),
    number("uplink.metrics_interval_ms", 0..=7 * DAY_MS, |s, n| {
        s.uplink.metrics_interval = Some(millis(n));
    }),
    number("uplink.outbox_max_bytes", 1..=EXABYTE, |s, n| {
        s.uplink.outbox_max_bytes = n;
    }),
    // MQTT counts its keep-alive in seconds, in 16 bits.
    number("uplink.keep_alive_ms", 1_000..=65_535_000, |s, n| {
        s.uplink.keep_alive = millis(n);
    }),
    number("uplink.backoff_max_ms", 1_000..=DAY_MS, |s, n| {
        s.uplink.backoff_max = millis(n);
    }),
    text("web.listen", |s, t| {
        rule::listen(t).map(|at| s.web.listen = at)
    }),
    text("web.base_path", |s, t| {
        rule::base_path(t).map(|path| s.web.base_path = path)
    }),
    secret("web.admin_token", rule::token, |s, v| {
        s.web.admin_token = Some(v);
    }),
    secret_file("web.admin_token_file"),
    secret("web.viewer_token", rule::token, |s, v| {
        s.web.viewer_token = Some(v);
    }),
    secret_file("web.viewer_token_file"),
    Key {
        name: "web.trusted_proxies",
        shape: Shape::Texts(|s, list| {
            s.web.trusted_proxies = addresses(list)?;
            Ok(())
        }),
    },
    optional("central.mqtt_url", |s, t| {
        url::check(t, &["mqtt", "mqtts"]).map(|()| s.central.mqtt_url = Some(t.into()))
    }),
    Key {
        name: "central.redis_url",
        shape: Shape::TextOrTexts(|s, list| {
            if list.is_empty() || list.len() > 64 {
                return Err("must be one URL or a list of 1 to 64".into());
            }
            for one in list {
                url::check(one, &["redis", "rediss"])?;
            }
            s.central.redis_url = list.iter().map(|&one| one.to_owned()).collect();
            Ok(())
        }),
    },
    text("central.partitions", |s, t| {
        rule::partitions(t).map(|ranges| s.central.partitions = ranges)
    }),
    text("central.listen", |s, t| {
        rule::listen(t).map(|at| s.central.listen = at)
    }),
    number("central.workers_max", 1..=1_024, |s, n| {
        s.central.workers_max = narrow(n);
    }),
    number("central.chunk", 1..=100_000, |s, n| {
        s.central.chunk = narrow(n);
    }),
    number("central.lock_ttl_ms", 100..=HOUR_MS, |s, n| {
        s.central.lock_ttl = millis(n);
    }),
    number(
        "central.daily_retention_days",
        0..=TEN_YEARS_DAYS,
        |s, n| {
            s.central.daily_retention_days = narrow(n);
        },
    ),
    number(
        "central.raw_retention_hours",
        0..=TEN_YEARS_HOURS,
        |s, n| {
            s.central.raw_retention_hours = narrow(n);
        },
    ),
    text("central.unit", |s, t| {
        rule::name(t).map(|unit| s.central.unit = unit)
    }),
    number("central.events_maxlen", 1..=1_000_000_000, |s, n| {
        s.central.events_maxlen = n;
    }),
];

/// Sections that later versions read. They are named here so that a fault can
/// say that the key is right and the version is not.
pub(super) const NOT_BUILT: [&str; 4] = ["alarm", "maintenance", "notify", "automation"];

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The ranges above keep every number that comes here within 32 bits.
fn narrow(n: u64) -> u32 {
    debug_assert!(u32::try_from(n).is_ok(), "the key's range ends too high");
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Addresses of hosts, each once.
fn addresses(list: &[&str]) -> Result<Vec<std::net::IpAddr>, String> {
    if list.len() > 64 {
        return Err("must be a list of at most 64 addresses".into());
    }
    let mut taken = Vec::new();
    for text in list {
        let address = rule::host_address(text)
            .map_err(|why| format!("must be a list of addresses: {text:?} {why}"))?;
        if !taken.contains(&address) {
            taken.push(address);
        }
    }
    Ok(taken)
}

const fn number<T>(name: &'static str, range: RangeInclusive<u64>, set: fn(&mut T, u64)) -> Key<T> {
    let shape = Shape::Number(range, set);
    Key { name, shape }
}

const fn switch<T>(name: &'static str, set: fn(&mut T, bool)) -> Key<T> {
    let shape = Shape::Switch(set);
    Key { name, shape }
}

type TakeText = fn(&mut Settings, &str) -> Result<(), String>;

const fn text(name: &'static str, take: TakeText) -> Key<Settings> {
    let shape = Shape::Text(take);
    Key { name, shape }
}

const fn optional(name: &'static str, take: TakeText) -> Key<Settings> {
    let shape = Shape::Optional(take);
    Key { name, shape }
}

const fn path(name: &'static str, set: fn(&mut Settings, std::path::PathBuf)) -> Key<Settings> {
    let shape = Shape::OptionalPath(set);
    Key { name, shape }
}

const fn secret(
    name: &'static str,
    rule: fn(&str) -> Result<(), String>,
    set: fn(&mut Settings, super::settings::Secret),
) -> Key<Settings> {
    let shape = Shape::Secret(rule, set);
    Key { name, shape }
}

const fn secret_file(name: &'static str) -> Key<Settings> {
    let shape = Shape::SecretFile;
    Key { name, shape }
}
