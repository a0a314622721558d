//! The clocks of hosts, aligned by the steps that their ranks share.
//!
//! A collective step ends on all ranks at nearly the same time, whatever the clocks of their hosts show. So for each step that two hosts
//! share, the difference of the ends is the difference of the clocks. Vramline compares monotonic clocks: nobody sets them, and a
//! host whose date is wrong aligns like any other. The offset is the median over the steps; a drift is used only where it explains
//! most of what the offset leaves. What remains is the residual, and two moments of two hosts have no known order within it.

use std::collections::BTreeMap;

use super::summary::RankSummary;
use crate::recording::rows::Moment;
use crate::units::Nanos;

/// The minimum number of shared steps for an offset with a residual. Of fewer nothing shows how well they agree.
const MIN_STEPS: usize = 3;
/// The least that is stated as a residual. A collective operation itself does not end on all ranks at once, and what is always the same in that
/// looks like an offset.
const LEAST_RESIDUAL: i64 = 100_000;
/// The minimum number of shared steps for a drift.
const MIN_STEPS_FOR_DRIFT: usize = 8;
/// Steps whose pairs give the drift. All pairs of more would cost without telling more.
const MAX_STEPS_FOR_DRIFT: usize = 64;

/// The clock of a host, compared with the host of the lowest rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// The host.
    pub host: String,
    /// The number of its ranks.
    pub ranks: usize,
    /// How the alignment is known.
    pub by: AlignedBy,
    /// The number of shared steps that it rests on.
    pub steps: usize,
    /// What its wall clock is ahead of that of the first host; `None` where only the wall clocks themselves could tell.
    pub wall_ahead: Option<i64>,
    /// What its clock gains on that of the first host in a second, in nanoseconds; zero where the steps show no drift.
    pub drift: i64,
    /// What the shared steps still differ by after the alignment: nineteen of twenty are within it. At least what the ends of a step
    /// on one host differ by.
    pub residual: Option<Nanos>,
    /// The kernel's name for the time since the machine was booted.
    boot: Option<String>,
    line: Line,
}

/// How the clock of a host is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignedBy {
    /// It is the clock that the others are compared with.
    Reference,
    /// By the ends of shared steps.
    Steps,
    /// It is the same clock: another name of the first host's machine, since the same boot.
    SameMachine,
    /// By the wall clock alone: it shares too few steps with the others.
    WallClock,
}

words!(AlignedBy {
    Reference => "reference",
    Steps => "steps",
    SameMachine => "same-machine",
    WallClock => "wall-clock",
});

/// What to add to a monotonic clock to get that of the first host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    offset: i64,
    /// Nanoseconds a second, from `pivot` on.
    slope: i64,
    pivot: i64,
}

impl Line {
    fn at(self, monotonic: i64) -> i64 {
        let since = i128::from(monotonic) - i128::from(self.pivot);
        let drift = since * i128::from(self.slope) / 1_000_000_000;
        i64::try_from(i128::from(self.offset) + drift).unwrap_or(i64::MAX)
    }
}

impl HostClock {
    /// Whether it is the clock of a rank.
    #[must_use]
    pub fn is_of(&self, rank: &RankSummary) -> bool {
        self.host == rank.host && self.boot == rank.boot
    }

    /// A moment of this host on the monotonic clock of the first host.
    #[must_use]
    pub fn aligned(&self, monotonic: i64) -> i64 {
        monotonic.saturating_add(self.line.at(monotonic))
    }
}

/// The least time between a moment of one host and one of another from which on their order is known; `None` if it never is. On one host it is zero.
#[must_use]
pub fn least_between(one: &HostClock, other: &HostClock) -> Option<Nanos> {
    let is_same_boot = one.boot.is_some() && one.boot == other.boot;
    if is_same_boot || (&one.host, &one.boot) == (&other.host, &other.boot) {
        return Some(Nanos(0));
    }
    Some(Nanos(one.residual?.0.saturating_add(other.residual?.0)))
}

/// The clocks of all hosts, in the order of their lowest ranks.
#[must_use]
pub fn aligned(ranks: &[RankSummary]) -> Vec<HostClock> {
    let mut hosts: Vec<Host<'_>> = Vec::new();
    for rank in ranks {
        match hosts.iter_mut().find(|host| host.name == rank.host && host.boot == rank.boot.as_deref()) {
            Some(host) => host.add(rank),
            None => hosts.push(Host::new(rank)),
        }
    }
    let Some(first) = hosts.first() else { return Vec::new() };
    let reference = first.ends();
    let apart = apart(&hosts).max(LEAST_RESIDUAL);
    let clock = |(at, host): (usize, &Host<'_>)| match host.clock(first, &reference, at == 0) {
        clock if clock.by == AlignedBy::Steps => {
            HostClock { residual: clock.residual.map(|residual| Nanos(residual.0.max(apart))), ..clock }
        }
        clock => clock,
    };
    hosts.iter().enumerate().map(clock).collect()
}

