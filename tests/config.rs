//! The configuration as a user writes it: shipped files, layers, variables, secrets.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sitebeat::config::settings::{Origin, Settings};
use sitebeat::config::{self, Environment, Request};

#[path = "support/written.rs"]
mod written;

use written::{faults, folder, load, load_with, owned, request, settings};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}

#[test]
fn the_shipped_default_file_equals_the_built_in_defaults() {
    let loaded = config::load(&request(&shipped().join("default.toml"))).unwrap();
    let mut built_in = settings("");
    built_in.probe.origins.clear();
    let mut shipped = loaded.settings;
    shipped.probe.origins.clear();
    assert_eq!(shipped, built_in);
    built_in.node.name.clear();
    assert_eq!(built_in, Settings::default());
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn every_key_is_documented_in_the_shipped_default_file() {
    let text = fs::read_to_string(shipped().join("default.toml")).unwrap();
    let mut section = "";
    let mut documented = Vec::new();
    for line in text.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name;
        } else if let Some((key, _)) = line.split_once(" = ")
            && !key.contains(' ')
            && !section.starts_with("profile")
        {
            documented.push(format!("{section}.{key}"));
        }
    }
    documented.sort();
    let mut known = config::key_names();
    known.sort();
    assert_eq!(documented, known);
}

#[test]
fn the_shipped_default_file_loads_with_every_commented_key_put_in() {
    let text = fs::read_to_string(shipped().join("default.toml")).unwrap();
    let live = |line: &str| match line.strip_prefix("# ") {
        Some(key) if key.starts_with('[') => key.to_owned(),
        // Of a secret and its file only one can be set, and no file is there.
        Some(key) if key.contains(" = ") && !key.contains("_file = \"/run") => key.to_owned(),
        _ => line.to_owned(),
    };
    let settings = settings(
        &text
            .lines()
            .map(|line| live(line) + "\n")
            .collect::<String>(),
    );
    assert_eq!(settings.site.name, "Depot north");
    assert_eq!(
        settings.profiles["slow-modem"].offline_timeout,
        Duration::from_secs(15)
    );
}

#[test]
fn the_shipped_folder_loads_in_every_environment() {
    let load = |env| {
        let request = Request {
            env,
            ..request(&shipped())
        };
        config::load(&request).unwrap()
    };
    let dev = load(Environment::Dev);
    assert_eq!(dev.settings.probe.heartbeat_period, Duration::from_secs(5));
    assert_eq!(dev.settings.probe.offline_timeout, Duration::from_secs(2));
    assert_eq!(
        dev.settings.probe.origins["heartbeat_period_ms"],
        Origin::Config
    );
    assert!(!dev.settings.probe.origins.contains_key("degraded_rtt_ms"));
    assert_eq!(
        dev.files,
        ["default.toml", "dev.toml"].map(|name| shipped().join(name))
    );
    assert_eq!(dev.warnings, Vec::<String>::new());

    let stage = load(Environment::Stage);
    assert_eq!(stage.settings.web.listen.to_string(), "0.0.0.0:8080");

    let prod = load(Environment::Prod);
    assert_eq!(prod.settings.probe.heartbeat_period, Duration::from_mins(1));
    assert_eq!(
        prod.settings.node.heartbeat_interval,
        Duration::from_secs(30)
    );
    assert_eq!(prod.settings.node.heartbeat_ttl, Duration::from_secs(90));
    assert_eq!(prod.settings.uplink.metrics_interval, Some(Duration::ZERO));
    assert!(!prod.settings.uplink.miss_events);
    assert_eq!(prod.settings.web.listen.to_string(), "0.0.0.0:8080");
    assert!(
        prod.warnings[0].contains("web.listen = 0.0.0.0:8080"),
        "{:?}",
        prod.warnings
    );
}

