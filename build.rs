//! Tells the program on which day it was built: a clock that shows an earlier one
//! is wrong. `SOURCE_DATE_EPOCH` makes builds repeat.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

fn main() {
    let seconds = std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(now);
    // The day's start: what runs the program may be behind what built it.
    let day = seconds - seconds % DAY_SECONDS;
    println!("cargo::rustc-env=SITEBEAT_BUILT_ON={day}");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rerun-if-changed=Cargo.toml");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the day of the build is what is asked for"
)]
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
