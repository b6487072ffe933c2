//! Days of a gateway on simulated time: the real monitor, recorder, rollup and
//! store, a random GSM fleet, and all that happens to a gateway meanwhile: stops,
//! kills, a clock that is set, a disk that fills.
//!
//! One seed decides everything. `SEED=17 DAYS=365 cargo test --release --test
//! day_simulation` runs a year; without them it is 30 days of seed 1.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sitebeat::clock::{Clock, SimulatedClock};
use sitebeat::config::settings::Settings;
use sitebeat::domain::daily::{Beat, Summary};
use sitebeat::domain::day::Day;
use sitebeat::domain::device::{Device, DeviceId};
use sitebeat::domain::heartbeat::{Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::ping::fleet::Fleet;
use sitebeat::store::Store;
use sitebeat::store::daily::DeviceDay;
use sitebeat::wire::message::DailyJson;

use life::{Dice, Life, MINUTE, Ways, number, options};
use plain_days::{PlainDay, sum_up};

#[path = "support/life.rs"]
mod life;
#[path = "support/plain_days.rs"]
mod plain_days;

const DAY: Duration = Duration::from_hours(24);
const PERIOD: Duration = Duration::from_mins(5);
/// Few, so that a run of thirty days sees events go.
const EVENTS_KEPT_DAYS: u32 = 20;

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.probe.heartbeat_period = PERIOD;
    settings.store.flush_every = 10 * MINUTE;
    settings.history.events_retention_days = EVENTS_KEPT_DAYS;
    settings
}

/// What the checkers have seen of the days before.
#[derive(Default)]
struct Seen {
    /// Every device's heartbeats of the days checked so far.
    heartbeats: BTreeMap<DeviceId, Vec<Sample>>,
    /// Days whose rows were compared.
    compared: BTreeSet<Day>,
    rows: usize,
}

fn rows_of(store: &Store, day: Day) -> Vec<Summary> {
    let mut rows = Vec::new();
    store
        .summaries(day, day, None, &mut |row| {
            rows.push(*row);
            true
        })
        .unwrap();
    rows
}

/// Every heartbeat of a day, by device.
fn plain_list(store: &Store, day: Day) -> BTreeMap<DeviceId, Vec<Sample>> {
    let mut list = BTreeMap::new();
    store
        .read_day(day, &mut |devices| {
            for DeviceDay { device, beats, .. } in devices {
                let sample = |beat: Beat| Sample {
                    device,
                    at: beat.at,
                    outcome: beat.outcome,
                    occasion: beat.occasion,
                    status: beat.status,
                };
                list.insert(device, beats.into_iter().map(sample).collect());
            }
        })
        .unwrap();
    list
}

impl Seen {
    /// Compares the rows of `day` with its heartbeats, which are still there.
    fn compare(&mut self, store: &Store, day: Day, devices: &[Device]) {
        let rows = rows_of(store, day);
        let raw = store.raw_days().unwrap();
        if !raw.contains(&day) {
            assert!(rows.is_empty(), "{day} has rows and never had heartbeats");
            return;
        }
        assert_eq!(rows.len(), devices.len(), "{day}: a row per device");
        let mut of_day = plain_list(store, day);
        for (n, (row, device)) in rows.iter().zip(devices).enumerate() {
            assert_eq!(row.device, device.id);
            let all = self.heartbeats.entry(device.id).or_default();
            // Of earlier days the last run alone still matters.
            let is_reply = |sample: &Sample| matches!(sample.outcome, Outcome::Replied { .. });
            let last_reply = all.iter().rposition(is_reply);
            all.drain(..last_reply.unwrap_or(0));
            let today = of_day.remove(&device.id).unwrap_or_default();
            if n.is_multiple_of(20) {
                // The same as a page would show; slow, so of some alone.
                assert_eq!(store.heartbeats(device.id, day).unwrap(), today);
            }
            all.extend(today);
            let figures = &row.figures;
            let said = PlainDay {
                replied: figures.replied,
                missed: figures.missed,
                no_data: figures.no_data,
                online: figures.online,
                degraded: figures.degraded,
                offline: figures.offline,
                avg_rtt_us: figures.avg_rtt_us,
                p95_rtt_us: figures.p95_rtt_us,
                max_missed_count: figures.max_missed_count,
            };
            assert_eq!(said, sum_up(all, day), "{} on {day}", device.id);
            assert!(
                figures.coverage() <= 1.0 && figures.expected <= 288,
                "{row:?}"
            );
            self.rows += 1;
        }
        self.compared.insert(day);
    }

    /// Raw is there, or the rows are.
    fn nothing_is_lost(&self, store: &Store, first: Day, today: Day, devices: usize) {
        let raw = store.raw_days().unwrap();
        let mut day = first;
        while day < today {
            if !raw.contains(&day) && self.compared.contains(&day) {
                assert_eq!(rows_of(store, day).len(), devices, "rows of {day}");
                // That a day is final is remembered for 40 days; its rows for years.
                let is_remembered = day.start().plus(35 * DAY) > today.start();
                let finals = store.final_days().unwrap();
                assert!(!is_remembered || finals.contains(&day), "{day} is final");
            }
            day = day.next();
        }
    }
}

