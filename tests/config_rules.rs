//! What a configuration must hold, and how a broken rule is told.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::time::Duration;

use sitebeat::config::{self, Loaded, Request};

#[path = "support/written.rs"]
mod written;

use written::{faults, folder, load, load_with, request, settings};

#[test]
fn faults_of_every_kind_are_told_at_once() {
    let text = r#"
        tags = 1
        [site]
        id = "a/b"
        [probe]
        heartbeat_period_ms = 60000
        offline_timeout_ms = 70000
        degraded_rtt = 5
        payload_bytes = 8
        recheck_ms = "soon"
        [profile.slow]
        socket = "raw"
        [web]
        admin_token = 5
        [notify.x]
        type = "webhook"
    "#;
    let variables = [
        ("SITEBEAT__NODE__HEARTBEAT_TTL_MS", "8000"),
        ("SITEBEAT__STORE__FLUSH_EVERY_MS", "often"),
        ("SITEBEAT__SIT__ID", "x"),
        ("NODE_HEARTBEAT_INTERVAL", "five"),
    ];
    insta::assert_snapshot!(load_with(text, &variables).unwrap_err());
}

#[test]
fn rules_between_keys_name_both_keys_and_the_place_to_look_at() {
    for (text, said) in [
        (
            "[probe]\noffline_timeout_ms = 70000",
            "FILE: probe.offline_timeout_ms = 70000 must be below probe.heartbeat_period_ms = 60000 (built-in default)",
        ),
        (
            "[probe]\nheartbeat_period_ms = 5000",
            "FILE: probe.offline_timeout_ms = 5000 (built-in default) must be below probe.heartbeat_period_ms = 5000",
        ),
        (
            "[probe]\nwake_echo = true\nheartbeat_period_ms = 10000",
            "FILE: probe.offline_timeout_ms = 5000 (built-in default) must, with probe.wake_echo, be below half of probe.heartbeat_period_ms = 10000",
        ),
        (
            "[probe]\ndegraded_leave_rtt_ms = 2000",
            "FILE: probe.degraded_leave_rtt_ms = 2000 must be at most probe.degraded_rtt_ms = 1500 (built-in default)",
        ),
        (
            "[probe]\nrecheck_ms = 60000",
            "FILE: probe.recheck_ms = 60000 must be 0 (off) or below probe.heartbeat_period_ms = 60000 (built-in default)",
        ),
        (
            "[node]\nheartbeat_interval_ms = 5001\nheartbeat_ttl_ms = 10001",
            "FILE: node.heartbeat_ttl_ms = 10001 must be at least 2 x node.heartbeat_interval_ms = 5001",
        ),
        (
            "[profile.a]\nheartbeat_period_ms = 4000",
            "FILE: probe.offline_timeout_ms = 5000 (built-in default) must be below profile.a.heartbeat_period_ms = 4000",
        ),
        (
            "[rollup]\nat_utc = '12:00'\nlate_tolerance_ms = 43200000",
            "FILE: rollup.late_tolerance_ms = 43200000 must end before midnight, counted from rollup.at_utc",
        ),
        (
            "[uplink]\npassword = 'x'\nclient_key_file = 'k'",
            "FILE: uplink.password is set, so uplink.username must be set too\n\
             FILE: uplink.client_key_file is set, so uplink.client_cert_file must be set too",
        ),
    ] {
        assert_eq!(faults(text), said);
    }
    settings("[probe]\nwake_echo = true\nheartbeat_period_ms = 10001");
    settings("[node]\nheartbeat_interval_ms = 5000\nheartbeat_ttl_ms = 10000");
}

#[test]
fn least_and_largest_values_hold() {
    for (section, key, least, largest) in [
        ("probe", "heartbeat_period_ms", 200, 86_400_000),
        ("probe", "offline_timeout_ms", 50, 59_999),
        ("probe", "payload_bytes", 16, 1_400),
        ("probe", "degraded_rtt_ms", 1, 3_600_000),
        ("probe", "offline_missed_count", 1, 1_000_000),
        ("probe", "recover_count", 1, 1_000_000),
        ("node", "heartbeat_interval_ms", 500, 7_500),
        ("store", "flush_every_ms", 500, 86_400_000),
        ("store", "raw_retention_hours", 0, 87_600),
        ("history", "events_retention_days", 0, 3_650),
        ("uplink", "partitions", 1, 65_536),
        ("central", "chunk", 1, 100_000),
    ] {
        let with = |value: i64| {
            let period = if key == "heartbeat_period_ms" {
                "offline_timeout_ms = 100\n"
            } else {
                ""
            };
            load(&format!("[{section}]\n{period}{key} = {value}"))
        };
        for good in [least, largest] {
            assert!(with(good).is_ok(), "{key} = {good}: {:?}", with(good));
        }
        for bad in [least - 1, largest + 1, i64::MAX, i64::MIN] {
            let said = with(bad).unwrap_err();
            assert!(said.contains(&format!("{key} = {bad}")), "{said}");
        }
    }
}

