//! What a query string asks for.
//!
//! Floor 3. Pages and API read lists by the same rules; they differ in the
//! default order and in how many rows one answer may hold. A value that is not
//! allowed is a 400 that names those that are; an unknown name is ignored.

use std::ops::RangeInclusive;

use axum::extract::Query;
use axum::http::Uri;

use super::fault::Fault;
use super::text::{query_value, quote};
use crate::domain::day::Day;
use crate::domain::device::DeviceId;
use crate::domain::status::Status;

/// Rows of one API answer.
pub(super) const API_PER_PAGE: RangeInclusive<usize> = 1..=500;

/// Rows of one page.
pub(super) const PAGE_PER_PAGE: RangeInclusive<usize> = 1..=1_000;

/// Rows unless asked otherwise.
pub(super) const PER_PAGE_DEFAULT: usize = 100;

/// What a list can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The id.
    DeviceId,
    /// The name.
    Name,
    /// The status, worst first.
    Status,
    /// Time of the last verdict.
    Since,
    /// Time of the last reply.
    LastSeen,
    /// RTT of the last reply.
    Rtt,
    /// Misses in a row.
    Missed,
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    /// By what.
    pub(super) key: Key,
    /// Largest first.
    pub(super) descends: bool,
}

/// Which devices are wanted, in which order, and which part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Only these.
    pub(super) status: Option<Status>,
    /// Only those with this tag.
    pub(super) tag: Option<String>,
    /// Only those with this in id, name or address, in lower case.
    pub(super) text: Option<String>,
    /// The enabled ones, or the others.
    pub(super) enabled: bool,
    /// The order; ties fall to the id.
    pub(super) sort: Sort,
    /// From 1.
    pub(super) page: usize,
    /// Rows a page.
    pub(super) per_page: usize,
}

/// The pairs of a query string; the last of a name counts, empty is absent.
pub(super) struct Pairs(Vec<(String, String)>);

impl Key {
    /// All, with the word that stands in a query.
    pub(super) const ALL: [(&'static str, Self); 7] = [
        ("device_id", Self::DeviceId),
        ("name", Self::Name),
        ("status", Self::Status),
        ("since", Self::Since),
        ("last_seen", Self::LastSeen),
        ("rtt_ms", Self::Rtt),
        ("missed_count", Self::Missed),
    ];

    fn word(self) -> &'static str {
        let found = Self::ALL.into_iter().find(|&(_, key)| key == self);
        found.map_or("", |(word, _)| word)
    }
}

impl Sort {
    /// Smallest first.
    pub(super) const fn by(key: Key) -> Self {
        Self {
            key,
            descends: false,
        }
    }

    /// As it stands in a query.
    pub(super) fn word(self) -> String {
        let minus = if self.descends { "-" } else { "" };
        format!("{minus}{}", self.key.word())
    }

    fn parse(word: &str) -> Option<Self> {
        let (word, descends) = match word.strip_prefix('-') {
            Some(word) => (word, true),
            None => (word, false),
        };
        let (_, key) = Key::ALL.into_iter().find(|&(own, _)| own == word)?;
        Some(Self { key, descends })
    }
}

impl Pairs {
    /// The pairs of this address.
    pub(super) fn of(uri: &Uri) -> Result<Self, Fault> {
        let Query(pairs) = Query::try_from_uri(uri)
            .map_err(|_| Fault::bad_request("The query string cannot be read."))?;
        Ok(Self(pairs))
    }

    /// The value of `name`, if it has one.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(own, _)| own == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Whether `name` is there, even without a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// The day that `name` has, if any.
    pub(super) fn day(&self, name: &str) -> Result<Option<Day>, Fault> {
        let day = self.get(name).map(|text| {
            let day = text.parse().ok();
            // The calendar goes on after the year 9999 and before the year 0.
            day.filter(|_| text.len() == "2026-03-12".len())
                .ok_or_else(|| not_allowed(name, text, "a date such as 2026-03-12"))
        });
        day.transpose()
    }

    /// The device id that `name` has, if any; whether there is such a device is
    /// another question.
    pub(super) fn device(&self, name: &str) -> Result<Option<DeviceId>, Fault> {
        let device = self.get(name).map(|text| {
            text.parse().map_err(|_| {
                let allowed = "1 to 21 letters, digits, dots, underscores and hyphens";
                not_allowed(name, text, allowed)
            })
        });
        device.transpose()
    }

    /// The number of an event that `name` has, if any.
    pub(super) fn seq(&self, name: &str) -> Result<Option<u64>, Fault> {
        if self.get(name).is_none() {
            return Ok(None);
        }
        let number = self.number(name, 1, &(1..=usize::MAX))?;
        Ok(u64::try_from(number).ok())
    }

