//! What happened, in a sentence that begins with the verdict.

use super::advice::{set_by, shown};
use super::need::LeastNeed;
use super::outcome::FailureOutcome;
use super::{Conclusion, DeviceCause, Told, Verdict};
use crate::failure::{Dialect, Failure, Platform, SoftFailures};
use crate::units::Bytes;

/// What happened, in a sentence that begins with the verdict.
#[must_use]
pub fn headline(told: &Told<'_>, outcome: FailureOutcome) -> String {
    let Told { failure, conclusion, proof, need } = *told;
    let asked = conclusion.request.map_or("a request".to_owned(), shown);
    let pool = failure.allocator.as_deref().map_or(String::new(), |name| format!(" in {name}"));
    let short = conclusion
        .short_by
        .filter(|short| short.high > Bytes::ZERO)
        .map_or(String::new(), |told| format!(", short by {}", shown(told)));
    if outcome == FailureOutcome::ServedLater {
        return format!(
            "served later: {asked} did not fit{pool} at first{short}; it was tried again and served."
        );
    }
    let sentence = match conclusion.verdict {
        Some(Verdict::Device) => device(failure, conclusion, &asked, &pool),
        Some(Verdict::Fragmented) => {
            let free = conclusion.free.map_or("enough".to_owned(), shown);
            let largest = failure
                .largest_free
                .map_or(String::new(), |largest| format!(", the largest piece {}", shown(largest)));
            format!("{asked} did not fit{pool}: {free} of the pool is free, but in pieces{largest}")
        }
        Some(Verdict::Slack) => format!(
            "{asked} did not fit{pool}{short}: rounding takes more than that, {} beyond what was requested",
            conclusion.slack.map_or("some".to_owned(), shown)
        ),
        Some(Verdict::Exhausted) => {
            exhausted(failure, conclusion, &format!("{asked} did not fit{pool}{short}"))
        }
        Some(Verdict::Limit) => {
            let by = proof.map_or_else(|| set_by(failure), |proof| proof.by.as_str());
            format!("{asked} did not fit{pool}{short}: the limit that was set ({by}) is reached")
        }
        None => unknown(failure, conclusion, &asked, &pool),
    };
    let went_on = if outcome == FailureOutcome::WentOn { "; the job went on" } else { "" };
    let words: Vec<&str> = conclusion.open.iter().map(|verdict| verdict.word()).collect();
    let word = if words.is_empty() { "no verdict".to_owned() } else { words.join(" or ") };
    let open = match words.len() {
        0 | 1 => "",
        _ => "; the text rounds its figures, so that they do not decide between these",
    };
    // Worth a word where more is to come than the pool holds already.
    let more = need.filter(|need| failure.in_use.is_none_or(|held| need.total() > held.high));
    let least = match (conclusion.verdict, more) {
        (Some(Verdict::Exhausted | Verdict::Limit) | None, Some(need)) => least(need),
        _ => String::new(),
    };
    format!("{word}: {sentence}{open}{went_on}.{least}")
}

/// What the program will ask for at least.
fn least(need: &LeastNeed) -> String {
    let LeastNeed { parameters, gradients, optimizer, class } = need;
    format!(
        " A training step needs at least {}: {parameters} of parameters, {gradients} of gradients and {optimizer} of optimizer state ({class}), \
         and the activations beside them.",
        need.total()
    )
}

