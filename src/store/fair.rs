//! A lock that who waits for it gets next.
//!
//! The standard one goes to whoever asks first when it is free. One who reads in
//! slices, and takes it again at once after each, would keep a flush waiting for
//! seconds.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something behind such a lock.
#[derive(Debug, Default)]
pub(super) struct Fair<T> {
    /// Held while waiting only: who comes back queues up behind who waits.
    gate: Mutex<()>,
    held: Mutex<T>,
}

impl<T> Fair<T> {
    pub(super) const fn new(value: T) -> Self {
        Self {
            gate: Mutex::new(()),
            held: Mutex::new(value),
        }
    }

    /// Waits for it.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let gate = lock(&self.gate);
        let held = lock(&self.held);
        drop(gate);
        held
    }

    /// Takes it only if nobody has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.held.try_lock().ok()
    }
}

/// Takes a lock that no panic spoils.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Panics of sled are caught below; a panic of ours leaves whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_waits_gets_in_before_one_who_comes_back() {
        let fair = Fair::new(0_u32);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    let mut turns = fair.lock();
                    *turns += 1;
                    thread::sleep(Duration::from_millis(2));
                }
            });
            for _ in 0..50 {
                let before = *fair.lock();
                // Generous: a turn under way and one that was let in before us.
                assert!(*fair.lock() <= before + 5);
            }
            is_done.store(true, Ordering::SeqCst);
        });
    }
}
