//! How large a pool was at the peak, and what lies around it: the sentence that sets the framework's figure beside the driver's.

use super::headline::reproduced;
use super::held::HeldMoment;
use super::replayed::Replayed;
use super::report::{PoolAnalysis, ReportAnalysis};
use crate::advise::FRAGMENTATION_RULES;
use crate::analysis::caching::CachedWhen;
use crate::ledger::moments::LedgerMoment;
use crate::ledger::{Line, LineKind, What};
use crate::units::Bytes;

/// What the pool reserved, as a sum, and what the driver counts for the process. `None` where nothing but the bytes in use is known.
pub(super) fn sentence(report: &ReportAnalysis, pool: &PoolAnalysis) -> Option<String> {
    if pool.moment != HeldMoment::Peak {
        return None;
    }
    // A replay covers the first trace only.
    let replay = pool.replay.as_ref().filter(|_| pool.window.is_none_or(|window| window == 1));
    let size = PoolSize::of(report, pool, replay);
    let mut sentences: Vec<String> = size.map(|size| size.sentence(report, pool)).into_iter().collect();
    // A finding says it with its own figures, which count what was in use at once instead.
    let is_found = report.findings.iter().any(|finding| FRAGMENTATION_RULES.contains(&finding.rule));
    if !is_found {
        sentences.extend(replay.and_then(fragmentation));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The figures of a pool and its process at one moment.
struct PoolSize {
    in_use: Bytes,
    reserved: Bytes,
    /// What all processes of the job held of the device, by the driver or the kernel.
    job: Option<Bytes>,
    processes: usize,
}

impl PoolSize {
    fn of(report: &ReportAnalysis, pool: &PoolAnalysis, replay: Option<&Replayed>) -> Option<PoolSize> {
        let lines: Vec<&Line> = report.ledger_lines(pool).collect();
        let of = |kind: LineKind| {
            let of_kind = lines.iter().filter(move |line| line.what.kind() == kind);
            of_kind.map(|line| line.bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes))
        };
        let sum = |kind: LineKind| of(kind).collect::<Option<Vec<Bytes>>>().filter(|all| !all.is_empty());
        let job = sum(LineKind::Job);
        let processes = job.as_ref().map_or(0, Vec::len);
        let job = job.map(|all| all.into_iter().sum());
        if let (Some(reserved), Some(in_use)) = (sum(LineKind::Pool), sum(LineKind::InUse)) {
            let (reserved, in_use) = (reserved.into_iter().sum(), in_use.into_iter().sum());
            return Some(PoolSize { in_use, reserved, job, processes });
        }
        // Without a recording the replay or the snapshot knows the pool's size.
        let is_whole = |replay: &&Replayed| replay.address_matches == replay.allocs;
        let replayed = replay.filter(is_whole).map(|replay| replay.pool_at_peak);
        let mut moments = pool.caching.iter().flat_map(|caching| &caching.moments);
        let snapshot = moments.find(|(when, _)| *when == CachedWhen::Peak).map(|(_, cached)| cached.reserved);
        let reserved = replayed.or(snapshot)?;
        Some(PoolSize { in_use: pool.peak?, reserved, job, processes })
    }

    fn sentence(&self, report: &ReportAnalysis, pool: &PoolAnalysis) -> String {
        let PoolSize { in_use, reserved, job, processes } = *self;
        let cached = reserved.saturating_sub(in_use);
        let is_host = pool.device.starts_with("CPU") || pool.device == "HOST";
        let program = report.source.program();
        let when = moment(report, pool);
        let whose = if processes == 1 {
            "this process".to_owned()
        } else {
            format!("the {processes} processes of this job")
        };
        match job.filter(|job| *job >= reserved) {
            Some(job) if !is_host => format!(
                "{when} nvidia-smi shows {job} for {whose}: {in_use} in use + {cached} cached (reserved, not in use) + {} {}.",
                job.saturating_sub(reserved),
                outside(report, pool)
            ),
            _ => {
                let held = job.filter(|_| is_host);
                let held = held.map_or(String::new(), |job| {
                    format!(" All of {whose}, Python included, was {job} of host memory.")
                });
                format!(
                    "{when} {program}'s pool was {reserved}: {in_use} in use + {cached} cached (reserved, not in use).{held}"
                )
            }
        }
    }
}

/// What lies outside the pool: its largest parts where driver calls name them, or where their sizes are known from elsewhere.
fn outside(report: &ReportAnalysis, pool: &PoolAnalysis) -> String {
    if let Some(parts) = largest_parts(report.ledger_lines(pool), by_calls) {
        return format!("outside the pool ({parts})");
    }
    let estimated = |what: &What| match what {
        What::EstimatedContext => Some("context".to_owned()),
        What::EstimatedStep(step) => Some(step.phrase()),
        _ => None,
    };
    largest_parts(report.ledger_lines(pool), estimated)
        .map_or("for context and libraries".to_owned(), |parts| {
            format!("for context and libraries (estimated: {parts})")
        })
}

fn by_calls(what: &What) -> Option<String> {
    match what {
        What::Held(held) => Some(held.phrase()),
        _ => None,
    }
}

/// The largest parts that have a name, in a sentence; `None` if there are none.
fn largest_parts<'a>(
    lines: impl Iterator<Item = &'a Line>,
    name_of: impl Fn(&What) -> Option<String>,
) -> Option<String> {
    const SHOWN: usize = 3;
    let mut parts: Vec<(String, i64)> = Vec::new();
    for line in lines {
        let (Some(name), Some(bytes)) = (name_of(&line.what), line.bytes) else { continue };
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => parts.push((name, bytes)),
        }
    }
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let sized =
        |(name, bytes): &(String, i64)| Some(format!("{name} {}", Bytes(u64::try_from(*bytes).ok()?)));
    let largest: Vec<String> = parts.iter().take(SHOWN).filter_map(sized).collect();
    let more = if parts.len() > SHOWN { " and more" } else { "" };
    (!largest.is_empty()).then(|| format!("{}{more}", largest.join(", ")))
}

