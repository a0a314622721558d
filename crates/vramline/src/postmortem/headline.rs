//! What happened, in a sentence that begins with the verdict.

use super::advice::{set_by, short_by, shown};
use super::need::LeastNeed;
use super::outcome::FailureOutcome;
use super::{Conclusion, DeviceCause, Told, Verdict};
use crate::failure::{Dialect, Failure, SizeRange, SoftFailures};
use crate::units::{Bytes, capitalised, counted};

/// What happened: the verdict, how much was requested where, and why it failed.
#[must_use]
pub fn headline(told: &Told<'_>, outcome: FailureOutcome) -> String {
    let Told { failure, conclusion, proof, need } = *told;
    let request = request(failure, conclusion);
    if outcome == FailureOutcome::ServedLater {
        return format!("Not fatal: {request} failed at first; the framework tried again and succeeded.");
    }
    let sentence = match conclusion.verdict {
        Some(Verdict::Device) => device(failure, conclusion, &request),
        Some(Verdict::Fragmented) => {
            let free = conclusion.free.map_or("enough".to_owned(), shown);
            let largest = failure
                .largest_free
                .map_or(String::new(), |largest| format!("; the largest free block is {}", shown(largest)));
            format!(
                "{request} failed, though {free} of the pool was free. The free memory is fragmented{largest}"
            )
        }
        Some(Verdict::Slack) => format!(
            "{request} failed{}. Rounding takes {}: the allocator handed out larger blocks than requested",
            short(conclusion),
            conclusion.slack.map_or("more than that".to_owned(), shown)
        ),
        Some(Verdict::Exhausted) => exhausted(failure, conclusion, &request),
        Some(Verdict::Limit) => {
            let by = proof.map_or_else(|| set_by(failure), |proof| proof.by.as_str());
            format!("{request} failed{}. The pool reached the limit that was set ({by})", short(conclusion))
        }
        None => unknown(failure, conclusion, &request),
    };
    let went_on = if outcome == FailureOutcome::WentOn { " The job went on." } else { "" };
    let title = |verdict: &Verdict| match (verdict, conclusion.device) {
        (Verdict::Device, Some(DeviceCause::Neighbours)) => "other processes",
        (Verdict::Device, Some(DeviceCause::Refused)) => "driver refused",
        _ => verdict.title(),
    };
    let words: Vec<&str> = conclusion.open.iter().map(title).collect();
    let word = if words.is_empty() { String::new() } else { format!(" ({})", words.join(" or ")) };
    let open = match words.len() {
        0 | 1 => "",
        _ => " The text rounds its figures, so more than one verdict is possible.",
    };
    // Worth a sentence where more is to come than the pool holds already.
    let more = need.filter(|need| failure.in_use.is_none_or(|held| need.total() > held.high));
    let least = match (conclusion.verdict, more) {
        (Some(Verdict::Exhausted | Verdict::Limit) | None, Some(need)) => least(need),
        _ => String::new(),
    };
    format!("Out of memory{word}: {sentence}.{open}{went_on}{least}")
}

/// The request, where it was made, and for what.
fn request(failure: &Failure, conclusion: &Conclusion) -> String {
    let size = conclusion
        .request
        .map_or("an allocation".to_owned(), |told| format!("an allocation of {}", shown(told)));
    let pool = failure.allocator.as_deref().map_or(String::new(), |name| format!(" in {name}"));
    format!("{size}{pool}")
}

/// How much was missing.
fn short(conclusion: &Conclusion) -> String {
    let short = conclusion.short_by.filter(|short| short.high > Bytes::ZERO);
    short.map_or(String::new(), short_by)
}

/// What the program will request at least.
fn least(need: &LeastNeed) -> String {
    let LeastNeed { parameters, gradients, optimizer, class } = need;
    format!(
        " A training step needs at least {} plus activations: parameters {parameters}, gradients {gradients} and optimizer state \
         {optimizer} ({class}).",
        need.total()
    )
}

fn device(failure: &Failure, conclusion: &Conclusion, request: &str) -> String {
    let of = failure.memory.total.map_or(String::new(), |total| format!(" of the device's {}", shown(total)));
    if let Some(others) = conclusion.others.filter(|others| others.low > Bytes::ZERO) {
        let is_enough = |free: &SizeRange| conclusion.request.is_some_and(|request| free.low >= request.high);
        let free = failure.memory.free.map_or(String::new(), |free| match is_enough(&free) {
            true => format!(", although {} was free when the message was written", shown(free)),
            false => format!(" with {} free", shown(free)),
        });
        return format!("other processes hold {}{of}. {} failed{free}", shown(others), capitalised(request));
    }
    match conclusion.device {
        Some(DeviceCause::AtStart) => {
            "the device was full before this job used it. The driver could not create a context".to_owned()
        }
        _ if failure.dialect == Dialect::DriverRefusal => {
            let size = conclusion.request.map_or("the request".to_owned(), shown);
            format!("the driver refused {size}. The device did not have that much free memory")
        }
        _ if failure.unallocated.is_none() => {
            let refused = failure.refused.map_or(" more memory".to_owned(), |bytes| format!(" {bytes} more"));
            format!("{request} failed, because the driver had refused to give the pool{refused}")
        }
        _ => format!("the driver refused {request}, although the pool's limit allowed it"),
    }
}

