//! How a simulated GSM device behaves.
//!
//! Floor 2. `Fleet` asks [`Character::answer`] once per probe.
//!
//! # Invariants
//!
//! - An answer depends on (seed, device, wall time of the send) alone: not on
//!   what was asked before, so that another period, a reload or a restart meets
//!   the same device.
//! - Wall times within the same [`GRAIN_MS`] meet the same chance, so that real
//!   runs, whose sends jitter by milliseconds, resemble each other too.

use std::time::Duration;

use crate::domain::instant::Wall;

use super::Scripted;
use super::dice::Dice;

/// Chance is drawn anew per this many milliseconds.
const GRAIN_MS: i64 = 100;

const DAY_SECONDS: f64 = 86_400.0;
const DAY_MS: i64 = 86_400_000;

/// The busy hours of the cell, UTC: round trips take longer and more is lost.
const EVENING: std::ops::Range<i64> = 18..23;
const EVENING_SLOWDOWN: f64 = 1.6;
const EVENING_LOSS: f64 = 0.03;

/// Down windows a device can have per day; more are not drawn.
const WINDOWS_MAX: u64 = 2_000;

/// How a kind of device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Attached all the time.
    Steady,
    /// Listens once per eDRX cycle (3GPP TS 24.008, 10.5.5.32) and is awake for
    /// a while after: the first reply after idle is slow.
    Sleeper,
    /// At the edge of the cell.
    Weak,
    /// Comes and goes.
    Flapper,
    /// Never answers.
    Dead,
}

/// One device, drawn once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Character {
    dice: Dice,
    pub(super) class: Class,
    median_ms: f64,
    spread: f64,
    loss: f64,
    up_seconds: f64,
    down_seconds: f64,
    /// Time between two paging occasions; 0: listens always.
    cycle_ms: f64,
}

impl Character {
    /// The device whose id has this hash, in the fleet of this seed.
    pub(super) fn drawn(seed: u64, device: u64) -> Self {
        let dice = Dice::about(seed, device);
        let class = match dice.throw(0) {
            x if x < 0.64 => Class::Steady,
            x if x < 0.76 => Class::Sleeper,
            x if x < 0.88 => Class::Weak,
            x if x < 0.95 => Class::Flapper,
            _ => Class::Dead,
        };
        // Evenly on the scale of ratios, between 250 and 900 ms.
        let median_ms = 250.0 * (3.6_f64).powf(dice.throw(1));
        let hours = 3_600.0;
        let (spread, loss, up_seconds, down_seconds) = match class {
            Class::Steady => (0.25, 0.004, 120.0 * hours, 600.0),
            Class::Sleeper => (0.25, 0.01, 120.0 * hours, 600.0),
            Class::Weak => (0.55, dice.between(2, 0.12, 0.35), 12.0 * hours, 480.0),
            Class::Flapper => (0.35, 0.03, dice.between(2, 600.0, 2_400.0), 300.0),
            Class::Dead => (0.0, 1.0, 0.0, DAY_SECONDS),
        };
        Self {
            dice,
            class,
            median_ms,
            spread,
            loss,
            up_seconds,
            down_seconds,
            cycle_ms: if class == Class::Sleeper {
                5_120.0
            } else {
                0.0
            },
        }
    }

    /// An address that is no device of the fleet, such as a router named in
    /// `path.targets`: always there, near, and dull.
    pub(super) fn neighbour(seed: u64, address: u64) -> Self {
        Self {
            dice: Dice::about(seed, address),
            class: Class::Steady,
            median_ms: 30.0,
            spread: 0.2,
            loss: 0.0,
            up_seconds: f64::INFINITY,
            down_seconds: 0.0,
            cycle_ms: 0.0,
        }
    }

