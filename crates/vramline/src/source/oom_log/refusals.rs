//! Refusals of the driver when a pool grows. A pool tries again with a tenth less each time, so a refusal alone does no harm.

use crate::failure::{Dialect, Failure, SizeRange, SoftFailures, Witness};
use crate::units::Bytes;

/// A program that dies within this many lines of the last refusal died of it.
const DEADLY_LINES: u64 = 100;

/// A log that goes on for more lines than these shows that the program did.
const GOES_ON_LINES: u64 = 4;

/// Refusals that are not assigned to a failure yet.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    first: Option<Witness>,
    last_line: u64,
    count: u64,
    largest: Option<Bytes>,
    /// Whether the program died soon after the last.
    is_fatal: bool,
}

impl Refusals {
    /// Adds a refusal.
    pub(crate) fn add(&mut self, witness: Witness, line: u64, bytes: Bytes) {
        self.first.get_or_insert(witness);
        self.last_line = line;
        self.count += 1;
        self.largest = self.largest.max(Some(bytes));
        self.is_fatal = false;
    }

    /// The program died.
    pub(crate) fn died(&mut self, line: u64) {
        self.is_fatal |= line.saturating_sub(self.last_line) <= DEADLY_LINES;
    }

    /// The largest of them, for the failure that they led to.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        std::mem::take(self).largest
    }

    /// Marks them as harmless.
    pub(crate) fn forget(&mut self, soft: &mut SoftFailures) {
        let refusals = std::mem::take(self);
        soft.refusals += refusals.count;
        soft.largest_refusal = soft.largest_refusal.max(refusals.largest);
    }

    /// What they are where nothing claimed them: the program died of them, they are the log's last word, or it went on.
    pub(crate) fn conclude(&mut self, last_line: u64, soft: &mut SoftFailures) -> Option<Failure> {
        let is_last_word = last_line.saturating_sub(self.last_line) <= GOES_ON_LINES;
        if !self.is_fatal && !is_last_word {
            self.forget(soft);
            return None;
        }
        let refusals = std::mem::take(self);
        let mut failure = Failure::new(Dialect::DriverRefusal);
        failure.witnesses.push(refusals.first?);
        failure.refused = refusals.largest;
        failure.requested = refusals.largest.map(SizeRange::exact);
        failure.rounded = failure.requested;
        failure.attempts = refusals.count;
        Some(failure)
    }
}
