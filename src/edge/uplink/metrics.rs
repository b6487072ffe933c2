//! Heartbeats as metrics events: as they happen, and made up for after an outage.
//!
//! Floor 3, pure: what is to be read is asked for, what is to be sent handed out.
//! Nothing is kept twice: what could not be sent is read from raw again, as far as
//! raw still has it. Some of it may go up twice, under the same trace id.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::heartbeat::{Occasion, Outcome, Sample};
use crate::domain::instant::{Mono, Wall};
use crate::domain::status::Track;
use crate::wire::message::Metrics;

/// Heartbeats of the present that may wait; more are made up for later.
const LIVE_MAX: usize = 20_000;
/// Heartbeats of the past that are read ahead.
const PAST_MAX: usize = 2_000;
/// Heartbeats of the past sent in a second at most: an outage of a day must not
/// take the link from what happens now.
const PAST_PER_SECOND: u32 = 200;
/// An outcome is known, and has gone through recorder and broker, this long after
/// its send at the latest; what is younger at a cut may not have arrived.
const UNDER_WAY: Duration = Duration::from_mins(1);

/// What metrics events are to be sent.
#[derive(Debug, Default)]
pub(super) struct MetricsFlow {
    /// `uplink.metrics_interval_ms`: `None` sends each, zero none.
    interval: Option<Duration>,
    /// When the last one of each device was scheduled, where an interval is set.
    sent: HashMap<DeviceId, Wall>,
    live: VecDeque<Metrics>,
    /// Heartbeats from here on were not sent; `None`: all were.
    owed_from: Option<Wall>,
    past: Option<Past>,
}

/// The heartbeats of an outage.
#[derive(Debug)]
struct Past {
    /// Read up to here.
    read_to: Wall,
    /// Sent from here on; what is before only tells how the devices stood.
    from: Wall,
    /// Sent up to here.
    to: Wall,
    tracks: HashMap<DeviceId, Track>,
    waiting: VecDeque<Metrics>,
    /// Handed over and not taken.
    under_way: usize,
    /// How many may go now, refilled with time.
    allowed: u32,
    refilled_at: Mono,
}

impl MetricsFlow {
    /// Takes `uplink.metrics_interval_ms` into force.
    pub(super) fn set_interval(&mut self, interval: Option<Duration>) {
        if self.interval != interval {
            self.interval = interval;
            self.sent.clear();
        }
    }

    /// Whether metrics are sent at all.
    pub(super) fn is_on(&self) -> bool {
        self.interval != Some(Duration::ZERO)
    }

    /// What was remembered: heartbeats from there on are owed.
    pub(super) fn recall(&mut self, owed_from: Option<Wall>) {
        self.owed_from = owed_from;
    }

    /// A connection is there: what is owed up to now is made up for.
    pub(super) fn begin(&mut self, now: Wall, mono: Mono) {
        self.live.clear();
        self.past = None;
        let Some(from) = self.owed_from.take().filter(|_| self.is_on()) else {
            return;
        };
        // A clock that was ahead may have dated it.
        let from = from.min(now.minus(UNDER_WAY));
        let day = Day::of(from).map_or(from, |day| day.previous().start());
        self.owed_from = Some(from);
        self.past = Some(Past {
            read_to: day,
            from,
            to: now,
            tracks: HashMap::new(),
            waiting: VecDeque::new(),
            under_way: 0,
            allowed: 0,
            refilled_at: mono,
        });
    }

    /// The connection is over, or heartbeats were spilled; `oldest` is the earliest
    /// one handed over and not taken.
    pub(super) fn interrupt(&mut self, oldest: Option<Wall>, now: Wall) {
        self.live.clear();
        self.past = None;
        if self.is_on() {
            let from = now.minus(UNDER_WAY);
            let from = oldest.map_or(from, |oldest| oldest.min(from));
            self.owed_from = Some(self.owed_from.map_or(from, |owed| owed.min(from)));
        }
    }

    /// From where on heartbeats would be owed if the process died now.
    pub(super) fn mark(&self, now: Wall) -> Wall {
        self.owed_from.unwrap_or_else(|| now.minus(UNDER_WAY))
    }

    /// Up to where the past is made up for; `None`: there is nothing to make up for.
    pub(super) fn replaying_from(&self) -> Option<Wall> {
        self.past.as_ref().and(self.owed_from)
    }

    /// Takes in heartbeats as they happen; tells whether there were too many.
    #[must_use = "what is spilled is owed"]
    pub(super) fn offer(&mut self, heartbeats: Vec<Metrics>) -> bool {
        for one in heartbeats {
            if self.is_due(one.device, one.at) {
                self.live.push_back(one);
            }
        }
        self.live.len() > LIVE_MAX
    }

