//! The answer of a comparison in short: how much more or less each run needs than the first, and what makes most of that.

use std::cmp::Reverse;
use std::fmt;

use super::DiffBy;
use super::held::HeldPart;
use super::rows::{ComparedRow, Figure, rows_of};
use super::slots::Comparison;
use crate::analysis::held::HeldMoment;
use crate::snapshot::Role;
use crate::units::{Bytes, change_text};

/// The answer of a comparison; its text is a sentence for each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffVerdict {
    /// No slot has a pool of every run.
    NoCommonPool,
    /// The peak of the main pool is not known in every run.
    NoCommonPeak {
        /// The pool.
        pool: String,
    },
    /// There is nothing to compare with.
    OneRun,
    /// One answer for each run but the first.
    Compared(Vec<RunVerdict>),
}

/// How far the peak of a run is from that of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunVerdict {
    /// The run.
    pub run: String,
    /// The first run.
    pub base: String,
    /// Which peak is compared.
    pub peak: VerdictPeak,
    /// The first run's peak.
    pub base_bytes: Bytes,
    /// The run's peak less the first run's.
    pub delta: i64,
    /// What makes the difference, where there is one and a trace shows it.
    pub cause: Option<PeakCause>,
    /// The most that repeats of one run differ by, where the difference is no more than that.
    pub spread: Option<Bytes>,
}

/// The peak that a verdict is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictPeak {
    /// That of one of several pools of a program: the verdict says which.
    Pool(String),
    /// The highest figure of the whole run.
    Run,
    /// What was held when a file was written, of which no history knows the peak.
    Dump,
    /// The peak in the trace.
    Trace,
}

/// What makes the difference between two peaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeakCause {
    /// Nothing in the traces, whose peaks are the same.
    TracedSame,
    /// Nothing in the traces, whose peaks differ by this in the other direction.
    TracedOtherWay(i64),
    /// Little of it is in the traces, whose peaks differ by this.
    TracedLess(i64),
    /// The traces show it.
    Traced {
        /// What changed most.
        largest: Option<LargestPart>,
        /// By how much slack changed, where that is half of the difference or more.
        slack: Option<i64>,
    },
}

/// The part of what pools held that changed most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestPart {
    /// Which part.
    pub part: HeldPart,
    /// By how much.
    pub delta: i64,
    /// Whether it makes half of what changed in its direction, or more.
    pub is_most: bool,
}

impl Comparison<'_> {
    pub(super) fn verdict(
        &self,
        main: Option<usize>,
        rows: &[ComparedRow],
        has_few_common_ops: bool,
    ) -> DiffVerdict {
        let (Some(slot), Some(base)) = (main, self.sides.first()) else { return DiffVerdict::NoCommonPool };
        let mut peaks = rows_of(slot, rows, DiffBy::Device).filter(|row| row.is_known_in_every_run());
        let Some((peak, base_bytes)) = peaks.next().and_then(|peak| Some((peak, peak.bytes(0)?))) else {
            return DiffVerdict::NoCommonPeak { pool: self.label(slot).to_owned() };
        };
        let traced = rows_of(slot, rows, DiffBy::Device).find(|row| row.figure == Figure::Peak);
        let compared = match self.slots.get(slot) {
            Some(slot) if slot.device.is_empty() => VerdictPeak::Pool(slot.label.clone()),
            _ if self.pools(slot).any(|pool| pool.moment == HeldMoment::Dump) => VerdictPeak::Dump,
            _ if peak.figure == Figure::Ever => VerdictPeak::Run,
            _ => VerdictPeak::Trace,
        };
        let of_run = |(number, name): (usize, &String)| {
            let delta = peak.delta(number)?;
            let traced = traced.and_then(|row| row.delta(number)).filter(|_| delta != 0);
            // Ops of which the other run has few tell less than roles.
            let by = if has_few_common_ops { DiffBy::Role } else { DiffBy::Op };
            Some(RunVerdict {
                run: name.clone(),
                base: base.name.clone(),
                peak: compared.clone(),
                base_bytes,
                delta,
                cause: traced.map(|traced| RunRows { slot, rows, run: number }.cause(by, traced, delta)),
                spread: peak.spread.filter(|spread| delta.unsigned_abs() <= spread.0),
            })
        };
        let names = self.sides.iter().map(|side| &side.name).enumerate().skip(1);
        let runs: Vec<RunVerdict> = names.filter_map(of_run).collect();
        if runs.is_empty() { DiffVerdict::OneRun } else { DiffVerdict::Compared(runs) }
    }
}

/// The rows of a slot, seen from one run.
#[derive(Clone, Copy)]
struct RunRows<'a> {
    slot: usize,
    rows: &'a [ComparedRow],
    run: usize,
}

impl<'a> RunRows<'a> {
    fn parts(self, by: DiffBy) -> impl Iterator<Item = (&'a HeldPart, &'a ComparedRow, i64)> {
        let rows = rows_of(self.slot, self.rows, by);
        rows.filter_map(move |row| Some((row.part()?, row, row.delta(self.run).unwrap_or(0))))
    }

    /// What makes most of a difference of the traced peak.
    fn cause(self, by: DiffBy, traced: i64, delta: i64) -> PeakCause {
        if traced == 0 {
            return PeakCause::TracedSame;
        }
        if traced.signum() != delta.signum() {
            return PeakCause::TracedOtherWay(traced);
        }
        if traced.unsigned_abs() < delta.unsigned_abs() / 2 {
            return PeakCause::TracedLess(traced);
        }
        let mut largest = self.largest(by, traced.signum());
        // What has no name may have a role.
        if largest.as_ref().is_some_and(|largest| largest.part == HeldPart::Unnamed) {
            let by_role = self.largest(DiffBy::Role, traced.signum());
            largest = by_role.filter(|found| found.part != HeldPart::Role(Role::Unknown)).or(largest);
        }
        let slack = self.parts(by).find(|(part, ..)| **part == HeldPart::Slack).map(|(.., delta)| delta);
        let is_much = |slack: &i64| {
            slack.signum() == traced.signum() && slack.unsigned_abs() >= traced.unsigned_abs() / 2
        };
        PeakCause::Traced { largest, slack: slack.filter(is_much) }
    }

