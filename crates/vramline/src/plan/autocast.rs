//! What `torch.autocast` makes of a probe's requests: which become half, which are cast, and which copies there are in addition.
//!
//! Autocast has lists of ops. Products and convolutions run in 16 bits, norms, softmax and losses in 32, and others in the type of what they
//! are given, the wider one where types differ. What has another type is cast for the op, and the copy is what the op keeps for the backward
//! pass. A weight has one copy in 16 bits for each forward pass. Gradients have the type of what they are gradients of; those of weights are
//! made in 16 bits and cast.
//!
//! Requests have no types, and what an op is given is not told: it is the tensor whose gradient the backward pass makes in the op's module and
//! that is kept until then, otherwise the latest of the same size. Ops that the program's own code calls have no name; what they give follows
//! from what they are given, from what is freed for them, and from parameters that are used there. Where that leaves two types open, both are
//! computed. Not its job: GradScaler's checks, the library's workspaces in 16 bits.

use rustc_hash::{FxHashMap, FxHashSet};

use super::casts::{Becomes, Casts};
use super::passes::{Asked, Called, Cycle, Visit, cycles};
use super::probe::Probe;
use super::size::Size;
use super::torch_call::{Modules, Op};

/// A tensor that is smaller than what an op gives by more than this is no result that the op computes with.
const SMALL_DIVISOR: u64 = 32;

/// Tensors that are looked through for the latest.
const LATEST: usize = 256;

/// Which type is taken where two are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lean {
    /// The one that is more likely.
    Likely,
    /// 16 bits.
    Narrow,
    /// 32 bits.
    Wide,
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Half,
    Whole,
}

use Width::{Half, Whole};

impl Width {
    fn widest(self, other: Width) -> Width {
        if (self, other) == (Half, Half) { Half } else { Whole }
    }
}

/// The casts of a probe under autocast; `None` where they cannot be computed.
pub(super) fn autocasts(probe: &Probe, sizes: &[Size], batch: u64, lean: Lean) -> Option<Casts> {
    let cycles = cycles(probe, sizes, batch)?;
    let mut casts = Casts::default();
    for cycle in &cycles {
        Passes::new(cycle, &probe.modules, lean).cast(&mut casts);
    }
    Some(casts)
}

/// A use of a tensor.
#[derive(Clone, Copy)]
struct Use {
    /// The type that it is used in.
    width: Width,
    /// The act at which the call that uses it begins.
    from: usize,
    /// The act at which that call is over.
    over: usize,
    /// The act up to which it is kept for that.
    until: usize,
}

/// A result of the forward pass.
struct Tensor<'a> {
    asked: Asked<'a>,
    width: Width,
    /// Whether it is a sum of two results, in the program's own code.
    is_sum: bool,
    /// Whether it came in.
    is_input: bool,
    uses: Vec<Use>,
}

impl Tensor<'_> {
    /// The act at which it is freed under autocast: copies in the other type may be kept in its place.
    fn end(&self) -> usize {
        let freed = self.asked.freed();
        let last = self.uses.iter().map(|used| used.until).max().unwrap_or(0);
        let is_cast = self.uses.iter().any(|used| used.width != self.width);
        if self.is_input || !is_cast || freed > last {
            return freed;
        }
        let native = self.uses.iter().filter(|used| used.width == self.width).map(|used| used.until);
        native.chain(self.uses.iter().map(|used| used.over)).max().unwrap_or(freed).min(freed)
    }
}

/// A forward pass and its backward pass, as they are cast.
struct Passes<'a, 'c> {
    cycle: &'c Cycle<'a>,
    modules: &'c Modules,
    lean: Lean,
    tensors: Vec<Tensor<'a>>,
    by_size: FxHashMap<(u64, u64), Vec<usize>>,
    /// By call, what it is given.
    given: Vec<Option<usize>>,
    /// The latest result when each module that runs began.
    entries: FxHashMap<u32, Option<usize>>,
    /// Gradients of parameters that the code of a module itself uses, other than in products.
    loose: FxHashMap<u32, Vec<u64>>,
}

