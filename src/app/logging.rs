//! Logs to standard error, as text for people or JSON for collectors.
//!
//! Floor 4. Lines are written by a thread of their own: see `lines`.
//!
//! # Invariants
//!
//! - As JSON every line is one object, that of a panic too.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::cli::LogFormat;

mod lines;

use lines::Lines;

/// Writes what still waits when it is dropped, within a second.
#[must_use = "lines still waiting at the end are lost without it"]
#[derive(Debug)]
pub struct Log(Lines);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Says why the program ends, on standard error, and waits no more than a second
/// for somebody to read it.
pub fn last_words(text: &str) {
    lines::last_words(text);
}

/// Starts logging. `levels` is `RUST_LOG`: a level (`debug`) or levels by
/// target (`sitebeat=debug,sled=warn`); information and above unless set.
pub fn start(format: LogFormat, levels: Option<&str>) -> Log {
    let log = Lines::to(std::io::stderr(), format);
    let quiet = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("sled", LevelFilter::WARN);
    let wanted = levels
        .filter(|levels| !levels.is_empty())
        .map(str::parse::<Targets>);
    let (filter, misread) = match wanted {
        None => (quiet, None),
        Some(Ok(wanted)) => (wanted, None),
        Some(Err(fault)) => (quiet, Some(fault)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(log.clone())
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Text => registry
            .with(lines.with_ansi(std::io::stderr().is_terminal()))
            .try_init(),
        LogFormat::Json => {
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            registry.with(lines.json().flatten_event(true)).try_init()
        }
    };
    if started.is_err() {
        // Only tests start it twice; the first one stays.
        tracing::debug!("logging was started before");
    }
    if let (Some(fault), Some(levels)) = (misread, levels) {
        tracing::warn!(
            "RUST_LOG = {levels:?} is not followed ({fault}): it takes a level (debug, info, warn, \
             error) or levels by target (sitebeat=debug,sled=warn)"
        );
    }
    Log(log)
}