    /// A tenth early is in time: sends are spread, and an interval of a period must
    /// not lose every second heartbeat.
    fn is_due(&mut self, device: DeviceId, at: Wall) -> bool {
        let Some(interval) = self.interval else {
            return true;
        };
        if interval.is_zero() {
            return false;
        }
        let least = interval.mul_f64(0.9);
        let before = self.sent.get(&device).copied();
        // After a step back the last one may be of the future.
        let is_due = before.is_none_or(|before| at < before || at.since(before) >= least);
        if is_due {
            self.sent.insert(device, at);
        }
        is_due
    }

    /// The next one as it happens.
    pub(super) fn next_live(&mut self) -> Option<Metrics> {
        self.live.pop_front()
    }

    /// What is to be read of the past, if anything is and there is room.
    pub(super) fn wants(&self) -> Option<(Wall, Wall)> {
        let past = self.past.as_ref()?;
        let until = if past.read_to < past.from {
            past.from
        } else {
            past.to
        };
        (past.waiting.len() < PAST_MAX && past.read_to < until).then_some((past.read_to, until))
    }

    /// Takes in what was read from `from` on, whole up to `until`.
    pub(super) fn take(&mut self, from: Wall, samples: &[Sample], until: Wall) {
        // What was asked for another outage is not for this one.
        let Some(mut past) = self.past.take_if(|past| past.read_to == from) else {
            return;
        };
        for sample in samples {
            let track = past.tracks.entry(sample.device).or_default();
            track.recall(sample);
            if past.read_to < past.from || !goes_up(sample) {
                continue;
            }
            let (missed_count, last_seen) = (track.missed_count, track.last_seen);
            if self.is_due(sample.device, sample.at) {
                past.waiting.push_back(Metrics {
                    device: sample.device,
                    at: sample.at,
                    status: sample.status,
                    rtt_us: sample.outcome.rtt_us(),
                    missed_count,
                    last_seen,
                    is_replayed: true,
                });
            }
        }
        past.read_to = past.read_to.max(until);
        self.past = Some(past);
        self.end_if_done();
    }

    /// The next one of the past, if its time has come.
    pub(super) fn next_past(&mut self, now: Mono) -> Option<Metrics> {
        let past = self.past.as_mut()?;
        let since = now.since(past.refilled_at);
        let more = (since.as_secs_f64() * f64::from(PAST_PER_SECOND)).floor();
        if more >= 1.0 {
            past.refilled_at = now;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and the number allowed in a second"
            )]
            let more = more.min(f64::from(PAST_PER_SECOND)) as u32;
            past.allowed = (past.allowed + more).min(PAST_PER_SECOND / 4);
        }
        let allowed = past.allowed.checked_sub(1)?;
        let next = past.waiting.pop_front()?;
        past.allowed = allowed;
        past.under_way += 1;
        Some(next)
    }

    /// Whether something of the past waits for its time.
    pub(super) fn has_past(&self) -> bool {
        self.past
            .as_ref()
            .is_some_and(|past| !past.waiting.is_empty())
    }

    /// The broker has taken one of the past.
    pub(super) fn taken(&mut self, at: Wall) {
        if let Some(past) = &mut self.past {
            past.under_way = past.under_way.saturating_sub(1);
            self.owed_from = self.owed_from.max(Some(at));
            self.end_if_done();
        }
    }

    fn end_if_done(&mut self) {
        let is_done = |past: &mut Past| {
            past.read_to >= past.to && past.waiting.is_empty() && past.under_way == 0
        };
        if self.past.take_if(is_done).is_some() {
            self.owed_from = None;
        }
    }
}

