//! The database of standings and events: `state/`.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `liveness` | device id | [`Standing`] of its last durable step |
//! | `log` | seq (u64, big-endian) | kind and envelope of the event |
//! | `checkpoint` | n (u16, big-endian) | a chunk of the [`Checkpoint`] |
//! | `addresses` | n (u16, big-endian) | a chunk of the devices' addresses |
//! | `terms` | n (u16, big-endian) | a chunk of the devices' terms |
//! | `announced` | day (u32, big-endian), device id or nothing for the site | hash of what was told of that row |
//! | `gaps` | number of the last missing event (u64, big-endian) | a [`Gap`](crate::wire::record::uplink::Gap) in what is sent upstream |
//! | `dead` | seq (u64, big-endian) | an event that the broker did not take |
//! | `meta` | `log`, `boot`, `uplink` | [`LogPlace`], number of the last start, [`UplinkPlace`] |
//!
//! # Invariants
//!
//! - A step changes `liveness`, `log`, `announced`, `gaps`, `dead` and `meta` in one
//!   transaction.
//! - What waits for the uplink is counted in the transaction that changes it.
//! - `log` holds every number from [`LogPlace::whole_from`] to `next_seq` - 1;
//!   below, entries whose time was up may be missing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use sled::Transactional as _;
use sled::transaction::{ConflictableTransactionError, TransactionError};

use super::database::{self, Fault, Site};
use super::day::VALUE_BYTES_MAX;
use super::step::Step;
use crate::domain::device::DeviceId;
use crate::domain::terms::Terms;
use crate::wire::record::logged::{self, LogPlace};
use crate::wire::record::standing::{Checkpoint, Standing};
use crate::wire::record::uplink::UplinkPlace;
use crate::wire::record::{addresses, terms};

mod gaps;
mod log;
mod marks;
mod outbox;
mod sweep;
mod walk;

pub(super) use outbox::Reading;
pub(super) use sweep::{Held, Rule};

pub(super) use marks::day_key;

const PLACE: &[u8] = b"log";
const BOOT: &[u8] = b"boot";
const UPLINK: &[u8] = b"uplink";

/// The open database.
pub(super) struct StateDatabase {
    database: sled::Db,
    site: Site,
    liveness: sled::Tree,
    log: sled::Tree,
    checkpoint: sled::Tree,
    addresses: sled::Tree,
    terms: sled::Tree,
    announced: sled::Tree,
    gaps: sled::Tree,
    dead: sled::Tree,
    meta: sled::Tree,
    place: LogPlace,
    /// With the cursor as it is now; on disk it may be further back.
    uplink: UplinkPlace,
    /// Nothing above this number was handed out to be sent.
    told_to: u64,
    hints: outbox::Hints,
    /// Events of logs before this one.
    older_count: u64,
    was_empty: bool,
}

impl StateDatabase {
    /// Whether its files are still there under their name.
    pub(super) fn is_whole(&self) -> bool {
        self.site.is_whole()
    }

    /// Opens the database, or makes one that begins the log `fresh`; reads all
    /// standings and the end of the log once, so that damage shows here.
    pub(super) fn open(path: &Path, fresh: LogPlace) -> Result<Self, Fault> {
        let database = database::open(path)?;
        let trees = database::guarded(|| {
            Ok((
                database.open_tree("liveness")?,
                database.open_tree("log")?,
                database.open_tree("checkpoint")?,
                database.open_tree("addresses")?,
                database.open_tree("terms")?,
                database.open_tree("announced")?,
                database.open_tree("gaps")?,
                database.open_tree("dead")?,
                database.open_tree("meta")?,
            ))
        });
        let (liveness, log, checkpoint, addresses, terms, announced, gaps, dead, meta) = match trees
        {
            Ok(trees) => trees,
            Err(fault) => {
                database::close(database);
                return Err(fault);
            }
        };
        let mut state = Self {
            database,
            site: Site::of(path),
            liveness,
            log,
            checkpoint,
            addresses,
            terms,
            announced,
            gaps,
            dead,
            meta,
            place: fresh,
            uplink: UplinkPlace::default(),
            told_to: 0,
            hints: outbox::Hints::default(),
            older_count: 0,
            was_empty: false,
        };
        match database::guarded(|| state.begin()) {
            Ok(()) => Ok(state),
            Err(fault) => {
                database::close(state);
                Err(fault)
            }
        }
    }

    fn begin(&mut self) -> Result<(), Fault> {
        match self.meta.get(PLACE)? {
            Some(bytes) => self.place = LogPlace::from_bytes(&bytes)?,
            None if self.log.is_empty() && self.liveness.is_empty() => {
                self.was_empty = true;
                self.meta.insert(PLACE, self.place.to_bytes())?;
                self.database.flush()?;
            }
            None => return Err(Fault::Damaged("its log has lost its place".into())),
        }
        let older = self.log.range(..self.place.base_seq.to_be_bytes());
        for key in older.keys() {
            key?;
            self.older_count += 1;
        }
        if let Some(bytes) = self.meta.get(UPLINK)? {
            self.uplink = UplinkPlace::from_bytes(&bytes)?;
            self.told_to = self.uplink.reserved;
        }
        self.check_end_of_log()?;
        self.standings()?;
        self.checkpoint()?;
        self.addresses()?;
        self.terms()?;
        Ok(())
    }

