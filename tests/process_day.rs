//! The real program over midnight, 00:05 and 00:15 UTC, in four time zones, at the end
//! of the days on which Berlin sets its clocks forward and back.
//!
//! libfaketime shifts the wall clock and leaves the monotonic one alone; where a
//! quarter of an hour would have to be waited for the wall is stepped.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use sitebeat::domain::day::Day;
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::Status;
use sitebeat::domain::terms::{Term, Terms};
use sitebeat::store::{Options, Store};

use process::{Launch, Program, site_folder, wait_for, wait_up_to};

#[path = "support/process.rs"]
mod process;

const ZONES: [&str; 4] = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Pacific/Chatham",
];
/// Of 23 and of 25 hours in Berlin.
const DAYS: [&str; 2] = ["2027-03-28", "2027-10-31"];
/// Those that the program watches while the day ends.
const DEVICES: u32 = 3;
/// Those that were watched until the evening, and are in the store.
const KNOWN: [&str; 3] = ["K1", "K2", "K3"];
const MINUTE: Duration = Duration::from_mins(1);

/// A wall clock that a test sets.
struct ShiftedWall {
    file: PathBuf,
}

impl ShiftedWall {
    fn new(folder: &Path) -> Self {
        Self {
            file: folder.join("faketime"),
        }
    }

    /// Sets it to this time.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is shifted is the real time"
    )]
    fn set(&self, to: Wall) {
        let to = to.millis();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let shift_ms = to - i64::try_from(now.as_millis()).expect("now");
        // Replaced at once, since it is read at any moment.
        let draft = self.file.with_extension("new");
        let (sign, shift_ms) = (
            if shift_ms < 0 { '-' } else { '+' },
            shift_ms.unsigned_abs(),
        );
        let text = format!("{sign}{}.{:03}\n", shift_ms / 1_000, shift_ms % 1_000);
        fs::write(&draft, text).expect("the shift");
        fs::rename(&draft, &self.file).expect("the shift");
    }

    fn under(&self, launch: Launch) -> Launch {
        launch
            .variable("LD_PRELOAD", &library())
            .variable("FAKETIME_TIMESTAMP_FILE", &self.file.to_string_lossy())
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

/// Where Debian's package libfaketime puts it.
fn library() -> String {
    let found = fs::read_dir("/usr/lib")
        .expect("a system")
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists());
    found
        .expect("libfaketime is installed: see tests/run")
        .to_string_lossy()
        .into_owned()
}

#[test]
fn day_is_summed_up_at_its_hour_in_every_time_zone_and_all_say_the_same() {
    let nights = DAYS.map(|day| {
        let day: Day = day.parse().unwrap();
        (
            day,
            ZONES.map(|zone| thread::spawn(move || night(zone, day))),
        )
    });
    for (day, nights) in nights {
        let said = nights.map(|night| night.join().expect("its log is above"));
        let first = &said[0];
        assert_eq!(first.rows.len(), KNOWN.len(), "{day}");
        assert_eq!(first.raw.len(), KNOWN.len() * 1_200, "{day}");
        for (other, zone) in said.iter().zip(ZONES) {
            assert_eq!(other.rows, first.rows, "{day} in {zone}");
            assert_eq!(other.page, first.page, "{day} in {zone}");
            assert!(other.raw == first.raw, "{day} in {zone}: raw differs");
        }
    }
}

/// What a gateway says of the devices that were in its store.
struct Said {
    /// Their rows but for when they were written.
    rows: Vec<String>,
    /// Their heartbeats, as lines.
    raw: Vec<String>,
    /// Their lines on the page of all days.
    page: Vec<String>,
}

