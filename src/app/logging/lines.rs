//! Log lines on their way to standard error.
//!
//! Floor 4; `app::logging` writes through it. Standard error may be a pipe that
//! nobody reads or a journal that hangs: then a write waits for ever, and with it
//! whoever writes. So lines are put down here and written by a thread of their
//! own.
//!
//! # Invariants
//!
//! - Putting a line down never waits for its reader.
//! - At most [`HELD_BYTES_MAX`] wait; lines beyond are counted, and the count is
//!   written once there is room again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::app::cli::LogFormat;

/// Bytes that may wait: a reload that refuses a thousand rows fits.
const HELD_BYTES_MAX: usize = 4 << 20;

/// How long the last lines may take at the end of the program.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// Where lines are put down.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Sender<Vec<u8>>,
    held: Arc<Held>,
}

/// What waits, and what was not taken.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Lines {
    /// Lines that a thread writes to `out`. Where there is no thread to be had
    /// they are lost.
    pub(super) fn to(out: impl Write + Send + 'static, format: LogFormat) -> Self {
        let (lines, waiting) = mpsc::channel();
        let held = Arc::new(Held::default());
        let of_thread = Arc::clone(&held);
        let started = thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(&waiting, &of_thread, out, format));
        // Without its receiver the channel refuses, so nothing piles up.
        drop(started);
        Self { lines, held }
    }

    /// Waits until all is written, for a second at most.
    pub(super) fn finish(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let mut waited = Duration::ZERO;
        while self.held.bytes.load(Ordering::Acquire) > 0 && waited < LAST_WORDS_MAX {
            thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }
}

/// Writes to standard error, and gives up where it takes nothing for a second.
pub(super) fn last_words(text: &str) {
    let lines = Lines::to(io::stderr(), LogFormat::Text);
    drop((&lines).write_all(text.as_bytes()));
    lines.finish();
}

fn write_all(waiting: &Receiver<Vec<u8>>, held: &Held, mut out: impl Write, format: LogFormat) {
    while let Ok(line) = waiting.recv() {
        // A reader that has gone is nobody's fault, and there is nowhere to say so.
        drop(out.write_all(&line));
        held.bytes.fetch_sub(line.len(), Ordering::AcqRel);
        let lost = held.lost.swap(0, Ordering::AcqRel);
        if lost > 0 {
            let line = loss_note(lost, format);
            drop(out.write_all(line.as_bytes()));
        }
    }
}

fn loss_note(lost: u64, format: LogFormat) -> String {
    let note = format!("{lost} log lines were lost: standard error took them too slowly");
    match format {
        LogFormat::Text => format!("{note}\n"),
        LogFormat::Json => format!("{{\"level\":\"WARN\",\"message\":\"{note}\"}}\n"),
    }
}

impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bytes = &self.held.bytes;
        let before = bytes.fetch_add(line.len(), Ordering::AcqRel);
        let has_room = before.saturating_add(line.len()) <= HELD_BYTES_MAX;
        if !has_room || self.lines.send(line.to_vec()).is_err() {
            bytes.fetch_sub(line.len(), Ordering::AcqRel);
            self.held.lost.fetch_add(1, Ordering::AcqRel);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes nothing until it is let go.
    #[derive(Clone, Default)]
    struct Stuck(Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let poisoned = |_| io::Error::other("poisoned");
            self.0.lock().map_err(poisoned)?.extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_note_of_lost_lines_is_json_among_json() {
        let note: serde_json::Value = serde_json::from_str(&loss_note(5, LogFormat::Json)).unwrap();
        assert!(note["message"].as_str().unwrap().starts_with("5 log lines"));
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_nobody_waits() {
        let out = Stuck::default();
        let stuck = out.0.lock().unwrap();
        let lines = Lines::to(out.clone(), LogFormat::Text);
        let line = vec![b'x'; 1 << 20];
        for _ in 0..9 {
            (&lines).write_all(&line).unwrap();
        }
        drop(stuck);
        lines.finish();
        (&lines).write_all(b"after\n").unwrap();
        lines.finish();
        let written = out.0.lock().unwrap().clone();
        let text = String::from_utf8(written).unwrap();
        assert!(
            text.contains("5 log lines were lost"),
            "{}",
            text.trim_start_matches('x')
        );
        assert!(text.trim_end().ends_with("after"));
        assert_eq!(text.matches('x').count(), 4 << 20);
    }
}
