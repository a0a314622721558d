//! What the driver refused a pool that wanted to grow. A pool asks again, for a tenth less each time: that alone harms nobody.

use super::said::Refused;
use crate::failure::{Dialect, Failure, Platform, SizeRange, SoftFailures, Witness};
use crate::units::Bytes;

/// Within so many lines of the last refusal a program dies of it.
pub(crate) const DEADLY_LINES: u64 = 100;

/// A log that goes on for more lines than these shows that the program did.
const GOES_ON_LINES: u64 = 4;

/// Refusals that belong to nothing yet.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    first: Option<Witness>,
    last_line: u64,
    count: u64,
    largest: Option<Bytes>,
    platform: Option<Platform>,
    /// Whether one was told as an error.
    is_error: bool,
    /// Whether the program died soon after the last.
    is_fatal: bool,
}

impl Refusals {
    /// One more.
    pub(crate) fn add(&mut self, witness: Witness, line: u64, refused: Refused) {
        self.first.get_or_insert(witness);
        self.last_line = line;
        self.count += 1;
        self.largest = self.largest.max(Some(refused.bytes));
        self.platform = self.platform.or(refused.platform);
        self.is_error |= !refused.is_info;
        self.is_fatal = false;
    }

    /// The program died.
    pub(crate) fn died(&mut self, line: u64) {
        self.is_fatal |= line.saturating_sub(self.last_line) <= DEADLY_LINES;
    }

    /// The largest of them, for the failure that they led to.
    pub(crate) fn take(&mut self) -> Option<Refused> {
        let refusals = std::mem::take(self);
        Some(Refused { bytes: refusals.largest?, platform: refusals.platform, is_info: !refusals.is_error })
    }

    /// Whether the driver refused something shortly before a line.
    pub(crate) fn are_near(&self, line: u64) -> bool {
        self.count > 0 && line.saturating_sub(self.last_line) <= DEADLY_LINES
    }

    /// Whether they are of a request that failed in a line before.
    pub(crate) fn are_of(&self, requested: SizeRange, line: u64) -> bool {
        let is_it = |largest| requested.and(SizeRange::exact(largest)).is_some();
        self.largest.is_some_and(is_it) && self.last_line.saturating_sub(line) <= DEADLY_LINES
    }

    /// They harmed nobody.
    pub(crate) fn forget(&mut self, soft: &mut SoftFailures) {
        let refusals = std::mem::take(self);
        soft.refusals += refusals.count;
        soft.largest_refusal = soft.largest_refusal.max(refusals.largest);
    }

    /// What they are where nothing claimed them: the program died of them, they are the log's last word, or it went on.
    pub(crate) fn conclude(&mut self, last_line: u64, soft: &mut SoftFailures) -> Option<Failure> {
        // What is told for information only harms nobody: a program that dies of it says more.
        let is_last_word = self.is_error && last_line.saturating_sub(self.last_line) <= GOES_ON_LINES;
        if !self.is_fatal && !is_last_word {
            self.forget(soft);
            return None;
        }
        let refusals = std::mem::take(self);
        let mut failure = Failure::new(Dialect::DriverRefusal);
        failure.witnesses.push(refusals.first?);
        failure.refused = refusals.largest;
        failure.platform = refusals.platform;
        failure.requested = refusals.largest.map(SizeRange::exact);
        failure.rounded = failure.requested;
        failure.attempts = refusals.count;
        Some(failure)
    }
}
