//! Threads that share the work of a command.

use std::thread::ScopedJoinHandle;

/// Waits for a worker and gives what it made. A panic of the worker goes on in the caller: without the worker's part the
/// result would be wrong and look right.
pub(crate) fn joined<Made>(worker: ScopedJoinHandle<'_, Made>) -> Made {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_worker_is_the_callers() {
        let checked = |number: u64| if number > 0 { number } else { std::panic::panic_any("nothing") };
        let sum = |numbers: [u64; 3]| {
            std::thread::scope(|threads| {
                let workers = numbers.map(|number| threads.spawn(move || checked(number)));
                workers.into_iter().map(joined).sum::<u64>()
            })
        };
        assert_eq!(sum([1, 2, 3]), 6);
        let panic = std::panic::catch_unwind(|| sum([1, 0, 3])).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"nothing"));
    }
}
