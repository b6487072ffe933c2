//! The rules of the house, read from the sources.
//!
//! A room imports rooms on lower floors only, never a neighbour (see
//! ARCHITECTURE.md, Floors). What the compiler and clippy cannot say about
//! files is said here too.

#![expect(
    clippy::unwrap_used,
    reason = "a test's own tools: a fault in them must fail the test"
)]

use std::fs;
use std::path::{Path, PathBuf};

#[path = "support/rust_source.rs"]
mod rust_source;

use rust_source::{code_of, rooms_reached};

/// Every room and its floor.
const FLOORS: [(&str, u8); 16] = [
    ("domain", 0),
    ("fault", 0),
    ("wire", 1),
    ("config", 1),
    ("clock", 1),
    ("ping", 2),
    ("store", 2),
    ("broker", 2),
    ("queues", 2),
    ("notify", 2),
    ("board", 2),
    ("edge", 3),
    ("central", 3),
    ("web", 3),
    ("app", 4),
    ("main", 5),
];

/// Arrows that are allowed although they lead sideways, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    (
        "board",
        "ping",
        "the board shows an engine's facts and counters as they are",
    ),
    (
        "board",
        "store",
        "the board shows the store's figures as they are",
    ),
];

/// What a pure room must not know of.
const NOT_PURE: [&str; 9] = [
    "tokio",
    "serde",
    "serde_json",
    "sled",
    "tracing",
    "SystemTime",
    "Instant",
    "std::fs",
    "std::env",
];

const LINES_MAX: usize = 500;