    /// What comes of a probe sent at `at` that may take `timeout`.
    pub(super) fn answer(&self, at: Wall, timeout: Duration) -> Scripted {
        let grain = at.millis().div_euclid(GRAIN_MS);
        let chance = self.dice.part(grain.cast_unsigned());
        if chance.hits(0, 0.000_2) {
            return Scripted::SendFails;
        }
        if let Some(word) = self.word_while_down(at, chance) {
            return word;
        }
        let is_evening = EVENING.contains(&(at.millis().rem_euclid(DAY_MS) / 3_600_000));
        let evening_loss = if is_evening && self.loss > 0.0 {
            EVENING_LOSS
        } else {
            0.0
        };
        if chance.hits(1, self.loss + evening_loss) {
            return Scripted::Silent;
        }
        let slowdown = if is_evening { EVENING_SLOWDOWN } else { 1.0 };
        let median = self.median_ms * slowdown;
        let mut rtt = chance.lognormal(2, median, self.spread) + self.until_paged(at);
        // Now and then the network holds a reply back and lets it go all at once.
        if self.loss > 0.0 && chance.hits(3, 0.003) {
            rtt += chance.between(4, 5_000.0, 40_000.0);
        }
        let rtt = millis(rtt);
        if rtt > timeout {
            return Scripted::Late(rtt.saturating_sub(timeout));
        }
        if chance.hits(5, 0.003) {
            return Scripted::Duplicate(rtt);
        }
        Scripted::Reply(rtt)
    }

    /// What a device that is down says: nothing, or its network says for it that
    /// it is unreachable. `None`: it is up.
    fn word_while_down(&self, at: Wall, chance: Dice) -> Option<Scripted> {
        let window = if self.class == Class::Dead {
            Some(0)
        } else {
            self.down_window(at)
        }?;
        let is_told = self.dice.part(window).hits(7, 0.3);
        Some(if is_told {
            Scripted::Unreachable(millis(chance.lognormal(6, 180.0, 0.4)))
        } else {
            Scripted::Silent
        })
    }

    /// A mark of the down window that `at` lies in, if it is in one. Windows are
    /// walked from midnight UTC, so a day stands for itself.
    fn down_window(&self, at: Wall) -> Option<u64> {
        if self.down_seconds <= 0.0 {
            return None;
        }
        let day = at.millis().div_euclid(DAY_MS).cast_unsigned();
        let dice = self.dice.part(day ^ 0xdae5);
        let now = Duration::from_millis(at.millis().rem_euclid(DAY_MS).unsigned_abs());
        let share_down = self.down_seconds / (self.up_seconds + self.down_seconds);
        let mut is_down = dice.hits(0, share_down);
        let mut until = 0.0;
        for n in 1..=WINDOWS_MAX {
            let mean = if is_down {
                self.down_seconds
            } else {
                self.up_seconds
            };
            until += dice.waiting(n, mean);
            if until > now.as_secs_f64() {
                return is_down.then_some(day.wrapping_mul(WINDOWS_MAX).wrapping_add(n));
            }
            is_down = !is_down;
        }
        None
    }

    /// How long a sleeper lets a packet of this moment wait, in milliseconds.
    fn until_paged(&self, at: Wall) -> f64 {
        const AWAKE_MS: f64 = 2_000.0;
        if self.cycle_ms <= 0.0 {
            return 0.0;
        }
        let in_day = Duration::from_millis(at.millis().rem_euclid(DAY_MS).unsigned_abs());
        let offset = self.dice.between(8, 0.0, self.cycle_ms);
        let into_cycle = in_day.as_secs_f64().mul_add(1_000.0, offset) % self.cycle_ms;
        if into_cycle < AWAKE_MS {
            0.0
        } else {
            self.cycle_ms - into_cycle
        }
    }
}

