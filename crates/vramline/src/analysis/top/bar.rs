//! The ledger of a device as the parts of a bar. They add up to the device's total, because the ledger does.

use crate::ledger::{Ledger, What};

/// A part of a device's bar. Every leaf of a ledger is in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarPart {
    /// Reserved by the driver.
    DriverReserved,
    /// In use in the pools of recorded processes.
    InUse,
    /// Cached by their pools.
    CachedFree,
    /// What they hold outside their pools.
    ContextAndOutside,
    /// What they hold besides the bytes in use, if the size of their pools is unknown.
    ContextCachedAndOutside,
    /// On the CPU: what they hold outside their pools. There is no context.
    ProgramsOwn,
    /// On the CPU: what they hold besides the bytes in use, if the size of their pools is unknown.
    CachedAndProgramsOwn,
    /// Pages of a pool on the CPU that were never touched; negative.
    NotResident,
    /// What processes without a recording hold.
    OtherProcesses,
    /// Used, but in no list of processes.
    Unattributed,
    /// Free.
    Free,
}

words!(BarPart {
    DriverReserved => "driver reserved",
    InUse => "in use",
    CachedFree => "cached free",
    ContextAndOutside => "context and outside",
    ContextCachedAndOutside => "context, cached and outside",
    ProgramsOwn => "the program's own",
    CachedAndProgramsOwn => "cached and the program's own",
    NotResident => "not resident",
    OtherProcesses => "other processes",
    Unattributed => "unattributed",
    Free => "free",
});

impl BarPart {
    /// The part that a leaf of a ledger is in.
    fn of(what: &What, is_stand_in: bool) -> BarPart {
        match what {
            What::Job(_) | What::HostMerged | What::HostRest if is_stand_in => BarPart::CachedAndProgramsOwn,
            What::Reserved => BarPart::DriverReserved,
            What::InUse | What::Role(_) | What::Slack | What::Before => BarPart::InUse,
            What::Cached => BarPart::CachedFree,
            // A process has one line if its pools are unknown.
            What::Merged | What::Rest | What::Job(_) | What::HostMerged | What::HostRest => {
                BarPart::ContextCachedAndOutside
            }
            What::Host => BarPart::ProgramsOwn,
            What::Pool(..) | What::Unexplained(_) if is_stand_in => BarPart::ProgramsOwn,
            What::NotResident => BarPart::NotResident,
            What::Other(..) => BarPart::OtherProcesses,
            What::Free => BarPart::Free,
            What::Unattributed | What::Device | What::Processes => BarPart::Unattributed,
            What::Context(_)
            | What::EstimatedContext
            | What::EstimatedLibraries
            | What::EstimatedStep(_)
            | What::Pool(..)
            | What::Outside(_)
            | What::Beside
            | What::Held(_)
            | What::PageRounding
            | What::Unexplained(_) => BarPart::ContextAndOutside,
        }
    }
}

/// A stretch of a device's bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarStretch {
    /// What it stands for.
    pub part: BarPart,
    /// Its bytes.
    pub bytes: i64,
}

/// Sums up a ledger's leaves. A line whose parts are not known is a leaf.
pub(super) fn bar(ledger: &Ledger) -> Vec<BarStretch> {
    let is_leaf =
        |place: usize| !ledger.lines.iter().any(|part| part.of == Some(place) && part.bytes.is_some());
    let lines = ledger.lines.iter().enumerate().filter(|(place, _)| is_leaf(*place));
    let leaves: Vec<(BarPart, i64)> = lines
        .filter_map(|(_, line)| Some((BarPart::of(&line.what, ledger.is_stand_in), line.bytes?)))
        .collect();
    let stretch = |part: BarPart| {
        let bytes = leaves.iter().filter(|(of, _)| *of == part).map(|(_, bytes)| *bytes);
        BarStretch { part, bytes: bytes.fold(0, i64::saturating_add) }
    };
    let all = BarPart::ALL.into_iter().map(stretch);
    all.filter(|stretch| stretch.bytes != 0 || stretch.part == BarPart::Free).collect()
}
