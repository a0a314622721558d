//! Counters read in the background, at a steady pace.
//!
//! The thread waits, reads the kernel's figures and writes without asking the program for anything. What only the
//! framework knows comes from a function that the caller gives; it may be slow or find nothing, and then the kernel's figures
//! stand alone.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::process::ProcessRecorder;
use super::request::RequestWatch;
use super::rows::{Counters, Moment, Sample};

/// A thread that samples until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Samples every `pace` into `recorder`. `counters` is told whether a new request for a snapshot lies in the folder. `None` where the
    /// system gives no thread.
    pub fn start(
        recorder: Arc<ProcessRecorder>,
        pace: Duration,
        mut counters: impl FnMut(bool) -> Vec<Counters> + Send + 'static,
    ) -> Option<Sampler> {
        let (stop, stopped) = channel();
        let mut requests = RequestWatch::new(recorder.folder());
        let sample = move || {
            while stopped.recv_timeout(pace) == Err(RecvTimeoutError::Timeout) {
                let read = counters(requests.has_new());
                let (time, resident) = (Moment::now(), resident_bytes());
                let row = |counters| Sample { time, resident, counters };
                let samples: Vec<Sample> = if read.is_empty() {
                    vec![row(None)]
                } else {
                    read.into_iter().map(|read| row(Some(read))).collect()
                };
                // A sample that cannot be written is one sample less.
                let _ = recorder.samples(&samples);
            }
        };
        let thread = std::thread::Builder::new().name("vramline-sample".into()).spawn(sample).ok()?;
        Some(Sampler { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends the thread and waits for it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Host memory that this process holds, as the kernel says.
#[must_use]
pub fn resident_bytes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(i64::try_from(rustix::param::page_size()).ok()?)
}