fn exhausted(failure: &Failure, conclusion: &Conclusion, request: &str) -> String {
    let what = format!("{request} failed{}", short(conclusion));
    if let Some(total) = failure.memory.total
        && conclusion.request.is_some_and(|request| request.low > total.high)
    {
        return format!("{what}. The request is larger than the whole device ({})", shown(total));
    }
    if let Some(program) = failure.program {
        // A compiler that refuses a program asks for nothing else.
        let asked = match conclusion.request == Some(program.needed) {
            true => String::new(),
            false => format!(". {} failed", capitalised(request)),
        };
        return format!(
            "the compiled program needs {}, {} more than the {} that it is allowed{asked}",
            shown(program.needed),
            shown(program.needed.minus(program.budget)),
            shown(program.budget),
        );
    }
    let share = in_use_share(failure);
    let share =
        share.map_or("The rest is in use".to_owned(), |share| format!("{share} of the pool is in use"));
    // Enough is free, but too little of the pool to call it fragmented.
    let is_short = conclusion.short_by.is_none_or(|short| short.low > Bytes::ZERO);
    match conclusion.free.filter(|free| !is_short && free.low > Bytes::ZERO) {
        Some(free) => {
            let more = conclusion.unallocated.filter(|more| more.low > Bytes::ZERO);
            let with = more
                .map_or(String::new(), |more| format!(" with the {} that the pool can grow by", shown(more)));
            let left = conclusion.request.map_or(String::new(), |request| {
                let joined = free.low + more.map_or(Bytes::ZERO, |more| more.low);
                format!(" and left {}", joined.saturating_sub(request.high))
            });
            format!(
                "{what}. {share}; {} is free but fragmented. Joining it{with} would have served this request{left}, so it would only \
                 have delayed the failure",
                shown(free)
            )
        }
        None => format!("{what}. {share}"),
    }
}

fn in_use_share(failure: &Failure) -> Option<String> {
    let (in_use, pool) = (failure.in_use?.middle().0, failure.pool.or(failure.limit)?.middle().0);
    let percent = u128::from(in_use) * 100 / u128::from(pool).max(1);
    (pool > 0 && percent <= 100).then(|| format!("{percent} %"))
}

fn unknown(failure: &Failure, conclusion: &Conclusion, request: &str) -> String {
    let why = conclusion.why_none.as_deref().unwrap_or("the text does not say enough");
    let op = failure.op.as_ref().map_or(String::new(), |op| format!(" for op {op}"));
    let library = failure.library.map_or(String::new(), |library| format!(", reported by {library}"));
    match failure.library {
        _ if failure.is_of_host() => {
            format!("{request}{op} failed{library}. This is host memory, not GPU memory")
        }
        Some(name) if failure.is_inferred => {
            format!(
                "{name} could not start, just after memory ran short. It does not say more, so the cause is unknown"
            )
        }
        _ if conclusion.request.is_none() && failure.dialect == Dialect::Library => {
            let library = failure.library.map_or(String::new(), |library| format!("{library} reports that "));
            format!("{library}the device ran out of memory. The text has no figures, so the cause is unknown")
        }
        _ => format!("{request}{op} failed{library}. The cause is unknown: {why}"),
    }
}

/// Requests that failed without harm, in a sentence; `None` where there are none.
#[must_use]
pub fn without_harm(soft: &SoftFailures) -> Option<String> {
    let mut parts = Vec::new();
    if soft.count > 0 {
        let sizes = soft.sizes.map_or(String::new(), |told| {
            let (low, high) = (told.low.to_string(), told.high.to_string());
            if low == high { format!(" ({low})") } else { format!(" ({low} to {high})") }
        });
        let pools =
            if soft.pools.is_empty() { String::new() } else { format!(" in {}", soft.pools.join(", ")) };
        parts.push(format!(
            "{}{sizes}{pools} failed, and the program went on without the memory",
            counted(soft.count, "allocation")
        ));
    }
    if soft.refusals > 0 {
        let times = if soft.refusals == 1 { "once".to_owned() } else { format!("{} times", soft.refusals) };
        let most = soft.largest_refusal.map_or(String::new(), |bytes| format!(" (for {bytes} at most)"));
        parts.push(format!(
            "the driver refused to let the pool grow {times}{most}; other processes may hold the device"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