/// A text with one mistake, and a part of what is said about it.
const MISTAKES: &[(&str, &str)] = &[
    ("probe = 5", "probe must be a section, [probe]"),
    ("profile = 5", "profile must be a section, [profile.NAME]"),
    (
        "[profile]\nslow = 5",
        "profile.slow must be a section, [profile.slow]",
    ),
    (
        "[profile.'a b']",
        "profile name \"a b\" must be 1 to 64 characters",
    ),
    (
        "[site.id]\nx = 1",
        "site.id = { x = 1 } must be text in quotes",
    ),
    ("[[site]]", "site must be a section"),
    (
        "[probe]\nwake_echo = 1",
        "probe.wake_echo = 1 must be true or false",
    ),
    (
        "[probe]\nsocket = 'udp'",
        "must be \"auto\", \"raw\" or \"dgram\"",
    ),
    (
        "[probe]\nsource = 'eth0'",
        "probe.source = \"eth0\" is a name",
    ),
    ("[path]\ntargets = '10.0.0.1'", "must be a list of texts"),
    ("[path]\ntargets = ['10.0.0.0/8']", "is a network"),
    (
        "[rollup]\nretry_ms = [0]",
        "must be a list of at most 20 numbers, each 1 to 86400000",
    ),
    ("[rollup]\nat_utc = '25:00'", "must be a time of day in UTC"),
    (
        "[inventory]\nfile = 'devices.xlsx'",
        "must end in .csv or .toml",
    ),
    (
        "[uplink]\nurl = 'http://b'",
        "must be a URL with host, mqtt://HOST:PORT or mqtts://HOST:PORT",
    ),
    (
        "[uplink]\nurl = 'mqtt://u:pw@b'",
        "= ***@b\" must not hold a user or password",
    ),
    ("[uplink]\ntopic_prefix = 'a/#'", "must be a topic"),
    (
        "[web]\nlisten = 'localhost:8080'",
        "must be an address with port",
    ),
    (
        "[web]\nbase_path = '//evil'",
        "must be empty or a path like /mon",
    ),
    (
        "[web]\nadmin_token = ''",
        "web.admin_token = (secret) must be 1 to 1024 letters",
    ),
    ("[web]\nadmin_token = 'schlüssel'", "signs of ASCII"),
    ("[web]\nviewer_token = 'two words'", "without spaces"),
    ("[web]\ntrusted_proxies = ['x']", "is a name"),
    (
        "[central]\nredis_url = []",
        "must be one URL or a list of 1 to 64",
    ),
    (
        "[central]\nredis_url = ['redis://:pw@']",
        "***@\"] must be a URL with host, redis://",
    ),
    ("[central]\npartitions = '9-1'", "must be partitions like"),
    (
        "[[alarm]]\nname = 'x'",
        "alarm is not built in this version",
    ),
    (
        "[[maintenance]]",
        "maintenance is not built in this version",
    ),
    ("[notify.x]", "notify is not built in this version"),
    ("[[automation]]", "automation is not built in this version"),
    ("[prob]", "prob is not a key"),
];