#[test]
fn later_layers_win() {
    let folder = folder(&[
        (
            "default.toml",
            "[site]\nid = 'a'\nregion = 'r'\n[store]\npath = 'x'\n\
             [probe]\nrecover_count = 2\npayload_bytes = 16",
        ),
        ("stage.toml", "[site]\nid = 'b'\n[store]\npath = 'y'"),
        ("dev.toml", "[site]\nid = 'never'"),
    ]);
    let loaded = config::load(&Request {
        env: Environment::Stage,
        variables: owned(&[
            ("SITEBEAT__STORE__PATH", "z"),
            ("SITEBEAT__PROBE__DEGRADED_RTT_MS", "700"),
            ("SITEBEAT__PATH__TARGETS", r#"["10.0.0.1"]"#),
            ("SITEBEAT_ENV", "prod"),
            ("PATH", "/bin"),
        ]),
        flags: vec![("store.path".into(), toml::Value::String("flag".into()))],
        ..request(folder.path())
    })
    .unwrap();
    let settings = loaded.settings;
    assert_eq!(settings.site.region, "r");
    assert_eq!(settings.site.id, "b");
    assert_eq!(settings.site.name, "b");
    assert_eq!(settings.store.path, Path::new("flag"));
    assert_eq!(settings.path_targets[0].to_string(), "10.0.0.1");
    let origin = |key| settings.probe.origins.get(key).map(ToString::to_string);
    assert_eq!(origin("recover_count").as_deref(), Some("config"));
    assert_eq!(origin("payload_bytes"), None);
    assert_eq!(origin("degraded_rtt_ms").as_deref(), Some("env"));
    assert_eq!(origin("degraded_leave_rtt_ms").as_deref(), Some("env"));
    assert_eq!(settings.probe.status.degraded_leave_rtt_us, 700_000);
}

#[test]
fn broken_toml_names_file_line_and_column_and_quotes_nothing() {
    let said = faults("[web]\nadmin_token = \"hunter2\nlisten = 1\n");
    assert!(said.starts_with("FILE:2:23: is not TOML: "), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    assert!(faults("[site]\nid = 'a'\nid = 'b'").starts_with("FILE:3:1: "));
    let folder = folder(&[("default.toml", "x = "), ("dev.toml", "= y")]);
    fs::write(folder.path().join("dev.toml"), b"ok = 1\n\xff").unwrap();
    let said = config::load(&request(folder.path())).unwrap_err();
    let said: Vec<&str> = said.iter().collect();
    assert_eq!(said.len(), 2);
    assert!(
        said[0].contains("default.toml:1:5: is not TOML"),
        "{said:?}"
    );
    assert!(
        said[1].contains("dev.toml: line 2 is not UTF-8"),
        "{said:?}"
    );
}

#[test]
fn a_path_that_is_given_must_hold_a_configuration() {
    let folder = folder(&[("devices.csv", "")]);
    let said = |path: &Path| config::load(&request(path)).unwrap_err().to_string();
    assert!(said(&folder.path().join("none")).contains("cannot be read"));
    assert!(said(folder.path()).contains("holds neither default.toml nor dev.toml"));
}

#[test]
fn variables_are_toml_values_or_plain_text() {
    let text = "[profile.slow-modem]\nrecover_count = 2";
    let loaded = load_with(
        text,
        &[
            ("SITEBEAT__SITE__ID", "7"),
            ("SITEBEAT__SITE__NAME", "\"Depot north\""),
            ("SITEBEAT__PROBE__WAKE_ECHO", "true"),
            ("SITEBEAT__ROLLUP__RETRY_MS", "[1_000, 2_000]"),
            ("SITEBEAT__ROLLUP__AT_UTC", "00:07"),
            ("SITEBEAT__WEB__ADMIN_TOKEN", "[1]"),
            ("SITEBEAT__CENTRAL__REDIS_URL", "['redis://a', 'redis://b']"),
            ("SITEBEAT__UPLINK__URL", ""),
            ("SITEBEAT__PROFILE__SLOW_MODEM__RECOVER_COUNT", "3"),
            ("SITEBEAT__PROFILE__NEW__RECOVER_COUNT", "4"),
            ("NODE_HEARTBEAT_INTERVAL", "0.5"),
            ("NODE_HEARTBEAT_TTL", "2"),
        ],
    );
    let of = loaded.unwrap().settings;
    assert_eq!(
        (of.site.id.as_str(), of.site.name.as_str()),
        ("7", "Depot north")
    );
    assert!(of.probe.wake_echo);
    assert_eq!(of.rollup.retry, [1, 2].map(Duration::from_secs));
    assert_eq!(of.rollup.at_utc, Duration::from_mins(7));
    assert_eq!(of.web.admin_token.unwrap().reveal(), "[1]");
    assert_eq!(of.central.redis_url.len(), 2);
    assert_eq!(of.uplink.url, None);
    assert_eq!(of.profiles["slow-modem"].status.recover_count, 3);
    assert_eq!(of.profiles["new"].status.recover_count, 4);
    assert_eq!(of.node.heartbeat_interval, Duration::from_millis(500));
    assert_eq!(of.node.heartbeat_ttl, Duration::from_secs(2));
}

#[test]
fn the_names_in_seconds_give_way_to_the_full_ones() {
    let both = [
        ("NODE_HEARTBEAT_TTL", "20"),
        ("SITEBEAT__NODE__HEARTBEAT_TTL_MS", "30000"),
    ];
    let loaded = load_with("", &both).unwrap();
    assert_eq!(loaded.settings.node.heartbeat_ttl, Duration::from_secs(30));
    assert!(loaded.warnings[0].contains("NODE_HEARTBEAT_TTL is not used"));
}

#[test]
fn variables_that_mean_nothing_are_faults() {
    for bad in ["", "5s", "-1", "NaN", "inf", "1e300", "0.1"] {
        let said = load_with("", &[("NODE_HEARTBEAT_INTERVAL", bad)]).unwrap_err();
        assert!(
            said.starts_with("environment variable NODE_HEARTBEAT_INTERVAL: "),
            "{said}"
        );
    }
    for name in [
        "SITEBEAT__",
        "SITEBEAT__SITE",
        "SITEBEAT__PROFILE__A",
        "SITEBEAT__SITE__ID__X",
    ] {
        let said = load_with("", &[(name, "x")]).unwrap_err();
        assert!(
            said.starts_with(&format!("environment variable {name}: ")),
            "{said}"
        );
    }
}

#[test]
fn secrets_come_from_files_and_are_never_printed() {
    let folder = folder(&[("pw", "hunter2\n"), ("bad", "hun\tter2"), ("none", "\n")]);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = format!(
        "[web]\nadmin_token_file = '{}'\n[uplink]\nusername = 'u'\npassword_file = '{0}'",
        at("pw")
    );
    let loaded = load(&text).unwrap();
    assert_eq!(
        loaded.settings.web.admin_token.as_ref().unwrap().reveal(),
        "hunter2"
    );
    assert_eq!(
        loaded.settings.uplink.password.as_ref().unwrap().reveal(),
        "hunter2"
    );
    assert!(!format!("{loaded:?}").contains("hunter2"));
    for (name, why) in [
        ("missing", "cannot be read"),
        ("", "cannot be read: is a folder"),
        ("bad", "holds a secret that must be"),
        ("none", "holds a secret that must be"),
    ] {
        let said = faults(&format!("[web]\nviewer_token_file = '{}'", at(name)));
        assert!(
            said.starts_with("FILE: web.viewer_token_file = ") && said.contains(why),
            "{said}"
        );
        assert!(!said.contains("ter2"), "{said}");
    }
    let both = [("SITEBEAT__WEB__ADMIN_TOKEN", "hunter2")];
    let said = load_with(&text, &both).unwrap_err();
    assert!(
        said.contains("cannot stand beside web.admin_token (environment variable"),
        "{said}"
    );
    for text in [
        "[web]\nadmin_tokn = 'hunter2'",
        "[web]\nadmin_token = ' hunter2'",
    ] {
        assert!(!faults(text).contains("hunter2"));
    }
}