fn device(failure: &Failure, conclusion: &Conclusion, asked: &str, pool: &str) -> String {
    let of = failure.memory.total.map_or(String::new(), |total| format!(" of the device's {}", shown(total)));
    if let Some(others) = conclusion.others.filter(|others| others.low > Bytes::ZERO) {
        let free = failure.memory.free.map_or(String::new(), |free| {
            format!("; {} were free for the {asked} requested here", shown(free))
        });
        return format!("other processes hold {}{of}{free}", shown(others));
    }
    match conclusion.device {
        Some(DeviceCause::AtStart) => {
            "the device was full before this job used it: the driver could not even create a context"
                .to_owned()
        }
        _ if failure.dialect == Dialect::DriverRefusal => {
            format!("the driver refused {asked}: the device did not have that much free")
        }
        _ if failure.unallocated.is_none() => {
            let refused = failure.refused.map_or(String::new(), |bytes| format!(" {bytes}"));
            format!("{asked} did not fit{pool}: the driver had refused to give the pool{refused} more")
        }
        _ => format!("the driver refused {asked}{pool}, although enough was left"),
    }
}

fn exhausted(failure: &Failure, conclusion: &Conclusion, what: &str) -> String {
    if let Some(total) = failure.memory.total
        && conclusion.request.is_some_and(|request| request.low > total.high)
    {
        return format!("{what}: the request is larger than the whole device ({})", shown(total));
    }
    if let Some(program) = failure.program {
        return format!(
            "{what}: the compiled program needs {} and may use {}",
            shown(program.needed),
            shown(program.budget)
        );
    }
    let share = in_use_share(failure);
    let share =
        share.map_or("memory is exhausted".to_owned(), |share| format!("{share} of the pool is in use"));
    // Enough, in pieces that do not count.
    let is_short = conclusion.short_by.is_none_or(|short| short.low > Bytes::ZERO);
    match conclusion.free.filter(|free| !is_short && free.low > Bytes::ZERO) {
        Some(free) => format!(
            "{what}: {share}; {} lies in pieces, and joining them would only have delayed the failure",
            shown(free)
        ),
        None => format!("{what}: {share}"),
    }
}

fn in_use_share(failure: &Failure) -> Option<String> {
    let (in_use, pool) = (failure.in_use?.middle().0, failure.pool.or(failure.limit)?.middle().0);
    let percent = u128::from(in_use) * 100 / u128::from(pool).max(1);
    (pool > 0 && percent <= 100).then(|| format!("{percent} %"))
}

fn unknown(failure: &Failure, conclusion: &Conclusion, asked: &str, pool: &str) -> String {
    let why = conclusion.why_none.as_deref().unwrap_or("the text does not say enough");
    let op = failure.op.as_ref().map_or(String::new(), |op| format!(" of the op {op}"));
    let library = failure.library.map_or(String::new(), |library| format!("{library}: "));
    match failure.platform {
        Some(Platform::Host) => {
            format!("{library}{asked} did not fit into the host's memory; this is not the GPU's")
        }
        _ if conclusion.request.is_none() && failure.dialect == Dialect::Library => {
            format!("{library}a device ran out of memory; the text tells no figures")
        }
        _ => format!("{library}{asked}{op} did not fit{pool}; why is not known: {why}"),
    }
}

/// Requests that failed without harm, in a sentence; `None` where there are none.
#[must_use]
pub fn without_harm(soft: &SoftFailures) -> Option<String> {
    let mut parts = Vec::new();
    if soft.count > 0 {
        let requests =
            if soft.count == 1 { "1 request".to_owned() } else { format!("{} requests", soft.count) };
        let sizes = soft.sizes.map_or(String::new(), |told| {
            let (low, high) = (told.low.to_string(), told.high.to_string());
            if low == high { format!(" ({low})") } else { format!(" ({low} to {high})") }
        });
        let pools =
            if soft.pools.is_empty() { String::new() } else { format!(" in {}", soft.pools.join(", ")) };
        parts.push(format!("{requests}{sizes} did not fit{pools}, and the program went on without"));
    }
    if soft.refusals > 0 {
        let times = if soft.refusals == 1 { "once".to_owned() } else { format!("{} times", soft.refusals) };
        let most = soft.largest_refusal.map_or(String::new(), |bytes| format!(", {bytes} at most"));
        parts.push(format!(
            "the driver refused to let the pool grow {times}{most}: other processes may hold the device"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}