    /// The number that `name` has, within `range`.
    pub(super) fn number(
        &self,
        name: &str,
        default: usize,
        range: &RangeInclusive<usize>,
    ) -> Result<usize, Fault> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            let allowed = if *high == usize::MAX {
                format!("a whole number from {low}")
            } else {
                format!("a whole number, {low}..{high}")
            };
            not_allowed(name, text, &allowed)
        })
    }
}

impl Wanted {
    /// Reads a query by the rules of one kind of answer.
    pub(super) fn read(
        pairs: &Pairs,
        default_key: Key,
        per_page: &RangeInclusive<usize>,
    ) -> Result<Self, Fault> {
        let status = match pairs.get("status") {
            None => None,
            Some(word) => Some(Status::parse(word).ok_or_else(|| {
                not_allowed("status", word, "online, degraded, offline and unknown")
            })?),
        };
        let sort = match pairs.get("sort") {
            None => Sort::by(default_key),
            Some(word) => Sort::parse(word).ok_or_else(|| {
                let words = Key::ALL.map(|(word, _)| word).join(", ");
                not_allowed(
                    "sort",
                    word,
                    &format!("{words}, each with or without a leading -"),
                )
            })?,
        };
        let enabled = match pairs.get("enabled") {
            None | Some("true") => true,
            Some("false") => false,
            Some(word) => return Err(not_allowed("enabled", word, "true and false")),
        };
        Ok(Self {
            status,
            tag: pairs.get("tag").map(str::to_owned),
            text: pairs.get("q").map(str::to_lowercase),
            enabled,
            sort,
            page: pairs.number("page", 1, &(1..=usize::MAX))?,
            per_page: pairs.number("per_page", PER_PAGE_DEFAULT, per_page)?,
        })
    }

    /// Whether anything is filtered away.
    pub(super) fn filters(&self) -> bool {
        self.status.is_some() || self.tag.is_some() || self.text.is_some() || !self.enabled
    }

    /// The query string that asks for this: `?status=offline&page=2`, or empty.
    /// What equals the default is left out, so that links stay short.
    pub(super) fn query(&self, default_key: Key) -> String {
        let mut pairs: Vec<String> = Vec::new();
        if let Some(status) = self.status {
            pairs.push(format!("status={status}"));
        }
        for (name, value) in [("tag", &self.tag), ("q", &self.text)] {
            if let Some(value) = value {
                pairs.push(format!("{name}={}", query_value(value)));
            }
        }
        if !self.enabled {
            pairs.push("enabled=false".into());
        }
        if self.sort != Sort::by(default_key) {
            pairs.push(format!("sort={}", self.sort.word()));
        }
        if self.per_page != PER_PAGE_DEFAULT {
            pairs.push(format!("per_page={}", self.per_page));
        }
        if self.page != 1 {
            pairs.push(format!("page={}", self.page));
        }
        if pairs.is_empty() {
            return String::new();
        }
        format!("?{}", pairs.join("&"))
    }
}

pub(super) fn not_allowed(name: &str, value: &str, allowed: &str) -> Fault {
    let value = quote(value, 40);
    Fault::bad_request(format!(
        "{name} = \u{201c}{value}\u{201d} is not allowed; allowed: {allowed}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Wanted, String> {
        let uri: Uri = format!("/{query}").parse().map_err(|_| "no address")?;
        let pairs = Pairs::of(&uri).map_err(|fault| fault.detail)?;
        Wanted::read(&pairs, Key::DeviceId, &API_PER_PAGE).map_err(|fault| fault.detail)
    }

    #[test]
    fn queries_come_back_as_they_were_asked() {
        for query in [
            "",
            "?status=offline",
            "?tag=north%20wing&q=10.0",
            "?enabled=false&sort=-rtt_ms&per_page=500&page=7",
        ] {
            assert_eq!(read(query).unwrap().query(Key::DeviceId), query);
        }
    }

    #[test]
    fn empty_values_of_a_form_filter_nothing() {
        let wanted = read("?status=&tag=&q=%20&sort=").unwrap();
        assert!(!wanted.filters());
        assert_eq!(wanted, read("").unwrap());
    }

    #[test]
    fn a_bad_value_names_those_allowed() {
        for (query, named) in [
            ("?status=up", "online, degraded, offline and unknown"),
            ("?sort=address", "device_id, name, status, since, last_seen"),
            ("?per_page=0", "1..500"),
            ("?per_page=501", "1..500"),
            ("?per_page=-1", "1..500"),
            ("?page=0", "from 1"),
            ("?page=x", "from 1"),
            ("?enabled=maybe", "true and false"),
        ] {
            let detail = read(query).unwrap_err();
            assert!(detail.contains(named), "{query}: {detail}");
        }
    }
}
