//! Draws the pools of a report as text: their sizes, and what PyTorch's allocator kept from the driver.

use std::collections::HashSet;
use std::fmt::Write;

use vramline::analysis::caching::CachedWhen;
use vramline::analysis::held::HeldMoment;
use vramline::analysis::limit::LimitSetter;
use vramline::event::Vendor;
use vramline::units::{Bytes, counted, thousands};
use vramline::view::caching::CachedView;
use vramline::view::report::{PoolView, Report};

use super::{Column, Style, clock, heading, or_dash, printable, table};

/// How many streams and failed requests are shown.
const STREAM_ROWS: usize = 6;
const FAILURE_ROWS: usize = 3;

pub(super) fn pools(out: &mut String, report: &Report, style: Style) {
    let differ =
        |of: &dyn Fn(&PoolView) -> String| report.pools.iter().map(of).collect::<HashSet<_>>().len() > 1;
    let several_hosts = differ(&|pool| pool.host.clone());
    let several_processes = differ(&|pool| or_dash(pool.pid));
    let mut columns: Vec<Column> = vec![
        ("pool", false),
        (PoolView::TITLES.device, false),
        (PoolView::TITLES.limit_bytes, true),
        (PoolView::TITLES.peak_bytes, true),
        (PoolView::TITLES.lifetime_peak_bytes, true),
        (PoolView::TITLES.peak_at_ns, true),
        (PoolView::TITLES.allocs, true),
        (PoolView::TITLES.frees, true),
        (PoolView::TITLES.fragmentation_at_peak, true),
        (PoolView::TITLES.from_start, false),
    ];
    if several_processes {
        columns.insert(0, (PoolView::TITLES.pid, true));
    }
    if several_hosts {
        columns.insert(0, (PoolView::TITLES.host, false));
    }
    let rows = report.pools.iter().map(|pool| {
        let mut row = vec![
            pool.name.clone(),
            pool.device.clone(),
            limit(pool),
            or_dash(pool.peak_bytes),
            or_dash(pool.lifetime_peak_bytes),
            match pool.moment {
                HeldMoment::Peak => or_dash(pool.peak_at_ns),
                HeldMoment::Dump => "the dump".to_owned(),
                HeldMoment::Failure => "the failure".to_owned(),
                HeldMoment::Program => "-".to_owned(),
            },
            or_dash(pool.allocs.map(thousands)),
            or_dash(pool.frees.map(thousands)),
            pool.fragmentation_at_peak.map_or("-".to_owned(), |value| format!("{:.1} %", value * 100.0)),
            match pool.from_start {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            }
            .to_owned(),
        ];
        if several_processes {
            row.insert(0, or_dash(pool.pid));
        }
        if several_hosts {
            row.insert(0, pool.host.clone());
        }
        row
    });
    heading(out, "Pools", style);
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
    hardware(out, report);
}

/// What the devices are, those that are alike in one line.
fn hardware(out: &mut String, report: &Report) {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for pool in &report.pools {
        let Some(told) = &pool.hardware else { continue };
        let words = [
            told.vendor.map_or(String::new(), |vendor| vendor.word().to_owned()),
            match (told.architecture.as_str(), told.vendor) {
                ("", _) => String::new(),
                (name, Some(Vendor::Amd)) => name.to_owned(),
                (capability, _) => format!("compute capability {capability}"),
            },
            told.memory_bytes.map_or(String::new(), |bytes| bytes.to_string()),
        ];
        let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
        match kinds.iter_mut().find(|(kind, _)| *kind == text) {
            Some((_, devices)) if devices.contains(&pool.device.as_str()) => {}
            Some((_, devices)) => devices.push(&pool.device),
            None => kinds.push((text, vec![&pool.device])),
        }
    }
    for (kind, devices) in kinds {
        let _ = writeln!(out, "  {}: {kind}", devices.join(", "));
    }
}

