//! `/metrics` in the Prometheus text format.
//!
//! Floor 3. Two series per device and a few dozen for the gateway: 10,000
//! devices are about 2 MB, and nothing here grows with time.

use std::fmt::Display;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::Front;
use super::fault::Fault;
use super::text::put;
use crate::board::{Gateway, Picture};
use crate::domain::device::Device;
use crate::domain::instant::Wall;

mod uplink;

/// What one device's series say.
struct Told {
    device: Arc<Device>,
    /// `None` before the first outcome.
    success: Option<bool>,
    /// RTT of the last heartbeat, if it was a reply.
    rtt_us: Option<u32>,
}

/// `GET /metrics`. Text about 10,000 devices takes 10 ms, so it is made on a
/// blocking thread.
pub(super) async fn metrics(State(front): State<Arc<Front>>) -> Result<Response, Fault> {
    let text = tokio::task::spawn_blocking(move || text(&front))
        .await
        .map_err(|error| {
            tracing::error!(%error, "the metrics broke off");
            Fault::of_status(StatusCode::INTERNAL_SERVER_ERROR)
        })?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn text(front: &Front) -> String {
    let now = front.shared.clock.wall();
    let (devices, mut text) = {
        let picture = front.shared.board.look();
        (told(&picture), gateway(&picture, now))
    };
    push_devices(&mut text, &devices);
    text
}

fn told(picture: &Picture) -> Vec<Told> {
    let enabled = picture.devices.values().filter(|row| row.device.enabled);
    enabled
        .map(|row| {
            let replied = row.track.missed_count == 0;
            let success = row.track.last_ping_at.map(|_| replied);
            Told {
                device: Arc::clone(&row.device),
                success,
                rtt_us: row.track.rtt_us.filter(|_| success == Some(true)),
            }
        })
        .collect()
}

fn push_devices(text: &mut String, devices: &[Told]) {
    text.reserve(devices.len() * 220);
    head(
        text,
        ("probe_success", "gauge"),
        "Whether the last heartbeat that could be asked was a reply.",
    );
    for told in devices {
        if let Some(success) = told.success {
            device_series(text, "probe_success", &told.device);
            line(text, u8::from(success));
        }
    }
    head(
        text,
        ("probe_duration_seconds", "gauge"),
        "Round trip time of the last heartbeat of the device, where it was a reply.",
    );
    for told in devices {
        if let Some(rtt_us) = told.rtt_us {
            device_series(text, "probe_duration_seconds", &told.device);
            line(text, f64::from(rtt_us) / 1e6);
        }
    }
}

fn gateway(picture: &Picture, now: Wall) -> String {
    let mut text = String::with_capacity(8 << 10);
    devices_by_status(&mut text, picture);
    replies(&mut text, &picture.gateway);
    let singles = [probe_singles, store_singles, process_singles]
        .into_iter()
        .flat_map(|of| of(&picture.gateway));
    for (name, kind, help, value) in singles {
        head(&mut text, (name, kind), help);
        text.push_str(name);
        line(&mut text, value);
    }
    moments(&mut text, &picture.gateway, now);
    uplink::push(&mut text, &picture.gateway, now);
    head(
        &mut text,
        ("sitebeat_build_info", "gauge"),
        "Always 1; the label tells the version.",
    );
    text.push_str("sitebeat_build_info{version=\"");
    text.push_str(env!("CARGO_PKG_VERSION"));
    text.push_str("\"}");
    line(&mut text, 1);
    text
}

fn devices_by_status(text: &mut String, picture: &Picture) {
    let counts = picture.counts();
    head(
        text,
        ("sitebeat_devices", "gauge"),
        "Enabled devices by status.",
    );
    for (status, n) in [
        ("online", counts.online),
        ("degraded", counts.degraded),
        ("offline", counts.offline),
        ("unknown", counts.unknown),
    ] {
        put(
            text,
            format_args!("sitebeat_devices{{status=\"{status}\"}} {n}\n"),
        );
    }
    let judged = counts.online + counts.degraded + counts.offline;
    if judged > 0 {
        let name = "sitebeat_devices_online_ratio";
        head(
            text,
            (name, "gauge"),
            "Online devices among those with a verdict, 0 to 1.",
        );
        text.push_str(name);
        line(text, share(counts.online, judged));
    }
}

fn replies(text: &mut String, gateway: &Gateway) {
    let counters = &gateway.probe.counters;
    head(
        text,
        ("sitebeat_replies_total", "counter"),
        "Replies by kind; only valid ones are heartbeats.",
    );
    for (kind, n) in [
        ("valid", counters.valid),
        ("late", counters.late),
        ("duplicate", counters.duplicate),
        ("foreign", counters.foreign),
        ("malformed", counters.malformed),
    ] {
        put(
            text,
            format_args!("sitebeat_replies_total{{kind=\"{kind}\"}} {n}\n"),
        );
    }
}

/// A series without labels: name, type, help, value.
type Single = (&'static str, &'static str, &'static str, f64);

fn probe_singles(gateway: &Gateway) -> Vec<Single> {
    const COUNTER: &str = "counter";
    let probe = &gateway.probe.counters;
    let counted = |name, help, n| (name, COUNTER, help, wide(n));
    let mut all = vec![
        counted(
            "sitebeat_probes_sent_total",
            "Echo requests the kernel took.",
            probe.sent,
        ),
        counted(
            "sitebeat_sent_bytes_total",
            "Bytes of those, IP header included.",
            probe.sent_bytes,
        ),
        counted(
            "sitebeat_send_failed_total",
            "Requests the kernel refused.",
            probe.send_failed,
        ),
        counted(
            "sitebeat_icmp_errors_total",
            "Probes ended by an ICMP error.",
            probe.errors,
        ),
        counted(
            "sitebeat_receive_overflows_total",
            "Receive buffer overflows.",
            probe.overflowed,
        ),
    ];
    if let Some(ms) = gateway.probe.lateness_p99_ms {
        let help = "99th percentile of how late probes left in the last minute.";
        all.push((
            "sitebeat_send_lateness_p99_seconds",
            "gauge",
            help,
            ms / 1e3,
        ));
    }
    all
}

fn store_singles(gateway: &Gateway) -> Vec<Single> {
    let store = &gateway.store;
    let figures = &store.figures;
    let gauge = |name, help, value| (name, "gauge", help, value);
    let counted = |name, help, n| (name, "counter", help, wide(n));
    let open = wide(figures.open_samples as u64);
    vec![
        gauge(
            "sitebeat_store_open",
            "Whether the store is open.",
            flag(store.is_open),
        ),
        gauge(
            "sitebeat_store_failing",
            "Whether nothing can be kept.",
            flag(store.failing.is_some()),
        ),
        gauge(
            "sitebeat_store_bytes",
            "Size of the store.",
            wide(figures.bytes),
        ),
        gauge(
            "sitebeat_store_free_bytes",
            "Free space on its disk.",
            wide(figures.free_bytes),
        ),
        gauge(
            "sitebeat_store_open_samples",
            "Heartbeats not yet on disk.",
            open,
        ),
        gauge(
            "sitebeat_store_events",
            "Events in the log.",
            wide(figures.events),
        ),
        counted(
            "sitebeat_store_written_bytes_total",
            "Bytes caused to be written.",
            figures.bytes_written,
        ),
        counted(
            "sitebeat_store_lost_samples_total",
            "Heartbeats not kept.",
            figures.lost_samples,
        ),
    ]
}

fn process_singles(gateway: &Gateway) -> Vec<Single> {
    let (config, pulse) = (&gateway.config, &gateway.pulse);
    let gauge = |name, help, value| (name, "gauge", help, value);
    let refused = wide(config.refused_rows.len() as u64);
    let memory = pulse.memory_mb * 1e6;
    vec![
        gauge(
            "sitebeat_config_refused",
            "Whether the newest was refused.",
            flag(config.last_error.is_some()),
        ),
        gauge(
            "sitebeat_inventory_refused_rows",
            "Inventory rows refused.",
            refused,
        ),
        gauge(
            "sitebeat_clock_trusted",
            "Whether the wall clock is trusted; while not, nothing is written.",
            flag(gateway.clock.distrust.is_none()),
        ),
        (
            "sitebeat_clock_steps_total",
            "counter",
            "How often the wall clock was set.",
            wide(gateway.clock.steps),
        ),
        gauge(
            "sitebeat_tasks",
            "Live asynchronous tasks.",
            wide(pulse.tasks as u64),
        ),
        gauge(
            "sitebeat_uptime_seconds",
            "Seconds since the start.",
            wide(pulse.uptime_s),
        ),
        gauge("process_resident_memory_bytes", "Resident memory.", memory),
    ]
}

/// How long ago things last happened.
fn moments(text: &mut String, gateway: &Gateway, now: Wall) {
    for (name, help, at) in [
        (
            "sitebeat_scheduler_age_seconds",
            "Seconds since the scheduler last turned.",
            gateway.probe.turned_at,
        ),
        (
            "sitebeat_store_flush_age_seconds",
            "Seconds since something was last made durable.",
            gateway.store.figures.last_flush,
        ),
        (
            "sitebeat_config_age_seconds",
            "Seconds since the configuration was taken into force.",
            Some(gateway.config.loaded_at),
        ),
    ] {
        if let Some(at) = at {
            head(text, (name, "gauge"), help);
            text.push_str(name);
            line(text, now.since(at).as_secs_f64());
        }
    }
}

fn head(text: &mut String, (name, kind): (&str, &str), help: &str) {
    put(
        text,
        format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
    );
}

fn device_series(text: &mut String, name: &str, device: &Device) {
    put(
        text,
        format_args!("{name}{{device_id=\"{}\",name=\"", device.id),
    );
    escape(text, &device.name);
    put(text, format_args!("\",address=\"{}\"}}", device.address));
}

/// Ends a series with its value.
fn line(text: &mut String, value: impl Display) {
    put(text, format_args!(" {value}\n"));
}

/// A label's value as the format asks: backslash, quote and line end escaped.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the format's numbers are doubles; counters past 2^53 lose their last digit"
)]
const fn wide(n: u64) -> f64 {
    n as f64
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn share(part: usize, whole: usize) -> f64 {
    wide(part as u64) / wide(whole as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_leave_their_quotes() {
        let mut text = String::new();
        escape(&mut text, "a\"b\\c\nd\u{e4}");
        assert_eq!(text, "a\\\"b\\\\c\\nd\u{e4}");
    }
}
