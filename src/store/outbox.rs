//! What waits in the event log for the uplink, and how far the uplink is.
//!
//! Floor 2. `edge::uplink` reads and moves the cursor.
//!
//! # Invariants
//!
//! - Every event addressed to MQTT is handed out itself or is in exactly one gap; each
//!   parcel names the one before it.
//! - What was handed out under a number is all that is ever handed out under it; but a
//!   message that the broker refused, and so never had, is replaced by a gap.
//! - The cursor moves only by [`Store::move_cursor`].
//! - What waits is bounded by [`Store::pass_over`], messages kept aside by 1,000.

use super::state::Reading;
use super::{ReadError, Store, WriteError, failed, lock, unread};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::instant::Wall;
use crate::domain::outbox::{Backlog, Class};
use crate::domain::status::Track;
use crate::wire::record::uplink::DeadLetter;

/// How the outbox stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// Names the log in which new events get their numbers.
    pub log_id: String,
    /// Every event up to this number is acknowledged or was passed over and reported.
    pub cursor: u64,
    /// Number of the newest event addressed to MQTT; 0: none yet.
    pub last: u64,
    /// What waits.
    pub backlog: Backlog,
    /// Bytes of JSON logged for MQTT since the store was opened, for rates.
    pub logged_bytes: u64,
    /// Events passed over since the store was made.
    pub passed_over: u64,
    /// Messages kept aside since the store was made.
    pub dead_letters: u64,
}

/// One thing to be sent, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its number.
    pub seq: u64,
    /// Its class; that of the topic it goes to.
    pub class: Class,
    /// Whose event it is; `None`: the site's or the node's.
    pub device: Option<DeviceId>,
    /// Whether it is the site's summary, which goes to `_site` and not to `_node`.
    pub is_of_site: bool,
    /// The envelope as it goes upstream.
    pub json: String,
}

/// What the uplink wants remembered beside the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkMarks {
    /// Heartbeats scheduled before this were sent as metrics or need not be.
    pub metrics_from: Option<Wall>,
    /// MQTT bytes of a day: up, down.
    pub traffic: Option<(Day, u64, u64)>,
}

/// A message that the broker did not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadMessage {
    /// Its number.
    pub seq: u64,
    /// When it was kept aside.
    pub at: Wall,
    /// Why.
    pub reason: String,
    /// Its envelope.
    pub json: String,
}

impl Store {
    /// How the outbox stands; cheap, and waits for no disk.
    pub fn outbox(&self) -> Outbox {
        lock(&self.outbox).clone()
    }

    /// Tells the number below which everything is durable, whenever it grows.
    pub fn news(&self) -> tokio::sync::watch::Receiver<u64> {
        self.news.clone()
    }

    /// Whether events of stage heartbeat are addressed to MQTT from now on
    /// (`uplink.miss_events`). What is in the log stays as it was addressed.
    pub fn address_misses(&self, is_on: bool) {
        self.keeper.lock().address_misses(is_on);
    }

    /// Whether an uplink is configured: then nothing past its cursor is pruned but
    /// what is not sent anyway. To be said before anything is pruned: until then there
    /// is none.
    pub fn hold_for_uplink(&self, is_on: bool) {
        self.keeper.lock().hold_for_uplink(is_on);
    }

    /// What is to be sent after number `after`, in order, at most `limit` parcels and
    /// not much more than `bytes_max`. Where events are missing (passed over, removed
    /// while the uplink was off) one `OUTBOX_GAP` stands in their place, under the last
    /// missing number; what it says is made durable before it is returned, so that
    /// it never says anything else. What was returned once is not passed over any more.
    pub fn read_outbox(
        &self,
        after: u64,
        (limit, bytes_max): (usize, usize),
        now: Wall,
    ) -> Result<Vec<Parcel>, ReadError> {
        let mut reading = Reading::new(after, limit.max(1), bytes_max.max(1));
        loop {
            // In slices: in between others may write.
            let is_done = self
                .keeper
                .lock()
                .read_outbox(&mut reading, now)
                .map_err(|fault| unread("read the outbox".into(), fault))?;
            if is_done {
                return Ok(reading.parcels);
            }
        }
    }

