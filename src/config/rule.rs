//! The rules that hold for one value: names, paths, addresses, times of day.
//!
//! Floor 1. Called by the setters in `tables`, and by `inventory` where a device
//! follows the same rule. Each returns the checked value or what it must be, as
//! "must be ...", to follow `key = value`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::domain::device::is_name_character;

/// Longest site, region, node, unit or profile name.
pub(super) const NAME_CHARS_MAX: usize = 64;
/// Longest name for people.
pub(super) const LABEL_CHARS_MAX: usize = 128;

/// A name that travels in topics, keys and URLs.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_name = (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.chars().all(is_name_character)
        && text != "."
        && text != "..";
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must be 1 to {NAME_CHARS_MAX} characters of A-Z a-z 0-9 . _ -, and not only a dot or two"
        ))
    }
}

/// A name for people: one line of text.
pub(super) fn label(text: &str) -> Result<String, String> {
    let is_label = !text.trim().is_empty()
        && text.chars().count() <= LABEL_CHARS_MAX
        && !text.chars().any(is_invisible);
    if is_label {
        Ok(text.trim().to_owned())
    } else {
        Err(format!(
            "must be 1 to {LABEL_CHARS_MAX} characters without control characters"
        ))
    }
}

/// Whether `c` shows nothing itself but changes what is shown or where a line
/// ends: control characters, and Unicode's line ends and writing directions.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// A host name turned into a node name: other characters become `-`, the rest
/// is cut.
pub(super) fn name_from_host(host: &str) -> String {
    let made: String = host
        .chars()
        .map(|c| if is_name_character(c) { c } else { '-' })
        .take(NAME_CHARS_MAX)
        .collect();
    name(&made).unwrap_or_else(|_| "node".into())
}

/// A token that is compared with what a client sends in a header. Beyond visible
/// ASCII clients differ in what they send, and Bearer takes neither that nor spaces.
pub(super) fn token(text: &str) -> Result<(), String> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && (1..=1_024).contains(&text.len()) {
        Ok(())
    } else {
        Err("must be 1 to 1024 letters, digits and signs of ASCII, without spaces".into())
    }
}

/// A password or user name as MQTT takes it.
pub(super) fn credential(text: &str) -> Result<(), String> {
    if !text.is_empty() && text.len() <= 4_096 && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        Err("must be 1 to 4096 bytes without control characters".into())
    }
}

/// A file or folder.
pub(super) fn path(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains('\0') {
        Err("must be a path".into())
    } else {
        Ok(())
    }
}

/// An inventory file, whose form its ending tells.
pub(super) fn inventory_path(text: &str) -> Result<PathBuf, String> {
    path(text)?;
    let path = PathBuf::from(text);
    let ending = path.extension().unwrap_or_default();
    if ending.eq_ignore_ascii_case("csv") || ending.eq_ignore_ascii_case("toml") {
        Ok(path)
    } else {
        Err("must end in .csv or .toml".into())
    }
}

/// An address and port to listen on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "must be an address with port, like 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080".into()
    })
}

/// The address of one host, as it can be probed.
pub(super) fn host_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| why_no_address(text))?;
    let address = address.to_canonical();
    let kind = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_multicast() {
        "a multicast address"
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "the broadcast address"
    } else {
        return Ok(address);
    };
    Err(format!("is {kind}: write the address of one host"))
}

/// Says what a text that is no address looks like, and what to write instead.
fn why_no_address(text: &str) -> String {
    let wanted = "write an IPv4 or IPv6 address like 10.0.0.7 or fd00::7";
    let is = |part: &str| part.parse::<IpAddr>().is_ok();
    let has_address_before = |mark: char| text.split_once(mark).is_some_and(|(head, _)| is(head));
    if text.is_empty() {
        return format!("is empty: {wanted}");
    }
    if text.contains("://") {
        return format!("is a URL: {wanted}");
    }
    if has_address_before('/') {
        return "is a network: write the address of each device, without /LENGTH".into();
    }
    if has_address_before('%') {
        return "has a zone: write the address without it and set probe.interface".into();
    }
    if text.starts_with('[') || has_address_before(':') {
        return "has a port or brackets: an ICMP echo knows no port, write the address alone"
            .into();
    }
    if !text.contains(':') && text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return "is no IPv4 address: write four numbers from 0 to 255 without leading zeros".into();
    }
    if text.contains(':') {
        return format!("is no IPv6 address: {wanted}");
    }
    format!(
        "is a name, and names are not looked up (a device must not vanish with the DNS): {wanted}"
    )
}

/// A path prefix behind a reverse proxy: empty, or `/x` without a slash at its
/// end.
pub(super) fn base_path(text: &str) -> Result<String, String> {
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return Ok(String::new());
    }
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.chars().all(|c| is_name_character(c) || c == '~')
    };
    if inner.len() <= 256 && inner.split('/').all(is_segment) {
        Ok(format!("/{inner}"))
    } else {
        Err(
            "must be empty or a path like /mon of A-Z a-z 0-9 . _ ~ -, at most 256 characters"
                .into(),
        )
    }
}

/// The first part of every MQTT topic.
pub(super) fn topic_prefix(text: &str) -> Result<String, String> {
    let is_level = |level: &str| {
        !level.is_empty() && !level.contains(['+', '#']) && !level.chars().any(is_invisible)
    };
    if text.len() <= 128 && !text.starts_with('$') && text.split('/').all(is_level) {
        Ok(text.to_owned())
    } else {
        Err("must be a topic of at most 128 bytes without + and #, without $ at its start and without a slash at either end".into())
    }
}