/// The limit; the built-in default of a framework is marked as such.
fn limit(pool: &PoolView) -> String {
    match pool.limit_by {
        Some(LimitSetter::BuiltIn) => format!("{} (built-in)", or_dash(pool.limit_bytes)),
        _ => or_dash(pool.limit_bytes),
    }
}

/// What PyTorch's allocator kept from the driver beyond what was allocated.
pub(super) fn cached(out: &mut String, pool: &PoolView, style: Style) {
    let Some(caching) = &pool.caching else { return };
    heading(out, &format!("Reserved from the driver by {}", pool.name), style);
    let titles = CachedView::TITLES;
    let has_expandable = caching.moments.iter().any(|moment| moment.expandable_bytes > Bytes::ZERO);
    let mut columns: Vec<Column> = vec![
        (titles.when, false),
        (titles.reserved_bytes, true),
        (titles.allocated_bytes, true),
        (titles.pending_bytes, true),
        (titles.whole_segments_bytes, true),
        (titles.split_remainders_bytes, true),
    ];
    if has_expandable {
        columns.push((titles.expandable_bytes, true));
    }
    let rows = caching.moments.iter().map(|moment| {
        let when = match moment.when {
            CachedWhen::Peak => "peak allocated",
            CachedWhen::ReservedPeak => "peak reserved",
            CachedWhen::End if pool.moment == HeldMoment::Dump => "at the dump",
            CachedWhen::End => "at the end",
        };
        let mut row = vec![when.to_owned()];
        let bytes = [
            moment.reserved_bytes,
            moment.allocated_bytes,
            moment.pending_bytes,
            moment.whole_segments_bytes,
            moment.split_remainders_bytes,
        ];
        row.extend(bytes.map(|bytes| bytes.to_string()));
        row.extend(has_expandable.then(|| moment.expandable_bytes.to_string()));
        row
    });
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
    if let Some(end) = caching.moments.last() {
        let _ = writeln!(
            out,
            "  cached {}: {} in whole segments, which torch.cuda.empty_cache() returns; {} in split remainders, \
             which it does not{}",
            if pool.moment == HeldMoment::Dump { "at the dump" } else { "at the end" },
            end.whole_segments_bytes,
            end.split_remainders_bytes,
            if has_expandable {
                format!("; {} in expandable segments, of which it returns whole pages", end.expandable_bytes)
            } else {
                String::new()
            }
        );
    }
    let is_plain = caching.streams.iter().all(|used| used.stream == 0 && used.private_pool.is_empty());
    for used in caching.streams.iter().filter(|_| !is_plain).take(STREAM_ROWS) {
        let private = if used.private_pool.is_empty() {
            String::new()
        } else {
            format!(", private pool {}", used.private_pool)
        };
        let _ = writeln!(
            out,
            "  stream {}{private}: {} reserved in {}, {} allocated",
            used.stream,
            used.reserved_bytes,
            counted(used.segments, "segment"),
            used.allocated_bytes
        );
    }
    let more = caching.streams.len().saturating_sub(STREAM_ROWS);
    if more > 0 && !is_plain {
        let _ = writeln!(out, "  and {} (--json lists all)", counted(more, "more stream"));
    }
    for failure in caching.failures.iter().take(FAILURE_ROWS) {
        let place =
            if failure.op.is_empty() { String::new() } else { format!(", at {}", printable(&failure.op)) };
        let _ = writeln!(
            out,
            "  {}out of memory{} at {}: {} requested with {} free on the device; {} allocated and {} reserved at that time{place}",
            style.bold,
            style.plain,
            clock(failure.at_ns),
            or_dash(failure.asked_bytes),
            or_dash(failure.device_free_bytes),
            failure.allocated_bytes,
            failure.reserved_bytes
        );
    }
    let more = caching.failures.len().saturating_sub(FAILURE_ROWS);
    if more > 0 {
        let _ = writeln!(out, "  and {} (--json lists all)", counted(more, "more failed request"));
    }
}
