//! The day of one device in one row, by which contracts are settled.
//!
//! Floor 0: pure. `edge::rollup` feeds an [`Account`] with a day's heartbeats and
//! keeps the [`Summary`] that it closes with; see ruling R7 in ARCHITECTURE.md.
//!
//! # Invariants
//!
//! - A summary depends on that day's heartbeats, the state carried in, and how
//!   many heartbeats were to be expected: nothing else.
//! - Each observed heartbeat stands in exactly one of online, degraded, offline
//!   or, before a first verdict, none of them; so the ratios sum to 1.
//! - Nothing observed gives no number, not zero.

use std::time::Duration;

use super::day::Day;
use super::device::DeviceId;
use super::heartbeat::{Occasion, Outcome};
use super::instant::Wall;
use super::status::Status;

/// The version of these rules; a row says by which it was made.
pub const CALC_VERSION: u32 = 1;

/// One heartbeat of the day, without its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// When its send was scheduled.
    pub at: Wall,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it was sent.
    pub occasion: Occasion,
    /// The device's status after it.
    pub status: Status,
}

/// What a day takes over from the day before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carry {
    /// Misses in a row up to the end of the day before.
    pub missed_count: u32,
    /// Whether the device was offline then.
    pub is_offline: bool,
}

/// What a day says of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Scheduled heartbeats that were to be expected.
    pub expected: u32,
    /// Scheduled heartbeats answered in time.
    pub replied: u32,
    /// Scheduled heartbeats missed.
    pub missed: u32,
    /// Replies that came after the timeout; their heartbeats are among the missed.
    pub late: u32,
    /// Scheduled heartbeats for which the gateway could not ask.
    pub no_data: u32,
    /// Observed heartbeats that count as online.
    pub online: u32,
    /// Observed heartbeats that count as degraded.
    pub degraded: u32,
    /// Observed heartbeats that count as offline.
    pub offline: u32,
    /// Mean round trip time of the replies in microseconds, rounded.
    pub avg_rtt_us: Option<u32>,
    /// The 95th percentile of the replies, nearest rank.
    pub p95_rtt_us: Option<u32>,
    /// The most misses in a row, those carried in included.
    pub max_missed_count: u32,
    /// The longest stretch offline within the day.
    pub longest_offline_ms: u64,
    /// What the next day takes over.
    pub carry: Carry,
}

/// The row of one device and day: `device_heartbeat_daily`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which day.
    pub day: Day,
    /// Whose.
    pub device: DeviceId,
    /// What it says.
    pub figures: Figures,
    /// By which rules, see [`CALC_VERSION`].
    pub calc_version: u32,
    /// When the row was first written.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
}

/// The row of a whole site and day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSummary {
    /// Which day.
    pub day: Day,
    /// How many devices have a row.
    pub devices: u32,
    /// Their figures in sum; times, carry and longest stretch are not summed.
    pub sum: Figures,
    /// The devices with the least online ratio below 1, worst first.
    pub worst: Vec<Worst>,
}

/// A device that was not always online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worst {
    /// Which.
    pub device: DeviceId,
    /// Its heartbeats that count as online.
    pub online: u32,
    /// Its heartbeats that count at all.
    pub counted: u32,
}

/// Devices named as worst of a site.
const WORST_MAX: usize = 5;

/// A device's day while its heartbeats are taken in, ascending.
#[derive(Debug)]
pub struct Account {
    figures: Figures,
    rtts_us: Vec<u32>,
    run: Run,
    stretch: Stretch,
    /// Heartbeats further apart than this have a gap between them.
    period: Duration,
    day: Day,
    last_observed: Option<Wall>,
}

/// A run of misses: what it counts as is known only when it ends.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Its length, with what was carried in.
    missed_count: u32,
    has_reached_offline: bool,
    /// Its scheduled misses of this day, by the status held meanwhile.
    online: u32,
    degraded: u32,
    offline: u32,
    unknown: u32,
    /// Time since its first miss of the day.
    observed: Duration,
}

/// Time offline without a break.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    is_running: bool,
    now: Duration,
    longest: Duration,
}

