//! A gateway as its uplink sees it: a real store, events put into it by hand, a board
//! and pulses. The broker is whatever the test gives it.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::indexing_slicing,
    reason = "shared by test programs, each of which uses a part"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sitebeat::board::{Board, Uplink as Shown};
use sitebeat::broker::Broker;
use sitebeat::clock::Clock;
use sitebeat::config::settings::{self, Settings, UplinkAck};
use sitebeat::domain::device::DeviceId;
use sitebeat::domain::event::{Change, Event, Failure, FailureCode, News, Stage};
use sitebeat::domain::heartbeat::{Miss, Occasion, Outcome, Sample};
use sitebeat::domain::instant::Wall;
use sitebeat::domain::status::{Liveness, Status, Track};
use sitebeat::edge::uplink::tap::{Tap, tap};
use sitebeat::edge::uplink::{Links, Rules, Uplink};
use sitebeat::store::{Options, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The ways of a gateway, the same in all its lives.
pub(crate) struct Ways<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) uplink: settings::Uplink,
}

/// One life, from a start to a stop or a kill.
pub(crate) struct Gateway {
    pub(crate) store: Arc<Store>,
    pub(crate) board: Arc<Board>,
    pub(crate) tap: Tap,
    pub(crate) rules: watch::Sender<Rules>,
    clock: Arc<dyn Clock>,
    pulse: watch::Sender<()>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// `[uplink]` as built in, switched on.
pub(crate) fn uplink(ack: UplinkAck) -> settings::Uplink {
    settings::Uplink {
        url: Some("mqtt://127.0.0.1:1883".into()),
        ack,
        metrics_interval: Some(Duration::ZERO),
        ..Settings::default().uplink
    }
}

pub(crate) fn device(n: u64) -> DeviceId {
    format!("meter-{n:04}").parse().unwrap()
}

/// The device turned `status` now.
pub(crate) fn turn(n: u64, status: Status, now: Wall) -> Change {
    let track = Track {
        status,
        since: Some(now),
        last_ping_at: Some(now),
        last_seen: Some(now),
        rtt_us: Some(820_000),
        updated_at: Some(now),
        ..Track::default()
    };
    Change::Standing {
        liveness: Liveness {
            device: device(n),
            track,
        },
        event: Event {
            device: Some(device(n)),
            produced_at: now,
            process_ms: 3,
            news: News::StatusChanged {
                previous: Status::Unknown,
                current: status,
                missed_count: 0,
                last_seen: Some(now),
            },
        },
    }
}

/// A heartbeat of the schedule.
pub(crate) fn heartbeat(n: u64, is_alive: bool, at: Wall) -> Sample {
    Sample {
        device: device(n),
        at,
        outcome: if is_alive {
            Outcome::Replied { rtt_us: 820_000 }
        } else {
            Outcome::Missed(Miss::Timeout)
        },
        occasion: Occasion::Scheduled,
        status: if is_alive {
            Status::Online
        } else {
            Status::Offline
        },
    }
}

impl Gateway {
    pub(crate) fn begin<B: Broker + 'static>(ways: &Ways<'_>, broker: B) -> Self {
        let options = Options {
            path: ways.folder.join("data"),
            site: "site-1".into(),
            node: "gateway".into(),
            max_bytes: 2 << 30,
            min_free_bytes: 0,
        };
        let opened = Store::open(&options, ways.clock.wall()).unwrap();
        assert_eq!(opened.mended, Vec::<String>::new());
        let store = Arc::new(opened.store);
        store.address_misses(ways.uplink.miss_events);
        store.hold_for_uplink(ways.uplink.url.is_some());
        let board = Arc::new(Board::default());
        board.draw(|picture| {
            let gateway = &mut picture.gateway;
            (gateway.site, gateway.node) = ("site-1".into(), "gateway".into());
            gateway.region = "local".into();
            gateway.boot_id = format!("boot-{}", opened.boot);
        });
        let (rules_to, rules) = watch::channel(Rules {
            uplink: ways.uplink.clone(),
            heartbeat_ttl: Duration::from_secs(15),
        });
        let (pulse_to, pulse) = watch::channel(());
        let (stop, stopped) = watch::channel(false);
        let (tap, flow) = tap();
        let links = Links {
            store: Arc::clone(&store),
            board: Arc::clone(&board),
            clock: Arc::clone(&ways.clock),
            rules,
            pulse,
            flow,
            dice: || 0.5,
        };
        let task = tokio::spawn(Uplink::new(links, broker).run(stopped));
        Self {
            store,
            board,
            tap,
            rules: rules_to,
            clock: Arc::clone(&ways.clock),
            pulse: pulse_to,
            stop,
            task,
        }
    }

