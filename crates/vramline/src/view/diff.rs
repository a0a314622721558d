//! The comparison of runs: whose peak is higher, by how much, and what makes the difference.
//!
//! A pure function of finished reports. Pools are matched by name, then by device, or, where no device is told, by what they are
//! for; what they held by role, op and layer; steps by their number, never by time. A figure of a run that was repeated is the
//! median of its repeats, and a difference that is no larger than what repeats of one run differ by is no alarm. In every pool the
//! rows of a grouping (with slack and what was there before the recording) add up to the traced peak, so their differences add up
//! to its difference.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use super::report::{HeldView, PoolView, Report, Row, StepView};
use crate::snapshot::Role;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// How rows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// One row for each pool's peak.
    Device,
    /// One row for each role at the peak.
    Role,
    /// One row for each op at the peak.
    Op,
    /// One row for each model layer at the peak.
    Layer,
    /// One row for each step.
    Step,
}

impl By {
    const HELD: [By; 3] = [By::Role, By::Op, By::Layer];

    /// The word used in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            By::Device => "device",
            By::Role => "role",
            By::Op => "op",
            By::Layer => "layer",
            By::Step => "step",
        }
    }
}

/// How much more is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So many millionths of the first run's peak.
    Share(u64),
    /// So many bytes.
    Bytes(Bytes),
}

/// What a user typed is no threshold.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected a share or a size such as 2%, 0.5% or 64MiB, found '{0}'")]
pub struct NotAThreshold(String);

impl FromStr for Threshold {
    type Err = NotAThreshold;

    fn from_str(text: &str) -> Result<Threshold, NotAThreshold> {
        let wrong = || NotAThreshold(text.to_owned());
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse().map(Threshold::Bytes).map_err(|_| wrong());
        };
        // Digits are taken as they stand: a share of a float would be off by a byte now and then.
        let (whole, part) = percent.trim().split_once('.').unwrap_or((percent.trim(), "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 4 {
            return Err(wrong());
        }
        let part: u64 = format!("{part:0<4}").parse().map_err(|_| wrong())?;
        let whole =
            whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(10_000)).ok_or_else(wrong)?;
        whole.checked_add(part).map(Threshold::Share).ok_or_else(wrong)
    }
}

impl fmt::Display for Threshold {
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Share(millionths) => write!(out, "{} %", *millionths as f64 / 1e4),
            Threshold::Bytes(bytes) => bytes.fmt(out),
        }
    }
}

impl Threshold {
    fn is_exceeded(self, more: u64, base: u64) -> bool {
        match self {
            Threshold::Share(millionths) => {
                u128::from(more) * 1_000_000 > u128::from(base) * u128::from(millionths)
            }
            Threshold::Bytes(bytes) => more > bytes.0,
        }
    }
}

/// A run, with one report for each time it was made.
#[derive(Debug)]
pub struct Side {
    /// What the run is called.
    pub name: String,
    /// The reports of its repeats, by op and with every row.
    pub reports: Vec<Report>,
}