/// A time of day, `HH:MM` or `HH:MM:SS`, as the time since midnight.
pub(super) fn time_of_day(text: &str) -> Result<Duration, String> {
    let mut parts = text.split(':').map(|part| {
        let is_two_digits = part.len() == 2 && part.chars().all(|c| c.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| is_two_digits)
    });
    let taken = (parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(Some(hours)), Some(Some(minutes)), seconds, None) = taken else {
        return Err("must be a time of day in UTC, \"HH:MM\"".into());
    };
    match seconds.unwrap_or(Some(0)) {
        Some(seconds) if hours < 24 && minutes < 60 && seconds < 60 => {
            Ok(Duration::from_secs(hours * 3_600 + minutes * 60 + seconds))
        }
        _ => Err("must be a time of day in UTC, \"00:00\" to \"23:59\"".into()),
    }
}

/// Partitions as ranges, `0-63` or `0-15,32-47` or `7`; joined and ascending.
pub(super) fn partitions(text: &str) -> Result<Vec<(u32, u32)>, String> {
    let rule =
        || "must be partitions like \"0-63\" or \"0-15,32-47\", numbers from 0 to 65535".to_owned();
    let number = |text: &str| {
        let text = text.trim();
        let is_number = (1..=5).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit());
        text.parse::<u16>()
            .ok()
            .filter(|_| is_number)
            .map(u32::from)
            .ok_or_else(rule)
    };
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(rule());
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    Ok(joined)
}

/// A network interface as Linux names them.
pub(super) fn interface(text: &str) -> Result<String, String> {
    let is_interface = (1..=15).contains(&text.len())
        && !text.contains('/')
        && text.chars().all(|c| c.is_ascii_graphic());
    if is_interface {
        Ok(text.to_owned())
    } else {
        Err("must be an interface name of 1 to 15 characters, like wwan0".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_only_what_is_safe_everywhere() {
        assert!(name("site-1.north_A").is_ok());
        for bad in [
            "", ".", "..", "a b", "a/b", "a+b", "#", "\u{fc}", "a{b}", "a\n",
        ] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(name(&"x".repeat(64)).is_ok());
        assert!(name(&"x".repeat(65)).is_err());
    }

    #[test]
    fn a_host_name_becomes_a_node_name() {
        assert_eq!(name_from_host("gw-7"), "gw-7");
        assert_eq!(name_from_host("gw 7/\u{e9}"), "gw-7--");
        assert_eq!(name_from_host(&"y".repeat(99)), "y".repeat(64));
        assert_eq!(name_from_host(""), "node");
        assert_eq!(name_from_host(".."), "node");
    }

    #[test]
    fn labels_are_one_visible_line() {
        assert_eq!(label(" Depot <b> "), Ok("Depot <b>".into()));
        for bad in ["", "  ", "a\nb", "a\u{202e}b", "\u{7f}"] {
            assert!(label(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_literals_of_one_host() {
        let fine = |text| host_address(text).map(|address| address.to_string());
        assert_eq!(fine("10.0.0.7"), Ok("10.0.0.7".into()));
        assert_eq!(fine("::1"), Ok("::1".into()));
        assert_eq!(fine("::ffff:10.0.0.7"), Ok("10.0.0.7".into()));
        for (bad, why) in [
            ("", "is empty"),
            ("gw.example.org", "names are not looked up"),
            ("localhost", "names are not looked up"),
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("::ffff:0.0.0.0", "unspecified"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("10.0.0.7:80", "port"),
            ("[::1]:80", "port"),
            ("10.0.0.0/24", "network"),
            ("fe80::1%eth0", "zone"),
            ("10.0.0.256", "leading zeros"),
            ("010.0.0.1", "leading zeros"),
            ("10.0.0", "leading zeros"),
            ("1::2::3", "IPv6"),
            ("http://10.0.0.1", "URL"),
            ("10.0.0.7 ", "is a name"),
        ] {
            let said = fine(bad).unwrap_err();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
    }

    #[test]
    fn base_path_is_empty_or_begins_with_its_only_outer_slash() {
        for (written, meant) in [
            ("", ""),
            ("/", ""),
            ("/mon", "/mon"),
            ("mon", "/mon"),
            ("/mon/", "/mon"),
            ("/a/b-c/", "/a/b-c"),
        ] {
            assert_eq!(base_path(written).as_deref(), Ok(meant), "{written:?}");
        }
        for bad in [
            "//e.x", "/a//b", "/..", "/a/../b", "/a?b", "/\\e", "/%2e", "/a b", "http://x",
        ] {
            assert!(base_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn topic_prefixes_cannot_break_the_topic() {
        assert!(topic_prefix("cinga/heartbeat").is_ok());
        for bad in ["", "/a", "a/", "a//b", "+", "a/#", "$SYS/x", "a\0"] {
            assert!(topic_prefix(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_of_day_and_partitions_are_read() {
        assert_eq!(time_of_day("00:05"), Ok(Duration::from_mins(5)));
        assert_eq!(time_of_day("23:59:59"), Ok(Duration::from_secs(86_399)));
        for bad in [
            "",
            "24:00",
            "0:05",
            "00:60",
            "00:05:60",
            "00:05:00:00",
            "+1:00",
            "aa:bb",
            "00",
        ] {
            assert!(time_of_day(bad).is_err(), "{bad:?}");
        }
        assert_eq!(partitions("0-63"), Ok(vec![(0, 63)]));
        assert_eq!(partitions("32-47, 0-15"), Ok(vec![(0, 15), (32, 47)]));
        assert_eq!(partitions("7,8,5-7"), Ok(vec![(5, 8)]));
        for bad in ["", "-", "3-1", "a", "0-65536", "1-2-3", "1,,2", "-1"] {
            assert!(partitions(bad).is_err(), "{bad:?}");
        }
    }
}