/// What a job without a framework's pool held at its peak, by its driver calls.
pub(super) fn without_pool(report: &ReportAnalysis) -> Option<String> {
    let ledger = &report.ledgers.first()?.ledger;
    let of_job = ledger.lines.iter().filter(|line| line.what.kind() == LineKind::Job);
    let held: i64 = of_job.filter_map(|line| line.bytes).sum();
    let held = Bytes(u64::try_from(held).ok().filter(|held| *held > 0)?);
    let parts = largest_parts(ledger.lines.iter(), by_calls)?;
    let device = &ledger.device;
    Some(format!(
        "No framework reports a pool. At the peak, nvidia-smi shows {held} for this job on {device}: {parts}."
    ))
}

/// The moment that the figures are of.
fn moment(report: &ReportAnalysis, pool: &PoolAnalysis) -> &'static str {
    match report.ledgers_of(pool).next().map(|each| each.moment) {
        Some(LedgerMoment::TracedPeak) => "At that traced moment,",
        Some(LedgerMoment::HighestReading) => "At the highest sample (the peak may lie between two samples),",
        Some(LedgerMoment::LastReading) => "At the last reading of the driver,",
        Some(LedgerMoment::End) => "At the end,",
        Some(LedgerMoment::Peak | LedgerMoment::ProcessPeak | LedgerMoment::Asked) | None => "At the peak,",
    }
}

/// What fragmentation costs, by replay.
fn fragmentation(replay: &Replayed) -> Option<String> {
    if replay.address_matches < replay.allocs {
        return Some(reproduced(replay.address_matches, replay.allocs));
    }
    // A pool that was reserved at once has the size that its setting says.
    if replay.growths < 2 || replay.joined >= replay.pool {
        return None;
    }
    let largest = match replay.pool > replay.pool_at_peak {
        true => format!("Later it was {}. ", replay.pool),
        false => String::new(),
    };
    Some(format!(
        "{largest}Fragmentation costs {}: without it the pool would need {}.",
        replay.pool.saturating_sub(replay.joined),
        replay.joined
    ))
}