    /// Moves the cursor to `to`, where that is forward. In memory; it is written with
    /// the next change or by [`Store::keep_uplink`]: a kill in between sends some
    /// events twice.
    pub fn move_cursor(&self, to: u64, now: Wall) -> Result<(), WriteError> {
        loop {
            let is_there = self
                .keeper
                .lock()
                .move_cursor(to, now)
                .map_err(|fault| failed("move the cursor of the uplink", fault))?;
            if is_there {
                return Ok(());
            }
        }
    }

    /// Writes and flushes cursor and marks.
    pub fn keep_uplink(&self, marks: &UplinkMarks, now: Wall) -> Result<(), WriteError> {
        self.stand()?;
        self.keeper
            .lock()
            .keep_uplink(marks, now)
            .map_err(|fault| failed("remember how far the uplink is", fault))
    }

    /// What was last remembered.
    pub fn uplink_marks(&self) -> Result<UplinkMarks, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .uplink_marks(now)
            .map_err(|fault| unread("read how far the uplink is".into(), fault))
    }

    /// Passes over the oldest events by class until the backlog is within
    /// `max_bytes`, but none up to number `spared`, and none that
    /// [`Store::read_outbox`] returned: those may have been sent. Tells how many.
    pub fn pass_over(&self, max_bytes: u64, spared: u64, now: Wall) -> Result<u64, WriteError> {
        let deed = "pass over events that wait for the uplink";
        let limits = (max_bytes, spared);
        let mut whole = 0;
        for class in Class::ALL {
            let mut has_begun = false;
            loop {
                let step = self
                    .keeper
                    .lock()
                    .pass_over((class, has_begun), limits, now);
                let Some(passed) = step.map_err(|fault| failed(deed, fault))? else {
                    break;
                };
                has_begun = true;
                whole += passed;
            }
        }
        if whole > 0 {
            let flushed = self.keeper.lock().flush();
            flushed.map_err(|fault| failed(deed, fault))?;
        }
        Ok(whole)
    }

    /// Keeps an event aside that the broker does not take, with the reason; an
    /// `OUTBOX_GAP` stands in its place from then on, and a failure event tells of it,
    /// unless the event is such a failure itself. What does not wait (any more), and a
    /// gap, is left as it is.
    pub fn set_aside(&self, seq: u64, reason: &str, now: Wall) -> Result<(), WriteError> {
        self.stand()?;
        self.keeper
            .lock()
            .set_aside(seq, reason, now)
            .map_err(|fault| failed("keep a message aside", fault))?;
        self.count(now, true);
        Ok(())
    }

    /// The newest messages kept aside, newest first; the store holds 1,000.
    pub fn dead_letters(&self, limit: usize) -> Result<Vec<DeadMessage>, ReadError> {
        let now = self.raw.lock().now;
        let letters = self
            .keeper
            .lock()
            .dead_letters(limit, now)
            .map_err(|fault| unread("read the messages kept aside".into(), fault))?;
        let message = |(seq, letter): (u64, DeadLetter)| DeadMessage {
            seq,
            at: letter.at,
            reason: letter.reason,
            json: letter.json,
        };
        Ok(letters.into_iter().map(message).collect())
    }

    /// Devices whose standing became true with an event after number `after`, with
    /// that number, ascending by it; `None`: the device left.
    pub fn standings_after(
        &self,
        after: u64,
    ) -> Result<Vec<(u64, DeviceId, Option<Track>)>, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .standings_after(after, now)
            .map_err(|fault| unread("read the devices' standings".into(), fault))
    }
    /// The standing of one device's last durable step: the number of its event, and
    /// `None` where the device left.
    pub fn standing_of(&self, device: DeviceId) -> Result<Option<(u64, Option<Track>)>, ReadError> {
        let now = self.raw.lock().now;
        self.keeper
            .lock()
            .standing_of(device, now)
            .map_err(|fault| unread(format!("read the standing of {device}"), fault))
    }
}