fn millis(ms: f64) -> Duration {
    // Whole microseconds: what is kept of an RTT.
    let exact = Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or(Duration::MAX);
    Duration::from_micros(u64::try_from(exact.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn fleet(n: u64) -> Vec<Character> {
        (0..n)
            .map(|device| Character::drawn(42, device << 20))
            .collect()
    }

    fn noon(minutes: i64) -> Wall {
        Wall::parse("2026-03-12T12:00:00Z")
            .unwrap()
            .plus(Duration::from_secs(minutes.unsigned_abs() * 60))
    }

    /// Share of a device's answers over five hours that satisfy `is`.
    fn share(device: &Character, from: Wall, is: impl Fn(Scripted) -> bool) -> f64 {
        let hits = (0..300)
            .filter(|n| is(device.answer(from.plus(Duration::from_secs(n * 60 + n % 7)), TIMEOUT)))
            .count();
        f64::from(u32::try_from(hits).unwrap()) / 300.0
    }

    const fn is_silent(answer: Scripted) -> bool {
        matches!(answer, Scripted::Silent | Scripted::Unreachable(_))
    }

    fn of_class(class: Class) -> Vec<Character> {
        fleet(2_000)
            .into_iter()
            .filter(|device| device.class == class)
            .take(40)
            .collect()
    }

    fn mean(shares: impl ExactSizeIterator<Item = f64>) -> f64 {
        let n = f64::from(u32::try_from(shares.len()).unwrap());
        shares.sum::<f64>() / n
    }

    #[test]
    fn every_class_has_its_share_of_a_large_fleet() {
        let devices = fleet(2_000);
        let count = |class| devices.iter().filter(|d| d.class == class).count();
        assert!((1_180..1_380).contains(&count(Class::Steady)));
        for class in [Class::Sleeper, Class::Weak] {
            assert!((180..300).contains(&count(class)), "{class:?}");
        }
        assert!((100..180).contains(&count(Class::Flapper)));
        assert!((60..140).contains(&count(Class::Dead)));
    }

    #[test]
    fn steady_devices_answer_within_gsm_times() {
        let devices = of_class(Class::Steady);
        let silent = mean(devices.iter().map(|d| share(d, noon(0), is_silent)));
        assert!(silent < 0.03, "{silent}");
        let is_gsm_like = |answer| {
            matches!(answer, Scripted::Reply(rtt) | Scripted::Duplicate(rtt)
                if (100..2_600).contains(&rtt.as_millis()))
        };
        let good = mean(devices.iter().map(|d| share(d, noon(0), is_gsm_like)));
        assert!(good > 0.96, "{good}");
    }

    #[test]
    fn weak_devices_lose_much_and_flappers_are_down_for_runs() {
        let weak = mean(
            of_class(Class::Weak)
                .iter()
                .map(|d| share(d, noon(0), is_silent)),
        );
        assert!((0.10..0.40).contains(&weak), "{weak}");
        for flapper in of_class(Class::Flapper) {
            let states: Vec<bool> = (0..600)
                .map(|n| flapper.down_window(noon(n)).is_some())
                .collect();
            let turns = states.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!((3..100).contains(&turns), "{turns}");
        }
    }

    #[test]
    fn dead_devices_never_answer() {
        for dead in of_class(Class::Dead) {
            let answers = share(&dead, noon(0), |answer| {
                !is_silent(answer) && answer != Scripted::SendFails
            });
            assert!(answers == 0.0, "{answers}");
        }
    }

    #[test]
    fn a_sleeper_is_slow_after_idle_and_quick_right_after_that() {
        let sleeper = of_class(Class::Sleeper)[0];
        let asleep = (0..60)
            .map(|n| noon(0).plus(Duration::from_millis(n * 100)))
            .find(|&at| sleeper.until_paged(at) > 2_500.0)
            .unwrap();
        let wait = millis(sleeper.until_paged(asleep));
        let awake = asleep.plus(wait).plus(Duration::from_millis(700));
        assert!(sleeper.until_paged(awake) == 0.0);
    }

    #[test]
    fn evenings_are_slower() {
        let evening = Wall::parse("2026-03-12T18:00:00Z").unwrap();
        let is_slow = |answer| matches!(answer, Scripted::Reply(rtt) if rtt.as_millis() > 900);
        let devices = of_class(Class::Steady);
        let by_day = mean(devices.iter().map(|d| share(d, noon(0), is_slow)));
        let by_night = mean(devices.iter().map(|d| share(d, evening, is_slow)));
        assert!(by_night > by_day + 0.1, "{by_day} {by_night}");
    }

    #[test]
    fn rare_things_happen_in_a_large_fleet() {
        let (mut late, mut duplicate, mut unreachable, mut failed) = (0, 0, 0, 0);
        for device in fleet(1_000) {
            for n in 0..60 {
                match device.answer(noon(n), TIMEOUT) {
                    Scripted::Late(_) => late += 1,
                    Scripted::Duplicate(_) => duplicate += 1,
                    Scripted::Unreachable(_) => unreachable += 1,
                    Scripted::SendFails => failed += 1,
                    Scripted::Reply(_) | Scripted::Silent => {}
                }
            }
        }
        assert!(
            late > 50 && duplicate > 50 && unreachable > 200,
            "{late} {duplicate}"
        );
        assert!((1..60).contains(&failed), "{failed}");
    }

    #[test]
    fn an_answer_depends_on_the_time_alone_and_no_time_panics() {
        for device in fleet(50) {
            for at in [i64::MIN, -1, 0, 1_773_273_900_007, i64::MAX] {
                let at = Wall::from_millis(at);
                let once = device.answer(at, TIMEOUT);
                let _other = device.answer(noon(1), TIMEOUT);
                assert_eq!(device.answer(at, TIMEOUT), once);
            }
        }
    }
}