/// What a comparison is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Only rows of this grouping, beside the pools' peaks.
    pub by: Option<By>,
    /// How much more than the first run is an alarm.
    pub fail_over: Option<Threshold>,
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Diff {
    pub kind: &'static str,
    pub runs: Vec<String>,
    pub verdict: String,
    pub sides: Vec<SideView>,
    pub rows: Vec<DiffRow>,
    pub gate: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_over: Option<String>,
    pub alarms: Vec<AlarmView>,
    pub tolerated: Vec<AlarmView>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct SideView {
    pub name: String,
    pub files: Vec<String>,
    pub format: &'static str,
    pub framework: Option<&'static str>,
    pub repeats: usize,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct DiffRow {
    pub what: String,
    pub by: &'static str,
    pub figure: &'static str,
    pub pool: String,
    pub device: String,
    pub layer: String,
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    pub bytes: Vec<Option<Bytes>>,
    pub low_bytes: Vec<Option<Bytes>>,
    pub high_bytes: Vec<Option<Bytes>>,
    pub delta_bytes: Option<i64>,
    pub deltas_bytes: Vec<Option<i64>>,
    pub spread_bytes: Option<Bytes>,
    pub within_spread: bool,
    #[serde(skip)]
    slot: usize,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct AlarmView {
    pub run: String,
    pub pool: String,
    pub figure: &'static str,
    pub base_bytes: Bytes,
    pub bytes: Bytes,
    pub more_bytes: Bytes,
    pub text: String,
}

/// Names for runs, from their paths: as short as tells them apart.
#[must_use]
pub fn names(sides: &[Vec<PathBuf>]) -> Vec<String> {
    let short = |paths: &Vec<PathBuf>| {
        let first = paths.first()?;
        Some(first.file_name().unwrap_or(first.as_os_str()).to_string_lossy().into_owned())
    };
    let full = |paths: &Vec<PathBuf>| paths.first().map(|path| path.display().to_string());
    let shorts: Vec<String> = sides.iter().map(|side| short(side).unwrap_or_default()).collect();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for (side, short) in sides.iter().zip(&shorts) {
        let is_alone = shorts.iter().filter(|other| *other == short).count() == 1;
        let name = if is_alone { short.clone() } else { full(side).unwrap_or_default() };
        let more = if side.len() > 1 { format!(" and {} more", side.len() - 1) } else { String::new() };
        // Sides of repeats may begin with the same file.
        let same = taken.entry(name.clone()).or_default();
        *same += 1;
        let number = if *same > 1 { format!(" ({same})") } else { String::new() };
        names.push(format!("{name}{number}{more}"));
    }
    names
}

/// Compares runs with the first of them.
#[must_use]
pub fn diff(sides: &[Side], wanted: &Wanted) -> Diff {
    let mut warnings = told_warnings(sides);
    let reports: Vec<&Report> = sides.iter().flat_map(|side| &side.reports).collect();
    let slots = slots(&reports);
    let table = Table { sides, slots: &slots, reports: &reports };
    let mut rows = Vec::new();
    for slot in 0..slots.len() {
        rows.extend(table.peaks(slot));
        for by in By::HELD {
            rows.extend(table.held(slot, by));
        }
        rows.extend(table.steps(slot, &mut warnings));
    }
    let common = table.common();
    let main = common.first().copied();
    let is_few = main.is_some_and(|slot| table.has_few_common_ops(slot, &rows));
    if is_few {
        warnings.push(Warning {
            code: "few-common-ops",
            text: "most of what was held at the peaks belongs to ops that the other run does not have".to_owned(),
            hint: "names differ between eager and graph mode, models and frameworks: compare with --by role or --by layer"
                .to_owned(),
        });
    }
    if main.is_none() && sides.len() > 1 {
        let pools = |side: &Side| {
            let names: BTreeSet<&str> =
                side.reports.iter().flat_map(|report| &report.pools).map(|pool| pool.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().take(4).collect();
            format!(
                "{} has {}",
                side.name,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )
        };
        warnings.push(Warning {
            code: "no-common-pool",
            text: format!(
                "the runs have no pool in common: {}",
                sides.iter().map(pools).collect::<Vec<_>>().join("; ")
            ),
            hint: "runs on the same kind of device can be compared, and compiled programs with compiled programs".to_owned(),
        });
    }
    if let Some(slot) = main {
        warnings.extend(table.different_starts(slot));
    }
    warnings.extend(table.other_programs(&common));
    let verdict = table.verdict(main, &rows, is_few);
    let (gate, alarms, tolerated) = match wanted.fail_over {
        Some(threshold) => table.gate(threshold, &common, &rows),
        None => ("none", Vec::new(), Vec::new()),
    };
    if let Some(by) = wanted.by {
        rows.retain(|row| row.by == by.word() || row.by == By::Device.word());
    }
    let unknowns = unknowns(sides, &rows);
    Diff {
        kind: "diff",
        runs: sides.iter().map(|side| side.name.clone()).collect(),
        verdict,
        sides: sides.iter().map(side_view).collect(),
        rows,
        gate,
        fail_over: wanted.fail_over.map(|threshold| threshold.to_string()),
        alarms,
        tolerated,
        warnings,
        unknowns,
    }
}

fn side_view(side: &Side) -> SideView {
    let first = side.reports.first();
    SideView {
        name: side.name.clone(),
        files: side.reports.iter().filter_map(|report| report.source.files.first().cloned()).collect(),
        format: first.map_or("", |report| report.source.format),
        framework: first.and_then(|report| report.source.framework),
        repeats: side.reports.len(),
    }
}

/// What the reports warn of that makes a comparison doubtful.
fn told_warnings(sides: &[Side]) -> Vec<Warning> {
    const TOLD: [&str; 7] = [
        "silent-allocator",
        "cuda-malloc-async",
        "count-disagrees",
        "out-of-memory",
        "unreadable-host",
        "other-runs",
        "truncated",
    ];
    let told = |side: &Side| {
        let warnings = side.reports.iter().flat_map(|report| &report.warnings);
        let warnings = warnings.filter(|warning| TOLD.contains(&warning.code));
        warnings
            .map(|warning| Warning { text: format!("{}: {}", side.name, warning.text), ..warning.clone() })
            .take(8)
            .collect::<Vec<_>>()
    };
    sides.iter().flat_map(told).collect()
}

/// Pools of several reports that are compared with each other.
#[derive(Debug)]
struct Slot {
    device: String,
    label: String,
    /// By report: the number of its pool.
    pools: BTreeMap<usize, usize>,
}

/// What a pool is for, of one without a device: a compiled program has one for its temporaries, one for its arguments and so on, and
/// their names begin with the program's, which has another number after each compilation.
fn purpose(name: &str) -> &str {
    name.rsplit(' ').next().unwrap_or(name)
}

/// Pools of one name and device belong together; what is left over of a device, largest with largest. Where no device is told,
/// only pools for the same purpose meet: temporaries are not compared with arguments.
fn slots(reports: &[&Report]) -> Vec<Slot> {
    /// A file with more pools than this on a device was not written by a framework.
    const MOST: usize = 256;
    let mut named: BTreeMap<(&str, &str, usize), BTreeMap<usize, usize>> = BTreeMap::new();
    for (number, report) in reports.iter().enumerate() {
        let mut order: Vec<usize> = (0..report.pools.len()).collect();
        // Ranks are the same in the next run; process numbers are not.
        order.sort_by_key(|&at| report.pools.get(at).and_then(|pool| pool.rank));
        let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for at in order {
            let Some(pool) = report.pools.get(at) else { continue };
            let count = seen.entry((&pool.device, &pool.name)).or_default();
            named.entry((&pool.device, &pool.name, *count)).or_default().insert(number, at);
            *count += 1;
        }
    }
    let mut by_device: BTreeMap<(&str, &str), Vec<BTreeMap<usize, usize>>> = BTreeMap::new();
    for ((device, name, _), pools) in named {
        let purpose = if device.is_empty() { purpose(name) } else { "" };
        by_device.entry((device, purpose)).or_default().push(pools);
    }
    let pool_of = |report: usize, at: usize| reports.get(report).and_then(|report| report.pools.get(at));
    let highest = |pools: &BTreeMap<usize, usize>| {
        pools.iter().filter_map(|(&report, &at)| ever(pool_of(report, at)?)).max()
    };
    let mut slots = Vec::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for ((device, purpose), mut groups) in by_device {
        groups.sort_by_key(|pools| Reverse(highest(pools)));
        let mut joined: Vec<BTreeMap<usize, usize>> = Vec::new();
        for pools in groups {
            let is_apart =
                |other: &&mut BTreeMap<usize, usize>| pools.keys().all(|report| !other.contains_key(report));
            match joined.iter_mut().take(MOST).find(is_apart) {
                Some(other) if pools.len() < reports.len() => other.extend(pools),
                _ => joined.push(pools),
            }
        }
        for pools in joined {
            let names: BTreeSet<&str> =
                pools.iter().filter_map(|(&report, &at)| Some(pool_of(report, at)?.name.as_str())).collect();
            let name = match names.first() {
                Some(name) if names.len() == 1 => *name,
                _ if device.is_empty() => purpose,
                _ => device,
            };
            let same = taken.entry(name.to_owned()).or_default();
            *same += 1;
            let label = if *same > 1 { format!("{name} #{same}") } else { name.to_owned() };
            slots.push(Slot { device: device.to_owned(), label, pools });
        }
    }
    slots.sort_by_key(|slot| Reverse(highest(&slot.pools)));
    slots
}

/// The most that a pool held, as far as is known.
fn ever(pool: &PoolView) -> Option<u64> {
    pool.lifetime_peak_bytes.max(pool.peak_bytes).map(|bytes| bytes.0)
}

/// What a step is known by, beside its place among steps of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StepKey {
    phase: &'static str,
    epoch: Option<u64>,
    number: i64,
    again: usize,
}

/// A group of what a pool held.
#[derive(Clone, Debug, Default)]
struct Part<'a> {
    bytes: u64,
    layer: Option<&'a str>,
    role: Option<&'static str>,
}

const NO_NAME: &str = "(no name)";
const SLACK: &str = "(slack)";
const BEFORE: &str = "(before the recording)";

struct Table<'a> {
    sides: &'a [Side],
    slots: &'a [Slot],
    reports: &'a [&'a Report],
}

