//! A mosquitto of the test's own on loopback, in a temporary folder, and who listens
//! and publishes there besides us.
//!
//! It is killed by its pid when its guard goes. What mosquitto itself refuses or
//! drops is mosquitto's doing: nothing here stands in for it.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test's own tools, shared by test programs each of which uses a part: a fault in \
              them must fail the test"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sitebeat::broker::mqtt::Mqtt;
use sitebeat::broker::{Access, Broker as _, Happening, Loss, Message};
use sitebeat::config::settings::{Secret, Uplink};

/// Longest wait for anything that should come at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A running broker.
pub(crate) struct Mosquitto {
    folder: tempfile::TempDir,
    settings: String,
    child: Option<Child>,
    address: &'static str,
    pub(crate) port: u16,
}

/// Certificates made with openssl.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
}

/// `mosquitto_sub` on all topics: one line `retained qos topic payload` a message.
pub(crate) struct Listener {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Mosquitto {
    /// Anybody may come; nothing outlives it. A slow listener loses nothing: by
    /// itself mosquitto drops what it has acknowledged and a listener is late to take.
    pub(crate) fn start() -> Self {
        Self::with("allow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n")
    }

    /// With these lines in its configuration; `FOLDER` in them is its folder.
    pub(crate) fn with(settings: &str) -> Self {
        Self::at("127.0.0.1", settings)
    }

    /// As `with`, on another address of this machine.
    pub(crate) fn at(address: &'static str, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings.replace("FOLDER", folder.path().to_str().unwrap());
        let mut broker = Self {
            folder,
            settings,
            child: None,
            address,
            port: 0,
        };
        // Another program may take the free port before the broker does.
        for _ in 0..10 {
            broker.port = free_port();
            if broker.try_start() {
                return broker;
            }
        }
        panic!("mosquitto does not start: {}", broker.log());
    }

    /// As `with`, after writing a file that the lines name as `FOLDER/NAME`.
    pub(crate) fn with_file(settings: &str, name: &str, make: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make(&folder.path().join(name));
        let broker = Self::with(&settings.replace("FOLDER", folder.path().to_str().unwrap()));
        // The broker reads it at its start only.
        drop(folder);
        broker
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Killed, with nothing said to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ended in good order: it writes down what it is to remember.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// Starts again on the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        for _ in 0..100 {
            if self.try_start() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("mosquitto does not start again: {}", self.log());
    }

    /// It hangs, and its kernel goes on taking connections.
    pub(crate) fn hang(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Somebody else publishes with QoS 1.
    pub(crate) fn publish(&self, topic: &str, payload: &str, is_retained: bool) {
        let mut command = Command::new("mosquitto_pub");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        command.args(["-q", "1", "-t", topic, "-m", payload]);
        if is_retained {
            command.arg("-r");
        }
        assert!(command.status().unwrap().success());
    }

    /// The retained message of a topic, as somebody who comes now gets it.
    pub(crate) fn retained(&self, topic: &str) -> Option<String> {
        let output = Command::new("mosquitto_sub")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-t", topic, "-C", "1", "-W", "1"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }

    /// Somebody else listens to everything.
    pub(crate) fn listen(&self) -> Listener {
        let mut child = Command::new("mosquitto_sub")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-q", "1", "-t", "#", "-F", "%r %q %t %p"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(line);
            }
        });
        let listener = Listener { child, lines };
        // It hears us once it is subscribed.
        for round in 0..1_000 {
            self.publish("is/anybody/there", &round.to_string(), false);
            if !listener.payloads("is/anybody/there").is_empty() {
                return listener;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the listener never listens");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn try_start(&mut self) -> bool {
        let configuration = self.folder.path().join("mosquitto.conf");
        // With certificates in the settings the listener speaks TLS.
        let text = format!(
            "user root\nlistener {} {}\n{}",
            self.port, self.address, self.settings
        );
        fs::write(&configuration, text).unwrap();
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let mut child = Command::new("mosquitto")
            .arg("-v")
            .arg("-c")
            .arg(configuration)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("mosquitto is missing: tests/run installs it");
        for _ in 0..500 {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if self.log().contains(" running\n") {
                self.child = Some(child);
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        false
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Listener {
    /// All payloads so far.
    pub(crate) fn all(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let payloads = lines.iter().filter_map(|line| line.splitn(4, ' ').nth(3));
        payloads.map(str::to_owned).collect()
    }

    /// The payloads that came on `topic` so far.
    pub(crate) fn payloads(&self, topic: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter_map(|line| {
                let mut words = line.splitn(4, ' ');
                (words.nth(2) == Some(topic)).then(|| words.next().unwrap_or_default().to_owned())
            })
            .collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended with its broker.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Self { folder };
        authority.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
             -subj /CN={name} -keyout ca.key -out ca.crt"
        ));
        authority
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.crt")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `NAME.crt` and `NAME.key` for `host` (`IP:127.0.0.1`), valid for `days` from
    /// `shift_days` on.
    pub(crate) fn issue(&self, name: &str, host: &str, days: u32, shift_days: i32) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} \
             -keyout {name}.key -out {name}.csr"
        ));
        fs::write(self.path("extensions"), format!("subjectAltName={host}\n")).unwrap();
        let sign = format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days {days} \
             -extfile extensions -out {name}.crt"
        );
        let mut command = Command::new("faketime");
        command.args(["-f", &format!("{shift_days:+}d"), "openssl"]);
        self.run(command, &sign);
    }