#[test]
fn values_of_the_wrong_kind_say_what_is_allowed() {
    for &(text, rule) in MISTAKES {
        let said = faults(text);
        assert!(
            said.starts_with("FILE: ") && said.contains(rule),
            "{text}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("pw"), "{said}");
    }
}

#[test]
fn values_that_nobody_set_follow_their_rule() {
    let of =
        settings("[site]\nid = 'depot'\n[uplink]\nurl = 'mqtt://b'\n[web]\nbase_path = 'mon/'");
    assert_eq!(of.site.name, "depot");
    assert_eq!(of.node.name, "gw");
    assert_eq!(of.central.mqtt_url.as_deref(), Some("mqtt://b"));
    assert_eq!(of.web.base_path, "/mon");
    let of =
        settings("[central]\nredis_url = ['redis://a', 'redis://b']\npartitions = '0-15,32-47'");
    assert_eq!(of.central.redis_url, ["redis://a", "redis://b"]);
    assert_eq!(of.central.partitions, [(0, 15), (32, 47)]);
    assert_eq!(
        settings("[rollup]\nat_utc = 01:30").rollup.at_utc,
        Duration::from_mins(90)
    );

    let folder = folder(&[("x.toml", "")]);
    let path = folder.path().join("x.toml");
    let loaded = config::load(&Request {
        host_name: "gw 7.example.org".into(),
        ..request(&path)
    })
    .unwrap();
    assert_eq!(loaded.settings.node.name, "gw-7.example.org");
    assert!(
        loaded.warnings[0].contains("\"gw 7.example.org\""),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn a_profile_is_probe_with_its_own_keys_over_it() {
    let of = settings(
        "[probe]\noffline_missed_count = 5\n[profile.slow]\ndegraded_rtt_ms = 4000\n[profile.same]",
    );
    let slow = &of.profiles["slow"];
    assert_eq!(slow.status.degraded_rtt_us, 4_000_000);
    assert_eq!(slow.status.degraded_leave_rtt_us, 4_000_000);
    assert_eq!(slow.status.offline_missed_count, 5);
    let from: Vec<String> = slow
        .thresholds()
        .iter()
        .map(|t| format!("{} {}", t.key, t.from))
        .collect();
    assert!(from.contains(&"degraded_rtt_ms profile slow".into()));
    assert!(from.contains(&"degraded_leave_rtt_ms profile slow".into()));
    assert!(from.contains(&"offline_missed_count config".into()));
    assert!(from.contains(&"recover_count default".into()));
    assert_eq!(of.profiles["same"], of.probe);
    assert_eq!(of.rules_for(Some("slow")), slow);

    let fault = faults("[probe]\ndegraded_leave_rtt_ms = 1000\n[profile.a]\ndegraded_rtt_ms = 800");
    assert_eq!(
        fault,
        "FILE: probe.degraded_leave_rtt_ms = 1000 must be at most profile.a.degraded_rtt_ms = 800"
    );
}

#[test]
fn what_is_allowed_but_looks_wrong_is_a_warning() {
    let warnings = |text: &str| load(text).unwrap().warnings.join("\n");
    let open = "[web]\nlisten = '[::]:8080'\n";
    assert!(warnings(open).contains("anyone there can read the page"));
    assert_eq!(warnings(&format!("{open}viewer_token = 'v'")), "");
    assert_eq!(warnings("[web]\nlisten = '127.9.9.9:0'"), "");
    let open = "[uplink]\nurl = 'mqtt://b'\nusername = 'u'\npassword = 'p'";
    assert!(
        warnings(open).contains("use mqtts://"),
        "{}",
        warnings(open)
    );
    assert_eq!(
        warnings("[uplink]\nurl = 'mqtt://127.0.0.1:1883'\nusername = 'u'\npassword = 'p'"),
        ""
    );
    assert_eq!(
        warnings("[uplink]\nurl = 'mqtts://b'\nusername = 'u'\npassword = 'p'"),
        ""
    );
    assert!(warnings("[path]\ntargets = ['10.0.0.1']").contains("path.targets"));
    assert!(warnings("[web]\nadmin_token = 'a'\nviewer_token = 'a'").contains("are the same"));
    assert!(warnings("[probe]\ndegraded_rtt_ms = 5000").contains("no device can be degraded"));
}

#[test]
fn a_file_of_something_else_is_refused_at_once_and_briefly() {
    let lines = (0..60_000).map(|n| ["key", &n.to_string(), " = 1\n"].concat());
    let said = faults(&lines.collect::<String>());
    assert_eq!(said.lines().count(), 501);
    assert!(said.ends_with("and 59500 more faults"));
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    /// Whatever comes of it, a fault is one line that names its place.
    fn assert_clear(loaded: Result<Loaded, String>) {
        match loaded {
            Ok(loaded) => {
                let rules = &loaded.settings.probe;
                assert!(rules.offline_timeout < rules.heartbeat_period);
            }
            Err(said) => {
                for line in said.lines() {
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                    assert!(
                        ["FILE", "environment variable "]
                            .iter()
                            .any(|place| line.starts_with(place)),
                        "{line:?}"
                    );
                }
            }
        }
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            3 => prop::sample::select(config::key_names()),
            1 => "(profile|site|web|[a-z]{1,5})\\.[a-z_]{1,8}(\\.recover_count)?",
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            (0..100_000_i64).prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| toml::Value::Float(n).to_string()),
            "\\PC{0,20}".prop_map(|text| toml::Value::String(text).to_string()),
            "(true|\\{a = 1\\}|\\[\\]|\\['::1', '1.2.3.4'\\]|\\[5, 6\\]|'[:/@.0-9a-z]{0,12}'|2020-01-01)",
        ]
    }

    proptest! {
        #[test]
        fn random_bytes_are_a_fault_or_fine(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let folder = folder(&[("x.toml", bytes)]);
            let path = folder.path().join("x.toml");
            let loaded = config::load(&request(&path));
            assert_clear(loaded.map_err(|said| said.to_string().replace(path.to_str().unwrap(), "FILE")));
        }

        #[test]
        fn random_keys_and_values_are_a_fault_or_fine(
            lines in prop::collection::btree_map(key(), value(), 0..12)
        ) {
            let lines = lines.iter().map(|(key, value)| format!("{key} = {value}\n"));
            assert_clear(load(&lines.collect::<String>()));
        }

        #[test]
        fn random_variables_are_a_fault_or_fine(
            variables in prop::collection::vec((key(), prop_oneof![value(), "\\PC{0,20}", ".{0,9}"]), 0..8),
            junk in "\\PC{0,12}",
        ) {
            let mut set: Vec<(String, String)> = variables
                .into_iter()
                .map(|(key, value)| {
                    (format!("SITEBEAT__{}", key.to_uppercase().replace('.', "__")), value)
                })
                .collect();
            set.push((format!("SITEBEAT__{junk}"), junk));
            let borrowed: Vec<(&str, &str)> =
                set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_clear(load_with("", &borrowed));
        }
    }
}