impl<'a> Table<'a> {
    fn pool(&self, slot: usize, report: usize) -> Option<&'a PoolView> {
        let at = *self.slots.get(slot)?.pools.get(&report)?;
        self.reports.get(report)?.pools.get(at)
    }

    /// By side, the figures of its repeats.
    fn values(&self, of: impl Fn(usize) -> Option<u64>) -> Vec<Vec<Option<u64>>> {
        let mut next = 0;
        let side = |side: &Side| {
            let numbers = next..next + side.reports.len();
            next = numbers.end;
            numbers.map(&of).collect()
        };
        self.sides.iter().map(side).collect()
    }

    fn row(&self, slot: usize, by: By, figure: &'static str, values: &[Vec<Option<u64>>]) -> DiffRow {
        let known = |values: &Vec<Option<u64>>| {
            let mut known: Vec<u64> = values.iter().copied().flatten().collect();
            known.sort_unstable();
            known
        };
        let known: Vec<Vec<u64>> = values.iter().map(known).collect();
        let bytes: Vec<Option<u64>> = known.iter().map(|known| median(known)).collect();
        let spread = known.iter().filter(|known| known.len() > 1);
        let spread = spread.filter_map(|known| Some(known.last()? - known.first()?)).max();
        let base = bytes.first().copied().flatten();
        let deltas: Vec<Option<i64>> = bytes.iter().map(|&bytes| Some(signed(bytes?, base?))).collect();
        let within =
            spread.is_some_and(|spread| deltas.iter().flatten().all(|delta| delta.unsigned_abs() <= spread));
        let (device, pool) =
            self.slots.get(slot).map(|slot| (slot.device.clone(), slot.label.clone())).unwrap_or_default();
        DiffRow {
            what: String::new(),
            by: by.word(),
            figure,
            pool,
            device,
            layer: String::new(),
            role: "",
            phase: None,
            epoch: None,
            step: None,
            bytes: bytes.into_iter().map(|bytes| bytes.map(Bytes)).collect(),
            low_bytes: known.iter().map(|known| known.first().copied().map(Bytes)).collect(),
            high_bytes: known.iter().map(|known| known.last().copied().map(Bytes)).collect(),
            delta_bytes: deltas.last().copied().flatten(),
            deltas_bytes: deltas,
            spread_bytes: spread.map(Bytes),
            within_spread: within,
            slot,
        }
    }

    /// The peak in the trace, and the highest figure of the whole run where that is another.
    fn peaks(&self, slot: usize) -> Vec<DiffRow> {
        let peak = self.values(|report| self.pool(slot, report)?.peak_bytes.map(|bytes| bytes.0));
        let whole = self.values(|report| {
            let pool = self.pool(slot, report)?;
            pool.lifetime_peak_bytes.and(ever(pool))
        });
        let mut rows = Vec::new();
        // What only one run tells cannot be compared.
        let is_known = (0..self.reports.len())
            .filter_map(|report| self.pool(slot, report))
            .all(|pool| pool.lifetime_peak_bytes.is_some());
        let name = self.slots.get(slot).map_or("", |slot| slot.label.as_str());
        if is_known && whole != peak {
            let what = format!("{name}, peak of the run");
            rows.push(DiffRow { what, ..self.row(slot, By::Device, "ever", &whole) });
        }
        let what = format!("{name}, peak");
        rows.push(DiffRow { what, ..self.row(slot, By::Device, "peak", &peak) });
        rows
    }

    /// What the pool held at its traced peak.
    fn held(&self, slot: usize, by: By) -> Vec<DiffRow> {
        let parts: Vec<Option<BTreeMap<String, Part<'_>>>> = (0..self.reports.len())
            .map(|report| Some(parts(self.pool(slot, report)?.at_peak.as_ref()?, by)))
            .collect();
        let keys: BTreeSet<&String> = parts.iter().flatten().flat_map(BTreeMap::keys).collect();
        let mut rows: Vec<DiffRow> = Vec::new();
        for key in keys {
            let of = |report: usize| parts.get(report).and_then(Option::as_ref);
            // A pool whose peak is known and in which an op holds nothing holds zero bytes of it.
            let values = self.values(|report| Some(of(report)?.get(key).map_or(0, |part| part.bytes)));
            let mut every = parts.iter().flatten().filter_map(|parts| parts.get(key));
            let first = every.next().cloned().unwrap_or_default();
            let (layer, role) = every.fold((first.layer, first.role), |(layer, role), part| {
                (
                    layer.filter(|&layer| part.layer == Some(layer)),
                    role.filter(|&role| part.role == Some(role)),
                )
            });
            rows.push(DiffRow {
                what: key.clone(),
                layer: layer.unwrap_or_default().to_owned(),
                role: role.unwrap_or_default(),
                ..self.row(slot, by, "at-peak", &values)
            });
        }
        if by == By::Role {
            let rank = |row: &DiffRow| {
                Role::ALL.iter().position(|role| role.word() == row.what).unwrap_or(usize::MAX)
            };
            rows.sort_by_key(|row| (rank(row), row.what.clone()));
        } else {
            rows.sort_by_key(|row| {
                (Reverse(change(row)), Reverse(row.bytes.iter().max().copied()), row.what.clone())
            });
        }
        rows
    }

    /// Steps by number; where runs number them in ways that never meet, by order. Rows are in the order in which they ran.
    fn steps(&self, slot: usize, warnings: &mut Vec<Warning>) -> Vec<DiffRow> {
        let all: Vec<BTreeMap<StepKey, &StepView>> =
            (0..self.reports.len()).map(|report| self.steps_of(slot, report, false)).collect();
        let meets = |steps: &BTreeMap<StepKey, &StepView>| {
            all.first()
                .is_none_or(|first| first.is_empty() || first.keys().any(|key| steps.contains_key(key)))
        };
        let all = if all.iter().all(|steps| steps.is_empty() || meets(steps)) {
            all
        } else {
            let label = self.slots.get(slot).map_or("", |slot| slot.label.as_str());
            warnings.push(Warning {
                code: "steps-by-order",
                text: format!(
                    "the runs number the steps of '{label}' differently: they are compared in their order"
                ),
                hint: String::new(),
            });
            (0..self.reports.len()).map(|report| self.steps_of(slot, report, true)).collect()
        };
        let keys = as_they_ran(&all);
        let row = |key: StepKey| {
            let at = |report: usize| all.get(report).and_then(|steps| steps.get(&key)).copied();
            let known = all.iter().filter_map(|steps| steps.get(&key));
            let has_peaks = known.clone().all(|step| step.peak_bytes.is_some());
            let figure = if has_peaks { "peak" } else { "in-use" };
            let values = self.values(|report| {
                let step = at(report)?;
                let bytes = if has_peaks { step.peak_bytes } else { step.current_bytes };
                bytes.map(|bytes| bytes.0)
            });
            let epoch = key.epoch.map_or(String::new(), |epoch| format!("epoch {epoch}, "));
            let again = if key.again > 0 { format!(" (time {})", key.again + 1) } else { String::new() };
            let end = if has_peaks { "" } else { ", at its end" };
            DiffRow {
                what: format!("{epoch}{} step {}{again}{end}", key.phase, key.number),
                phase: Some(key.phase),
                epoch: key.epoch,
                step: Some(key.number),
                ..self.row(slot, By::Step, figure, &values)
            }
        };
        keys.into_iter().map(row).collect()
    }

    fn steps_of(&self, slot: usize, report: usize, by_order: bool) -> BTreeMap<StepKey, &'a StepView> {
        let mut found = BTreeMap::new();
        let (Some(pool), Some(all)) = (self.pool(slot, report), self.reports.get(report)) else {
            return found;
        };
        let mut seen: BTreeMap<StepKey, usize> = BTreeMap::new();
        let own = all.steps.iter().filter(|step| {
            step.pool == pool.name && (step.pid.is_none() || pool.pid.is_none() || step.pid == pool.pid)
        });
        let mut order: BTreeMap<&str, i64> = BTreeMap::new();
        for step in own {
            let place = order.entry(step.phase).or_default();
            let (epoch, number) = if by_order { (None, *place) } else { (step.epoch, step.step) };
            *place += 1;
            let mut key = StepKey { phase: step.phase, epoch, number, again: 0 };
            let count = seen.entry(key).or_default();
            key.again = *count;
            *count += 1;
            found.insert(key, step);
        }
        found
    }

    /// The slots that every side has a pool in, highest peak first.
    fn common(&self) -> Vec<usize> {
        let has = |slot: &Slot| {
            let values = self.values(|report| slot.pools.get(&report).map(|_| 1));
            values.iter().all(|side| side.iter().any(Option::is_some))
        };
        (0..self.slots.len()).filter(|&at| self.slots.get(at).is_some_and(has)).collect()
    }

    fn rows_of(slot: usize, rows: &[DiffRow], by: By) -> impl Iterator<Item = &DiffRow> {
        rows.iter().filter(move |row| row.by == by.word() && row.slot == slot)
    }

    /// Less than half of what the first run held belongs to ops that every run has.
    fn has_few_common_ops(&self, slot: usize, rows: &[DiffRow]) -> bool {
        let is_whole =
            |row: &&DiffRow| row.bytes.iter().all(Option::is_some) && ![SLACK, BEFORE].contains(&&*row.what);
        let ops: Vec<&DiffRow> = Self::rows_of(slot, rows, By::Op).filter(is_whole).collect();
        let bytes =
            |row: &&&DiffRow| row.bytes.iter().flatten().map(|bytes| u128::from(bytes.0)).max().unwrap_or(0);
        let is_common = |row: &&&DiffRow| row.bytes.iter().flatten().all(|bytes| bytes.0 > 0);
        let all: u128 = ops.iter().map(|row| bytes(&row)).sum();
        let common: u128 = ops.iter().filter(is_common).map(|row| bytes(&row)).sum();
        common * 2 < all
    }

    fn different_starts(&self, slot: usize) -> Option<Warning> {
        let starts: Vec<Option<bool>> =
            (0..self.reports.len()).filter_map(|report| Some(self.pool(slot, report)?.from_start)).collect();
        (starts.contains(&Some(true)) && starts.contains(&Some(false))).then(|| Warning {
            code: "different-starts",
            text: "one trace begins before the first allocation and another does not: what is older than a trace has no name in it"
                .to_owned(),
            hint: "record both with `vramline run`".to_owned(),
        })
    }

    /// Pools of programs with other names are compared by what they are for: whether they are the same program, nobody tells.
    fn other_programs(&self, common: &[usize]) -> Option<Warning> {
        let names = |slot: usize| -> Vec<&str> {
            let pools = (0..self.reports.len()).filter_map(|report| self.pool(slot, report));
            let mut names: Vec<&str> = Vec::new();
            for pool in pools.filter(|pool| pool.device.is_empty()) {
                if !names.contains(&pool.name.as_str()) {
                    names.push(&pool.name);
                }
            }
            names
        };
        let names = common.iter().map(|&slot| names(slot)).find(|names| names.len() > 1)?;
        let others: Vec<String> = names.iter().skip(1).take(4).map(|name| format!("'{name}'")).collect();
        Some(Warning {
            code: "other-programs",
            text: format!(
                "'{}' is compared with {}: pools for the same purpose, of programs with other names",
                names.first()?,
                others.join(", ")
            ),
            hint: String::new(),
        })
    }

    fn verdict(&self, main: Option<usize>, rows: &[DiffRow], is_few: bool) -> String {
        let Some(slot) = main else { return "The runs have no pool in common.".to_owned() };
        let Some(base) = self.sides.first() else { return String::new() };
        let is_known = |row: &&DiffRow| row.bytes.iter().all(Option::is_some);
        let mut peaks = Self::rows_of(slot, rows, By::Device).filter(is_known);
        let Some(peak) = peaks.next() else {
            return format!(
                "Nothing tells the peak of {} in every run.",
                self.slots.get(slot).map_or("", |slot| &slot.label)
            );
        };
        let traced = Self::rows_of(slot, rows, By::Device).find(|row| row.figure == "peak");
        let when = match self.slots.get(slot) {
            // One of several pools of a program: the verdict says which.
            Some(slot) if slot.device.is_empty() => format!("at the peak of '{}'", slot.label),
            _ if peak.figure == "ever" => "at the peak of the run".to_owned(),
            _ => "at the peak".to_owned(),
        };
        let mut sentences = Vec::new();
        for (number, side) in self.sides.iter().enumerate().skip(1) {
            let of = |row: &DiffRow| row.deltas_bytes.get(number).copied().flatten();
            let (Some(delta), Some(Some(base_bytes))) = (of(peak), peak.bytes.first()) else { continue };
            if delta == 0 {
                sentences
                    .push(format!("{} and {} need the same {when}: {base_bytes}.", side.name, base.name));
                continue;
            }
            let share = share_text(Bytes(delta.unsigned_abs()), *base_bytes);
            let word = if delta > 0 { "more" } else { "less" };
            let cause = traced.and_then(of).map_or(String::new(), |traced| {
                let by = if is_few { By::Role } else { By::Op };
                Self::cause(slot, rows, by, number, traced, delta)
            });
            let noise = match peak.spread_bytes {
                Some(spread) if delta.unsigned_abs() <= spread.0 => {
                    format!(" Repeats of one run differ by {spread}: this is no more.")
                }
                _ => String::new(),
            };
            let size = Bytes(delta.unsigned_abs());
            sentences.push(format!(
                "{} needs {size}{share} {word} than {} {when}{cause}.{noise}",
                side.name, base.name
            ));
        }
        if sentences.is_empty() {
            return "There is one run only: nothing to compare it with.".to_owned();
        }
        sentences.join(" ")
    }

    /// The row that makes most of a difference of the traced peak.
    fn cause(slot: usize, rows: &[DiffRow], by: By, number: usize, traced: i64, delta: i64) -> String {
        if traced == 0 {
            return "; the traced steps need the same".to_owned();
        }
        if traced.signum() != delta.signum() {
            return format!("; the traced steps differ the other way, by {}", change_text(traced));
        }
        if traced.unsigned_abs() < delta.unsigned_abs() / 2 {
            return format!("; the traced steps differ by {} only", change_text(traced));
        }
        let of = |row: &DiffRow| row.deltas_bytes.get(number).copied().flatten().unwrap_or(0);
        let told = |(row, is_most): (&DiffRow, bool)| {
            let how = if is_most { "most of it is" } else { "the largest part is" };
            let kind = if row.by == By::Op.word() && !row.what.starts_with('(') { "op " } else { "" };
            format!("; {how} {kind}{} ({})", row.what, change_text(of(row)))
        };
        let largest = Self::largest(slot, rows, by, traced.signum(), of);
        // What has no name may have a role.
        let by_role = || Self::largest(slot, rows, By::Role, traced.signum(), of);
        let is_nameless = |row: &DiffRow| row.by == By::Op.word() && row.what == NO_NAME;
        let largest = match largest {
            Some((row, _)) if is_nameless(row) => {
                by_role().filter(|(row, _)| row.what != Role::Unknown.word()).or(largest)
            }
            _ => largest,
        };
        let mut text = largest.map_or(String::new(), told);
        let slack = Self::rows_of(slot, rows, by).find(|row| row.what == SLACK).map_or(0, of);
        if slack.signum() == traced.signum() && slack.unsigned_abs() >= traced.unsigned_abs() / 2 {
            let _ = write!(text, "; chunks larger than what was asked for make {}", change_text(slack));
        }
        text
    }

    /// The row of a grouping that changed most in a direction, and whether it makes half of what did.
    fn largest(
        slot: usize,
        rows: &[DiffRow],
        by: By,
        sign: i64,
        of: impl Fn(&DiffRow) -> i64,
    ) -> Option<(&DiffRow, bool)> {
        let is_asked = |row: &&DiffRow| ![SLACK, BEFORE].contains(&&*row.what) && of(row).signum() == sign;
        // What repeats of one run differ by as well explains nothing, if there is anything else.
        let mut found: Vec<&DiffRow> = Self::rows_of(slot, rows, by).filter(is_asked).collect();
        if found.iter().any(|row| !row.within_spread) {
            found.retain(|row| !row.within_spread);
        }
        let all: u128 = found.iter().map(|row| u128::from(of(row).unsigned_abs())).sum();
        // Of a forward op and its gradient, which change alike, the forward op is the cause.
        let is_forward = |row: &DiffRow| !row.what.starts_with("gradient");
        let largest = found
            .into_iter()
            .max_by_key(|row| (of(row).unsigned_abs(), is_forward(row), Reverse(row.what.clone())))?;
        Some((largest, u128::from(of(largest).unsigned_abs()) * 2 >= all))
    }

    /// Whether a run needs too much more than the first, and in which pools; then where it does and repeats of one run differ by as
    /// much, which is no alarm.
    fn gate(
        &self,
        threshold: Threshold,
        common: &[usize],
        rows: &[DiffRow],
    ) -> (&'static str, Vec<AlarmView>, Vec<AlarmView>) {
        let peaks = || rows.iter().filter(|row| row.by == By::Device.word());
        let largest = peaks().filter_map(|row| *row.bytes.first()?).max().unwrap_or_default();
        let (mut alarms, mut tolerated) = (Vec::new(), Vec::new());
        let mut is_certain = common.iter().any(|&slot| {
            Self::rows_of(slot, rows, By::Device).any(|row| row.bytes.iter().all(Option::is_some))
        });
        for row in peaks() {
            let base = row.bytes.first().copied().flatten();
            for (side, bytes) in self.sides.iter().zip(&row.bytes).skip(1) {
                let (against, from) = match (base, bytes) {
                    // A pool that only the new run has is measured against the first run's largest.
                    (None, Some(_)) if !common.is_empty() && !self.has_pool(0, row) => (largest, Bytes::ZERO),
                    (Some(base), Some(_)) => (base, base),
                    (Some(_), None) if self.has_pool_of(side, row) && row.figure == "peak" => {
                        is_certain = false;
                        continue;
                    }
                    _ => continue,
                };
                let Some(bytes) = *bytes else { continue };
                let more = bytes.saturating_sub(from);
                if more == Bytes::ZERO || !threshold.is_exceeded(more.0, against.0) {
                    continue;
                }
                let noise = row.spread_bytes.filter(|&spread| more <= spread);
                let share = share_text(more, from);
                let what =
                    format!("{} of {}: {bytes}, {more}{share} more than the first run", row.what, side.name);
                let text = match noise {
                    Some(spread) => format!("{what}; repeats of one run differ by {spread}"),
                    None => format!("{what}; at most {threshold} more is allowed"),
                };
                let list = if noise.is_some() { &mut tolerated } else { &mut alarms };
                list.push(AlarmView {
                    run: side.name.clone(),
                    pool: row.pool.clone(),
                    figure: row.figure,
                    base_bytes: from,
                    bytes,
                    more_bytes: more,
                    text,
                });
            }
        }
        let gate = match (alarms.is_empty(), is_certain) {
            (false, _) => "fail",
            (true, true) => "pass",
            (true, false) => "unknown",
        };
        (gate, alarms, tolerated)
    }

    fn has_pool_of(&self, side: &Side, row: &DiffRow) -> bool {
        let number = self.sides.iter().position(|other| std::ptr::eq(other, side));
        number.is_some_and(|number| self.has_pool(number, row))
    }

    fn has_pool(&self, side: usize, row: &DiffRow) -> bool {
        self.slots.get(row.slot).is_some_and(|slot| {
            let values = self.values(|report| slot.pools.get(&report).map(|_| 1));
            values.get(side).is_some_and(|side| side.iter().any(Option::is_some))
        })
    }
}