/// What the ends of one step on one host differ by, where one clock shows it: nineteen of twenty steps are within it.
fn apart(hosts: &[Host<'_>]) -> i64 {
    let mut apart: Vec<i64> = hosts.iter().flat_map(Host::apart).collect();
    apart.sort_unstable();
    apart.get((apart.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
}

/// The ranks of a host.
struct Host<'a> {
    name: &'a str,
    boot: Option<&'a str>,
    ranks: Vec<&'a RankSummary>,
    /// One moment on both of its clocks.
    clock: Option<Moment>,
}

impl<'a> Host<'a> {
    fn new(rank: &'a RankSummary) -> Host<'a> {
        Host { name: &rank.host, boot: rank.boot.as_deref(), ranks: vec![rank], clock: rank.clock }
    }

    fn add(&mut self, rank: &'a RankSummary) {
        self.ranks.push(rank);
        self.clock = self.clock.or(rank.clock);
    }

    /// For each step, the time from its first end on this host to its last.
    fn apart(&self) -> Vec<i64> {
        let mut ends: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        for (step, end) in
            self.ranks.iter().filter(|_| self.ranks.len() > 1).flat_map(|rank| rank.steps.ends())
        {
            let known = ends.entry(step).or_insert((end, end));
            *known = (known.0.min(end), known.1.max(end));
        }
        ends.into_values().map(|(first, last)| last.saturating_sub(first)).collect()
    }

    /// When each step ended on this host: the median of its ranks, so that one rank that writes a checkpoint does not count.
    fn ends(&self) -> BTreeMap<i64, i64> {
        let mut ends: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for rank in &self.ranks {
            for (step, end) in rank.steps.ends() {
                ends.entry(step).or_default().push(end);
            }
        }
        ends.into_iter().filter_map(|(step, mut ends)| Some((step, median(&mut ends)?))).collect()
    }

    fn clock(&self, first: &Host<'_>, reference: &BTreeMap<i64, i64>, is_first: bool) -> HostClock {
        let mut clock = HostClock {
            host: self.name.to_owned(),
            ranks: self.ranks.len(),
            by: AlignedBy::Reference,
            steps: 0,
            wall_ahead: Some(0),
            drift: 0,
            residual: Some(Nanos(0)),
            boot: self.boot.map(str::to_owned),
            line: Line::default(),
        };
        if is_first {
            return clock;
        }
        if self.boot.is_some() && self.boot == first.boot {
            return HostClock { by: AlignedBy::SameMachine, ..clock };
        }
        let ends = self.ends();
        let shared =
            ends.iter().filter_map(|(step, &end)| Some((end, reference.get(step)?.checked_sub(end)?)));
        let shared: Vec<(i64, i64)> = shared.collect();
        clock.steps = shared.len();
        let wall_of = |moment: Moment| i128::from(moment.wall) - i128::from(moment.monotonic);
        let walls = self.clock.zip(first.clock).map(|(own, first)| (wall_of(own), wall_of(first)));
        if shared.len() < MIN_STEPS {
            let offset = walls.and_then(|(own, first)| i64::try_from(own - first).ok()).unwrap_or(0);
            return HostClock {
                by: AlignedBy::WallClock,
                wall_ahead: None,
                residual: None,
                line: Line { offset, ..Line::default() },
                ..clock
            };
        }
        let (line, residual) = fitted(&shared);
        let pivot = self.clock.map_or(line.pivot, |own| own.monotonic);
        let ahead = |(own, first): (i128, i128)| i64::try_from(own - first - i128::from(line.at(pivot))).ok();
        clock.by = AlignedBy::Steps;
        clock.wall_ahead = walls.and_then(ahead);
        clock.drift = line.slope.saturating_neg();
        clock.residual = Some(Nanos(residual));
        clock.line = line;
        clock
    }
}

/// The line through differences of two clocks, and what nineteen of twenty of them differ from it by.
fn fitted(shared: &[(i64, i64)]) -> (Line, i64) {
    let pivot = shared.first().map_or(0, |(at, _)| *at);
    let mut offsets: Vec<i64> = shared.iter().map(|(_, offset)| *offset).collect();
    let level = Line { offset: median(&mut offsets).unwrap_or(0), slope: 0, pivot };
    let level_residual = residual(shared, level, 95);
    if shared.len() < MIN_STEPS_FOR_DRIFT {
        return (level, level_residual);
    }
    let sloped = sloped(shared, pivot);
    // A drift that explains little would make moments outside of the steps worse.
    if residual(shared, sloped, 50) * 2 <= residual(shared, level, 50) {
        (sloped, residual(shared, sloped, 95))
    } else {
        (level, level_residual)
    }
}

/// The line with the median slope of all pairs (Theil and Sen): a quarter of the steps may be wild without moving it.
fn sloped(shared: &[(i64, i64)], pivot: i64) -> Line {
    let each = shared.len().div_ceil(MAX_STEPS_FOR_DRIFT).max(1);
    let some: Vec<&(i64, i64)> = shared.iter().step_by(each).collect();
    let mut slopes = Vec::new();
    for (at, (x0, y0)) in some.iter().enumerate() {
        for (x1, y1) in some.iter().skip(at + 1) {
            let (run, rise) = (i128::from(*x1) - i128::from(*x0), i128::from(*y1) - i128::from(*y0));
            if run > 0 {
                slopes.extend(i64::try_from(rise * 1_000_000_000 / run).ok());
            }
        }
    }
    let slope = median(&mut slopes).unwrap_or(0);
    let bent = Line { offset: 0, slope, pivot };
    let mut offsets: Vec<i64> =
        shared.iter().map(|(at, offset)| offset.saturating_sub(bent.at(*at))).collect();
    Line { offset: median(&mut offsets).unwrap_or(0), ..bent }
}

/// What a share of the differences does not exceed, in percent.
fn residual(shared: &[(i64, i64)], line: Line, percent: usize) -> i64 {
    let left = |(at, offset): &(i64, i64)| offset.saturating_sub(line.at(*at)).saturating_abs();
    let mut left: Vec<i64> = shared.iter().map(left).collect();
    left.sort_unstable();
    let place = (left.len() * percent).div_ceil(100).saturating_sub(1);
    left.get(place).copied().unwrap_or(0)
}

fn median(values: &mut [i64]) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
