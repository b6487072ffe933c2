//! How late probes leave, measured over the last whole minute.
//!
//! Floor 3. Pure data; `edge::monitor` notes each send.

use std::time::Duration;

use crate::domain::instant::Mono;

/// Buckets of one millisecond; the last takes everything later.
const BUCKETS: usize = 2_001;
const WINDOW: Duration = Duration::from_secs(60);

/// Counts of sends by lateness.
#[derive(Debug)]
pub struct Lateness {
    window_start: Mono,
    counts: Vec<u32>,
    last_p99_ms: Option<f64>,
}

impl Lateness {
    /// Starts the first minute at `now`.
    #[must_use]
    pub fn new(now: Mono) -> Self {
        Self {
            window_start: now,
            counts: vec![0; BUCKETS],
            last_p99_ms: None,
        }
    }

    /// Notes a probe that was due at `due` and leaves at `now`.
    pub fn note(&mut self, due: Mono, now: Mono) {
        let late = usize::try_from(now.since(due).as_millis()).unwrap_or(usize::MAX);
        if let Some(count) = self.counts.get_mut(late.min(BUCKETS - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// The 99th percentile in milliseconds (nearest rank, rounded up to the
    /// bucket's end) of the last whole minute, or of the running one before the
    /// first is whole; `None` where nothing was sent.
    pub fn p99_ms(&mut self, now: Mono) -> Option<f64> {
        if now.since(self.window_start) < WINDOW {
            return self.last_p99_ms.or_else(|| percentile_99(&self.counts));
        }
        self.last_p99_ms = percentile_99(&self.counts);
        self.counts.fill(0);
        self.window_start = now;
        self.last_p99_ms
    }
}

fn percentile_99(counts: &[u32]) -> Option<f64> {
    let total: u64 = counts.iter().copied().map(u64::from).sum();
    if total == 0 {
        return None;
    }
    let rank = (total * 99).div_ceil(100);
    let mut seen = 0;
    let found = counts.iter().position(|&count| {
        seen += u64::from(count);
        seen >= rank
    });
    let upper_end = u32::try_from(found? + 1).ok()?;
    Some(f64::from(upper_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_nearest_rank_of_the_last_whole_minute() {
        let mut lateness = Lateness::new(Mono::default());
        assert_eq!(lateness.p99_ms(Mono::default()), None);
        let at = |ms| Mono::default().plus(Duration::from_millis(ms));
        for ms in 0..100 {
            lateness.note(Mono::default(), at(ms));
        }
        assert_eq!(lateness.p99_ms(at(60_000)), Some(99.0));
        // The next minute is empty so far; the last one still stands.
        assert_eq!(lateness.p99_ms(at(61_000)), Some(99.0));
        assert_eq!(lateness.p99_ms(at(120_000)), None);
    }

    #[test]
    fn lateness_beyond_the_last_bucket_is_held_there() {
        let mut lateness = Lateness::new(Mono::default());
        lateness.note(Mono::default(), Mono::from_nanos(u64::MAX));
        assert_eq!(lateness.p99_ms(Mono::default()), Some(2_001.0));
    }
}