/// Every step of several runs once. Clocks differ, so each is put behind the step that ran before it in the first run that has it.
fn as_they_ran(all: &[BTreeMap<StepKey, &StepView>]) -> Vec<StepKey> {
    let mut order: Vec<StepKey> = Vec::new();
    let mut seen: BTreeSet<StepKey> = BTreeSet::new();
    for steps in all {
        let mut own: Vec<(StepKey, &StepView)> = steps.iter().map(|(key, step)| (*key, *step)).collect();
        own.sort_by_key(|(key, step)| (step.begin_ns, *key));
        let mut behind: BTreeMap<Option<StepKey>, Vec<StepKey>> = BTreeMap::new();
        let mut before = None;
        for (key, _) in own {
            if seen.contains(&key) {
                before = Some(key);
            } else {
                behind.entry(before).or_default().push(key);
            }
        }
        if behind.is_empty() {
            continue;
        }
        seen.extend(behind.values().flatten());
        let begin = behind.remove(&None).unwrap_or_default();
        let rest = order.iter().flat_map(|key| {
            std::iter::once(*key).chain(behind.get(&Some(*key)).into_iter().flatten().copied())
        });
        order = begin.into_iter().chain(rest).collect();
    }
    order
}

/// What was held, grouped; with slack and what is older than the trace it adds up to what was in use.
fn parts(held: &HeldView, by: By) -> BTreeMap<String, Part<'_>> {
    let mut parts: BTreeMap<String, Part<'_>> = BTreeMap::new();
    for row in &held.rows {
        let name = match by {
            By::Role => row.role.to_owned(),
            By::Layer if row.layer.is_empty() => "(no layer)".to_owned(),
            By::Layer => row.layer.clone(),
            By::Op | By::Device | By::Step => op_of(row),
        };
        let (layer, role) = (Some(row.layer.as_str()), Some(row.role));
        let part = parts.entry(name).or_insert(Part { bytes: 0, layer, role });
        part.bytes = part.bytes.saturating_add(row.bytes.0);
        part.layer = part.layer.filter(|_| part.layer == layer);
        part.role = part.role.filter(|_| part.role == role);
    }
    for (name, bytes) in [(SLACK, held.slack_bytes), (BEFORE, held.before_recording_bytes)] {
        if bytes > Bytes::ZERO {
            parts.insert(name.to_owned(), Part { bytes: bytes.0, layer: None, role: None });
        }
    }
    parts
}