/// A store with the heartbeats of a day up to 20:00, the same for all.
fn begun_day(folder: &Path, day: Day) {
    let options = Options {
        path: folder.join("data"),
        site: "site-1".into(),
        node: "gateway".into(),
        max_bytes: 2 << 30,
        min_free_bytes: 0,
    };
    let evening = day.start().plus(MINUTE * 1_200);
    let store = Store::open(&options, day.start()).unwrap().store;
    let ids = KNOWN.map(|id| id.parse::<DeviceId>().unwrap());
    let term = |from, period| Term { from, period };
    let terms = || Terms::restored(vec![term(day.start(), Some(MINUTE)), term(evening, None)]);
    let all = ids.iter().map(|&id| (id, terms())).collect();
    store.keep_terms(&all, evening).unwrap();
    for minute in 0..1_200 {
        let at = day.start().plus(MINUTE * minute);
        let beats = (1_u32..).zip(ids).map(|(n, device)| {
            // A run of misses over the hour in which the clocks are set.
            let is_lost = n == 2 && (50..130).contains(&minute);
            let replied = Outcome::Replied {
                rtt_us: n * 100_000 + minute,
            };
            Sample {
                device,
                at,
                outcome: if is_lost {
                    Outcome::Missed(Miss::Timeout)
                } else {
                    replied
                },
                occasion: Occasion::Scheduled,
                status: if is_lost {
                    Status::Offline
                } else {
                    Status::Online
                },
            }
        });
        store.push_raw(&beats.collect::<Vec<_>>());
    }
    store.close(evening).unwrap();
}

/// One gateway over the end of the day.
fn night(zone: &str, day: Day) -> Said {
    let folder = site_folder(DEVICES);
    begun_day(folder.path(), day);
    let wall = ShiftedWall::new(folder.path());
    wall.set(day.end().minus(Duration::from_secs(30)));
    let launch = Launch::new(folder.path(), &[])
        .variable("TZ", zone)
        .set("probe.heartbeat_period_ms", "1000")
        .set("probe.offline_timeout_ms", "300")
        .set("store.flush_every_ms", "500");
    let program = wall.under(launch).start();
    let next = day.next().to_string();
    wait_up_to(Duration::from_secs(60), "the next day", || {
        let now = program.json("/api/v1/node")["last_heartbeat"]
            .as_str()
            .map(str::to_owned);
        now.filter(|now| now.starts_with(&format!("{next}T00:00:0")))
            .map(drop)
    });
    let all = KNOWN.len() + 3;
    assert!(rows(&program, day).is_empty(), "nothing before 00:05");
    wall.set(Wall::parse(&format!("{next}T00:04:57Z")).unwrap());
    wait_up_to(Duration::from_secs(60), "the first summary", || {
        (rows(&program, day).len() == all).then_some(())
    });
    assert!(summarised(&program).is_empty(), "not final before 00:15");
    wall.set(Wall::parse(&format!("{next}T00:14:57Z")).unwrap());
    wait_up_to(Duration::from_secs(60), "the last word", || {
        (summarised(&program).len() == all).then_some(())
    });
    let rows = rows(&program, day);
    let page = page_lines(&program.get("/history?days=7").body, day);
    assert_eq!(program.stop().code(), Some(0));
    let text = day.to_string();
    let arguments = |what| [what, "--from", &text, "--to", &text, "--format", "jsonl"];
    let exported = export(folder.path(), zone, &arguments("daily"));
    let of_json = |line: &String| serde_json::from_str::<Value>(line).expect("JSON");
    let as_json: Vec<Value> = exported.iter().map(of_json).collect();
    assert_eq!(as_json, rows, "{zone}: the export says what the API said");
    let raw = export(folder.path(), zone, &arguments("raw"));
    check_watched(&rows, &raw.iter().map(of_json).collect::<Vec<_>>(), &text);
    let is_known = |line: &&String| KNOWN.iter().any(|id| line.contains(&format!("\"{id}\"")));
    Said {
        rows: exported
            .iter()
            .filter(is_known)
            .map(|line| without_stamps(line))
            .collect(),
        raw: raw.iter().filter(is_known).cloned().collect(),
        page,
    }
}

/// The lines of the known devices on the page of all days, whose last day is this.
fn page_lines(page: &str, day: Day) -> Vec<String> {
    let last = page.rsplit_once("<time datetime=\"").expect("a day").1;
    assert!(last.starts_with(&day.to_string()), "{last}");
    let shares = [
        ("K1", "<td>100<td>100"),
        ("K2", "93.3<td class=d>93.3"),
        ("K3", "<td>100<td>100"),
    ];
    let line = |(id, share)| {
        let link = format!("/history?device={id}");
        let row = page.lines().find(|row| row.contains(&link));
        let row = row.unwrap_or_else(|| panic!("{id} is not on {page}"));
        assert!(row.ends_with(share), "{row}");
        row.to_owned()
    };
    shares.map(line).to_vec()
}