impl<'a, 'c> Passes<'a, 'c> {
    fn new(cycle: &'c Cycle<'a>, modules: &'c Modules, lean: Lean) -> Passes<'a, 'c> {
        let own = |call: &&Called<'_>| call.op == Op::Program;
        let own: FxHashSet<u32> = cycle.calls.iter().filter(own).filter_map(|call| call.module).collect();
        let named = |call: &&Called<'_>| call.op != Op::Program;
        let named: FxHashSet<u32> = cycle.calls.iter().filter(named).filter_map(|call| call.module).collect();
        let mut loose: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        for visit in &cycle.visits {
            let Some(module) = visit.module.filter(|module| own.contains(module) && !named.contains(module))
            else {
                continue;
            };
            let found = visit.asks.iter().filter(|asked| asked.is_weight()).map(|asked| asked.bytes);
            loose.entry(module).or_default().extend(found);
        }
        Passes {
            cycle,
            modules,
            lean,
            tensors: Vec::new(),
            by_size: FxHashMap::default(),
            given: Vec::new(),
            entries: FxHashMap::default(),
            loose,
        }
    }

    fn cast(mut self, casts: &mut Casts) {
        let mut before: Vec<u32> = Vec::new();
        for call in &self.cycle.calls {
            let around: Vec<u32> = self.modules.around(call.module).collect();
            let entry = self.tensors.len().checked_sub(1);
            for module in around.iter().filter(|module| !before.contains(module)) {
                self.entries.insert(*module, entry);
            }
            before = around;
            let given = self.forth(call);
            self.given.push(given);
        }
        self.weights(casts);
        self.back(casts);
        self.losses(casts);
        for tensor in &self.tensors {
            let (act, end, freed) = (tensor.asked.ask.act, tensor.end(), tensor.asked.freed());
            let becomes = match tensor.width {
                Half if end < freed => Some(Becomes::HalfUntil(end)),
                Half => Some(Becomes::Half),
                Whole if end < freed => Some(Becomes::WholeUntil(end)),
                Whole => None,
            };
            if let Some(becomes) = becomes {
                casts.becomes.insert(act, becomes);
            }
            for used in tensor.uses.iter().filter(|used| used.width != tensor.width) {
                casts.copy(bytes_in(used.width, tensor.asked), used.from, used.until);
            }
        }
    }

    /// A call of the forward pass; gives the tensor that it is given.
    fn forth(&mut self, call: &Called<'a>) -> Option<usize> {
        let results = results(call);
        let mut is_sum = false;
        let (given, width) = match call.op {
            Op::Lower | Op::Convolution => {
                let given = self.given_to_product(call);
                self.uses(given, call, Half, true);
                (given, Half)
            }
            Op::Wider | Op::WiderBriefly => {
                let given = self.latest_like(call, results.first().copied());
                self.uses(given, call, Whole, call.op == Op::Wider);
                (given, Whole)
            }
            Op::Table => (None, Whole),
            Op::Program => {
                let (given, width, joins) = self.of_program(call, results.first().copied());
                is_sum = joins;
                (given, width)
            }
            _ => {
                let given = self.latest_like(call, results.first().copied());
                let width =
                    given.and_then(|given| self.tensors.get(given)).map_or(Whole, |given| given.width);
                if call.op != Op::CrossEntropy {
                    self.uses(given, call, width, true);
                }
                (given, width)
            }
        };
        for asked in results {
            self.add(Tensor { asked, width, is_sum, is_input: false, uses: Vec::new() });
        }
        given
    }

    fn add(&mut self, tensor: Tensor<'a>) -> usize {
        let number = self.tensors.len();
        self.by_size.entry(tensor.asked.key()).or_default().push(number);
        self.tensors.push(tensor);
        number
    }

    /// Notes that a call uses a tensor, and keeps it if it is there when the backward pass comes to the call.
    fn uses(&mut self, given: Option<usize>, call: &Called<'_>, width: Width, may_keep: bool) {
        let Some(tensor) = given.and_then(|given| self.tensors.get_mut(given)) else { return };
        let freed = tensor.asked.freed();
        let visit = call.visit.clone().unwrap_or(self.cycle.turn..usize::MAX);
        let keeps = may_keep && freed >= visit.start && !self.cycle.visits.is_empty();
        let until = if !keeps {
            call.acts.end
        } else if tensor.is_input {
            visit.end
        } else {
            freed.min(visit.end)
        };
        tensor.uses.push(Use { width, from: call.acts.start, over: call.acts.end, until });
    }

