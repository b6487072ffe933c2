//! What the recent heartbeats say about one device.
//!
//! Floor 0: pure. `edge::monitor` calls [`Track::observe`] once per outcome;
//! `store` replays it over kept samples after a restart.
//!
//! # Invariants
//!
//! - A status changes only in [`Track::observe`] and [`Track::forget`].
//! - Equal outcomes give equal verdicts: no clock, no disk, no randomness.
//! - An outcome without data changes nothing at all.
//! - `unknown` ends with the first verdict and comes back only by `forget`.

use std::fmt;
use std::time::Duration;

use super::device::DeviceId;
use super::heartbeat::{Outcome, Sample};
use super::instant::Wall;

/// The verdict on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// No verdict yet.
    #[default]
    Unknown,
    /// Replies, fast enough.
    Online,
    /// Replies, slowly.
    Degraded,
    /// Silent for `offline_missed_count` probes in a row.
    Offline,
}

/// The thresholds a verdict follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRule {
    /// An RTT above this, in microseconds, makes degraded.
    pub degraded_rtt_us: u32,
    /// An RTT at or below this ends degraded; at most `degraded_rtt_us`.
    pub degraded_leave_rtt_us: u32,
    /// Consecutive misses that make offline; at least 1.
    pub offline_missed_count: u32,
    /// Consecutive replies before offline is left, and good ones before
    /// degraded is left for online; at least 1.
    pub recover_count: u32,
}

/// A device's standing: its status, since when, and what the next verdict
/// needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// The verdict in force.
    pub status: Status,
    /// Time of the verdict that set the status; `None` while unknown.
    pub since: Option<Wall>,
    /// When the last probe with an outcome was sent.
    pub last_ping_at: Option<Wall>,
    /// When the last reply arrived; `None` before the first.
    pub last_seen: Option<Wall>,
    /// RTT of the last reply in microseconds; `None` before the first.
    pub rtt_us: Option<u32>,
    /// Consecutive misses up to now.
    pub missed_count: u32,
    /// Consecutive replies towards leaving offline or degraded.
    pub recovering: u32,
    /// When anything above last changed.
    pub updated_at: Option<Wall>,
}

/// An outcome with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When the probe was sent.
    pub sent_at: Wall,
    /// When its outcome was known: the reply's arrival or the timeout.
    pub known_at: Wall,
    /// The outcome.
    pub outcome: Outcome,
}

/// A change of verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The status before.
    pub from: Status,
    /// The status now.
    pub to: Status,
    /// When the verdict fell.
    pub at: Wall,
}

/// A device's standing as it travels: the liveness record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Whose.
    pub device: DeviceId,
    /// Its standing.
    pub track: Track,
}

impl Status {
    /// All four, in the order in which pages list them.
    pub const ALL: [Self; 4] = [Self::Offline, Self::Degraded, Self::Unknown, Self::Online];