/// Whether a heartbeat is a metrics event: those of the schedule that say something
/// of the device.
pub(super) const fn goes_up(sample: &Sample) -> bool {
    matches!(
        (sample.occasion, sample.outcome),
        (
            Occasion::Scheduled | Occasion::FirstLook,
            Outcome::Replied { .. } | Outcome::Missed(_)
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::Miss;
    use crate::domain::status::Status;

    const MINUTE: Duration = Duration::from_mins(1);

    fn noon() -> Wall {
        Wall::parse("2026-03-12T12:00:00Z").unwrap()
    }

    fn mono(secs: u64) -> Mono {
        Mono::default().plus(Duration::from_secs(secs))
    }

    fn sample(minute: u32, outcome: Outcome) -> Sample {
        Sample {
            device: "D7".parse().unwrap(),
            at: noon().plus(MINUTE * minute),
            outcome,
            occasion: Occasion::Scheduled,
            status: Status::Online,
        }
    }

    fn live(at: Wall) -> Metrics {
        Metrics {
            device: "D7".parse().unwrap(),
            at,
            status: Status::Online,
            rtt_us: Some(9),
            missed_count: 0,
            last_seen: None,
            is_replayed: false,
        }
    }

    #[test]
    fn an_interval_spaces_them_with_a_tenth_to_spare() {
        let mut flow = MetricsFlow::default();
        flow.set_interval(Some(MINUTE * 5));
        let beats = (0..30).map(|n| live(noon().plus(MINUTE * n).plus(Duration::from_millis(7))));
        assert!(!flow.offer(beats.collect()));
        assert_eq!(std::iter::from_fn(|| flow.next_live()).count(), 6);
        flow.set_interval(Some(Duration::ZERO));
        assert!(!flow.is_on() && !flow.offer(vec![live(noon())]));
        assert_eq!(flow.next_live(), None);
        flow.set_interval(None);
        assert!(!flow.offer(vec![live(noon()); 3]));
        assert_eq!(std::iter::from_fn(|| flow.next_live()).count(), 3);
    }

    #[test]
    fn an_outage_is_made_up_for_with_the_counts_of_the_time_and_then_forgotten() {
        let mut flow = MetricsFlow::default();
        let missed = Outcome::Missed(Miss::Timeout);
        let replied = Outcome::Replied { rtt_us: 2_000 };
        // Minutes 0 to 9; cut at minute 5, back at minute 10.
        flow.interrupt(None, noon().plus(MINUTE * 5));
        let back = noon().plus(MINUTE * 10);
        flow.begin(back, mono(0));
        let (from, until) = flow.wants().unwrap();
        assert_eq!(from, Wall::parse("2026-03-11T00:00:00Z").unwrap());
        assert_eq!(until, noon().plus(MINUTE * 4));
        let before: Vec<Sample> = (0..4)
            .map(|n| sample(n, if n == 0 { replied } else { missed }))
            .collect();
        flow.take(from, &before, until);
        assert_eq!(flow.wants(), Some((until, back)));
        let during: Vec<Sample> = (4..10)
            .map(|n| sample(n, if n < 8 { missed } else { replied }))
            .collect();
        flow.take(until, &during, back);
        assert_eq!(flow.wants(), None);
        assert_eq!(flow.next_past(mono(0)), None, "paced");
        let sent: Vec<Metrics> = std::iter::from_fn(|| flow.next_past(mono(10))).collect();
        let counts: Vec<u32> = sent.iter().map(|one| one.missed_count).collect();
        assert_eq!(counts, [4, 5, 6, 7, 0, 0]);
        assert!(
            sent.iter()
                .all(|one| one.is_replayed && one.last_seen.is_some())
        );
        assert_eq!(
            flow.mark(back),
            noon().plus(MINUTE * 4),
            "none is taken yet"
        );
        for one in &sent {
            assert!(flow.replaying_from().is_some());
            flow.taken(one.at);
        }
        assert_eq!((flow.replaying_from(), flow.wants()), (None, None));
        assert_eq!(flow.mark(back), back.minus(UNDER_WAY));
    }

    #[test]
    fn a_cut_during_the_making_up_goes_on_where_it_was() {
        let mut flow = MetricsFlow::default();
        flow.recall(Some(noon()));
        let back = noon().plus(MINUTE * 10);
        flow.begin(back, mono(0));
        let (from, until) = flow.wants().unwrap();
        flow.take(from, &[], until);
        let replied = Outcome::Replied { rtt_us: 2_000 };
        let during: Vec<Sample> = (0..10).map(|n| sample(n, replied)).collect();
        flow.take(until, &during, back);
        let first = flow.next_past(mono(10)).unwrap();
        let second = flow.next_past(mono(10)).unwrap();
        flow.taken(first.at);
        flow.interrupt(Some(second.at), back);
        flow.begin(back.plus(MINUTE), mono(20));
        assert_eq!(flow.replaying_from(), Some(first.at));
    }

    #[test]
    fn nothing_is_owed_where_there_was_nothing() {
        let mut flow = MetricsFlow::default();
        flow.recall(Some(noon()));
        flow.begin(noon().plus(MINUTE * 10), mono(0));
        for _ in 0..2 {
            let (from, until) = flow.wants().unwrap();
            flow.take(from, &[], until);
        }
        assert_eq!((flow.replaying_from(), flow.wants()), (None, None));
        // A clock that was ahead.
        flow.recall(Some(noon().plus(Duration::from_hours(900))));
        flow.begin(noon(), mono(0));
        assert_eq!(flow.replaying_from(), Some(noon().minus(UNDER_WAY)));
    }
}