    /// What a product or convolution is given: its backward pass makes the gradient of that, and it is kept until then.
    fn given_to_product(&mut self, call: &Called<'a>) -> Option<usize> {
        let begin = call.acts.start;
        let Some(visit) = &call.visit else { return self.latest(begin, 0) };
        let is_gradient = |asked: &Asked<'_>| asked.grows && !asked.ask.is_brief();
        let gradients: Vec<Asked<'_>> = self.cycle.back(call).filter(is_gradient).collect();
        if gradients.is_empty() {
            return self.input(call).or_else(|| self.latest(begin, 0));
        }
        // A tensor that is kept for this call alone goes at the end of the visit. One that is kept for another one, too, is there until what gave
        // it is visited, and so is its gradient.
        let candidates = gradients.iter().flat_map(|gradient| {
            let numbers = self.by_size.get(&gradient.key()).into_iter().flatten();
            numbers.filter_map(|&number| {
                let freed = self.tensors.get(number)?.asked.freed();
                let is_kept = freed > begin && freed >= visit.start;
                let is_alone = freed <= visit.end;
                let apart = if is_alone { 0 } else { freed.abs_diff(gradient.freed()).saturating_add(1) };
                is_kept.then_some((apart, std::cmp::Reverse(number)))
            })
        });
        let kept = candidates.min().map(|(_, latest)| latest.0);
        kept.or_else(|| self.latest(begin, 0))
    }

    /// The data that a first product is given: of what comes in, the largest.
    fn input(&mut self, call: &Called<'_>) -> Option<usize> {
        let begin = call.acts.start;
        if self.tensors.iter().rev().take(LATEST).any(|tensor| !tensor.is_input && tensor.end() > begin) {
            return None;
        }
        let there = self.cycle.inputs.iter().filter(|input| input.ask.act < begin && input.freed() > begin);
        let asked = *there.max_by_key(|input| input.bytes)?;
        if let Some(known) = self.tensors.iter().position(|tensor| tensor.asked.ask.act == asked.ask.act) {
            return Some(known);
        }
        Some(self.add(Tensor { asked, width: Whole, is_sum: false, is_input: true, uses: Vec::new() }))
    }

    /// The latest tensor that is there at an act and has at least so many bytes.
    fn latest(&self, at: usize, bytes: u64) -> Option<usize> {
        let is_there =
            |tensor: &Tensor<'_>| tensor.end() > at && tensor.asked.bytes >= bytes && !tensor.is_input;
        let found = self.tensors.iter().rev().take(LATEST).position(is_there)?;
        Some(self.tensors.len() - 1 - found)
    }

    /// The latest tensor of a result's size that is there when a call begins, otherwise the latest.
    fn latest_like(&self, call: &Called<'_>, result: Option<Asked<'_>>) -> Option<usize> {
        let begin = call.acts.start;
        let is_there = |&&number: &&usize| {
            self.tensors.get(number).is_some_and(|tensor| tensor.end() > begin && !tensor.is_input)
        };
        let same = result.and_then(|result| self.by_size.get(&result.key()));
        let same = same.and_then(|numbers| numbers.iter().rev().take(LATEST).find(is_there)).copied();
        same.or_else(|| self.latest(begin, 0))
    }

    /// An op that the program's own code calls: what it is given, the type of its result, and whether that is a sum of two results.
    fn of_program(&mut self, call: &Called<'a>, result: Option<Asked<'a>>) -> (Option<usize>, Width, bool) {
        let Some(result) = result else { return (None, Whole, false) };
        let begin = call.acts.start;
        let given = self.latest(begin, result.bytes / SMALL_DIVISOR);
        let Some((given, tensor)) = given.and_then(|given| Some((given, self.tensors.get(given)?))) else {
            return (None, Whole, false);
        };
        let (size, width, freed) = (tensor.asked.key(), tensor.width, tensor.asked.freed());
        // Not kept for the backward pass.
        let is_last = freed <= self.cycle.turn;
        if let Some(other) = self.joined(call, result, given, is_last) {
            return (Some(given), width.widest(other), true);
        }
        let is_alike = size == result.key();
        let width = if width == Whole {
            // What gives another size, and keeps what it is given, is a product.
            let is_kept = freed > self.cycle.turn && !self.cycle.visits.is_empty();
            if is_alike || !is_kept { Whole } else { self.either(Half) }
        } else {
            self.of_half(call, result, size, is_last)
        };
        if (width, is_alike) == (Half, false) {
            self.uses(Some(given), call, Half, true);
        }
        (Some(given), width, false)
    }