impl Account {
    /// An empty day; `period` is the device's longest in force on it.
    #[must_use]
    pub fn new(day: Day, carry: Carry, period: Duration) -> Self {
        Self {
            figures: Figures::default(),
            rtts_us: Vec::new(),
            run: Run {
                missed_count: carry.missed_count,
                has_reached_offline: carry.is_offline && carry.missed_count > 0,
                ..Run::default()
            },
            stretch: Stretch {
                is_running: carry.is_offline,
                ..Stretch::default()
            },
            period,
            day,
            last_observed: None,
        }
    }

    /// Takes the next heartbeat in.
    pub fn take(&mut self, beat: &Beat) {
        let is_counted = beat.occasion == Occasion::Scheduled;
        match beat.outcome {
            Outcome::NoData(_) => self.figures.no_data += u32::from(is_counted),
            Outcome::Missed(_) => {
                self.pass_to(beat.at);
                self.miss(beat.status, is_counted);
            }
            Outcome::Replied { rtt_us } => {
                self.pass_to(beat.at);
                self.end_run();
                self.reply(beat.status, rtt_us, is_counted);
            }
        }
    }

    /// The day's figures; `expected` heartbeats were to come, `late` replies came
    /// after their timeout.
    #[must_use]
    pub fn close(mut self, expected: u32, late: u32) -> Figures {
        if self.last_observed.is_some() {
            self.pass_to(self.day.end());
        }
        let carry = Carry {
            missed_count: self.run.missed_count,
            is_offline: self.stretch.is_running || self.run.has_reached_offline,
        };
        self.end_run();
        self.rtts_us.sort_unstable();
        let replies = self.rtts_us.len();
        let sum: u64 = self.rtts_us.iter().copied().map(u64::from).sum();
        let mean = (sum + replies as u64 / 2).checked_div(replies as u64);
        Figures {
            expected,
            late,
            avg_rtt_us: mean.and_then(|mean| u32::try_from(mean).ok()),
            p95_rtt_us: nearest_rank(&self.rtts_us, 95),
            longest_offline_ms: u64::try_from(self.stretch.longest.as_millis()).unwrap_or(u64::MAX),
            carry,
            ..self.figures
        }
    }

    fn miss(&mut self, held: Status, is_counted: bool) {
        let run = &mut self.run;
        run.missed_count = run.missed_count.saturating_add(1);
        self.figures.max_missed_count = self.figures.max_missed_count.max(run.missed_count);
        self.figures.missed += u32::from(is_counted);
        let counter = match held {
            Status::Online => &mut run.online,
            Status::Degraded => &mut run.degraded,
            Status::Offline => &mut run.offline,
            Status::Unknown => &mut run.unknown,
        };
        *counter += u32::from(is_counted);
        if held == Status::Offline && !run.has_reached_offline {
            run.has_reached_offline = true;
            self.stretch.begin(run.observed);
        }
    }

    fn reply(&mut self, status: Status, rtt_us: u32, is_counted: bool) {
        if is_counted {
            self.figures.replied += 1;
            self.rtts_us.push(rtt_us);
            match status {
                Status::Online => self.figures.online += 1,
                Status::Degraded => self.figures.degraded += 1,
                Status::Offline => self.figures.offline += 1,
                Status::Unknown => {}
            }
        }
        if status != Status::Offline {
            self.stretch.end();
        }
    }

    /// Lets time pass up to `at`, no more than a period of it: where heartbeats
    /// are missing nobody knows.
    fn pass_to(&mut self, at: Wall) {
        let since = self.last_observed.unwrap_or(self.day.start());
        let passed = at.since(since).min(self.period);
        if self.run.missed_count > 0 {
            self.run.observed += passed;
        }
        self.stretch.pass(passed);
        self.last_observed = Some(at);
    }

    /// Counts a run as what it turned out to be.
    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        let figures = &mut self.figures;
        if run.has_reached_offline {
            figures.offline += run.online + run.degraded + run.offline + run.unknown;
        } else {
            figures.online += run.online;
            figures.degraded += run.degraded;
            figures.offline += run.offline;
        }
    }
}

