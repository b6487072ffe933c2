//! The pages in a real browser: what the script does, what the policy allows,
//! what fits on a phone.
//!
//! Debian's `chromium`, headless, looks at the real program; nothing but
//! loopback is asked. The browser's clock is virtual: it goes ahead whenever the
//! page waits for nothing, so a minute of refreshing passes in moments.

#![cfg(test)]

#[path = "support/process.rs"]
mod process;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/web_front.rs"]
mod web_front;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use process::{Answer, Launch, Program, SOON, get, wait_for, wait_up_to};

/// Longest look at one page.
const LOOK_MAX: Duration = Duration::from_secs(40);

/// Width of a phone; the browser's own window is never below 500 pixels.
const PHONE_PX: u32 = 360;

/// What the window between browser and program adds: pages that look at ours in
/// a frame.
const HARNESSES: [(&str, &str); 3] = [
    ("/phone", include_str!("support/phone.js")),
    ("/aside", include_str!("support/aside.js")),
    ("/typing", include_str!("support/typing.js")),
];

/// What a browser was left with.
struct Seen {
    dom: String,
    log: String,
}

/// A simulated fleet that changes from second to second.
fn fleet(folder: &Path) -> Program {
    let program = Launch::new(folder, &["simulate", "--devices", "60", "--seed", "7"])
        .set("probe.heartbeat_period_ms", "1000")
        .set("probe.offline_timeout_ms", "900")
        .set("probe.degraded_rtt_ms", "500")
        .start();
    program.wait_for_counts(|counts| counts["unknown"] == 0);
    program
}

/// Looks at a page for `virtual_ms` and dumps what it has become by then.
fn look(url: &str, virtual_ms: u32) -> Seen {
    look_by(url, virtual_ms, &[])
}

/// The same with more arguments for the browser.
fn look_by(url: &str, virtual_ms: u32, arguments: &[&str]) -> Seen {
    let profile = tempfile::tempdir().unwrap();
    let [out, err] = ["dom", "log"].map(|name| profile.path().join(name));
    let file = |path| Stdio::from(std::fs::File::create(path).unwrap());
    let mut browser = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .args(arguments)
        .arg(format!("--virtual-time-budget={virtual_ms}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .env("HOME", profile.path())
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .expect("chromium is installed (tests/run installs it)");
    let id = browser.id();
    let status = wait_up_to(LOOK_MAX, &format!("the browser {id} at {url}"), || {
        browser.try_wait().unwrap()
    });
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let (dom, log) = (read(&out), read(&err));
    assert!(status.success(), "{log}");
    Seen { dom, log }
}

impl Seen {
    /// Nothing was blocked by the policy, no script failed, nothing was missing.
    fn is_clean(&self) {
        for bad in [":CONSOLE", "Content Security Policy", "Refused to"] {
            assert!(!self.log.contains(bad), "{bad} in {}", self.log);
        }
    }
}

/// Passes everything on to the program, and notes who asked for what.
struct Window {
    address: SocketAddr,
    /// Path and `Sec-Fetch-Dest` of each request.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Window {
    /// `serve` gets the page for a path and a `Sec-Fetch-Dest`.
    fn onto(serve: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, serve) = (Arc::clone(&asked), Arc::new(serve));
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, serve) = (Arc::clone(&noted), Arc::clone(&serve));
                thread::spawn(move || pass(stream, &noted, &*serve));
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often `path` was asked for as `kind`.
    fn count(&self, path: &str, kind: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        let wanted = (path.to_owned(), kind.to_owned());
        asked.iter().filter(|&one| *one == wanted).count()
    }
}

/// One request and its answer. Browsers open connections ahead of need, so one
/// that says nothing is no fault.
fn pass(
    mut browser: TcpStream,
    noted: &Mutex<Vec<(String, String)>>,
    serve: &dyn Fn(&str, &str) -> Answer,
) -> Option<()> {
    browser.set_read_timeout(Some(SOON)).ok()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        browser.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let kind = head
        .lines()
        .find_map(|line| {
            line.to_lowercase()
                .strip_prefix("sec-fetch-dest: ")
                .map(str::to_owned)
        })
        .unwrap_or_default();
    noted.lock().unwrap().push((path.clone(), kind.clone()));
    let script = |(name, _): &&(&str, &str)| path.strip_suffix(".js") == Some(*name);
    let answer = if HARNESSES.iter().any(|(name, _)| path == *name) {
        let text = format!("<!doctype html><body><script src={path}.js></script>");
        page("text/html", &text)
    } else if let Some((_, text)) = HARNESSES.iter().find(script) {
        page("text/javascript", text)
    } else {
        let answer = serve(&path, &kind);
        // One answer per connection; and this window's own frame is allowed.
        let head = answer
            .head
            .replace("frame-ancestors 'none'", "frame-ancestors 'self'")
            .replace("x-frame-options: DENY\r\n", "");
        format!("{head}\r\n\r\n{}", answer.body)
    };
    browser.write_all(answer.as_bytes()).ok()
}

fn page(kind: &str, text: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    )
}

/// The status of each device as the overview says it.
fn statuses(page: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for row in page.split("<tr").skip(2) {
        let status = row.split("<td>").nth(1).unwrap();
        let id = row.split("/devices/").nth(1).unwrap();
        let id = id.split(['"', '>']).next().unwrap();
        let status = status.trim().trim_end_matches("</td>").trim();
        found.insert(id.to_owned(), status.to_owned());
    }
    found
}

