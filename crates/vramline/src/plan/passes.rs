//! The forward and backward passes of a PyTorch program: the calls of the one, and what the other does for the module of each.
//!
//! A call is what one op requests in a module's forward pass. Its visit is the time that the backward pass spends in that module: modules are
//! visited in the reverse order. Not its job: element types.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::probe::{Ask, Probe};
use super::size::{Form, Size};
use super::torch_call::Op;
use crate::snapshot::Role;
use crate::trace::Pass;

/// Results are computed again where more than one part in so many of a forward pass is still there when another begins.
const LEFT_DIVISOR: u64 = 10;

/// A request at the batch that is planned.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) ask: &'a Ask,
    /// Bytes at that batch.
    pub(super) bytes: u64,
    /// Whether it is the larger the larger the batch is.
    pub(super) grows: bool,
    /// Whether it is as large at every batch.
    pub(super) is_constant: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn new(ask: &'a Ask, size: &Size, batch: u64) -> Asked<'a> {
        let bytes = size.form.at(batch).0;
        let grows = size.form.at(batch.saturating_mul(2)).0 > bytes;
        Asked { ask, bytes, grows, is_constant: matches!(size.form, Form::Constant(_)) }
    }

    /// What tells tensors of different shapes apart: the size in the probe and at the batch.
    pub(super) fn key(self) -> (u64, u64) {
        (self.ask.bytes, self.bytes)
    }

    /// The act that frees it.
    pub(super) fn freed(self) -> usize {
        self.ask.life.map_or(usize::MAX, |life| self.ask.act.saturating_add(life))
    }

    /// Whether a request of the backward pass is the gradient of a parameter.
    pub(super) fn is_weight(self) -> bool {
        self.is_constant && !self.ask.is_brief() && self.ask.role == Role::Gradients
    }

    pub(super) fn module(self) -> Option<u32> {
        self.ask.call.and_then(|call| call.module)
    }
}

/// What an op requests in a forward pass.
pub(super) struct Called<'a> {
    pub(super) op: Op,
    pub(super) module: Option<u32>,
    pub(super) asks: Vec<Asked<'a>>,
    /// From its first request to the next one of the forward pass.
    pub(super) acts: Range<usize>,
    /// The acts in which the backward pass is in its module, if that is clear.
    pub(super) visit: Option<Range<usize>>,
}

/// What a backward pass requests in a module.
pub(super) struct Visit<'a> {
    /// `None` for what the program computes from the results of its modules, such as a loss.
    pub(super) module: Option<u32>,
    pub(super) asks: Vec<Asked<'a>>,
    pub(super) acts: Range<usize>,
}

/// A forward pass and its backward pass.
#[derive(Default)]
pub(super) struct Cycle<'a> {
    /// Data that comes in before or in it.
    pub(super) inputs: Vec<Asked<'a>>,
    pub(super) calls: Vec<Called<'a>>,
    /// Empty where nothing is trained.
    pub(super) visits: Vec<Visit<'a>>,
    /// The act at which the backward pass begins.
    pub(super) turn: usize,
}

impl<'a> Cycle<'a> {
    /// What the backward pass requests in a call's module.
    pub(super) fn back<'c>(&'c self, call: &Called<'_>) -> impl Iterator<Item = Asked<'a>> + 'c {
        let (module, acts) = (call.module, call.visit.clone().unwrap_or_default());
        let visits = self.visits.iter().filter(move |visit| {
            visit.module == module && acts.start <= visit.acts.start && visit.acts.end <= acts.end
        });
        visits.flat_map(|visit| visit.asks.iter().copied())
    }

    /// The gradients of the parameters of a call's module.
    pub(super) fn weights<'c>(&'c self, call: &Called<'_>) -> impl Iterator<Item = Asked<'a>> + 'c {
        self.back(call).filter(|asked| asked.is_weight())
    }
}

/// The requests of a cycle, sorted.
#[derive(Default)]
struct Sorted<'a> {
    inputs: Vec<Asked<'a>>,
    forth: Vec<Asked<'a>>,
    back: Vec<Asked<'a>>,
}

impl<'a> Sorted<'a> {
    fn cycle(self, end: usize) -> Cycle<'a> {
        let turn = self.back.first().map_or(end, |asked| asked.ask.act);
        let mut calls = calls(&self.forth, turn);
        let visits = visits(&self.back, end);
        meet(&mut calls, &visits);
        Cycle { inputs: self.inputs, calls, visits, turn }
    }

    /// Whether much of the forward pass is there at an act.
    fn is_there(&self, act: usize) -> bool {
        let sum = |asks: &mut dyn Iterator<Item = &Asked<'_>>| {
            asks.fold(0_u64, |sum, asked| sum.saturating_add(asked.bytes))
        };
        let grown = || self.forth.iter().filter(|asked| asked.grows);
        sum(&mut grown().filter(|asked| asked.freed() > act)) > sum(&mut grown()) / LEFT_DIVISOR
    }
}