/// Shapes are left out, so that two batch sizes meet; so is the call that wraps every name of a graph.
fn op_of(row: &Row) -> String {
    if !row.variable.is_empty() {
        return row.variable.clone();
    }
    match (row.op.as_str(), row.source.as_str()) {
        ("", "") => NO_NAME.to_owned(),
        ("", source) => format!("(no name, in {source})"),
        (op, _) => op.strip_prefix("StatefulPartitionedCall/").unwrap_or(op).to_owned(),
    }
}

/// ` (12.3 %)`; nothing beyond ten times as much, where a share says no more than the bytes.
fn share_text(more: Bytes, base: Bytes) -> String {
    match more.share_of(base) {
        Some(share) if share < 10.0 => format!(" ({:.1} %)", share * 100.0),
        _ => String::new(),
    }
}

/// `+12.3 MiB`
#[must_use]
pub fn change_text(delta: i64) -> String {
    let sign = match delta.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", Bytes(delta.unsigned_abs()))
}

/// The largest change of a row, whatever its sign.
#[must_use]
pub fn change(row: &DiffRow) -> u64 {
    row.deltas_bytes.iter().flatten().map(|delta| delta.unsigned_abs()).max().unwrap_or(0)
}

/// Of an even number the mean of the two in the middle, whole bytes: of two repeats neither stands for both.
fn median(sorted: &[u64]) -> Option<u64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(lower + (upper - lower) / 2)
}