    /// The type of what the program's own code computes from a tensor of 16 bits alone, or from that and a parameter.
    fn of_half(&self, call: &Called<'_>, result: Asked<'_>, given: (u64, u64), is_last: bool) -> Width {
        let is_alike = given == result.key();
        let loose = call.module.and_then(|module| self.loose.get(&module));
        let added = if is_alike { result.bytes } else { result.bytes.saturating_sub(given.1) };
        let has_parameter = loose.is_some_and(|loose| {
            loose.iter().any(|&bytes| bytes > 0 && added > 0 && added.is_multiple_of(bytes))
        });
        match (has_parameter, is_last, is_alike) {
            // A parameter has 32 bits, and so has what is computed from it.
            (true, true, _) => Whole,
            (true, false, true) => self.either(Whole),
            (false, true, true) => self.of_value(call, result),
            _ => Half,
        }
    }

    /// The type of what is added to, or put beside, what the program's own code is given.
    fn joined(&self, call: &Called<'_>, result: Asked<'_>, given: usize, is_last: bool) -> Option<Width> {
        let begin = call.acts.start;
        let mine = self.tensors.get(given)?;
        let is_other = |number: usize, tensor: &Tensor<'_>| number != given && tensor.end() > begin;
        let of_size = |size: (u64, u64)| self.by_size.get(&size).into_iter().flatten().rev().take(LATEST);
        let pick = |&number: &usize| self.tensors.get(number).map(|tensor| (number, tensor));
        // Of two that go at once, both are given.
        if let Some((_, other)) = of_size(result.key())
            .filter_map(pick)
            .find(|&(number, tensor)| is_other(number, tensor) && tensor.asked.freed() <= call.acts.end)
        {
            return Some(other.width);
        }
        if !is_last {
            return None;
        }
        if mine.asked.key() != result.key() {
            let rest = |one: u64, all: u64| all.checked_sub(one).filter(|&rest| rest > 0);
            let size = (rest(mine.asked.key().0, result.key().0)?, rest(mine.asked.key().1, result.key().1)?);
            return of_size(size)
                .filter_map(pick)
                .find(|&(number, tensor)| is_other(number, tensor))
                .map(|of| of.1.width);
        }
        // What the module was given, or the latest sum since.
        let entry = call.module.and_then(|module| self.entries.get(&module).copied().flatten());
        let others =
            || of_size(result.key()).filter_map(pick).filter(|&(number, tensor)| is_other(number, tensor));
        let found = others().find(|&(number, tensor)| {
            let is_of_module = tensor.is_sum && tensor.asked.module() == call.module;
            entry == Some(number) || is_of_module
        });
        // Or another result: then the sum is not the only possibility.
        let another = || others().find(|(_, tensor)| tensor.width == Whole).map(|_| self.either(Whole));
        found.map(|(_, tensor)| tensor.width).or_else(another)
    }

    /// The type of what alone is kept of a call of the program's own code: it may be a softmax, whose gradient follows from its value.
    fn of_value(&self, call: &Called<'_>, result: Asked<'_>) -> Width {
        const MASK_DIVISOR: u64 = 4;
        let next = self.cycle.calls.iter().find(|next| next.acts.start >= call.acts.end);
        let Some(next) = next.filter(|_| result.freed() > self.cycle.turn) else { return Half };
        let is_kept_for_next =
            next.visit.as_ref().is_some_and(|visit| (visit.start..=visit.end).contains(&result.freed()));
        if next.op != Op::Program && is_kept_for_next {
            return Half;
        }
        // Dropout keeps a mask of bytes, and nothing of what it is given.
        let is_dropout = next.asks.iter().any(|asked| asked.bytes == result.bytes / MASK_DIVISOR);
        self.either(if next.op == Op::Same && is_dropout { Whole } else { Half })
    }

    /// The type where two are possible.
    fn either(&self, likely: Width) -> Width {
        match self.lean {
            Lean::Likely => likely,
            Lean::Narrow => Half,
            Lean::Wide => Whole,
        }
    }

