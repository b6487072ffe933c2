//! Picks the devices that a list shows.
//!
//! Floor 3. The overview page and the API call [`find`] with the picture's lock
//! held, so it copies nothing but the rows of the part that is shown, and sorts
//! no more than what comes before its end.

use std::cmp::Ordering;

use super::query::{Key, Sort, Wanted};
use crate::board::{Picture, Row};
use crate::domain::device::Device;
use crate::domain::status::Status;

/// What was found.
#[derive(Debug)]
pub(super) struct Found<T> {
    /// Devices after the filters.
    pub(super) total: usize,
    /// Rows of the part that was asked for.
    pub(super) rows: Vec<T>,
}

/// The part of the devices that `wanted` names; `shape` copies what is needed
/// of each.
pub(super) fn find<T>(
    picture: &Picture,
    wanted: &Wanted,
    shape: impl FnMut(&Row) -> T,
) -> Found<T> {
    let mut rows: Vec<&Row> = picture
        .devices
        .values()
        .filter(|row| is_wanted(row, wanted))
        .collect();
    let total = rows.len();
    let skipped = wanted
        .page
        .saturating_sub(1)
        .saturating_mul(wanted.per_page);
    let end = skipped.saturating_add(wanted.per_page).min(total);
    let order = |a: &&Row, b: &&Row| compare(a, b, wanted.sort);
    if end < total && end > skipped {
        rows.select_nth_unstable_by(end, order);
        rows.truncate(end);
    }
    rows.sort_unstable_by(order);
    let rows = rows
        .into_iter()
        .skip(skipped)
        .take(wanted.per_page)
        .map(shape)
        .collect();
    Found { total, rows }
}

fn is_wanted(row: &Row, wanted: &Wanted) -> bool {
    let device = &row.device;
    device.enabled == wanted.enabled
        && wanted
            .status
            .is_none_or(|status| status == row.track.status)
        && fits(device, wanted)
}

/// Whether tag and text that are `wanted` fit the device.
pub(super) fn fits(device: &Device, wanted: &Wanted) -> bool {
    let has_tag = |tag| device.tags.contains(tag);
    wanted.tag.as_ref().is_none_or(has_tag)
        && wanted.text.as_ref().is_none_or(|text| {
            contains(device.id.as_str(), text)
                || contains(&device.name, text)
                || contains(&device.address.to_string(), text)
        })
}

/// Whether `needle`, in lower case, is in `text`, whatever its case.
pub(super) fn contains(text: &str, needle: &str) -> bool {
    if text.is_ascii() && needle.is_ascii() {
        return text
            .as_bytes()
            .windows(needle.len().max(1))
            .any(|part| part.eq_ignore_ascii_case(needle.as_bytes()));
    }
    text.to_lowercase().contains(needle)
}

fn compare(a: &Row, b: &Row, sort: Sort) -> Ordering {
    let turned = |order: Ordering| {
        if sort.descends {
            order.reverse()
        } else {
            order
        }
    };
    let by_key = match sort.key {
        Key::DeviceId => return turned(a.device.id.cmp(&b.device.id)),
        Key::Name => turned(a.device.name.cmp(&b.device.name)),
        Key::Status => turned(severity(a.track.status).cmp(&severity(b.track.status))),
        Key::Since => nulls_last(a.track.since, b.track.since, turned),
        Key::LastSeen => nulls_last(a.track.last_seen, b.track.last_seen, turned),
        Key::Rtt => nulls_last(a.track.rtt_us, b.track.rtt_us, turned),
        Key::Missed => turned(a.track.missed_count.cmp(&b.track.missed_count)),
    };
    by_key.then_with(|| a.device.id.cmp(&b.device.id))
}

/// The place of a status in the order of pages: the worst is 0.
fn severity(status: Status) -> usize {
    let place = Status::ALL.into_iter().position(|other| other == status);
    place.unwrap_or(Status::ALL.len())
}

