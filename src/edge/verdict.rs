//! From an outcome to what is kept and told about it.
//!
//! Floor 3. `edge::monitor` calls [`judge`] once per outcome that counts; no
//! clock and no queue here, so that every rule of telling can be tested alone.

use super::report::Beat;
use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event, Failure, FailureCode, News, Stage};
use crate::domain::heartbeat::{Miss, NoData, Occasion, Outcome, Sample};
use crate::domain::instant::Wall;
use crate::domain::status::{Liveness, Observation, StatusRule, Track, Transition};

/// An outcome, with what the monitor knows about its probe.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whose.
    pub device: DeviceId,
    /// The device's place in the roster in force.
    pub place: usize,
    /// When its send was scheduled.
    pub scheduled_at: Wall,
    /// Why it was sent.
    pub occasion: Occasion,
    /// Its times and outcome.
    pub observation: Observation,
    /// Now, when it is judged.
    pub now: Wall,
}

/// A device's run of probes that could not be sent, to tell only its first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTrouble {
    is_running: bool,
}

/// Takes one outcome into the device's standing and says what follows.
pub fn judge(seen: &Seen, rule: &StatusRule, track: &mut Track, trouble: &mut SendTrouble) -> Beat {
    let turn = track.observe(&seen.observation, rule);
    let notice =
        failure(seen, track, trouble).map(|failure| Box::new(event(seen, News::Failed(failure))));
    let change = turn.map(|turn| Box::new(standing(seen, track, turn)));
    let sample = Sample {
        device: seen.device,
        at: seen.scheduled_at,
        outcome: seen.observation.outcome,
        occasion: seen.occasion,
        status: track.status,
    };
    Beat {
        place: seen.place,
        sample,
        track: *track,
        change,
        notice,
    }
}

fn standing(seen: &Seen, track: &Track, turn: Transition) -> Change {
    let news = News::StatusChanged {
        previous: turn.from,
        current: turn.to,
        missed_count: track.missed_count,
        last_seen: track.last_seen,
    };
    Change::Standing {
        liveness: Liveness {
            device: seen.device,
            track: *track,
        },
        event: event(seen, news),
    }
}

/// The failure to tell: the first miss of a run, and the first of a run of
/// probes that could not be sent.
fn failure(seen: &Seen, track: &Track, trouble: &mut SendTrouble) -> Option<Failure> {
    let outcome = seen.observation.outcome;
    let is_send_trouble = outcome == Outcome::NoData(NoData::SendFailed);
    let is_first_trouble = is_send_trouble && !trouble.is_running;
    trouble.is_running = is_send_trouble;
    let (code, message) = match outcome {
        Outcome::NoData(NoData::SendFailed) if is_first_trouble => (
            FailureCode::SendFailed,
            "the gateway could not send the probe",
        ),
        Outcome::Missed(miss) if track.missed_count == 1 => match miss {
            Miss::Timeout => (FailureCode::PingTimeout, "no reply within the timeout"),
            Miss::Unreachable => (FailureCode::Unreachable, "the network says unreachable"),
            Miss::TtlExceeded => (FailureCode::Unreachable, "the network says TTL exceeded"),
            Miss::OtherError => (
                FailureCode::Unreachable,
                "the network answered with an error",
            ),
        },
        Outcome::Missed(_) | Outcome::NoData(_) | Outcome::Replied { .. } => return None,
    };
    Some(Failure {
        stage: Stage::Heartbeat,
        code,
        message: message.to_owned(),
        retryable: true,
        failed_at: seen.observation.known_at,
    })
}

/// Events carry the time of the verdict, the same as the standing's
/// `updated_at`, so that a reader who knows only one of the two can order both.
fn event(seen: &Seen, news: News) -> Event {
    let waited = seen.now.since(seen.observation.known_at);
    Event {
        device: Some(seen.device),
        produced_at: seen.observation.known_at,
        process_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        news,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::ProbeRules;

    /// Plays `+` reply, `-` timeout, `!` unreachable, `?` send failure; returns
    /// the codes told, one letter per beat: `t`imeout, `u`nreachable, `s`end,
    /// `.` nothing.
    fn told(script: &str) -> String {
        let rule = ProbeRules::default().status;
        let (mut track, mut trouble) = (Track::default(), SendTrouble::default());
        let mut minute = 0;
        let letter = |c| {
            minute += 60_000;
            let at = Wall::from_millis(minute);
            let outcome = match c {
                '+' => Outcome::Replied { rtt_us: 1 },
                '-' => Outcome::Missed(Miss::Timeout),
                '!' => Outcome::Missed(Miss::Unreachable),
                _ => Outcome::NoData(NoData::SendFailed),
            };
            let seen = Seen {
                device: "D7".parse().unwrap(),
                place: 0,
                scheduled_at: at,
                occasion: Occasion::Scheduled,
                observation: Observation {
                    sent_at: at,
                    known_at: at,
                    outcome,
                },
                now: at,
            };
            let beat = judge(&seen, &rule, &mut track, &mut trouble);
            match beat.notice.map(|event| event.news) {
                Some(News::Failed(failure)) => match failure.code {
                    FailureCode::PingTimeout => 't',
                    FailureCode::Unreachable => 'u',
                    FailureCode::SendFailed => 's',
                    FailureCode::RawLost
                    | FailureCode::StoreDamaged
                    | FailureCode::RollupFailed
                    | FailureCode::OutboxGap { .. }
                    | FailureCode::MessageRefused
                    | FailureCode::ClientIdConflict
                    | FailureCode::Certificate => panic!("{failure:?}"),
                },
                _ => '.',
            }
        };
        script.chars().map(letter).collect()
    }

    #[test]
    fn only_the_first_miss_of_a_run_is_told() {
        assert_eq!(told("+-----+-"), ".t.....t");
        assert_eq!(told("!-!+!"), "u...u");
    }

    #[test]
    fn only_the_first_unsent_probe_of_a_run_is_told() {
        assert_eq!(told("???+??"), "s...s.");
    }

    #[test]
    fn an_unsent_probe_inside_a_run_of_misses_does_not_start_it_anew() {
        assert_eq!(told("-?-"), "ts.");
    }

    #[test]
    fn a_change_of_verdict_carries_standing_and_event_together() {
        let rule = ProbeRules::default().status;
        let at = Wall::from_millis(1_000);
        let seen = Seen {
            device: "D7".parse().unwrap(),
            place: 0,
            scheduled_at: at,
            occasion: Occasion::FirstLook,
            observation: Observation {
                sent_at: at,
                known_at: Wall::from_millis(1_020),
                outcome: Outcome::Replied { rtt_us: 20_000 },
            },
            now: Wall::from_millis(1_025),
        };
        let beat = judge(
            &seen,
            &rule,
            &mut Track::default(),
            &mut SendTrouble::default(),
        );
        let Some(Change::Standing { liveness, event }) = beat.change.map(|change| *change) else {
            panic!("a first reply is a verdict");
        };
        assert_eq!(liveness.track, beat.track);
        assert_eq!(event.process_ms, 5);
        assert_eq!(beat.sample.at, at);
    }
}
