//! Heartbeats of some time, of all devices, in order: for an uplink that makes up for
//! an outage.
//!
//! Floor 2. Read in slices, so that who writes waits for a slice at most, and never
//! many more in memory than were asked for.

use super::database::Fault;
use super::{ReadError, Store, lock, raw, unread};
use crate::domain::day::Day;
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;

/// Frames read before the day is closed and opened again: sled keeps every page in
/// memory that it has read once, some 4 KB a frame.
const FRAMES_AN_OPENING: usize = 3_000;

/// The earliest of what is met within a time.
struct Span {
    from: Wall,
    /// What is met at or after this is left out. Comes down as more is met than was
    /// asked for.
    to: Wall,
    limit: usize,
    met: Vec<Sample>,
}

impl Store {
    /// Every heartbeat scheduled from `from` (inclusive) to `to` (exclusive), the open
    /// frame included, ascending by time, at most about `limit`; tells up to where it
    /// is complete. For an uplink that makes up for an outage.
    ///
    /// Those of one millisecond come together, however many they are.
    pub fn heartbeats_between(
        &self,
        from: Wall,
        to: Wall,
        limit: usize,
    ) -> Result<(Vec<Sample>, Wall), ReadError> {
        let mut span = Span {
            from,
            to: to.max(from),
            limit: limit.max(1),
            met: Vec::new(),
        };
        self.read_days(&mut span).map_err(|fault| {
            unread(
                format!("read the heartbeats from {from} to {to} of all devices"),
                fault,
            )
        })?;
        span.cut();
        Ok((span.met, span.to))
    }

    fn read_days(&self, span: &mut Span) -> Result<(), Fault> {
        let days = {
            // Under this lock no flush is under way, so that what waits is all here.
            // What is flushed afterwards is met twice and counts once.
            let raw = self.raw.lock();
            for sample in lock(&self.frame).samples() {
                span.meet(*sample);
            }
            raw.days()?
        };
        for day in days {
            if day.end() > span.from && day.start() < span.to {
                self.read_day_of(span, day)?;
            }
        }
        Ok(())
    }

    fn read_day_of(&self, span: &mut Span, day: Day) -> Result<(), Fault> {
        for shard in 0..u16::MAX {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let mut raw = self.raw.lock();
                let slice = raw.on_day(day, |database| {
                    let devices = database.devices_of(shard);
                    if devices.is_empty() {
                        return Ok(None);
                    }
                    let time = (span.from, span.to);
                    let next = database.read_span(shard, time, after.as_deref(), &mut |beat| {
                        if let Some(&device) = devices.get(usize::from(beat.place)) {
                            span.meet(raw::sample_of(device, beat));
                        }
                    })?;
                    Ok(Some(next))
                })?;
                let Some((next, frames)) = slice.flatten() else {
                    return Ok(());
                };
                raw.count_frames(day, frames, FRAMES_AN_OPENING);
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Span {
    fn meet(&mut self, sample: Sample) {
        if sample.at < self.from || sample.at >= self.to {
            return;
        }
        self.met.push(sample);
        if self.met.len() >= self.limit.saturating_mul(2).max(4_096) {
            self.cut();
        }
    }

    /// Puts what was met in order and leaves out what is too much.
    fn cut(&mut self) {
        self.met = raw::in_order(std::mem::take(&mut self.met), |sample| sample.at);
        let Some(first_beyond) = self.met.get(self.limit) else {
            return;
        };
        // Some progress there must be.
        let next = Wall::from_millis(self.from.millis().saturating_add(1));
        self.to = first_beyond.at.max(next).min(self.to);
        let kept = self.met.partition_point(|sample| sample.at < self.to);
        self.met.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::{Occasion, Outcome};
    use crate::domain::status::Status;

    fn span(limit: usize, times: impl IntoIterator<Item = i64>) -> (Vec<i64>, i64) {
        let mut span = Span {
            from: Wall::from_millis(10),
            to: Wall::from_millis(1_000_000),
            limit,
            met: Vec::new(),
        };
        for (n, at) in times.into_iter().enumerate() {
            span.meet(Sample {
                device: format!("meter-{n}").parse().unwrap(),
                at: Wall::from_millis(at),
                outcome: Outcome::Replied { rtt_us: 1 },
                occasion: Occasion::Scheduled,
                status: Status::Online,
            });
        }
        span.cut();
        let times = span.met.iter().map(|sample| sample.at.millis());
        (times.collect(), span.to.millis())
    }

    #[test]
    fn the_earliest_are_kept_and_the_end_is_told() {
        assert_eq!(span(3, [9, 40, 10, 30, 20]), (vec![10, 20, 30], 40));
        assert_eq!(span(3, [30, 20]), (vec![20, 30], 1_000_000));
        // Those of one time stay together, more than asked for if need be.
        assert_eq!(span(2, [20, 30, 30, 30]), (vec![20], 30));
        assert_eq!(span(2, [10, 10, 10, 30]), (vec![10, 10, 10], 11));
        // In any order, and however many.
        let many = (0..50_000_i64).map(|n| n * 7_919 % 50_000 + 10);
        assert_eq!(span(5, many), (vec![10, 11, 12, 13, 14], 15));
    }
}