/// What is not known comes last, whichever way the order runs.
fn nulls_last<T: Ord>(
    a: Option<T>,
    b: Option<T>,
    turned: impl Fn(Ordering) -> Ordering,
) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => turned(a.cmp(&b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::config::settings::ProbeRules;
    use crate::domain::device::Device;
    use crate::domain::instant::Wall;
    use crate::domain::status::Track;

    fn row(n: usize, status: usize, rtt_us: Option<u32>) -> Row {
        let device = Device {
            id: format!("d-{n:03}").parse().unwrap(),
            address: [10, 0, 0, u8::try_from(n).unwrap()].into(),
            name: format!("Pump {}", n % 7),
            profile: None,
            tags: vec![format!("t{}", n % 3)],
            parent: None,
            enabled: !n.is_multiple_of(11),
        };
        Row {
            device: Arc::new(device),
            rules: Arc::new(ProbeRules::default()),
            track: Track {
                status: Status::ALL[status],
                rtt_us,
                last_seen: rtt_us.map(|us| Wall::from_millis(us.into())),
                ..Track::default()
            },
            recent: VecDeque::new(),
        }
    }

    fn picture(facts: &[(usize, Option<u32>)]) -> Picture {
        let rows = facts
            .iter()
            .enumerate()
            .map(|(n, &(status, rtt))| row(n, status, rtt));
        Picture {
            devices: rows.collect(),
            ..Picture::default()
        }
    }

    fn wanted() -> Wanted {
        Wanted {
            status: None,
            tag: None,
            text: None,
            enabled: true,
            sort: Sort::by(Key::DeviceId),
            page: 1,
            per_page: 10,
        }
    }

    fn ids(picture: &Picture, wanted: &Wanted) -> Vec<String> {
        find(picture, wanted, |row| row.device.id.to_string()).rows
    }

    #[test]
    fn text_finds_id_name_and_address_in_any_case() {
        let picture = picture(&[(0, None); 30]);
        for (text, total) in [("d-00", 9), ("pump 3", 4), ("10.0.0.2", 10), ("nowhere", 0)] {
            let wanted = Wanted {
                text: Some(text.into()),
                ..wanted()
            };
            assert_eq!(find(&picture, &wanted, |_| ()).total, total, "{text}");
        }
        assert!(contains("\u{c4}PFEL", "\u{e4}pf"));
        assert!(!contains("", "a"));
    }

    #[test]
    fn worst_status_comes_first() {
        let picture = picture(&[(3, None), (3, None), (1, None), (0, None), (2, None)]);
        let wanted = Wanted {
            sort: Sort::by(Key::Status),
            ..wanted()
        };
        assert_eq!(ids(&picture, &wanted), ["d-003", "d-002", "d-004", "d-001"]);
    }

    #[test]
    fn what_is_not_known_comes_last_both_ways() {
        let picture = picture(&[(0, None), (0, Some(5)), (0, None), (0, Some(3))]);
        for (descends, order) in [
            (false, ["d-003", "d-001", "d-002"]),
            (true, ["d-001", "d-003", "d-002"]),
        ] {
            let sort = Sort {
                key: Key::Rtt,
                descends,
            };
            assert_eq!(ids(&picture, &Wanted { sort, ..wanted() }), order);
        }
    }

    #[test]
    fn a_page_past_the_end_is_empty() {
        let picture = picture(&[(0, None); 30]);
        let wanted = Wanted {
            page: usize::MAX,
            ..wanted()
        };
        let found = find(&picture, &wanted, |_| ());
        assert_eq!((found.total, found.rows.len()), (27, 0));
    }

    proptest! {
        #[test]
        fn pages_put_together_are_the_whole_sorted_list(
            facts in prop::collection::vec((0..4_usize, prop::option::of(0..5_u32)), 0..60),
            key in 0..7_usize,
            descends: bool,
            per_page in 1..20_usize,
        ) {
            let picture = picture(&facts);
            let sort = Sort { key: Key::ALL[key].1, descends };
            let mut expected: Vec<&Row> =
                picture.devices.values().filter(|row| row.device.enabled).collect();
            expected.sort_by(|a, b| compare(a, b, sort));
            let mut seen = Vec::new();
            for page in 1..=(expected.len() / per_page + 1) {
                seen.extend(ids(&picture, &Wanted { sort, page, per_page, ..wanted() }));
            }
            let expected: Vec<String> =
                expected.iter().map(|row| row.device.id.to_string()).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