/// The cycles of a probe; `None` where results are computed again in the backward pass.
pub(super) fn cycles<'a>(probe: &'a Probe, sizes: &[Size], batch: u64) -> Option<Vec<Cycle<'a>>> {
    cycles_of(&probe.asks, sizes, batch, probe.end())
}

/// The same of requests that end at an act.
pub(super) fn cycles_of<'a>(
    asks: &'a [Ask],
    sizes: &[Size],
    batch: u64,
    end: usize,
) -> Option<Vec<Cycle<'a>>> {
    let mut cycles = Vec::new();
    let mut sorted = Sorted::default();
    for (ask, size) in asks.iter().zip(sizes) {
        let asked = Asked::new(ask, size, batch);
        let is_own = matches!(ask.role, Role::Activations | Role::Temporaries);
        let ends = match ask.pass {
            Some(Pass::Forward) => !sorted.back.is_empty(),
            Some(Pass::Update) => !sorted.forth.is_empty(),
            _ => false,
        };
        if ends {
            if ask.pass == Some(Pass::Forward) && sorted.is_there(ask.act) {
                return None;
            }
            let inputs = sorted.inputs.iter().filter(|input| input.freed() > ask.act).copied().collect();
            let next = Sorted { inputs, ..Sorted::default() };
            cycles.push(std::mem::replace(&mut sorted, next).cycle(ask.act));
        }
        match ask.pass {
            Some(Pass::Forward) => sorted.forth.push(asked),
            // What the program computes from the results of its modules.
            None if is_own && !sorted.forth.is_empty() && sorted.back.is_empty() => sorted.forth.push(asked),
            None if asked.grows && ask.role == Role::Inputs => sorted.inputs.push(asked),
            Some(Pass::Backward) => sorted.back.push(asked),
            _ => {}
        }
    }
    if !sorted.forth.is_empty() {
        cycles.push(sorted.cycle(end));
    }
    Some(cycles)
}

fn calls<'a>(forth: &[Asked<'a>], turn: usize) -> Vec<Called<'a>> {
    let mut calls: Vec<Called<'a>> = Vec::new();
    let mut last = None;
    for &asked in forth {
        let (op, module) = asked.ask.call.map_or((Op::Program, None), |call| (call.op, call.module));
        // Several ops of the program's own code may have one stack.
        let site = asked.ask.call.filter(|_| op != Op::Program);
        match calls.last_mut() {
            Some(call) if site.is_some() && site == last => call.asks.push(asked),
            _ => {
                let acts = asked.ask.act..turn;
                calls.push(Called { op, module, asks: vec![asked], acts, visit: None });
            }
        }
        last = site;
    }
    let begins: Vec<usize> = calls.iter().skip(1).map(|call| call.acts.start).collect();
    for (call, next) in calls.iter_mut().zip(begins) {
        call.acts.end = next;
    }
    calls
}

fn visits<'a>(back: &[Asked<'a>], end: usize) -> Vec<Visit<'a>> {
    let mut visits: Vec<Visit<'a>> = Vec::new();
    for &asked in back {
        match visits.last_mut() {
            Some(visit) if visit.module == asked.module() => visit.asks.push(asked),
            last => {
                if let Some(last) = last {
                    last.acts.end = asked.ask.act;
                }
                let acts = asked.ask.act..end;
                visits.push(Visit { module: asked.module(), asks: vec![asked], acts });
            }
        }
    }
    visits
}

/// Gives calls the visits of their modules: the last call of a module is visited first.
fn meet(calls: &mut [Called<'_>], visits: &[Visit<'_>]) {
    let mut of_module: FxHashMap<u32, Vec<Range<usize>>> = FxHashMap::default();
    for visit in visits {
        if let Some(module) = visit.module {
            of_module.entry(module).or_default().push(visit.acts.clone());
        }
    }
    // What is called without another module in between is visited at once.
    let mut stays: FxHashMap<u32, Vec<Range<usize>>> = FxHashMap::default();
    let mut last = None;
    for (at, call) in calls.iter().enumerate() {
        if let Some(module) = call.module {
            let stays = stays.entry(module).or_default();
            match stays.last_mut() {
                Some(stay) if last == Some(module) => stay.end = at + 1,
                _ => stays.push(at..at + 1),
            }
        }
        last = call.module;
    }
    for (module, stays) in stays {
        let Some(visits) = of_module.get(&module) else { continue };
        let (Some(first), Some(end)) = (visits.first(), visits.last()) else { continue };
        for (stay, at) in stays.iter().rev().zip(0..) {
            let visit = match stays.len() {
                1 => Some(first.start..end.end),
                count if count == visits.len() => visits.get(at).cloned(),
                _ => None,
            };
            for call in calls.get_mut(stay.clone()).unwrap_or_default() {
                call.visit.clone_from(&visit);
            }
        }
    }
}