/// Each device that was watched while the day ended has a good row, which rests on
/// all that was heard.
fn check_watched(rows: &[Value], raw: &[Value], day: &str) {
    let mut heard: BTreeMap<&str, u64> = BTreeMap::new();
    for beat in raw {
        assert!(beat["at"].as_str().unwrap().starts_with(day));
        *heard
            .entry(beat["device_id"].as_str().unwrap())
            .or_default() += 1;
    }
    for row in rows {
        let device = row["device_id"].as_str().unwrap();
        let (expected, probed) = (row["expected"].as_u64(), row["probed"].as_u64());
        if KNOWN.contains(&device) {
            assert_eq!((expected, probed), (Some(1_200), Some(1_200)), "{row}");
            continue;
        }
        assert_eq!(row["online_ratio"], 1.0, "{row}");
        // A second is a slot, and the watch began within the last minute of the day.
        assert!((10..=60).contains(&expected.unwrap()), "{row}");
        // Its first look is in raw and in no count.
        assert!(
            heard[device] - probed.unwrap() <= 1,
            "{row} of {}",
            heard[device]
        );
    }
}

/// A row's line without its two stamps.
fn without_stamps(line: &str) -> String {
    let mut kept = line.to_owned();
    for key in ["\"created_at\":\"", "\"updated_at\":\""] {
        let at = kept.find(key).expect("a stamp") + key.len();
        kept.replace_range(at..at + "2027-03-28T00:05:00.000Z".len(), "");
    }
    kept
}

fn rows(program: &Program, day: Day) -> Vec<Value> {
    let path = format!("/api/v1/daily?from={day}&to={day}");
    program.json(&path)["rows"]
        .as_array()
        .expect("rows")
        .clone()
}

/// The daily events so far.
fn summarised(program: &Program) -> Vec<Value> {
    let events = program.json("/api/v1/events?limit=500")["events"].clone();
    let is_daily = |event: &&Value| event["event"] == "heartbeat.daily.summarised.v1";
    events
        .as_array()
        .expect("events")
        .iter()
        .filter(is_daily)
        .cloned()
        .collect()
}

/// The lines that `sitebeat export` prints of the stopped gateway's store.
fn export(folder: &Path, zone: &str, arguments: &[&str]) -> Vec<String> {
    let mut launch = Launch::new(folder, &["export"]).variable("TZ", zone);
    for argument in arguments {
        launch = launch.argument(argument);
    }
    let (status, stdout, log) = launch.run();
    assert_eq!(status.code(), Some(0), "{log}");
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn export_says_what_is_wrong_and_with_which_code() {
    let folder = site_folder(1);
    let run = |arguments: &[&str]| {
        let mut launch = Launch::new(folder.path(), &["export"]);
        for argument in arguments {
            launch = launch.argument(argument);
        }
        let (status, stdout, log) = launch.run();
        (status.code(), stdout, log)
    };
    let (code, _, log) = run(&["daily"]);
    assert_eq!(code, Some(3), "no store: {log}");
    assert!(log.contains("data"), "{log}");
    let (code, _, log) = run(&["daily", "--from", "2026-02-30"]);
    assert_eq!(code, Some(2), "{log}");
    assert!(
        log.contains("2026-02-30") && log.contains("2026-03-12"),
        "{log}"
    );
    let program = Launch::new(folder.path(), &[]).start();
    program.wait_for_counts(|counts| counts["online"] == 1);
    let (code, _, log) = run(&["events"]);
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("is in use"), "{log}");
    assert_eq!(program.stop().code(), Some(0));
    let (code, stdout, log) = run(&["events"]);
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "log_id,seq,produced_at,event,device_id,json");
    assert!(lines[1].contains("heartbeat.status.changed.v1"), "{stdout}");
    let (code, stdout, _) = run(&["daily"]);
    assert_eq!(
        (code, stdout.lines().count()),
        (Some(0), 1),
        "a header alone"
    );
    let (code, stdout, _) = run(&["raw", "--device", "D1", "--format", "jsonl"]);
    assert_eq!(code, Some(0));
    let first: Value = serde_json::from_str(stdout.lines().next().expect("a heartbeat")).unwrap();
    assert_eq!(first["outcome"], "replied");
    wait_for("no lock is left behind", || {
        (run(&["raw", "--to", "2020-01-01"]).0 == Some(0)).then_some(())
    });
}