#[test]
fn the_script_swaps_in_a_change_of_status_without_loading_the_page_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path());
    let address = program.address();
    let served: Arc<Mutex<Vec<_>>> = Arc::default();
    let noted = Arc::clone(&served);
    let window = Window::onto(move |path, kind| {
        if path != "/" {
            return get(address, path);
        }
        // The script's own request waits until there is something new to see.
        let (answer, new) = wait_for("a change of status", || {
            let answer = get(address, path);
            let new = statuses(&answer.body);
            let is_new = noted.lock().unwrap().last() != Some(&new);
            (is_new || kind == "document").then_some((answer, new))
        });
        noted.lock().unwrap().push(new);
        answer
    });
    let seen = look(&window.url("/"), 8_000);
    seen.is_clean();
    assert_eq!(window.count("/", "document"), 1, "it was not loaded again");
    assert!(window.count("/", "empty") >= 1, "the script asked");
    let served = served.lock().unwrap();
    let (first, later) = served.split_first().unwrap();
    assert_eq!(first.len(), 60);
    let last = statuses(&seen.dom);
    assert_ne!(*first, last);
    assert!(later.contains(&last), "what is shown is what came");
    assert!(
        seen.dom
            .contains("id=\"stale\" class=\"banner bad\" role=\"status\" hidden")
    );
}

#[test]
fn a_device_is_shown_with_its_day_and_nothing_is_blocked() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path());
    let list = program.json("/api/v1/devices?status=online");
    let id = list["devices"][0]["device_id"].as_str().unwrap();
    let path = format!("/devices/{id}");
    for path in [path.as_str(), "/node"] {
        let seen = look(&format!("http://{}{path}", program.address()), 1_000);
        seen.is_clean();
        assert!(seen.dom.contains("As of "), "{}", seen.dom);
        let has_chart = seen.dom.contains("class=\"spread\" d=\"M");
        assert_eq!(has_chart, path != "/node");
    }
}

#[test]
fn on_a_phone_nothing_is_cut_off_and_a_finger_can_hit_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path());
    // The longest word of all.
    let list = wait_for("a degraded device", || {
        let list = program.json("/api/v1/devices?status=degraded");
        (list["total"] != 0).then_some(list)
    });
    let id = list["devices"][0]["device_id"].as_str().unwrap();
    let address = program.address();
    let window = Window::onto(move |path, _| get(address, path));
    let paths = format!("/,/?q=nothing,/devices/{id},/history,/events,/node,/devices/nobody");
    let seen = look(&window.url(&format!("/phone#{PHONE_PX}:{paths}")), 5_000);
    let found: Vec<&str> = seen.dom.split("<li>").skip(1).collect();
    assert_eq!(found.len(), paths.split(',').count(), "{}", seen.dom);
    for line in found {
        let line = line.split("</li>").next().unwrap();
        assert!(line.ends_with(": 360 of 360, small: none"), "{line}");
    }
}

/// The pages over a site with months of days behind it and a broker that is away, which a program that
/// has just started cannot have. They end with the test's process.
fn site_with_days() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let router = sitebeat::web::router(web_front::away().shared);
            sitebeat::web::serve(listener, router, |_| false, std::future::pending()).await;
        });
    });
    address
}

#[test]
fn days_and_events_are_clean_and_fit_a_phone_by_day_and_by_night() {
    let address = site_with_days();
    let paths = "/history,/history?days=90,/history?device=pump-7,/events,\
                 /events?kind=clock&device_id=pump-7,/devices/pump-7,/node";
    let window = Window::onto(move |path, _| get(address, path));
    for scheme in ["0", "1"] {
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let phone = window.url(&format!("/phone#{PHONE_PX}:{paths}"));
        let seen = look_by(&phone, 5_000, &[&scheme]);
        let found: Vec<&str> = seen.dom.split("<li>/").skip(1).collect();
        assert_eq!(found.len(), paths.split(',').count(), "{}", seen.dom);
        for line in found {
            let line = line.split("</li>").next().unwrap();
            assert!(line.ends_with(": 360 of 360, small: none"), "{line}");
        }
        for path in paths.split(',') {
            let seen = look_by(&format!("http://{address}{path}"), 1_000, &[&scheme]);
            seen.is_clean();
            assert!(seen.dom.contains("As of "), "{}", seen.dom);
        }
    }
}

#[test]
fn a_refresh_takes_nothing_from_who_is_typing_or_reading() {
    let folder = tempfile::tempdir().unwrap();
    let program = fleet(folder.path());
    let address = program.address();
    let window = Window::onto(move |path, kind| {
        let first = get(address, path);
        if kind != "empty" {
            return first;
        }
        // The time on the page goes by real seconds.
        wait_for("another second", || {
            let answer = get(address, path);
            let age = |body: &str| {
                let rest = body.split("As of ").nth(1)?;
                rest.split(" UTC").next().map(str::to_owned)
            };
            (age(&answer.body) != age(&first.body)).then_some(answer)
        })
    });
    let seen = look(&window.url("/typing"), 12_000);
    let said = seen.dom.split("<li>").nth(1);
    let said = said.unwrap_or_else(|| panic!("{}\n{}", seen.dom, seen.log));
    let said = said.split('<').next().unwrap();
    assert_eq!(said, "typed Sens, focus kept true, scrolled 400");
}

#[test]
fn a_refresh_leaves_a_wide_table_where_it_was_pushed_to() {
    let address = site_with_days();
    let window = Window::onto(move |path, _| get(address, path));
    let seen = look(&window.url("/aside"), 130_000);
    let said = seen.dom.split("<li>").nth(1);
    let said = said.unwrap_or_else(|| panic!("{}\n{}", seen.dom, seen.log));
    // The newest days are at the right end, where it begins.
    assert_eq!(said.split('<').next().unwrap(), "aside 0, then -500");
}