    fn openssl(&self, arguments: &str) {
        self.run(Command::new("openssl"), arguments);
    }

    fn run(&self, mut command: Command, arguments: &str) {
        let output = command
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {said}");
    }
}

/// Someone who wants to connect to `url`.
pub(crate) fn access(url: &str) -> Access {
    Access {
        uplink: Uplink {
            url: Some(url.to_owned()),
            ..Uplink::default()
        },
        client_id: "sitebeat-depot-gw".into(),
        will: Message {
            topic: "node/gw".into(),
            payload: b"gone".to_vec(),
            retain: true,
        },
        subscription: Some("ack/gw".into()),
    }
}

pub(crate) fn with_user(mut access: Access, user: &str, password: &str) -> Access {
    access.uplink.username = Some(user.to_owned());
    access.uplink.password = Some(Secret::new(password.to_owned()));
    access
}

pub(crate) fn message(topic: &str, payload: &str) -> Message {
    Message {
        topic: topic.to_owned(),
        payload: payload.as_bytes().to_vec(),
        retain: false,
    }
}

/// What happens next, within a limit.
pub(crate) async fn next(mqtt: &mut Mqtt) -> Happening {
    next_within(mqtt, SOON).await
}

pub(crate) async fn next_within(mqtt: &mut Mqtt, limit: Duration) -> Happening {
    let next = tokio::time::timeout(limit, mqtt.next()).await;
    next.unwrap_or_else(|_| panic!("nothing happens within {limit:?}"))
}

/// Opens, which must succeed; whether the session was resumed.
pub(crate) async fn open(mqtt: &mut Mqtt, access: &Access) -> bool {
    mqtt.open(access);
    match next(mqtt).await {
        Happening::Open { is_resumed } => is_resumed,
        other => panic!("not open: {other:?}"),
    }
}

/// Opens, and waits until the broker has worked off all that comes with it, the
/// subscription above all.
pub(crate) async fn settle(mqtt: &mut Mqtt, access: &Access) {
    open(mqtt, access).await;
    mqtt.publish(u64::MAX, message("settled", ""));
    assert_eq!(next(mqtt).await, Happening::Taken { token: u64::MAX });
}

/// Opens, which must fail.
pub(crate) async fn refused(mqtt: &mut Mqtt, access: &Access) -> Loss {
    mqtt.open(access);
    lost(mqtt).await
}

/// The loss that comes next, whatever else is told before it.
pub(crate) async fn lost(mqtt: &mut Mqtt) -> Loss {
    loop {
        if let Happening::Lost(loss) = next(mqtt).await {
            return loss;
        }
    }
}

/// Waits for a condition while the connections go on.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never happens that {what}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
