//! How fast a trace is replayed, from columns, on one core.
//!
//! ```text
//! cargo run --profile dist -p vramline --features internals --example replay_speed -- TRACE [EVENTS]
//! ```
//!
//! The trace may be one of TensorFlow or JAX, or a snapshot of PyTorch. Repeats the steps of a real trace until there are so many events (a million by default), then runs them: the allocator
//! alone, and ten what-ifs. Prints the best of five.

use std::path::PathBuf;
use std::time::Instant;

use vramline::allocator::bfc::{self, Bfc};
use vramline::allocator::torch_caching::{self, PoolId, TorchCaching};
use vramline::allocator::{Placed, Placement};
use vramline::replay::{Act, PoolReplay, Program, Rules, Setting, replay};
use vramline::units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("expected a trace")?);
    let wanted: usize = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let reading = vramline::read(&path)?;
    let trace = &reading.hosts.first().ok_or("no host")?.trace;
    let pool = trace.pools.first().ok_or("no pool")?;
    let replayed = replay(trace, pool, None)?;
    let acts = repeated(&replayed.ran.program, wanted);
    let program = Program { acts, ..replayed.ran.program.clone() };
    println!(
        "{}: {} events, made {}; {}",
        path.display(),
        replayed.ran.program.acts.len(),
        program.acts.len(),
        replayed.ran.rules.preset()
    );
    for part in [4, 2, 1] {
        let acts = &program.acts[..program.acts.len() / part];
        let best = best_of(5, || match &replayed.ran.rules {
            Rules::Bfc(preset) => run_bfc(acts, &replayed, &program, preset.options),
            Rules::Torch(rules) => run_torch(acts, &program, rules.options),
        });
        println!(
            "allocator alone, {:>9} events: {:.1} ms, {:.1} million events a second",
            acts.len(),
            best * 1e3,
            acts.len() as f64 / best / 1e6
        );
    }
    let pool = replayed.ran.exact.pool;
    let is_bfc = matches!(replayed.ran.rules, Rules::Bfc(_));
    let settings: Vec<Setting> = (0..10)
        .map(|number| Setting {
            limit: Some(Bytes(pool.0 + number * (8 << 20))),
            growth: is_bfc.then_some(number % 2 == 0),
            expandable: (!is_bfc).then_some(number % 2 == 0),
            ..Setting::default()
        })
        .collect();
    let mut questions = replayed.questions();
    questions.program = &program;
    let best = best_of(5, || {
        settings.iter().filter(|setting| questions.ask(setting, None).is_some()).count() as u64
    });
    println!("ten what-ifs: {best:.2} s");
    Ok(())
}

fn run_bfc(acts: &[Act], replayed: &PoolReplay, program: &Program, options: bfc::Options) -> u64 {
    let limit = replayed.ran.limit.unwrap_or(Bytes(1 << 46));
    let Some(mut bfc) = Bfc::new("pool", limit, options) else { return 0 };
    let mut supplier = Placed::new(Placement::Ascending);
    let mut tickets = vec![bfc::Ticket::NONE; program.slots];
    for act in acts {
        let ticket = &mut tickets[act.slot()];
        if let Some(bytes) = act.requested() {
            *ticket = bfc
                .allocate(bfc::Request::of(bytes), &mut supplier)
                .map_or(bfc::Ticket::NONE, |made| made.ticket);
        } else {
            let _ = bfc.free(std::mem::replace(ticket, bfc::Ticket::NONE));
        }
    }
    bfc.stats().allocs
}

fn run_torch(acts: &[Act], program: &Program, options: torch_caching::Options) -> u64 {
    let mut allocator = TorchCaching::new(options);
    let Some(lane) = allocator.lane(PoolId::DEFAULT, 0) else { return 0 };
    let mut supplier = Placed::new(Placement::Ascending);
    let mut tickets = vec![torch_caching::Ticket::NONE; program.slots];
    for act in acts {
        let ticket = &mut tickets[act.slot()];
        if let Some(bytes) = act.requested() {
            *ticket = allocator
                .allocate(torch_caching::Request::of(bytes, lane), &mut supplier)
                .map_or(torch_caching::Ticket::NONE, |made| made.ticket);
        } else {
            let _ = allocator.free(std::mem::replace(ticket, torch_caching::Ticket::NONE));
        }
    }
    allocator.stats().allocation.all().allocated
}

/// The acts of a trace, then the second half of them over and over, each block freed before it is asked for again.
fn repeated(program: &Program, wanted: usize) -> Vec<Act> {
    let mut acts = program.acts.clone();
    let half = program.acts.len() / 2;
    let mut is_live = vec![false; program.slots];
    for act in &acts {
        is_live[act.slot()] = act.requested().is_some();
    }
    let mut at = half;
    while acts.len() < wanted && half < program.acts.len() {
        let act = program.acts[at];
        match (act.requested(), is_live[act.slot()]) {
            (Some(_), true) => acts.push(Act::free(u32::try_from(act.slot()).unwrap_or(0))),
            (None, false) => {
                at = if at + 1 < program.acts.len() { at + 1 } else { half };
                continue;
            }
            _ => {}
        }
        acts.push(act);
        is_live[act.slot()] = act.requested().is_some();
        at = if at + 1 < program.acts.len() { at + 1 } else { half };
    }
    acts
}

fn best_of(times: usize, mut run: impl FnMut() -> u64) -> f64 {
    let one = |_| {
        let begin = Instant::now();
        std::hint::black_box(run());
        begin.elapsed().as_secs_f64()
    };
    (0..times).map(one).fold(f64::INFINITY, f64::min)
}
