//! What a page costs: processor time and bytes.
//!
//! `cargo bench --bench page` prints one line per page. Processor time of the
//! process, not elapsed time, so that a busy machine does not change the figure.

#[path = "../tests/support/web_ask.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared with the tests, which use the rest and may panic"
)]
mod web_ask;
#[path = "../tests/support/web_front.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared with the tests, which use the rest and may panic"
)]
mod web_front;

use std::time::Duration;

use axum::Router;
use nix::time::{ClockId, clock_gettime};
use sitebeat::web::router;
use web_ask::{ask, get};

/// Measured per page, after as many again to warm up.
const ROUNDS: u32 = 200;

#[expect(
    clippy::expect_used,
    reason = "a bench that cannot start has nothing to say"
)]
fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    for (devices, path) in [
        (1_000, "/?per_page=1000"),
        (1_000, "/"),
        (5_000, "/"),
        (10_000, "/"),
        (10_000, "/?sort=-rtt_ms&page=50"),
        (10_000, "/?q=meter-0999"),
        (10_000, "/api/v1/devices?per_page=500"),
        (10_000, "/metrics"),
        (1, "/devices/meter-00000?day=2026-03-11"),
        (1, "/api/v1/devices/meter-00000/heartbeats?day=2026-03-11"),
        (1_000, "/node"),
    ] {
        let router = router(web_front::many(devices).shared);
        let (cpu, bytes) = runtime.block_on(measured(&router, path));
        report(&format!(
            "{devices:>6} devices  {path:<58} {:>8.3} ms CPU {:>9} bytes",
            cpu.as_secs_f64() * 1e3,
            bytes
        ));
    }
}

async fn measured(router: &Router, path: &str) -> (Duration, usize) {
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        bytes = ask(router, get(path)).await.text.len();
    }
    let before = cpu();
    for _ in 0..ROUNDS {
        bytes = ask(router, get(path)).await.text.len();
    }
    (cpu().saturating_sub(before) / ROUNDS, bytes)
}

#[expect(clippy::expect_used, reason = "Linux always has this clock")]
fn cpu() -> Duration {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    clock_gettime(clock)
        .expect("the clock of the process")
        .into()
}

#[expect(clippy::print_stdout, reason = "a bench is there to print")]
fn report(line: &str) {
    println!("{line}");
}
