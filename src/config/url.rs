//! Addresses of brokers and Redis servers, as far as settings must know them.
//!
//! Floor 1. Called by `tables` (checks) and `key` (what faults show).

/// Checks `scheme://[user@]host[:port]/`; returns what must be changed.
pub(super) fn check(text: &str, schemes: &[&str]) -> Result<(), String> {
    let rule = || {
        format!(
            "must be a URL with host, {}",
            schemes
                .iter()
                .map(|scheme| format!("{scheme}://HOST:PORT"))
                .collect::<Vec<_>>()
                .join(" or ")
        )
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(rule)?;
    if !schemes.contains(&scheme) || text.len() > 512 {
        return Err(rule());
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host_and_port = match authority.rsplit_once('@') {
        Some(_) if scheme.starts_with("mqtt") => {
            return Err(
                "must not hold a user or password: use uplink.username and uplink.password_file"
                    .into(),
            );
        }
        Some((user, host)) if !user.chars().any(|c| c.is_control() || c.is_whitespace()) => host,
        Some(_) => return Err(rule()),
        None => authority,
    };
    let is_path_fine = if scheme.starts_with("redis") {
        path.len() <= 3 && path.chars().all(|c| c.is_ascii_digit())
    } else {
        path.is_empty()
    };
    if is_host_and_port(host_and_port) && is_path_fine {
        Ok(())
    } else {
        Err(rule())
    }
}

fn is_host_and_port(text: &str) -> bool {
    let (is_host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return false;
        };
        let is_host = host.parse::<std::net::Ipv6Addr>().is_ok();
        match port.strip_prefix(':') {
            Some(port) => (is_host, Some(port)),
            None => (is_host && port.is_empty(), None),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (is_host_name(host), Some(port)),
            None => (is_host_name(text), None),
        }
    };
    is_host && port.is_none_or(is_port)
}

fn is_host_name(host: &str) -> bool {
    (1..=253).contains(&host.len())
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

fn is_port(port: &str) -> bool {
    port.chars().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// `text` with whatever stands before its last `@` replaced, so that no password
/// in a URL is printed, however misspelt the URL is.
pub(super) fn redacted(text: &str) -> String {
    text.rsplit_once('@')
        .map_or_else(|| text.to_owned(), |(_, rest)| format!("***@{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_need_scheme_and_host_and_hold_no_password() {
        let is_fine = |text| check(text, &["mqtt", "mqtts"]).is_ok();
        for good in [
            "mqtt://broker",
            "mqtts://b.example.org:8883",
            "mqtt://10.0.0.1:1883/",
            "mqtt://[::1]:1883",
            "mqtt://[fd00::1]",
        ] {
            assert!(is_fine(good), "{good}");
        }
        for bad in [
            "",
            "mqtt",
            "mqtt:",
            "mqtt://",
            "mqtt:///",
            "mqtt://:1883",
            "http://b",
            "mqtt://b:0",
            "mqtt://b:65536",
            "mqtt://b:+1",
            "mqtt://b:",
            "mqtt://b/topic",
            "mqtt://a b",
            "mqtt://b\n",
            "mqtt://u:p@b",
            "MQTT://b",
            "mqtt://[::1",
            "mqtt://[x]",
            "mqtt://[::1]1",
            "mqtt://b?x=1",
            " mqtt://b",
            "mqtt://::1",
        ] {
            assert!(!is_fine(bad), "{bad:?}");
        }
    }

    #[test]
    fn redis_may_hold_user_and_database() {
        let is_fine = |text| check(text, &["redis", "rediss"]).is_ok();
        for good in ["redis://h", "redis://:pw@h:6379/0", "rediss://u:p@h/15"] {
            assert!(is_fine(good), "{good}");
        }
        for bad in [
            "redis://",
            "redis://u@",
            "redis://h/x",
            "redis://h/1/2",
            "mqtt://h",
        ] {
            assert!(!is_fine(bad), "{bad}");
        }
    }

    #[test]
    fn passwords_in_urls_are_cut() {
        assert_eq!(redacted("\"redis://:p,w@h:1/0\""), "***@h:1/0\"");
        assert_eq!(redacted("redis:/u:p@ss@h"), "***@h");
        assert_eq!(redacted("redis://h"), "redis://h");
    }
}
