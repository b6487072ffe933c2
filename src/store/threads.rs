//! The threads that sled keeps.
//!
//! Floor 2. `store::opening` opens the first database under this, which is when
//! sled starts them.

/// How late the timers of sled's threads may fire.
#[cfg(target_os = "linux")]
const LAZY_NANOS: u64 = 500_000_000;

/// Does `work`, whose new threads get timers that may fire late. sled keeps seven
/// idle threads that each look for work once a second, for ever; with slack the
/// kernel wakes them together. Work that is handed to them still wakes them at
/// once. See `PR_SET_TIMERSLACK` in prctl(2): threads inherit it.
#[cfg(target_os = "linux")]
pub(super) fn with_lazy_timers<T>(work: impl FnOnce() -> T) -> T {
    use nix::sys::prctl::{get_timerslack, set_timerslack};
    let before = get_timerslack()
        .ok()
        .and_then(|nanos| u64::try_from(nanos).ok());
    let is_set = before.is_some() && set_timerslack(LAZY_NANOS).is_ok();
    let done = work();
    if let Some(before) = before.filter(|_| is_set)
        && let Err(fault) = set_timerslack(before)
    {
        tracing::warn!(error = %fault, "timers of this thread may fire half a second late");
    }
    done
}

#[cfg(not(target_os = "linux"))]
pub(super) fn with_lazy_timers<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use nix::sys::prctl::get_timerslack;

    #[test]
    fn only_threads_started_meanwhile_are_lazy() {
        let before = get_timerslack().unwrap();
        let within = with_lazy_timers(|| {
            std::thread::spawn(|| get_timerslack().unwrap())
                .join()
                .unwrap()
        });
        assert_eq!(u64::try_from(within), Ok(LAZY_NANOS));
        assert_eq!(get_timerslack().unwrap(), before);
    }
}