    /// Makes changes durable.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Vec<u64> {
        let (store, now) = (Arc::clone(&self.store), self.clock.wall());
        tokio::task::spawn_blocking(move || store.commit(&changes, now).unwrap())
            .await
            .unwrap()
    }

    /// Keeps raw heartbeats and flushes them.
    pub(crate) async fn keep(&self, samples: Vec<Sample>) {
        let (store, now) = (Arc::clone(&self.store), self.clock.wall());
        let kept = tokio::task::spawn_blocking(move || {
            store.push_raw(&samples);
            store.flush_raw(now).unwrap();
        });
        kept.await.unwrap();
    }

    /// The node's pulse.
    pub(crate) fn beat(&self) {
        self.board.draw(|picture| {
            picture.gateway.pulse.at = Some(self.clock.wall());
        });
        self.pulse.send_replace(());
    }

    pub(crate) fn shown(&self) -> Shown {
        self.board.look().gateway.uplink.clone()
    }

    /// Waits until the board's uplink is so.
    pub(crate) async fn until(&self, limit: Duration, is_so: impl Fn(&Shown) -> bool) {
        let begin = self.clock.mono();
        while !is_so(&self.shown()) {
            let waited = self.clock.mono().since(begin);
            assert!(waited < limit, "not within {limit:?}: {:?}", self.shown());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until everything in the log is acknowledged.
    pub(crate) async fn until_sent(&self, limit: Duration) {
        let begin = self.clock.mono();
        loop {
            let last = self.store.outbox().last;
            if self.shown().cursor >= last {
                return;
            }
            let waited = self.clock.mono().since(begin);
            assert!(
                waited < limit,
                "{last} not sent within {limit:?}: {:?}",
                self.shown()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A clean stop.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
        let (store, now) = (self.store, self.clock.wall());
        tokio::task::spawn_blocking(move || store.close(now).unwrap())
            .await
            .unwrap();
    }

    /// A kill: nothing more is written. The lock goes with the last owner.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err_and(|broken| broken.is_cancelled()));
        // Jobs under way end before the store is let go of.
        while Arc::strong_count(&self.store) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let store = self.store;
        tokio::task::spawn_blocking(move || drop(store))
            .await
            .unwrap();
    }
}

/// A message that carries an event of the log.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) device: Option<String>,
    pub(crate) log_id: String,
    pub(crate) seq: u64,
    pub(crate) prev_seq: Option<u64>,
    pub(crate) name: String,
    /// The whole, to compare.
    pub(crate) json: Value,
}

/// The events among payloads, in order.
pub(crate) fn carried<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> Vec<Carried> {
    let events = payloads.into_iter().filter_map(|payload| {
        let json: Value = serde_json::from_slice(payload).ok()?;
        let meta = json.get("meta")?;
        Some(Carried {
            device: json["context"]["device_id"].as_str().map(str::to_owned),
            log_id: meta.get("log_id")?.as_str()?.to_owned(),
            seq: meta.get("seq")?.as_u64()?,
            prev_seq: meta["prev_seq"].as_u64(),
            name: json["event"].as_str()?.to_owned(),
            json,
        })
    });
    events.collect()
}

/// Asserts what holds of everything that ever reached a broker: one number, one
/// content; per device no first coming of an event after a newer one. Gives each event
/// once, by number.
pub(crate) fn once_each(events: &[Carried]) -> BTreeMap<u64, Carried> {
    let mut first: BTreeMap<u64, Carried> = BTreeMap::new();
    let mut newest: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for event in events {
        if let Some(before) = first.get(&event.seq) {
            assert_eq!(before.json, event.json, "one number, two contents");
            continue;
        }
        let newest = newest.entry(event.device.clone()).or_default();
        assert!(event.seq > *newest, "{} came after {newest}", event.seq);
        *newest = event.seq;
        first.insert(event.seq, event.clone());
    }
    first
}

/// A failure with as long a message as one can have, 2,000 bytes and more.
pub(crate) fn long_failure(now: Wall) -> Change {
    Change::Notice(Event {
        device: None,
        produced_at: now,
        process_ms: 0,
        news: News::Failed(Failure {
            stage: Stage::Store,
            code: FailureCode::StoreDamaged,
            message: "\u{1f4a5}".repeat(500),
            retryable: false,
            failed_at: now,
        }),
    })
}
