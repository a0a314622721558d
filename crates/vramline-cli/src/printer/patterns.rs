//! Draws how far the requests of a pool repeat from step to step, and the ops whose sizes change.

use std::fmt::Write;

use vramline::units::{counted, plural};
use vramline::view::patterns::ChurningView;
use vramline::view::report::PoolView;

use super::{Column, Style, heading, or_dash, shorten, table};

/// How many ops are shown.
const ROWS: usize = 5;

pub(super) fn patterns(out: &mut String, pool: &PoolView, style: Style) {
    let Some(patterns) = &pool.patterns else { return };
    heading(out, &format!("Requests from step to step in {}", pool.name), style);
    let steady = match patterns.steady_from_step {
        Some(step) => format!("sizes are steady from step {step} on"),
        None => "the last traced step still requests new sizes".to_owned(),
    };
    let _ = writeln!(
        out,
        "  {} of the requests and {} of the bytes of a step repeat ({}); {steady}",
        percent(patterns.repeated_requests),
        percent(patterns.repeated_bytes),
        counted(patterns.steps, "traced step")
    );
    if patterns.churning_ops == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "  {} different sizes in most steps. The pool needs {}; if these ops always requested their largest sizes, it would need {}.",
        plural(patterns.churning_ops, "op requests", "ops request"),
        or_dash(patterns.pool_bytes),
        or_dash(patterns.padded_pool_bytes)
    );
    let titles = ChurningView::TITLES;
    let columns: [Column; 6] = [
        (titles.sizes, true),
        (titles.smallest_bytes, true),
        (titles.largest_bytes, true),
        (titles.total_bytes, true),
        (titles.layer, false),
        (titles.op, false),
    ];
    let rows = patterns.churning.iter().take(ROWS).map(|op| {
        vec![
            op.sizes.to_string(),
            op.smallest_bytes.to_string(),
            op.largest_bytes.to_string(),
            op.total_bytes.to_string(),
            op.layer.clone(),
            shorten(&op.op),
        ]
    });
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
}

fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{:.1} %", share * 100.0)))
}