/// The last event told of each row says what the row says, and no two events of
/// one row say the same.
fn check_events(store: &Store, compared: &BTreeSet<Day>) {
    let mut told: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    let mut after = 0;
    loop {
        let group = store.events_after(after, 1_000).unwrap();
        let Some(last) = group.last() else { break };
        after = last.seq;
        for logged in group {
            let json: Value = serde_json::from_str(&logged.json).unwrap();
            if json["event"] == "heartbeat.daily.summarised.v1" {
                let mut data = json["data"].clone();
                let key = |name: &str| json["data"][name].as_str().unwrap().to_owned();
                let key = (key("day"), key("device_id"));
                for time in ["created_at", "updated_at"] {
                    data.as_object_mut().unwrap().remove(time);
                }
                told.entry(key).or_default().push(data);
            }
        }
    }
    // Events go, rows stay for years. The newest day compared is three days back.
    let Some(newest) = compared.last() else {
        return;
    };
    let kept_from = newest.start().minus((EVENTS_KEPT_DAYS - 4) * DAY);
    let gone_before = newest.start().minus((EVENTS_KEPT_DAYS + 1) * DAY);
    let is_young = |day: &str| day.parse::<Day>().unwrap().start() >= gone_before;
    assert!(told.keys().all(|(day, _)| is_young(day)), "old events go");
    for &day in compared.iter().filter(|day| day.start() >= kept_from) {
        for row in rows_of(store, day) {
            let said = serde_json::to_string(&DailyJson::from(&row)).unwrap();
            let mut said: Value = serde_json::from_str(&said).unwrap();
            for time in ["created_at", "updated_at"] {
                said.as_object_mut().unwrap().remove(time);
            }
            let key = (day.to_string(), row.device.to_string());
            let told = told.get(&key).unwrap_or_else(|| panic!("{key:?} was told"));
            assert_eq!(told.last(), Some(&said), "{key:?}");
            let distinct: BTreeSet<String> = told.iter().map(Value::to_string).collect();
            assert_eq!(distinct.len(), told.len(), "{key:?} was told twice alike");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_summary_equals_that_of_a_plain_list_whatever_happens_to_the_gateway() {
    let (seed, days) = (number("SEED", 1), number("DAYS", 30));
    #[expect(clippy::print_stdout, reason = "whoever sees it fail needs the seed")]
    {
        println!("SEED={seed} DAYS={days}");
    }
    let count = usize::try_from(number("DEVICES", 200)).unwrap();
    let mut dice = Dice(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut devices = Fleet::inventory(seed, "site-1", count);
    devices.sort_by_key(|device| device.id);
    let start = Wall::parse("2026-03-12T00:00:10Z").unwrap();
    let clock = Arc::new(SimulatedClock::starting_at(start));
    let first = Day::of(start).unwrap();
    let ways = Ways {
        folder: folder.path(),
        seed,
        devices: &devices,
        settings: settings(),
    };
    let mut checks = Seen::default();
    let mut next = first;
    for _ in 0..days {
        // The day before yesterday: the run of yesterday has looked at it again.
        let checked_at = next.next().next().start().plus(Duration::from_hours(12));
        loop {
            let life = Life::begin(&ways, &(Arc::clone(&clock) as Arc<dyn Clock>));
            let is_checked = live(&life, &clock, &mut dice, checked_at).await;
            if is_checked {
                checks.compare(&life.store, next, &devices);
                let today = Day::of(clock.wall()).unwrap();
                checks.nothing_is_lost(&life.store, first, today, count);
            }
            if dice.below(3) == 0 {
                life.kill().await;
            } else {
                life.stop().await;
            }
            tokio::time::sleep(Duration::from_millis(dice.below(600_000))).await;
            if is_checked {
                break;
            }
        }
        next = next.next();
    }
    let opened = Store::open(&options(folder.path()), clock.wall()).unwrap();
    check_events(&opened.store, &checks.compared);
    assert!(
        checks.rows >= count * usize::try_from(days).unwrap() / 2,
        "{}",
        checks.rows
    );
}

/// Lives for some hours, or until `until` and its rollup is idle; says whether it
/// was that.
async fn live(life: &Life, clock: &Arc<SimulatedClock>, dice: &mut Dice, until: Wall) -> bool {
    for _ in 0..=dice.below(6) {
        let left = until.since(clock.wall());
        if left.is_zero() {
            life.store.set_limits(2 << 30, 0);
            // Long enough for every retry, flush and look.
            tokio::time::sleep(Duration::from_mins(40)).await;
            let shown = life.board.look().gateway.rollup.clone();
            assert!(
                shown.running.is_none() && shown.failing.is_none(),
                "{shown:?}"
            );
            return true;
        }
        let hours = Duration::from_secs(60 + dice.below(6 * 3_600));
        tokio::time::sleep(hours.min(left)).await;
        match dice.below(12) {
            // The clock is set, some minutes at most.
            0 => clock.step_wall(i64::try_from(dice.below(600)).unwrap() * 1_000 - 300_000),
            // The disk fills for a while: no raw is taken.
            1 => life.store.set_limits(1, 0),
            2 | 3 => life.store.set_limits(2 << 30, 0),
            _ => {}
        }
    }
    false
}
