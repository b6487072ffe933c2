//! The real program as a child process, in a folder and on a port of its own.
//!
//! The port is the kernel's choice (`web.listen = 127.0.0.1:0`); the program
//! logs where the page is. A child that a test forgets is killed with its guard.
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::print_stdout,
    reason = "shared by test programs and a benchmark, each of which uses a part"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longest wait for anything that should come at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A running program.
pub(crate) struct Program {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    log_reader: Option<JoinHandle<()>>,
}

/// How to start one.
pub(crate) struct Launch {
    command: Command,
}

/// An answer to a GET.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Launch {
    /// The program with these arguments, in `folder`, on a port of its own, with
    /// an empty environment but for the path.
    pub(crate) fn new(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sitebeat"));
        command.args(arguments);
        Self { command }.settle(folder)
    }

    /// The program under another one (`ip netns exec NAME`, `setpriv ...`).
    pub(crate) fn under(wrapper: &[&str], folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(env!("CARGO_BIN_EXE_sitebeat"))
            .args(arguments);
        Self { command }.settle(folder)
    }

    fn settle(mut self, folder: &Path) -> Self {
        self.command
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("SITEBEAT__WEB__LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self
    }

    /// Sets one configuration key through the environment.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        let name = format!("SITEBEAT__{}", key.to_uppercase().replace('.', "__"));
        self.command.env(name, value);
        self
    }

    /// Sets a variable of the environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Adds an argument.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Starts it and reads its log from here on.
    pub(crate) fn start(mut self) -> Program {
        let mut child = self.command.spawn().expect("the program starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let kept = Arc::clone(&log);
        let log_reader = thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        Program {
            child,
            log,
            log_reader: Some(log_reader),
        }
    }

    /// Starts it and reads its log no further than to the page's address; what
    /// comes back is the end of the pipe that nobody reads.
    pub(crate) fn start_unread(mut self) -> (Program, BufReader<ChildStderr>) {
        let mut child = self.command.spawn().expect("the program starts");
        let mut pipe = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut log = vec![String::new()];
        while !log
            .last()
            .is_some_and(|line| line.contains("page on http://"))
        {
            let mut line = String::new();
            assert!(pipe.read_line(&mut line).expect("text") > 0, "{log:?}");
            log.push(line);
        }
        let log = Arc::new(Mutex::new(log));
        let log_reader = None;
        let program = Program {
            child,
            log,
            log_reader,
        };
        (program, pipe)
    }

    /// Runs it to its end, at most [`SOON`].
    pub(crate) fn run(self) -> (ExitStatus, String, String) {
        let mut program = self.start();
        let mut stdout = program.child.stdout.take().expect("stdout is piped");
        let reader = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("text");
            text
        });
        let status = program.wait();
        // Its end closes the pipe; what was written before may still be in it.
        let log_reader = program.log_reader.take().expect("the log is read");
        log_reader.join().expect("the reader ends");
        let log = program.log();
        (status, reader.join().expect("the reader ends"), log)
    }
}

impl Program {
    /// Where its page is, once it says so.
    pub(crate) fn address(&self) -> SocketAddr {
        wait_for("the page's address in the log", || {
            let log = self.log.lock().unwrap();
            let line = log.iter().find(|line| line.contains("page on http://"))?;
            let rest = line.split("page on http://").nth(1)?;
            rest.split('/').next()?.parse().ok()
        })
    }

    /// Everything logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits for a line of the log that holds `text`.
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Waits for its end, at most [`SOON`].
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the program's end", || {
            self.child.try_wait().expect("a child of ours")
        })
    }

    /// Stops it as a service manager does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Stops it as a power cut does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child of ours");
    }

    /// GETs a path of its page.
    pub(crate) fn get(&self, path: &str) -> Answer {
        get(self.address(), path)
    }

    /// GETs a JSON document, which must answer 200.
    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Waits until the counts of `devices` satisfy `wanted`.
    pub(crate) fn wait_for_counts(&self, wanted: impl Fn(&Value) -> bool) {
        wait_for("the wanted counts", || {
            let counts = self.json("/api/v1/devices?per_page=1")["counts"].clone();
            wanted(&counts).then_some(())
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().expect("it runs");
            self.child.wait().expect("a child of ours");
        }
        if thread::panicking() {
            println!("--- log of the program\n{}", self.log());
        }
    }
}

/// Asks again and again until there is an answer, at most [`SOON`].
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_up_to(SOON, what, look)
}

/// Asks again and again until there is an answer, at most `limit`.
pub(crate) fn wait_up_to<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(waited < limit, "waited {limit:?} for {what}");
        thread::sleep(pause);
        waited += pause;
    }
}

/// GETs a path; any status is an answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    try_get(address, path).expect("the page answers")
}

/// GETs a path; `None` where nobody answers.
pub(crate) fn try_get(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, SOON).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// A folder with an inventory of `n` loopback devices, D1 to Dn.
pub(crate) fn site_folder(n: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_inventory(folder.path(), n);
    folder
}

/// Writes `config/devices.csv` with `n` loopback devices and returns its path.
pub(crate) fn write_inventory(folder: &Path, n: u32) -> PathBuf {
    let rows: Vec<(String, String)> = (1..=n)
        .map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            (format!("D{n}"), format!("127.1.{high}.{low}"))
        })
        .collect();
    write_devices(folder, &rows)
}

/// Writes `config/devices.csv` with these ids and addresses.
pub(crate) fn write_devices(folder: &Path, rows: &[(String, String)]) -> PathBuf {
    let path = folder.join("config/devices.csv");
    std::fs::create_dir_all(folder.join("config")).expect("a folder");
    let mut text = String::from("device_id,address\n");
    for (id, address) in rows {
        text.extend([id, ",", address, "\n"]);
    }
    let draft = path.with_extension("new");
    std::fs::write(&draft, text).expect("the inventory");
    std::fs::rename(&draft, &path).expect("the inventory");
    path
}
