//! What the uplink asks of the store, one thing at a time and off its own thread.
//!
//! Floor 3. Every job moves the cursor first, so that what it then tells is true.

use std::future::pending;
use std::sync::Arc;

use tokio::task::{JoinError, JoinHandle};

use crate::domain::device::DeviceId;
use crate::domain::event::{Change, Event};
use crate::domain::heartbeat::Sample;
use crate::domain::instant::Wall;
use crate::domain::outbox::Class;
use crate::domain::status::Track;
use crate::fault::chain;
use crate::store::Store;
use crate::store::outbox::{Outbox, Parcel, UplinkMarks};

/// Parcels read at once at most, and about so many bytes.
const READ_MAX: (usize, usize) = (256, 128 << 10);
/// Heartbeats of the past read at once, about.
const HEARTBEATS_MAX: usize = 2_000;

/// One job.
#[derive(Debug)]
pub(super) enum Job {
    /// How the outbox stands.
    Look,
    /// What was remembered.
    Marks,
    /// What `[uplink]` says of the log.
    Apply {
        /// `uplink.miss_events`
        miss_events: bool,
        /// Whether `uplink.url` is set.
        is_on: bool,
    },
    /// Who changed with an event after this number.
    Standings(u64),
    /// What is to be sent after this number.
    Read(u64),
    /// Remember this.
    Keep(UplinkMarks),
    /// Make room: no more than so many bytes may wait.
    PassOver(u64),
    /// Keep this event aside, for this reason.
    SetAside(u64, String),
    /// Put this into the log.
    Tell(Box<Event>),
    /// Heartbeats from the first time on until the second.
    Heartbeats(Wall, Wall),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing but the outbox.
    Nothing,
    /// What was remembered.
    Marks(UplinkMarks),
    /// Who changed after this number: the device and its standing, `None` where it left.
    Standings(u64, Vec<(DeviceId, Option<Track>)>),
    /// What is to be sent after this number, each with the liveness record it calls
    /// for.
    Parcels(u64, Vec<Ready>),
    /// It is kept aside; or it is not, being a gap, which says no more than its number.
    SetAside {
        /// Which.
        seq: u64,
        /// Whether it is.
        is_kept: bool,
    },
    /// Heartbeats from the first time on, whole up to the second.
    Heartbeats(Wall, Vec<Sample>, Wall),
}

/// A parcel that can go out.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) parcel: Parcel,
    /// The device's standing, if this event is the newest about it; inside `None`
    /// where it left.
    pub(super) liveness: Option<(DeviceId, Option<Track>)>,
}

/// A job that is done.
#[derive(Debug)]
pub(super) struct Done {
    /// How the outbox stands after it.
    pub(super) outbox: Outbox,
    /// `Err`: why it failed, for people.
    pub(super) found: Result<Found, String>,
}

/// The desk.
#[derive(Debug)]
pub(super) struct Desk {
    store: Arc<Store>,
    job: Option<JoinHandle<Done>>,
}

impl Desk {
    pub(super) const fn new(store: Arc<Store>) -> Self {
        Self { store, job: None }
    }

    /// Whether it can take a job.
    pub(super) const fn is_free(&self) -> bool {
        self.job.is_none()
    }

    /// Starts a job; the cursor is at `cursor` before it.
    pub(super) fn start(&mut self, job: Job, cursor: u64, now: Wall) {
        debug_assert!(self.is_free(), "the flow starts one job at a time");
        let store = Arc::clone(&self.store);
        self.job = Some(tokio::task::spawn_blocking(move || {
            let found = store
                .move_cursor(cursor, now)
                .map_err(|fault| chain(&fault))
                .and_then(|()| work(&store, job, now));
            Done {
                outbox: store.outbox(),
                found,
            }
        }));
    }

    /// The end of the job; pending where there is none.
    pub(super) async fn ended(&mut self) -> Result<Done, JoinError> {
        let Some(job) = &mut self.job else {
            return pending().await;
        };
        let ended = job.await;
        self.job = None;
        ended
    }
}

fn work(store: &Store, job: Job, now: Wall) -> Result<Found, String> {
    match job {
        Job::Look => Ok(Found::Nothing),
        Job::Marks => told(store.uplink_marks()).map(Found::Marks),
        Job::Apply { miss_events, is_on } => {
            store.address_misses(miss_events);
            store.hold_for_uplink(is_on);
            Ok(Found::Nothing)
        }
        Job::Standings(after) => {
            let standings = told(store.standings_after(after))?;
            let bare = standings
                .into_iter()
                .map(|(_, device, track)| (device, track));
            Ok(Found::Standings(after, bare.collect()))
        }
        Job::Read(after) => {
            let parcels = told(store.read_outbox(after, READ_MAX, now))?;
            let ready = parcels.into_iter().map(|parcel| ready(store, parcel));
            let ready = ready.collect::<Result<_, _>>()?;
            Ok(Found::Parcels(after, ready))
        }
        Job::Keep(marks) => told(store.keep_uplink(&marks, now)).map(|()| Found::Nothing),
        // What was read to be sent is spared anyway.
        Job::PassOver(bytes_max) => {
            told(store.pass_over(bytes_max, 0, now)).map(|_| Found::Nothing)
        }
        Job::SetAside(seq, reason) => {
            let before = store.outbox().dead_letters;
            told(store.set_aside(seq, &reason, now))?;
            let is_kept = store.outbox().dead_letters > before;
            Ok(Found::SetAside { seq, is_kept })
        }
        Job::Tell(event) => {
            told(store.commit(&[Change::Notice(*event)], now)).map(|_| Found::Nothing)
        }
        Job::Heartbeats(from, to) => {
            let (samples, until) = told(store.heartbeats_between(from, to, HEARTBEATS_MAX))?;
            Ok(Found::Heartbeats(from, samples, until))
        }
    }
}

/// The parcel with its device's standing, where no newer event tells of that one.
fn ready(store: &Store, parcel: Parcel) -> Result<Ready, String> {
    let liveness = match parcel.device {
        Some(device) if parcel.class == Class::Status => {
            let standing = told(store.standing_of(device))?;
            let newest = standing.filter(|(seq, _)| *seq == parcel.seq);
            newest.map(|(_, track)| (device, track))
        }
        _ => None,
    };
    Ok(Ready { parcel, liveness })
}

fn told<T>(result: Result<T, impl std::error::Error + 'static>) -> Result<T, String> {
    result.map_err(|fault| chain(&fault))
}
