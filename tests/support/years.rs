//! Years of summary rows, made for benchmarks.

use sitebeat::domain::daily::{CALC_VERSION, Figures, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::store::Store;

/// Keeps rows of `count` days of `fleet`, which ascends, up to `last`.
pub(crate) fn keep_days(store: &Store, fleet: &[DeviceId], (last, count): (Day, u32)) {
    let mut day = (1..count).fold(last, |day, _| day.previous());
    for n in 0..count {
        let row = |(d, &device): (usize, &DeviceId)| Summary {
            day,
            device,
            figures: figures(n.wrapping_mul(31).wrapping_add(u32::try_from(d).unwrap())),
            calc_version: CALC_VERSION,
            created_at: day.end(),
            updated_at: day.end(),
        };
        let rows: Vec<Summary> = fleet.iter().enumerate().map(row).collect();
        let kept = store.upsert_summaries(day, &rows);
        kept.expect("keep a day of rows");
        day = day.next();
    }
}

fn figures(n: u32) -> Figures {
    let missed = n.wrapping_mul(2_654_435_761) >> 24;
    Figures {
        expected: 1_440,
        replied: 1_440 - missed,
        missed,
        online: 1_440 - missed,
        offline: missed,
        avg_rtt_us: Some(300_000 + n % 10_000),
        p95_rtt_us: Some(900_000 + n % 10_000),
        max_missed_count: missed,
        longest_offline_ms: u64::from(missed) * 60_000,
        ..Figures::default()
    }
}
