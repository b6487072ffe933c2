//! The devices of a simulated site.
//!
//! Floor 2. `app` asks for them in place of an inventory file. Addresses come
//! from 198.18.0.0/15, the range set aside for benchmarks (RFC 2544): no real
//! device has one, and nothing is ever sent to them.

use std::net::{IpAddr, Ipv4Addr};

use crate::domain::device::{Device, DeviceId};
use crate::domain::phase::hash;

use super::dice::Dice;

/// As many as an inventory may hold; ids and addresses have room for them.
pub const DEVICES_MAX: usize = 100_000;

/// Characters of the site that go into an id: 9 + `-` + 4 + `-` + 6 are 20.
const SITE_CHARS_MAX: usize = 9;

const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// The first `n` devices of `site` under `seed`, at most [`DEVICES_MAX`]. The
/// same seed and site give the same devices, and fewer are a part of more.
pub(super) fn inventory(seed: u64, site: &str, n: usize) -> Vec<Device> {
    let prefix = prefix(seed, site);
    (1..=DEVICES_MAX)
        .take(n)
        .filter_map(|number| device(seed, &prefix, number))
        .collect()
}

/// Site and seed in 14 characters: two sites or two seeds do not share ids.
fn prefix(seed: u64, site: &str) -> String {
    let kept: String = site
        .chars()
        .filter(|c| crate::domain::device::is_name_character(*c))
        .take(SITE_CHARS_MAX)
        .collect();
    let mark = Dice::about(seed, hash(site)).number(0) & 0xffff;
    format!("{kept}-{mark:04x}")
}

fn device(seed: u64, prefix: &str, number: usize) -> Option<Device> {
    let id: DeviceId = format!("{prefix}-{number:05}").parse().ok()?;
    let dice = Dice::about(seed, hash(id.as_str()));
    let kind = match dice.throw(0) {
        x if x < 0.6 => "meter",
        x if x < 0.9 => "sensor",
        _ => "controller",
    };
    let area = match dice.throw(1) {
        x if x < 0.4 => "north",
        x if x < 0.7 => "south",
        _ => "east",
    };
    let address = u32::from(FIRST_ADDRESS).checked_add(u32::try_from(number).ok()?)?;
    Some(Device {
        id,
        address: IpAddr::V4(Ipv4Addr::from(address)),
        name: format!("{} {number}", capitalised(kind)),
        profile: None,
        tags: vec![kind.into(), area.into()],
        parent: None,
        enabled: true,
    })
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_devices_have_ids_and_addresses_of_their_own() {
        let devices = inventory(7, "a-site-with-a-name-of-sixty-four-letters", DEVICES_MAX);
        let ids: BTreeSet<DeviceId> = devices.iter().map(|device| device.id).collect();
        let addresses: BTreeSet<IpAddr> = devices.iter().map(|device| device.address).collect();
        assert_eq!(ids.len(), DEVICES_MAX);
        assert_eq!(addresses.len(), DEVICES_MAX);
    }

    #[test]
    fn no_address_leaves_the_benchmark_range() {
        for device in inventory(7, "s1", DEVICES_MAX + 10) {
            let IpAddr::V4(address) = device.address else {
                panic!("{device:?}")
            };
            let [a, b, ..] = address.octets();
            assert!(a == 198 && (b == 18 || b == 19), "{address}");
        }
    }

    #[test]
    fn ids_carry_site_and_seed() {
        let first = |seed, site| inventory(seed, site, 1)[0].id;
        assert!(first(1, "s1").as_str().starts_with("s1-"));
        assert!(first(1, "s1").as_str().ends_with("-00001"));
        assert_ne!(first(1, "s1"), first(2, "s1"));
        assert_ne!(first(1, "s1"), first(1, "s2"));
        assert_ne!(first(1, "long-site-name-1"), first(1, "long-site-name-2"));
        assert_eq!(first(1, "s1"), first(1, "s1"));
    }

    #[test]
    fn fewer_devices_are_a_part_of_more() {
        assert_eq!(inventory(3, "s1", 5), inventory(3, "s1", 50)[..5]);
        assert!(inventory(3, "s1", 0).is_empty());
        assert_eq!(inventory(3, "s1", usize::MAX).len(), DEVICES_MAX);
    }

    #[test]
    fn names_and_tags_tell_the_kind() {
        let device = &inventory(3, "s1", 17)[16];
        assert!(device.name.ends_with(" 17"), "{}", device.name);
        let kind = &device.tags[0];
        assert_eq!(
            device.name.to_lowercase().split(' ').next(),
            Some(kind.as_str())
        );
    }
}
