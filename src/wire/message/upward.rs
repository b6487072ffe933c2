//! What changes about an envelope on its way up, and what comes down: the word of
//! central that events are applied.
//!
//! Floor 1. `edge::uplink` calls it.
//!
//! # Invariants
//!
//! - Whatever comes down is read or refused, without a panic.
//! - An envelope that asks for central's word says everything else as before.

use serde::Deserialize;

/// What central has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Of which log.
    pub log_id: String,
    /// Everything up to this number.
    pub applied_seq: u64,
}

/// Where `meta` ends and `context` begins in an envelope of ours. A quote within a
/// text has a backslash before it, never this comma, so whatever names and messages
/// hold, the first place is the right one.
const END_OF_META: &str = "},\"context\":";

#[derive(Deserialize)]
struct AppliedJson {
    log_id: String,
    applied_seq: u64,
}

/// Reads `{"log_id","applied_seq"}`; unknown fields are ignored. `None`: it is no
/// such thing.
#[must_use]
pub fn applied(payload: &[u8]) -> Option<Applied> {
    // A list of the two values would be read as well otherwise.
    let is_object = payload.trim_ascii_start().first() == Some(&b'{');
    let read = serde_json::from_slice(payload).ok().filter(|_| is_object);
    read.map(
        |AppliedJson {
             log_id,
             applied_seq,
         }| Applied {
            log_id,
            applied_seq,
        },
    )
}

/// The envelope with `"ack":"central"` at the end of its `meta`, which asks central
/// not to apply it over a hole. A text that is no envelope stays as it is.
#[must_use]
pub fn with_central_ack(json: &str) -> String {
    match json.split_once(END_OF_META) {
        Some((before, after)) => {
            format!("{before},\"ack\":\"central\"{END_OF_META}{after}")
        }
        None => json.to_owned(),
    }
}