    /// Where the log stands.
    pub(super) const fn place(&self) -> &LogPlace {
        &self.place
    }

    /// Whether opening it found nothing at all.
    pub(super) const fn was_empty(&self) -> bool {
        self.was_empty
    }

    /// How many events the log holds.
    pub(super) fn events_count(&self) -> u64 {
        self.older_count + self.place.held()
    }

    /// Begins another log at `next_seq`; what is there stays. Until
    /// [`Self::end_rebuild`] steps count as lost.
    pub(super) fn begin_log(&mut self, log_id: String, next_seq: u64) -> Result<(), Fault> {
        let count = self.events_count();
        self.write_place(LogPlace {
            log_id,
            base_seq: next_seq,
            next_seq,
            is_rebuilt: true,
            pruned_below: self.place.pruned_below,
            pruned_count: 0,
        })?;
        self.older_count = count;
        Ok(())
    }

    /// Notes that lost steps have been made up for.
    pub(super) fn end_rebuild(&mut self) -> Result<(), Fault> {
        self.write_place(LogPlace {
            is_rebuilt: false,
            ..self.place.clone()
        })
    }

    fn write_place(&mut self, place: LogPlace) -> Result<(), Fault> {
        let uplink = UplinkPlace {
            next_seq: place.next_seq,
            ..self.uplink.clone()
        };
        database::guarded(|| {
            let mut batch = sled::Batch::default();
            batch.insert(PLACE, place.to_bytes());
            batch.insert(UPLINK, uplink.to_bytes());
            self.meta.apply_batch(batch)?;
            self.database.flush()?;
            Ok(())
        })?;
        self.place = place;
        self.uplink = uplink;
        Ok(())
    }

    /// Puts standings in, as if no event told of them.
    pub(super) fn restore(&self, standings: &[(DeviceId, Standing)]) -> Result<(), Fault> {
        database::guarded(|| {
            let mut batch = sled::Batch::default();
            for (device, standing) in standings {
                let standing = match *standing {
                    Standing::Watched { track, .. } => Standing::Watched { seq: 0, track },
                    Standing::Gone { at, .. } => Standing::Gone { seq: 0, at },
                };
                batch.insert(device.as_str(), standing.to_bytes());
            }
            self.liveness.apply_batch(batch)?;
            self.database.flush()?;
            Ok(())
        })
    }

    /// Counts this start; the number is above `least`.
    pub(super) fn count_boot(&self, least: u32) -> Result<u32, Fault> {
        database::guarded(|| {
            let before = match self.meta.get(BOOT)? {
                Some(bytes) => logged::unpack_boot(&bytes)?,
                None => 0,
            };
            let boot = before.max(least).saturating_add(1);
            self.meta.insert(BOOT, logged::pack_boot(boot))?;
            self.database.flush()?;
            Ok(boot)
        })
    }

    /// Writes steps in one transaction, without flushing it. Steps that are there
    /// already are written anew and counted no second time.
    pub(super) fn write(&mut self, steps: &[Step]) -> Result<(), Fault> {
        let mut place = self.place.clone();
        place.next_seq = steps.last().map_or(place.next_seq, |step| step.seq + 1);
        let uplink = self.uplink_after(steps, place.next_seq);
        let (place_bytes, uplink_bytes) = (place.to_bytes(), uplink.to_bytes());
        let trees = (
            &self.liveness,
            &self.log,
            &self.announced,
            &self.gaps,
            &self.dead,
            &self.meta,
        );
        let done = database::guarded(|| {
            let result = trees.transaction(|(liveness, log, announced, gaps, dead, meta)| {
                for step in steps {
                    if let Some((device, standing)) = &step.standing {
                        liveness.insert(device.as_str(), standing.to_bytes())?;
                    }
                    if let Some(mark) = &step.mark {
                        announced.insert(mark.key(), logged::pack_mark(mark.content))?;
                    }
                    if let Some(aside) = &step.aside {
                        aside.write(gaps, dead)?;
                    }
                    let entry = logged::pack_event(step.kind, step.is_local, &step.json);
                    log.insert(&step.seq.to_be_bytes(), entry)?;
                }
                meta.insert(PLACE, place_bytes.as_slice())?;
                meta.insert(UPLINK, uplink_bytes.as_slice())?;
                Ok::<(), ConflictableTransactionError<()>>(())
            });
            result.map_err(|error| fault_of(&error))
        });
        done?;
        (self.place, self.uplink) = (place, uplink);
        if steps.iter().any(|step| step.aside.is_some()) {
            self.forget_first();
        }
        Ok(())
    }

