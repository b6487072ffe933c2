//! A device of the site and the name it goes by.
//!
//! Floor 0: pure.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The longest device id, in characters: the column width of the systems that
/// take the summaries.
pub const DEVICE_ID_CHARS_MAX: usize = 21;

/// A device's id: 1 to 21 characters of `[A-Za-z0-9._-]`.
///
/// Held inline, so that it can be copied like a number. The letters are safe in
/// an MQTT topic, a Redis key, a URL path and a file name. `.` and `..` are
/// refused: as a path segment a browser or proxy takes them for a folder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId {
    length: u8,
    bytes: [u8; DEVICE_ID_CHARS_MAX],
}

/// Why a text is no device id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDeviceId {
    /// Nothing there.
    Empty,
    /// Longer than 21 characters.
    TooLong,
    /// This character is not in `[A-Za-z0-9._-]`.
    BadCharacter(char),
    /// `.` or `..`, which are folders in a URL.
    DotsOnly,
}

/// One row of the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Unique id.
    pub id: DeviceId,
    /// Where it is probed.
    pub address: IpAddr,
    /// What people call it; the id where the inventory gives no name.
    pub name: String,
    /// The profile whose thresholds hold for it, if any.
    pub profile: Option<String>,
    /// Free words to filter by.
    pub tags: Vec<String>,
    /// The device it hangs behind, if any.
    pub parent: Option<DeviceId>,
    /// `false`: known, but neither probed nor counted.
    pub enabled: bool,
}

impl DeviceId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let held = self
            .bytes
            .get(..usize::from(self.length))
            .unwrap_or_default();
        // Only ASCII gets in, see `from_str`.
        std::str::from_utf8(held).unwrap_or_default()
    }
}

impl FromStr for DeviceId {
    type Err = BadDeviceId;

    fn from_str(text: &str) -> Result<Self, BadDeviceId> {
        if text.is_empty() {
            return Err(BadDeviceId::Empty);
        }
        if let Some(c) = text.chars().find(|&c| !is_name_character(c)) {
            return Err(BadDeviceId::BadCharacter(c));
        }
        if text == "." || text == ".." {
            return Err(BadDeviceId::DotsOnly);
        }
        let mut bytes = [0; DEVICE_ID_CHARS_MAX];
        let held = bytes.get_mut(..text.len()).ok_or(BadDeviceId::TooLong)?;
        held.copy_from_slice(text.as_bytes());
        let length = u8::try_from(text.len()).map_err(|_| BadDeviceId::TooLong)?;
        Ok(Self { length, bytes })
    }
}

impl Ord for DeviceId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Padding is zero, below every letter, so this is the text's order.
        self.bytes.cmp(&other.bytes)
    }
}

impl PartialOrd for DeviceId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for BadDeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong => {
                write!(
                    f,
                    "is longer than {DEVICE_ID_CHARS_MAX} characters (use `name` for long names)"
                )
            }
            Self::BadCharacter(c) => {
                write!(f, "has the character {c:?}; allowed are A-Z a-z 0-9 . _ -")
            }
            Self::DotsOnly => {
                f.write_str("is a folder name; allowed are names with other characters than dots")
            }
        }
    }
}

impl std::error::Error for BadDeviceId {}

/// Whether `c` may stand in a device, site, region or node name.
#[must_use]
pub const fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Result<DeviceId, BadDeviceId> {
        text.parse()
    }

    #[test]
    fn ids_of_allowed_letters_come_back_as_written() {
        for text in [
            "a",
            "D7",
            "meter-001.north_2",
            "123456789012345678901",
            "...",
        ] {
            assert_eq!(id(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn ids_that_would_break_a_topic_key_or_url_are_refused() {
        assert_eq!(id(""), Err(BadDeviceId::Empty));
        assert_eq!(id("1234567890123456789012"), Err(BadDeviceId::TooLong));
        assert_eq!(id(".."), Err(BadDeviceId::DotsOnly));
        for bad in [
            "a+b", "#", "a/b", "$SYS", "a\0b", "../x", "\u{fc}", " a", "a%2Fb", "a{b}", "a:b",
        ] {
            assert!(
                matches!(id(bad), Err(BadDeviceId::BadCharacter(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn ids_sort_as_their_text_does() {
        let mut texts = vec!["b", "a", "a-1", "ab", "B", "a.1"];
        let mut ids: Vec<DeviceId> = texts.iter().map(|text| id(text).unwrap()).collect();
        texts.sort_unstable();
        ids.sort_unstable();
        assert_eq!(ids.iter().map(DeviceId::as_str).collect::<Vec<_>>(), texts);
    }
}