    /// The status as it stands in JSON, topics and pages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Online => "online",
            Self::Degraded => "degraded",
            Self::Offline => "offline",
        }
    }

    /// The status written `word`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Track {
    /// Takes in one outcome; tells the change of verdict it made, if any.
    #[must_use = "a dropped transition is an event nobody hears of"]
    pub fn observe(&mut self, seen: &Observation, rule: &StatusRule) -> Option<Transition> {
        debug_assert!(
            rule.offline_missed_count > 0 && rule.recover_count > 0,
            "config checks this"
        );
        let to = match seen.outcome {
            Outcome::NoData(_) => return None,
            Outcome::Missed(_) => self.miss(rule),
            Outcome::Replied { rtt_us } => self.reply(rtt_us, seen.known_at, rule),
        };
        self.last_ping_at = Some(seen.sent_at);
        self.updated_at = Some(seen.known_at);
        self.turn(to, seen.known_at)
    }

    /// Returns to `unknown`, for a device that is asked at another address.
    #[must_use = "a dropped transition is an event nobody hears of"]
    pub fn forget(&mut self, at: Wall) -> Option<Transition> {
        let from = self.status;
        *self = Self {
            updated_at: Some(at),
            ..Self::default()
        };
        (from != Status::Unknown).then_some(Transition {
            from,
            to: Status::Unknown,
            at,
        })
    }

    /// Takes in a kept heartbeat after a restart: misses, last reply and last
    /// probe go on, the verdict stays that of the standing, which is durable
    /// before any heartbeat that follows it.
    pub fn recall(&mut self, kept: &Sample) {
        if self.last_ping_at.is_some_and(|last| kept.at <= last) {
            return;
        }
        match kept.outcome {
            Outcome::NoData(_) => return,
            Outcome::Missed(_) => {
                self.missed_count = self.missed_count.saturating_add(1);
                self.recovering = 0;
                self.updated_at = Some(kept.at);
            }
            Outcome::Replied { rtt_us } => {
                let arrived_at = kept.at.plus(Duration::from_micros(rtt_us.into()));
                self.missed_count = 0;
                self.last_seen = Some(arrived_at);
                self.rtt_us = Some(rtt_us);
                self.updated_at = Some(arrived_at);
            }
        }
        self.last_ping_at = Some(kept.at);
    }

    fn miss(&mut self, rule: &StatusRule) -> Status {
        self.missed_count = self.missed_count.saturating_add(1);
        self.recovering = 0;
        if self.missed_count >= rule.offline_missed_count {
            Status::Offline
        } else {
            self.status
        }
    }

    fn reply(&mut self, rtt_us: u32, arrived_at: Wall, rule: &StatusRule) -> Status {
        self.missed_count = 0;
        self.last_seen = Some(arrived_at);
        self.rtt_us = Some(rtt_us);
        let by_rtt = if rtt_us > rule.degraded_rtt_us {
            Status::Degraded
        } else {
            Status::Online
        };
        let recovers = match self.status {
            Status::Unknown | Status::Online => return by_rtt,
            Status::Offline => true,
            Status::Degraded => rtt_us <= rule.degraded_leave_rtt_us,
        };
        self.recovering = if recovers {
            self.recovering.saturating_add(1)
        } else {
            0
        };
        if self.recovering < rule.recover_count {
            return self.status;
        }
        by_rtt
    }

    fn turn(&mut self, to: Status, at: Wall) -> Option<Transition> {
        let from = self.status;
        if to == from {
            return None;
        }
        self.status = to;
        self.since = Some(at);
        self.recovering = 0;
        Some(Transition { from, to, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::heartbeat::{Miss, NoData};

    /// Enter above 100 ms, leave at or below 50 ms, offline at the third miss.
    const RULE: StatusRule = StatusRule {
        degraded_rtt_us: 100_000,
        degraded_leave_rtt_us: 50_000,
        offline_missed_count: 3,
        recover_count: 1,
    };

    /// Plays one outcome a minute: `+` fast reply, `~` between leave and enter,
    /// `s` slow reply, `-` miss, `?` no data. Returns the status after each:
    /// `o`nline, `d`egraded, `x` offline, `u`nknown.
    fn play_by(script: &str, rule: &StatusRule) -> String {
        let mut track = Track::default();
        let mut minute = 0;
        let letter = |c| {
            minute += 60_000;
            let outcome = match c {
                '+' => Outcome::Replied { rtt_us: 50_000 },
                '~' => Outcome::Replied { rtt_us: 100_000 },
                's' => Outcome::Replied { rtt_us: 100_001 },
                '-' => Outcome::Missed(Miss::Timeout),
                _ => Outcome::NoData(NoData::SendFailed),
            };
            let at = Wall::from_millis(minute);
            let before = track;
            let seen = Observation {
                sent_at: at,
                known_at: at,
                outcome,
            };
            let turn = track.observe(&seen, rule);
            assert_eq!(turn.is_some(), before.status != track.status);
            match track.status {
                Status::Unknown => 'u',
                Status::Online => 'o',
                Status::Degraded => 'd',
                Status::Offline => 'x',
            }
        };
        script.chars().map(letter).collect()
    }

    fn play(script: &str) -> String {
        play_by(script, &RULE)
    }

    #[test]
    fn third_loss_in_a_row_takes_a_device_offline() {
        assert_eq!(play("+--+---+"), "ooooooxo");
        assert_eq!(play("---"), "uux");
        assert_eq!(play("s---s"), "dddxd");
    }

    #[test]
    fn misses_before_a_first_verdict_leave_the_device_unknown() {
        assert_eq!(play("--+"), "uuo");
        assert_eq!(play("--s"), "uud");
    }

    #[test]
    fn degraded_is_entered_above_one_limit_and_left_at_another() {
        assert_eq!(play("+~s~~+~"), "oodddoo");
    }

    #[test]
    fn no_data_neither_ends_nor_lengthens_a_run() {
        assert_eq!(play("+-?-?-"), "ooooox");
        assert_eq!(play("????"), "uuuu");
        assert_eq!(play("---??+"), "uuxxxo");
    }

    #[test]
    fn recovery_counts_replies_in_a_row() {
        let patient = StatusRule {
            recover_count: 3,
            ..RULE
        };
        // Slow replies count towards leaving offline, the last one names the status.
        assert_eq!(play_by("---ss+", &patient), "uuxxxo");
        assert_eq!(play_by("---++s", &patient), "uuxxxd");
        assert_eq!(play_by("---++-+++", &patient), "uuxxxxxxo");
        // Degraded needs good ones in a row.
        assert_eq!(play_by("s++~+++", &patient), "ddddddo");
        assert_eq!(play_by("s++-+++", &patient), "ddddddo");
        assert_eq!(play_by("---?+?+?+", &patient), "uuxxxxxxo");
    }

    #[test]
    fn a_single_miss_between_replies_never_counts() {
        assert_eq!(play(&"+-".repeat(30)), "oo".repeat(30));
    }

    #[test]
    fn since_is_the_time_of_the_verdict_and_stays() {
        let mut track = Track::default();
        for minute in 1..=5 {
            let at = Wall::from_millis(minute * 60_000);
            let known_at = Wall::from_millis(minute * 60_000 + 5_000);
            let outcome = Outcome::Missed(Miss::Timeout);
            let turn = track.observe(
                &Observation {
                    sent_at: at,
                    known_at,
                    outcome,
                },
                &RULE,
            );
            assert_eq!(turn.is_some(), minute == 3);
        }
        assert_eq!(track.since, Some(Wall::from_millis(185_000)));
        assert_eq!(track.missed_count, 5);
        assert_eq!(track.last_ping_at, Some(Wall::from_millis(300_000)));
        assert_eq!(track.last_seen, None);
    }

    #[test]
    fn a_forgotten_device_is_unknown_and_has_no_past() {
        let mut track = Track::default();
        let at = Wall::from_millis(1);
        let seen = Observation {
            sent_at: at,
            known_at: at,
            outcome: Outcome::Replied { rtt_us: 9 },
        };
        assert!(track.observe(&seen, &RULE).is_some());
        let turn = track.forget(Wall::from_millis(2));
        assert_eq!(
            turn.map(|turn| (turn.from, turn.to)),
            Some((Status::Online, Status::Unknown))
        );
        assert_eq!((track.last_seen, track.since), (None, None));
        assert_eq!(track.forget(Wall::from_millis(3)), None);
    }

    #[test]
    fn words_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.word()), Some(status));
        }
        assert_eq!(Status::parse("Online"), None);
    }
}