impl Stretch {
    /// Begins, if it does not run, `before` ago.
    fn begin(&mut self, before: Duration) {
        if !self.is_running {
            self.is_running = true;
            self.now = Duration::ZERO;
            self.pass(before);
        }
    }

    fn pass(&mut self, time: Duration) {
        if self.is_running {
            self.now += time;
            self.longest = self.longest.max(self.now);
        }
    }

    const fn end(&mut self) {
        self.is_running = false;
        self.now = Duration::ZERO;
    }
}

impl Figures {
    /// Heartbeats observed: answered or missed.
    #[must_use]
    pub const fn observed(&self) -> u32 {
        self.replied + self.missed
    }

    /// Heartbeats that were to be sent when they came due, whatever came of it.
    #[must_use]
    pub const fn probed(&self) -> u32 {
        self.observed() + self.no_data
    }

    /// Share of heartbeats that count as online; `None` where none counts.
    #[must_use]
    pub fn online_ratio(&self) -> Option<f64> {
        share(self.online, self.counted())
    }

    /// Share of heartbeats that count as degraded.
    #[must_use]
    pub fn degraded_ratio(&self) -> Option<f64> {
        share(self.degraded, self.counted())
    }

    /// Share of heartbeats that count as offline.
    #[must_use]
    pub fn offline_ratio(&self) -> Option<f64> {
        share(self.offline, self.counted())
    }

    /// Share of the observed heartbeats that were missed.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        share(self.missed, self.observed())
    }

    /// Share of the expected heartbeats that were observed, at most 1: a clock
    /// that was set back lives through an hour twice.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        share(self.observed(), self.expected).map_or(0.0, |share| share.min(1.0))
    }

    /// Expected heartbeats that were never sent: the process was not there.
    #[must_use]
    pub const fn gap(&self) -> u32 {
        self.expected.saturating_sub(self.probed())
    }

    const fn counted(&self) -> u32 {
        self.online + self.degraded + self.offline
    }

    fn add(&mut self, other: &Self) {
        self.expected += other.expected;
        self.replied += other.replied;
        self.missed += other.missed;
        self.late += other.late;
        self.no_data += other.no_data;
        self.online += other.online;
        self.degraded += other.degraded;
        self.offline += other.offline;
    }
}

impl Summary {
    /// Whether both say the same, whenever they were written.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        (self.day, self.device, self.figures, self.calc_version)
            == (other.day, other.device, other.figures, other.calc_version)
    }

    /// Whether this rests on fewer heartbeats than `other`, and so must not
    /// take its place.
    #[must_use]
    pub const fn is_poorer_than(&self, other: &Self) -> bool {
        self.figures.probed() < other.figures.probed()
    }
}

impl SiteSummary {
    /// The sum over a day's rows, ascending by device.
    #[must_use]
    pub fn of<'a>(day: Day, rows: impl IntoIterator<Item = &'a Summary>) -> Self {
        let mut site = Self {
            day,
            devices: 0,
            sum: Figures::default(),
            worst: Vec::new(),
        };
        for row in rows {
            site.devices += 1;
            site.sum.add(&row.figures);
            let (online, counted) = (row.figures.online, row.figures.counted());
            if online < counted {
                let device = row.device;
                // Kept short as it goes: thousands of devices may be less than perfect.
                let worse = |held: &Worst| held.online_ratio() <= share_of(online, counted);
                let place = site.worst.partition_point(worse);
                site.worst.insert(
                    place,
                    Worst {
                        device,
                        online,
                        counted,
                    },
                );
                site.worst.truncate(WORST_MAX);
            }
        }
        site
    }
}

impl Worst {
    /// Its share of heartbeats that count as online.
    #[must_use]
    pub fn online_ratio(&self) -> f64 {
        share_of(self.online, self.counted)
    }
}

/// The value at nearest rank `percent` (`ceil(percent / 100 n)`, 1-based) of
/// ascending values; `None` of none.
#[must_use]
pub fn nearest_rank(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn share_of(part: u32, whole: u32) -> f64 {
    share(part, whole).unwrap_or(0.0)
}

fn share(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| f64::from(part) / f64::from(whole))
}

#[cfg(test)]
mod tests;
