//! A program that nobody recorded, through an allocator: how high each part of it goes, and what it needs to pass.
//!
//! Where the driver would put regions is made up, since nobody knows.

use super::program::Program;
use super::torch_caching::{self, Before};
use super::what_if::{self, Driven, Failure};
use super::{NO_LIMIT, Rules};
use crate::allocator::bfc::Bfc;
use crate::allocator::{Placed, Placement};
use crate::units::Bytes;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal<'a> {
    /// The requests and frees.
    pub program: &'a Program,
    /// The allocator.
    pub rules: &'a Rules,
    /// What the pool may take; `None` for as much as it wants.
    pub limit: Option<Bytes>,
    /// Where regions are put.
    pub placement: Placement,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Rehearsed {
    /// The most in use from each cut to the next; the first is before the first cut.
    pub peaks: Vec<Bytes>,
    /// The act at which the most is in use in each.
    pub peaks_at: Vec<usize>,
    /// The most in use.
    pub peak: Bytes,
    /// The most taken from the driver.
    pub pool: Bytes,
    /// The first request that was not served.
    pub failure: Option<Failure>,
}

impl Rehearsal<'_> {
    /// Runs it, and tells the peaks between acts in ascending order. `None` where no such pool can be made.
    #[must_use]
    pub fn run(&self, cuts: &[usize]) -> Option<Rehearsed> {
        let mut peaks = vec![Bytes::ZERO; cuts.len() + 1];
        let mut peaks_at = vec![0; cuts.len() + 1];
        let mut part = 0;
        let tell = |act: usize, in_use: Bytes| {
            while cuts.get(part).is_some_and(|&cut| cut <= act) {
                part += 1;
            }
            if let (Some(peak), Some(at)) = (peaks.get_mut(part), peaks_at.get_mut(part))
                && in_use > *peak
            {
                (*peak, *at) = (in_use, act);
            }
        };
        let driven = self.drive(tell)?;
        let Driven { peak, pool, failure, .. } = driven;
        Some(Rehearsed { peaks, peaks_at, peak, pool, failure })
    }

    fn drive(&self, tell: impl FnMut(usize, Bytes)) -> Option<Driven> {
        let acts = &self.program.acts;
        let mut supplier = Placed::new(self.placement);
        match self.rules {
            Rules::Bfc(preset) => {
                let limit = preset.options.limit(self.limit.unwrap_or(NO_LIMIT));
                let mut bfc = Bfc::new("", limit, preset.options)?;
                Some(what_if::drive(self.program, acts, &[], &mut bfc, &mut supplier, tell))
            }
            Rules::Torch(rules) => {
                let mut options = rules.options;
                options.cap = self.limit;
                let (before, flushes) = (Before::Asked(&[]), &rules.driver.flushes);
                Some(torch_caching::drive(self.program, acts, before, options, flushes, &mut supplier, tell))
            }
        }
    }

    /// Whether every request is served.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.drive(|_, _| ()).is_some_and(|driven| driven.failure.is_none())
    }

    /// Whether every request is served where those that find no room wait for other threads, as TensorFlow's do.
    #[must_use]
    pub fn passes_by_waiting(&self) -> bool {
        let Rules::Bfc(preset) = self.rules else { return self.passes() };
        let limit = preset.options.limit(self.limit.unwrap_or(NO_LIMIT));
        let Some(mut bfc) = Bfc::new("", limit, preset.options) else { return false };
        let mut supplier = Placed::new(self.placement);
        what_if::drive_waiting(self.program, &self.program.acts, &[], &mut bfc, &mut supplier).is_some()
    }
}
