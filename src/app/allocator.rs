//! Settings of the allocator, which it takes only as a process starts.
//!
//! Floor 4. `app::main` calls this first of all in a process that is to stay.
//!
//! glibc gives a block above a threshold straight back to the system, but raises the
//! threshold to the size of any such block that is freed (mallopt(3)). sled frees
//! blocks of 4 and 2 MB with every database that it closes, at midnight and after
//! views of past days. From then on those of each open database are cleared by hand,
//! and so resident in full, and what lies free at the end of a heap stays: 12 MB after
//! twelve views of `/history` with two months left open, with these settings 3.
//!
//! Who sets the same by the environment has the last word.

use std::io;

/// Where glibc looks for its settings, `name=value` with colons between.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Says that the program has been started with them. Where the file has privileges
/// of its own glibc forgets its settings, and starting again would never end.
const MARK: &str = "SITEBEAT_ALLOCATOR_SET";

/// A setting of glibc and the older variable that stands for the same.
struct Setting {
    name: &'static str,
    value: &'static str,
    older: &'static str,
}

const SETTINGS: [Setting; 2] = [
    // Heaps of each thread's own keep memory that another thread gave back.
    Setting {
        name: "glibc.malloc.arena_max",
        value: "1",
        older: "MALLOC_ARENA_MAX",
    },
    // What glibc begins with; a threshold that is set is not raised.
    Setting {
        name: "glibc.malloc.mmap_threshold",
        value: "131072",
        older: "MALLOC_MMAP_THRESHOLD_",
    },
];

/// Starts the program anew in this process, with the same arguments and the
/// settings in its environment; the call in code would be an unsafe one. Comes back
/// where nothing is to be set, or with the reason why it could not.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn settle() -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;
    let Some(tunables) = wanted(|name| std::env::var_os(name)?.into_string().ok()) else {
        return Ok(());
    };
    let mut arguments = std::env::args_os();
    let mut program = std::process::Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        program.arg0(name);
    }
    program.args(arguments).env(TUNABLES, tunables);
    Err(program.env(MARK, "1").exec())
}

/// Other allocators have other habits.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn settle() -> io::Result<()> {
    Ok(())
}

/// The value of [`TUNABLES`] to start with; `None` where this environment has it all.
#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu")),
    expect(dead_code, reason = "only glibc has these settings")
)]
fn wanted(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    if variable(MARK).is_some() {
        return None;
    }
    let given = variable(TUNABLES).unwrap_or_default();
    let is_missing =
        |setting: &&Setting| !given.contains(setting.name) && variable(setting.older).is_none();
    let mut all: Vec<String> = SETTINGS
        .iter()
        .filter(is_missing)
        .map(|setting| format!("{}={}", setting.name, setting.value))
        .collect();
    if all.is_empty() {
        return None;
    }
    if !given.is_empty() {
        all.insert(0, given);
    }
    Some(all.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_sets_stays_and_the_rest_is_set_once() {
        let of = |variables: &[(&str, &str)]| {
            wanted(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let (arenas, threshold) = (
            "glibc.malloc.arena_max=1",
            "glibc.malloc.mmap_threshold=131072",
        );
        let both = format!("{arenas}:{threshold}");
        assert_eq!(of(&[]), Some(both.clone()));
        assert_eq!(of(&[("MALLOC_ARENA_MAX", "4")]), Some(threshold.into()));
        let other = "glibc.malloc.check=1";
        assert_eq!(of(&[(TUNABLES, other)]), Some(format!("{other}:{both}")));
        let own = "glibc.malloc.mmap_threshold=65536";
        assert_eq!(of(&[(TUNABLES, own)]), Some(format!("{own}:{arenas}")));
        assert_eq!(of(&[(TUNABLES, &both)]), None);
        assert_eq!(of(&[(MARK, "1")]), None);
    }
}
