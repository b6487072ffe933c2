//! What the state database says of the event log: its entries, its place and
//! the starts of the program.
//!
//! Floor 1.

use super::{BadRecord, Packer, Unpacker};
use crate::domain::event::News;

const VERSION: u8 = 1;

/// Which kind of news an entry of the log tells, without reading its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device has another status.
    Status,
    /// Something did not work.
    Failed,
    /// A device is no longer watched.
    Removed,
}

/// Where the event log stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// Names the log: 12 hexadecimal digits.
    pub log_id: String,
    /// The number of this log's first event.
    pub base_seq: u64,
    /// The number the next event gets.
    pub next_seq: u64,
    /// Whether steps were lost with an older log and nothing has made up for
    /// them yet.
    pub is_rebuilt: bool,
}

impl Kind {
    /// The kind of these news.
    #[must_use]
    pub const fn of(news: &News) -> Self {
        match news {
            News::StatusChanged { .. } => Self::Status,
            News::Failed(_) => Self::Failed,
            News::DeviceRemoved { .. } => Self::Removed,
        }
    }

    // On disk: never change a number, only add.
    const fn code(self) -> u8 {
        match self {
            Self::Status => 0,
            Self::Failed => 1,
            Self::Removed => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Status,
            1 => Self::Failed,
            2 => Self::Removed,
            _ => return None,
        })
    }
}

/// An entry of the log: the envelope exactly as it goes upstream.
#[must_use]
pub fn pack_event(kind: Kind, json: &str) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.byte(kind.code());
    packer.text(json);
    packer.seal()
}

/// Reads an entry of the log.
pub fn unpack_event(bytes: &[u8]) -> Result<(Kind, &str), BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let kind = Kind::from_code(unpacker.byte()?).ok_or(BadRecord("is no known kind of event"))?;
    let json = unpacker.text()?;
    unpacker.end()?;
    Ok((kind, json))
}

/// The number of a start of the program.
#[must_use]
pub fn pack_boot(boot: u32) -> Vec<u8> {
    let mut packer = Packer::new(VERSION);
    packer.number(boot.into());
    packer.seal()
}

/// Reads the number of a start.
pub fn unpack_boot(bytes: &[u8]) -> Result<u32, BadRecord> {
    let mut unpacker = Unpacker::open(bytes, VERSION)?;
    let boot = unpacker.small()?;
    unpacker.end()?;
    Ok(boot)
}

impl LogPlace {
    /// The record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut packer = Packer::new(VERSION);
        packer.text(&self.log_id);
        packer.number(self.base_seq);
        packer.number(self.next_seq);
        packer.byte(u8::from(self.is_rebuilt));
        packer.seal()
    }

    /// Reads a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut unpacker = Unpacker::open(bytes, VERSION)?;
        let place = Self {
            log_id: unpacker.text()?.to_owned(),
            base_seq: unpacker.number()?,
            next_seq: unpacker.number()?,
            is_rebuilt: unpacker.byte()? != 0,
        };
        unpacker.end()?;
        if place.base_seq == 0 || place.next_seq < place.base_seq {
            return Err(BadRecord("holds numbers out of order"));
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_places_and_starts_come_back() {
        let bytes = pack_event(Kind::Failed, "{\"event\":\"\u{e4}\"}");
        assert_eq!(
            unpack_event(&bytes),
            Ok((Kind::Failed, "{\"event\":\"\u{e4}\"}"))
        );
        let place = LogPlace {
            log_id: "0123456789ab".into(),
            base_seq: 1,
            next_seq: 77,
            is_rebuilt: true,
        };
        assert_eq!(LogPlace::from_bytes(&place.to_bytes()), Ok(place));
        assert_eq!(unpack_boot(&pack_boot(u32::MAX)), Ok(u32::MAX));
        assert!(unpack_boot(&bytes).is_err());
        assert!(unpack_event(&[]).is_err());
    }
}