    /// Weights of products: a copy for the forward pass, kept until the product is visited, and gradients that are cast.
    fn weights(&self, casts: &mut Casts) {
        let mut done: FxHashSet<u32> = FxHashSet::default();
        for call in self.cycle.calls.iter().filter(|call| call.op.is_product()) {
            let Some((module, visit)) = call.module.zip(call.visit.as_ref()) else { continue };
            if !done.insert(module) {
                continue;
            }
            for asked in self.cycle.weights(call) {
                casts.copy(asked.bytes.div_ceil(2), call.acts.start, visit.end);
                casts.becomes.insert(asked.ask.act, Becomes::Widened);
            }
        }
    }

    /// Gradients of the forward pass's results.
    fn back(&self, casts: &mut Casts) {
        let mut by_module: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (number, call) in self.cycle.calls.iter().enumerate() {
            if let Some(module) = call.module {
                by_module.entry(module).or_default().push(number);
            }
        }
        for visit in &self.cycle.visits {
            let Some(module) = visit.module else { continue };
            let numbers = by_module.get(&module).map(Vec::as_slice).unwrap_or_default();
            for asked in visit.asks.iter().filter(|asked| asked.grows && !asked.ask.is_brief()) {
                if let Some(becomes) = self.gradient(visit, numbers, *asked) {
                    casts.becomes.insert(asked.ask.act, becomes);
                }
            }
        }
    }

    /// What becomes of a gradient in a module with some calls.
    fn gradient(&self, visit: &Visit<'_>, calls: &[usize], asked: Asked<'_>) -> Option<Becomes> {
        let is_of = |number: &&usize| {
            let call = self.cycle.calls.get(**number);
            call.and_then(|call| call.visit.as_ref()).is_none_or(|acts| acts.contains(&visit.acts.start))
        };
        let calls: Vec<usize> = calls.iter().filter(is_of).copied().collect();
        let ops = calls.iter().filter_map(|&number| self.cycle.calls.get(number)).map(|call| call.op);
        let is_all = |wanted: &dyn Fn(Op) -> bool| !calls.is_empty() && ops.clone().all(wanted);
        let given = calls.iter().filter_map(|&number| *self.given.get(number)?).next_back();
        let given = given.and_then(|given| self.tensors.get(given));
        if is_all(&Op::is_product) && given.is_some_and(|given| given.asked.key() == asked.key()) {
            return Some(if given?.width == Half { Becomes::Half } else { Becomes::Widened });
        }
        if is_all(&|op| matches!(op, Op::Wider | Op::WiderBriefly)) {
            return given.filter(|given| given.width == Half).map(|_| Becomes::Narrowed);
        }
        (self.like(asked)? == Half).then_some(Becomes::Half)
    }

    /// The type of what a gradient is of: of the tensors of its size the one that the backward pass is about to free.
    fn like(&self, asked: Asked<'_>) -> Option<Width> {
        let numbers = self.by_size.get(&asked.key())?;
        let tensors = || numbers.iter().filter_map(|&number| self.tensors.get(number));
        let there = tensors().filter(|tensor| tensor.asked.freed() >= asked.ask.act);
        let next = there.min_by_key(|tensor| tensor.asked.freed());
        next.or_else(|| tensors().next_back()).map(|tensor| tensor.width)
    }

    /// Losses of results in 16 bits: gradients are made in 32, and the last is cast.
    fn losses(&self, casts: &mut Casts) {
        for (call, given) in self.cycle.calls.iter().zip(&self.given) {
            let is_entropy = call.op == Op::CrossEntropy;
            if !is_entropy && (call.op != Op::Wider || call.module.is_some()) {
                continue;
            }
            let given = given.and_then(|given| self.tensors.get(given));
            let Some(given) = given.filter(|given| given.width == Half) else { continue };
            let acts = call.visit.clone();
            let first = || {
                self.cycle
                    .visits
                    .first()
                    .filter(|visit| visit.module.is_none())
                    .map(|visit| visit.acts.clone())
            };
            let Some(acts) = acts.or_else(first) else { continue };
            let visits = self.cycle.visits.iter().filter(|visit| acts.contains(&visit.acts.start));
            let asks = visits.flat_map(|visit| &visit.asks);
            let gradients: Vec<&Asked<'_>> = asks.filter(|asked| asked.key() == given.asked.key()).collect();
            if let [first, .., last] = gradients.as_slice()
                && is_entropy
            {
                // The softmax is in 16 bits, and a copy in 32 is kept for the loss.
                for result in results(call) {
                    casts.copy(result.bytes, call.acts.start, first.ask.act + 1);
                }
                casts.becomes.insert(first.ask.act, Becomes::NarrowedAt(last.ask.act));
                casts.becomes.insert(last.ask.act, Becomes::Half);
            } else if let Some(last) = gradients.last() {
                casts.becomes.insert(last.ask.act, Becomes::Narrowed);
            }
        }
    }
}