fn signed(bytes: u64, base: u64) -> i64 {
    let delta = i128::from(bytes) - i128::from(base);
    i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX })
}

fn unknowns(sides: &[Side], rows: &[DiffRow]) -> Vec<Unknown> {
    let mut unknowns = Vec::new();
    let mut add = |is_null: bool, path: &str, reason: &str, switch: Option<&str>| {
        if is_null {
            let switch = switch.map(str::to_owned);
            unknowns.push(Unknown { path: path.to_owned(), reason: reason.to_owned(), switch });
        }
    };
    let is_null = rows.iter().any(|row| row.bytes.iter().any(Option::is_none));
    let reason = "the run has no such pool or step, or nothing tells its figure";
    let switch = Some("vramline run --trace auto --step-peaks");
    for path in ["rows[].bytes[]", "rows[].low_bytes[]", "rows[].high_bytes[]", "rows[].deltas_bytes[]"] {
        add(is_null, path, reason, switch);
    }
    let reason = "one of its figures is not known";
    add(rows.iter().any(|row| row.delta_bytes.is_none()), "rows[].delta_bytes", reason, switch);
    let reason = "no run was given with repeats that tell this figure";
    let switch = Some("vramline diff --repeats A1 A2 A3 --repeats B1 B2 B3");
    add(rows.iter().any(|row| row.spread_bytes.is_none()), "rows[].spread_bytes", reason, switch);
    let is_null =
        sides.iter().any(|side| side.reports.first().is_none_or(|report| report.source.framework.is_none()));
    add(is_null, "sides[].framework", "nothing in it shows which framework wrote it", None);
    unknowns
}