    /// The part of a grouping that changed most in a direction.
    fn largest(self, by: DiffBy, sign: i64) -> Option<LargestPart> {
        let is_asked = |part: &HeldPart, delta: i64| part.is_requested() && delta.signum() == sign;
        let mut found: Vec<_> = self.parts(by).filter(|(part, _, delta)| is_asked(part, *delta)).collect();
        // What repeats of one run differ by as well explains nothing, if there is anything else.
        if found.iter().any(|(_, row, _)| !row.within_spread) {
            found.retain(|(_, row, _)| !row.within_spread);
        }
        let all: u128 = found.iter().map(|(.., delta)| u128::from(delta.unsigned_abs())).sum();
        // Of a forward op and its gradient, which change alike, the forward op is the cause.
        let is_forward = |part: &HeldPart| match part {
            HeldPart::Op(name) => !name.starts_with("gradient"),
            part => *part != HeldPart::Role(Role::Gradients),
        };
        let (part, _, delta) = found.into_iter().max_by_key(|(part, _, delta)| {
            (delta.unsigned_abs(), is_forward(part), Reverse(part.to_string()))
        })?;
        let is_most = u128::from(delta.unsigned_abs()) * 2 >= all;
        Some(LargestPart { part: part.clone(), delta, is_most })
    }
}

/// The answer of a comparison in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffWord {
    /// The run needs more than the first.
    More,
    /// It needs less.
    Less,
    /// It needs the same.
    Same,
    /// There is nothing to compare.
    NotComparable,
}

words!(DiffWord { More => "more", Less => "less", Same => "same", NotComparable => "not-comparable" });

impl DiffVerdict {
    /// The run whose peak differs most from the first's.
    #[must_use]
    pub(crate) fn farthest(&self) -> Option<&RunVerdict> {
        let DiffVerdict::Compared(runs) = self else { return None };
        runs.iter().max_by_key(|run| run.delta.unsigned_abs())
    }

    /// The answer in a word.
    #[must_use]
    pub fn word(&self) -> DiffWord {
        match self.farthest().map(|run| run.delta.signum()) {
            Some(1) => DiffWord::More,
            Some(-1) => DiffWord::Less,
            Some(_) => DiffWord::Same,
            None => DiffWord::NotComparable,
        }
    }
}

impl fmt::Display for DiffVerdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiffVerdict::NoCommonPool => out.write_str("The runs have no pool in common."),
            DiffVerdict::NoCommonPeak { pool } => {
                write!(out, "The peak of {pool} is not known in every run.")
            }
            DiffVerdict::OneRun => out.write_str("There is only one run, so there is nothing to compare."),
            DiffVerdict::Compared(runs) => {
                for (number, run) in runs.iter().enumerate() {
                    out.write_str(if number > 0 { " " } else { "" })?;
                    run.fmt(out)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for RunVerdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunVerdict { run, base, peak, base_bytes, delta, cause, spread } = self;
        if *delta == 0 {
            return write!(out, "{run} and {base} use the same memory {peak}: {base_bytes}.");
        }
        let size = Bytes(delta.unsigned_abs());
        let share = share_text(size, *base_bytes);
        let word = if *delta > 0 { "more" } else { "less" };
        write!(out, "{run} uses {size}{share} {word} than {base} {peak}")?;
        if let Some(cause) = cause {
            cause.fmt(out)?;
        }
        out.write_str(".")?;
        match spread {
            Some(spread) => write!(out, " This is within the noise: repeats of one run differ by {spread}."),
            None => Ok(()),
        }
    }
}

impl fmt::Display for VerdictPeak {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerdictPeak::Pool(pool) => write!(out, "at the peak of '{pool}'"),
            VerdictPeak::Run => out.write_str("at the peak of the process"),
            VerdictPeak::Dump => out.write_str("at the moment of the dump"),
            VerdictPeak::Trace => out.write_str("at the peak"),
        }
    }
}

impl fmt::Display for PeakCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeakCause::TracedSame => out.write_str("; the traced steps use the same memory"),
            PeakCause::TracedOtherWay(traced) => {
                write!(
                    out,
                    "; the traced steps differ in the other direction, by {}",
                    Bytes(traced.unsigned_abs())
                )
            }
            PeakCause::TracedLess(traced) => {
                write!(out, "; the traced steps differ by only {}", Bytes(traced.unsigned_abs()))
            }
            PeakCause::Traced { largest, slack } => {
                if let Some(LargestPart { part, delta, is_most }) = largest {
                    let how = if *is_most { "most of it comes from" } else { "the largest part comes from" };
                    let kind = if matches!(part, HeldPart::Op(_)) { "op " } else { "" };
                    write!(out, "; {how} {kind}{part} ({})", change_text(*delta))?;
                }
                match slack {
                    Some(slack) => {
                        write!(out, "; rounding accounts for {}", change_text(*slack))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// ` (12.3 %)`; nothing beyond ten times as much, where a share says no more than the bytes.
pub(super) fn share_text(more: Bytes, base: Bytes) -> String {
    match more.share_of(base) {
        Some(share) if share < 10.0 => format!(" ({:.1} %)", share * 100.0),
        _ => String::new(),
    }
}