/// What a call gives: the largest of what it asks for and keeps beyond itself.
fn results<'a>(call: &Called<'a>) -> Vec<Asked<'a>> {
    let is_result = |asked: &&Asked<'a>| asked.grows && asked.freed() > call.acts.end.min(last_act(call) + 1);
    let grown = || call.asks.iter().filter(is_result);
    if call.op == Op::SameWithIndices {
        return grown().take(1).copied().collect();
    }
    // A product may copy what it is given, too.
    if call.op.is_product() {
        return grown().copied().collect();
    }
    let largest = grown().map(|asked| asked.bytes).max();
    grown().filter(|asked| Some(asked.bytes) == largest).copied().collect()
}

/// The act of a call's last request.
fn last_act(call: &Called<'_>) -> usize {
    call.asks.last().map_or(call.acts.start, |asked| asked.ask.act)
}

/// The bytes of a tensor of 32 bits in a type.
fn bytes_in(width: Width, asked: Asked<'_>) -> u64 {
    match width {
        Half => asked.bytes.div_ceil(2),
        Whole => asked.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::casts::Copied;
    use super::super::passes::cycles_of;
    use super::super::probe::{Ask, Keys, Place};
    use super::super::size::{Basis, Form};
    use super::super::torch_call::Call;
    use super::*;
    use crate::event::{Dtype, Region};
    use crate::names::Names;
    use crate::snapshot::Role;
    use crate::stack::{Stack, Stacks};
    use crate::trace::Pass;

    /// A request: its pass, the module and op, the act that makes it, the one that frees it, and bytes. A constant number is odd.
    type Told = (Pass, Option<u32>, Op, usize, usize, u64);

    fn cast(told: &[Told], lean: Lean) -> (Vec<(usize, Becomes)>, Vec<Copied>) {
        let (mut names, mut stacks) = (Names::default(), Stacks::default());
        let mut keys = Keys::default();
        let mut ask = |&(pass, module, op, act, freed, bytes): &Told| {
            let frame = names.intern(&format!("{op:?} {module:?}"));
            Ask {
                act,
                key: keys.key("", Region::Unknown, Dtype::Unknown, 0),
                occurrence: 0,
                stretch: 0,
                bytes,
                shape: Vec::new(),
                role: if pass == Pass::Backward { Role::Gradients } else { Role::Activations },
                is_named: true,
                tries_kernels: false,
                life: Some(freed - act),
                dtype: Dtype::Unknown,
                place: Place::default(),
                pass: Some(pass),
                call: Some(Call { op, module, stack: stacks.push(Stack::EMPTY, frame) }),
            }
        };
        let asks: Vec<Ask> = told.iter().map(&mut ask).collect();
        let size = |ask: &Ask| {
            let line = Form::Line { from: (1, ask.bytes), to: (2, 2 * ask.bytes) };
            let form = if ask.bytes.is_multiple_of(2) { line } else { Form::Constant(ask.bytes) };
            Size { form, basis: Basis::Exact }
        };
        let sizes: Vec<Size> = asks.iter().map(size).collect();
        // A root with parts.
        let modules = Modules { parents: [None].into_iter().chain([Some(0); 8]).collect() };
        let mut casts = Casts::default();
        for cycle in cycles_of(&asks, &sizes, 1, 100).unwrap() {
            Passes::new(&cycle, &modules, lean).cast(&mut casts);
        }
        let mut becomes: Vec<(usize, Becomes)> = casts.becomes.into_iter().collect();
        becomes.sort_unstable_by_key(|(act, _)| *act);
        casts.copies.sort_unstable_by_key(|copied| (copied.from, copied.bytes));
        (becomes, casts.copies)
    }

    fn copied(bytes: u64, from: usize, until: usize) -> Copied {
        Copied { bytes, from, until }
    }

    #[test]
    fn products_keep_copies_in_16_bits_of_what_norms_give() {
        use Pass::{Backward, Forward};
        let told = [
            (Forward, Some(1), Op::Table, 0, 60, 400),
            (Forward, Some(2), Op::Wider, 2, 50, 400),
            (Forward, Some(3), Op::Lower, 4, 40, 800),
            (Forward, Some(4), Op::Same, 6, 44, 800),
            (Forward, Some(5), Op::Lower, 8, 12, 400),
            (Forward, Some(0), Op::Program, 10, 30, 400),
            (Forward, None, Op::CrossEntropy, 13, 24, 400),
            (Backward, None, Op::Program, 20, 23, 400),
            (Backward, None, Op::Program, 22, 28, 400),
            (Backward, Some(5), Op::Program, 32, 40, 800),
            (Backward, Some(5), Op::Program, 33, 90, 201),
            (Backward, Some(4), Op::Program, 39, 46, 800),
            (Backward, Some(3), Op::Program, 45, 58, 400),
            (Backward, Some(3), Op::Program, 46, 91, 203),
            (Backward, Some(2), Op::Program, 54, 64, 400),
        ];
        let (becomes, copies) = cast(&told, Lean::Likely);
        let expected = [
            // The norm's result goes when the product has its copy.
            (2, Becomes::WholeUntil(6)),
            (4, Becomes::Half),
            (6, Becomes::Half),
            (8, Becomes::Half),
            (32, Becomes::Half),
            (33, Becomes::Widened),
            (39, Becomes::Half),
            (45, Becomes::Widened),
            (46, Becomes::Widened),
        ];
        // A sum with the table's result has 32 bits, so nothing of the loss has 16.
        assert_eq!(becomes, expected);
        assert_eq!(copies, [copied(102, 4, 54), copied(200, 4, 50), copied(101, 8, 39)]);
    }

    #[test]
    fn norms_keep_copies_in_32_bits_of_what_products_give() {
        use Pass::{Backward, Forward};
        let told = [
            (Forward, Some(1), Op::Lower, 0, 48, 400),
            (Forward, Some(2), Op::Wider, 2, 44, 400),
            (Forward, Some(3), Op::Lower, 4, 8, 200),
            (Forward, None, Op::CrossEntropy, 6, 24, 200),
            (Backward, None, Op::Program, 20, 23, 200),
            (Backward, None, Op::Program, 22, 28, 200),
            (Backward, Some(3), Op::Program, 30, 47, 400),
            (Backward, Some(3), Op::Program, 31, 90, 81),
            (Backward, Some(2), Op::Program, 45, 60, 400),
            (Backward, Some(1), Op::Program, 50, 91, 63),
        ];
        let (becomes, copies) = cast(&told, Lean::Likely);
        let expected = [
            (0, Becomes::HalfUntil(4)),
            (2, Becomes::WholeUntil(6)),
            (4, Becomes::Half),
            // The softmax has 16 bits, and the loss keeps a copy in 32 until its gradient is there.
            (6, Becomes::Half),
            (20, Becomes::NarrowedAt(22)),
            (22, Becomes::Half),
            (30, Becomes::Widened),
            (31, Becomes::Widened),
            (45, Becomes::Narrowed),
            (50, Becomes::Widened),
        ];
        assert_eq!(becomes, expected);
        let expected = [
            copied(32, 0, 100),
            copied(400, 2, 48),
            copied(41, 4, 45),
            copied(200, 4, 44),
            copied(200, 6, 21),
        ];
        assert_eq!(copies, expected);
    }

    #[test]
    fn a_function_without_a_name_may_have_either_type() {
        use Pass::{Backward, Forward};
        let told = [
            (Forward, Some(1), Op::Lower, 0, 6, 800),
            (Forward, Some(0), Op::Program, 4, 48, 800),
            (Forward, Some(2), Op::Same, 8, 12, 800),
            (Forward, Some(2), Op::Same, 9, 46, 200),
            (Backward, Some(2), Op::Program, 20, 46, 800),
            (Backward, Some(0), Op::Program, 45, 49, 800),
            (Backward, Some(1), Op::Program, 50, 91, 63),
        ];
        let of = |lean| cast(&told, lean).0.into_iter().find(|&(act, _)| act == 4);
        // Dropout keeps a mask: the value before it is kept for a softmax, which has 32 bits.
        assert_eq!((of(Lean::Likely), of(Lean::Wide)), (None, None));
        assert_eq!(of(Lean::Narrow), Some((4, Becomes::Half)));
    }
}
