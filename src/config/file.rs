//! Files on disk, read within bounds.
//!
//! Floor 1. `layer` reads configuration through it, `check` the files that hold
//! secrets, `inventory` its file.
//!
//! # Invariants
//!
//! - No more than the given limit of a file is held in memory, whatever its
//!   length says (a device file has none).
//! - What is said about a file never quotes it: it may hold a secret.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::Table;

use super::{Environment, Faults};

/// Longest configuration file.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// One configuration file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Whether it is a folder's `default.toml`.
    pub(super) is_base: bool,
}

/// The files that hold for `path` in `env`, lower layer first. `None` looks for
/// `default_folder`.
pub(super) fn layers(
    path: Option<&Path>,
    env: Environment,
    default_folder: &Path,
    faults: &mut Faults,
) -> Vec<Layer> {
    let Some(path) = path else {
        return in_folder(default_folder, env);
    };
    match path.metadata() {
        Err(error) => {
            faults.add(format!(
                "{}: cannot be read ({error}): --config takes a file, or a folder with default.toml and {env}.toml",
                path.display()
            ));
            Vec::new()
        }
        Ok(about) if about.is_dir() => {
            let found = in_folder(path, env);
            if found.is_empty() {
                faults.add(format!(
                    "{}: holds neither default.toml nor {env}.toml",
                    path.display()
                ));
            }
            found
        }
        Ok(_) => vec![Layer {
            path: path.into(),
            is_base: false,
        }],
    }
}

fn in_folder(folder: &Path, env: Environment) -> Vec<Layer> {
    [
        ("default.toml".to_owned(), true),
        (format!("{env}.toml"), false),
    ]
    .map(|(name, is_base)| Layer {
        path: folder.join(name),
        is_base,
    })
    .into_iter()
    // A file that is there but cannot be read is reported when it is read.
    .filter(|layer| layer.path.symlink_metadata().is_ok())
    .collect()
}

/// The content of a TOML file, or what is wrong with it.
pub(super) fn table(path: &Path) -> Result<Table, String> {
    let bytes = bytes(path, CONFIG_BYTES_MAX)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    let text = text(&bytes).map_err(|why| format!("{}: {why}", path.display()))?;
    text.parse()
        .map_err(|error| format!("{}{}", path.display(), syntax(text, &error)))
}

/// `:LINE:COLUMN: what is wrong`, to follow the path.
pub(super) fn syntax(text: &str, error: &toml::de::Error) -> String {
    let offset = error.span().map_or(0, |span| span.start);
    let (line, column) = line_and_column(text, offset);
    format!(":{line}:{column}: is not TOML: {}", error.message())
}

/// Line and column of a byte, both from 1.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}

/// Counts lines up to ascending places in a text, each line once.
pub(super) struct LineCounter<'a> {
    text: &'a str,
    reached: usize,
    line: usize,
}

impl<'a> LineCounter<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            text,
            reached: 0,
            line: 1,
        }
    }

    /// The line of the byte at `offset`, from 1.
    pub(super) fn line_of(&mut self, offset: usize) -> usize {
        if let Some(passed) = self.text.get(self.reached..offset) {
            self.line += passed.matches('\n').count();
            self.reached = offset;
        }
        self.line
    }
}

/// The bytes as text, without a byte order mark.
pub(super) fn text(bytes: &[u8]) -> Result<&str, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.split(|&byte| byte == b'\n').count();
            Err(format!("line {line} is not UTF-8: save the file as UTF-8"))
        }
    }
}

/// The content of a file of at most `limit` bytes.
pub(super) fn bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let kind = path.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder"));
    }
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&kind) {
        // Opening it would wait for as long as nobody writes.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a pipe"));
    }
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        Ok(bytes)
    } else {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("is larger than {limit} bytes"),
        ))
    }
}