    /// Makes all that was written durable.
    pub(super) fn flush(&self) -> Result<(), Fault> {
        database::flush(&self.database)
    }

    /// Writes a checkpoint in place of the last one and flushes it.
    pub(super) fn write_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), Fault> {
        self.replace(&self.checkpoint, checkpoint.to_chunks(VALUE_BYTES_MAX))
    }

    /// Remembers where the devices are watched, in place of what was remembered.
    pub(super) fn write_addresses(&self, addresses: &[(DeviceId, IpAddr)]) -> Result<(), Fault> {
        let chunks = addresses::to_chunks(addresses, VALUE_BYTES_MAX);
        self.replace(&self.addresses, chunks)
    }

    /// Where the devices were last watched.
    pub(super) fn addresses(&self) -> Result<BTreeMap<DeviceId, IpAddr>, Fault> {
        database::guarded(|| {
            let mut whole = BTreeMap::new();
            for entry in &self.addresses {
                let (_, value) = entry?;
                whole.extend(addresses::from_chunk(&value)?);
            }
            Ok(whole)
        })
    }

    /// Puts these chunks in place of all that a tree holds, in one step.
    fn replace(&self, tree: &sled::Tree, chunks: Vec<Vec<u8>>) -> Result<(), Fault> {
        database::guarded(|| {
            let mut batch = sled::Batch::default();
            for key in tree.iter().keys() {
                batch.remove(key?);
            }
            for (n, chunk) in (0_u16..).zip(chunks) {
                batch.insert(&n.to_be_bytes(), chunk);
            }
            tree.apply_batch(batch)?;
            self.database.flush()?;
            Ok(())
        })
    }

    /// The standing of every device with a durable step.
    pub(super) fn standings(&self) -> Result<Vec<(DeviceId, Standing)>, Fault> {
        database::guarded(|| {
            let mut standings = Vec::new();
            for entry in &self.liveness {
                let (key, value) = entry?;
                standings.push((device_of(&key)?, Standing::from_bytes(&value)?));
            }
            Ok(standings)
        })
    }

    /// The standing of one device, if it has a durable step.
    pub(super) fn standing_of(&self, device: DeviceId) -> Result<Option<Standing>, Fault> {
        database::guarded(|| {
            let bytes = self.liveness.get(device.as_str())?;
            Ok(bytes
                .map(|bytes| Standing::from_bytes(&bytes))
                .transpose()?)
        })
    }

    /// The last checkpoint, if one was written.
    pub(super) fn checkpoint(&self) -> Result<Option<Checkpoint>, Fault> {
        database::guarded(|| {
            let mut whole: Option<Checkpoint> = None;
            for entry in &self.checkpoint {
                let (_, value) = entry?;
                let part = Checkpoint::from_chunk(&value)?;
                match &mut whole {
                    Some(whole) => whole.standings.extend(part.standings),
                    None => whole = Some(part),
                }
            }
            Ok(whole)
        })
    }
}

/// What could be read of a damaged database.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// Standings.
    pub(super) standings: Vec<(DeviceId, Standing)>,
    /// Terms.
    pub(super) terms: BTreeMap<DeviceId, Terms>,
}

/// Reads as much as it can of a damaged database.
pub(super) fn salvage(path: &Path) -> Saved {
    let mut saved = Saved::default();
    let Ok(database) = database::open(path) else {
        return saved;
    };
    let read = database::guarded(|| {
        for entry in &database.open_tree("liveness")? {
            let (key, value) = entry?;
            if let (Ok(device), Ok(standing)) = (device_of(&key), Standing::from_bytes(&value)) {
                saved.standings.push((device, standing));
            }
        }
        for entry in &database.open_tree("terms")? {
            let (_, value) = entry?;
            saved
                .terms
                .extend(terms::from_chunk(&value).unwrap_or_default());
        }
        Ok(())
    });
    if let Err(fault) = read {
        tracing::warn!(%fault, "the damaged state gave up only a part of what it held");
    }
    database::close(database);
    saved
}

fn fault_of(error: &TransactionError<()>) -> Fault {
    match error {
        TransactionError::Storage(error) => Fault::from(error.clone()),
        TransactionError::Abort(()) => Fault::Damaged("a transaction gave up".into()),
    }
}

fn gap() -> Fault {
    Fault::Damaged("its log has a gap".into())
}

fn seq_of(key: &[u8]) -> Result<u64, Fault> {
    let key = <[u8; 8]>::try_from(key);
    let key = key.map_err(|_| Fault::Damaged("its log has a key of another kind".into()))?;
    Ok(u64::from_be_bytes(key))
}

fn device_of(key: &[u8]) -> Result<DeviceId, Fault> {
    let text = std::str::from_utf8(key).unwrap_or_default();
    text.parse()
        .map_err(|_| Fault::Damaged("it knows a device without a proper id".into()))
}