struct Source {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`.
fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(repository()).unwrap();
                found.push(Source {
                    path: relative.to_str().unwrap().replace('\\', "/"),
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn everything() -> Vec<Source> {
    ["src", "tests", "benches"]
        .into_iter()
        .flat_map(sources)
        .collect()
}

/// The modules from the crate's root to this file: `src/ping/batch.rs` is
/// `ping, batch`; `src/lib.rs` is the root itself.
fn module_of(path: &str) -> Vec<&str> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|&name| name != "lib").collect()
}

fn floor_of(room: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(name, _)| *name == room)
        .map(|&(_, floor)| floor)
}

/// What is wrong with the arrows of one file.
fn wrong_arrows(path: &str, text: &str) -> Vec<String> {
    let module = module_of(path);
    // The root only lists the rooms.
    let Some(&room) = module.first() else {
        return Vec::new();
    };
    let Some(floor) = floor_of(room) else {
        return vec![format!(
            "{path}: room `{room}` has no floor in tests/floors.rs"
        )];
    };
    let is_wrong = |target: &str| {
        let is_allowed = EXCEPTIONS
            .iter()
            .any(|&(from, to, _)| from == room && to == target);
        target != room && !is_allowed && floor_of(target).is_none_or(|below| below >= floor)
    };
    rooms_reached(&code_of(text), module.len())
        .into_iter()
        .filter(|(_, target)| is_wrong(target))
        .map(|(line, target)| {
            format!("{path}:{line}: `{room}` reaches into `{target}`, which is not below it")
        })
        .collect()
}

/// Fails with all faults at once.
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// One fault per file of `sources` that `is_wrong`.
fn faults(sources: &[Source], rule: &str, is_wrong: impl Fn(&Source) -> bool) -> Vec<String> {
    sources
        .iter()
        .filter(|source| is_wrong(source))
        .map(|source| format!("{}: {rule}", source.path))
        .collect()
}

#[test]
fn rooms_reach_downwards_only() {
    let arrows: Vec<String> = sources("src")
        .iter()
        .flat_map(|source| wrong_arrows(&source.path, &source.text))
        .collect();
    assert_none(&arrows);
}

#[test]
fn an_arrow_upwards_or_sideways_is_found() {
    let wrong = |path: &str, text: &str| wrong_arrows(path, text).len();
    // Upwards, sideways, in a group, inline, through `super`.
    assert_eq!(wrong("src/domain/day.rs", "use crate::clock::Clock;"), 1);
    assert_eq!(wrong("src/store/log.rs", "use crate::ping::Done;"), 1);
    assert_eq!(
        wrong(
            "src/ping.rs",
            "use crate::{clock::{self, Clock}, edge, store as s};"
        ),
        2
    );
    assert_eq!(
        wrong("src/wire.rs", "fn f() { crate::config::load::go() }"),
        1
    );
    assert_eq!(wrong("src/ping.rs", "use super::store;"), 1);
    assert_eq!(wrong("src/ping/batch.rs", "use super::super::store;"), 1);
    assert_eq!(
        wrong(
            "src/ping/batch.rs",
            "mod tests { use super::super::super::web; }"
        ),
        1
    );
    assert_eq!(
        wrong(
            "src/ping/batch.rs",
            "mod a { fn f() {} } use super::super::web;"
        ),
        1
    );
    assert_eq!(wrong("src/cellar.rs", "fn f() {}"), 1);
    // Not even when a string before it looks like a comment or a quote.
    assert_eq!(
        wrong(
            "src/ping.rs",
            "let x = \"// \\\"\"; let q = '\"'; crate::web::x();"
        ),
        1
    );
    assert_eq!(
        wrong("src/ping.rs", "fn f<'a>(x: &'a str) { crate::web::x() }"),
        1
    );
}

#[test]
fn an_arrow_downwards_or_at_home_is_fine() {
    let wrong = |path: &str, text: &str| wrong_arrows(path, text);
    let fine = [
        (
            "src/ping/batch.rs",
            "use crate::{clock, config::settings, domain::day};",
        ),
        (
            "src/ping/batch.rs",
            "use super::{Done, Probe}; use crate::ping::Request;",
        ),
        (
            "src/ping.rs",
            "mod tests { use super::*; use super::batch::store; }",
        ),
        (
            "src/ping.rs",
            "//! See `crate::edge`.\n/* crate::web */ let x = \"crate::web::y\";",
        ),
        (
            "src/ping.rs",
            "let x = r#\"crate::web \" \"#; let y = '\\''; let z = '{';",
        ),
        ("src/board.rs", "use crate::{ping, store};"),
        ("src/main.rs", "use sitebeat::app;"),
        ("src/lib.rs", "pub mod app;"),
    ];
    for (path, text) in fine {
        assert_eq!(wrong(path, text), [""; 0], "{text}");
    }
}

#[test]
fn an_exception_that_nobody_needs_any_more_is_taken_back() {
    let sources = sources("src");
    for (from, to, reason) in EXCEPTIONS {
        let is_used = sources.iter().any(|source| {
            let module = module_of(&source.path);
            module.first() == Some(&from)
                && rooms_reached(&code_of(&source.text), module.len())
                    .iter()
                    .any(|(_, target)| target == to)
        });
        assert!(is_used, "{from} -> {to} ({reason}) is not used");
    }
}

#[test]
fn the_domain_knows_no_clock_disk_network_or_serialisation() {
    let domain = |source: &Source| module_of(&source.path).first() == Some(&"domain");
    let pure: Vec<Source> = sources("src").into_iter().filter(domain).collect();
    for word in NOT_PURE {
        let rule = format!("`{word}` has no place in the domain");
        assert_none(&faults(&pure, &rule, |source| {
            has_word(&code_of(&source.text), word)
        }));
    }
}

#[test]
fn time_enters_through_the_clock_alone() {
    let rule = "asks for the time itself; take it from `clock` or as an argument";
    assert_none(&faults(&sources("src"), rule, |source| {
        let code = code_of(&source.text);
        source.path != "src/clock.rs"
            && ["Instant::now", "SystemTime::now", "Utc::now"]
                .iter()
                .any(|call| code.contains(call))
    }));
}

#[test]
fn no_file_grows_beyond_five_hundred_lines() {
    let rule = format!("has more than {LINES_MAX} lines; split it into rooms");
    assert_none(&faults(&everything(), &rule, |source| {
        source.text.lines().count() > LINES_MAX
    }));
}

#[test]
fn a_room_is_a_file_beside_its_folder() {
    let rule = "call it by its room's name, beside the folder";
    assert_none(&faults(&everything(), rule, |source| {
        source.path.ends_with("/mod.rs")
    }));
}

#[test]
fn each_file_opens_with_what_it_is() {
    let rule = "does not open with `//!`";
    assert_none(&faults(&everything(), rule, |source| {
        !source.text.starts_with("//! ")
    }));
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    for word in ["todo!", "unimplemented!", "#[ignore", "#[ignore="] {
        let rule = format!("has `{word}`");
        assert_none(&faults(&everything(), &rule, |source| {
            code_of(&source.text).contains(word)
        }));
    }
}

#[test]
fn every_test_that_the_architecture_names_exists() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("\n## Invariants").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let named: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|name| name.matches('_').count() >= 3)
        .collect();
    assert!(named.len() > 20, "{named:?}");
    let code: String = everything()
        .iter()
        .map(|source| code_of(&source.text))
        .collect();
    let missing: Vec<String> = named
        .iter()
        // A property test has arguments.
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .map(|name| format!("ARCHITECTURE.md names `{name}`, which is no test"))
        .collect();
    assert_none(&missing);
}

#[test]
fn the_sources_are_found_at_all() {
    assert!(sources("src").len() > 20);
    assert!(
        everything()
            .iter()
            .any(|source| source.path == "tests/floors.rs")
    );
}

/// Whether `word` stands in `code` by itself.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (code.get(..at), code.get(at + word.len()..));
        !before.unwrap_or_default().ends_with(is_part)
            && !after.unwrap_or_default().starts_with(is_part)
    })
}
