//! A small run to plan from: the requests to its pool, with op and step.
//!
//! What an op asks for in one probe is found again in another by a [`Key`]: the op's name without the numbers that differ from
//! process to process, the purpose, the element type and the rank; and by how often that came before in the same step.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::torch_call::{Call, Calls, Modules};
use crate::event::{Dtype, Framework, How, Region};
use crate::names::Name;
use crate::replay::{self, NotReplayed, PoolRun};
use crate::snapshot::Role;
use crate::trace::{AUTOTUNING, Pass, Phase, PoolTrace, Trace};
use crate::units::{Bytes, Span};

/// Who asks, the same in every probe. The empty name is one too: of requests that nothing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u32);

/// The keys of all probes of a plan.
#[derive(Debug, Default)]
pub(super) struct Keys {
    numbers: FxHashMap<(String, Region, Dtype, usize), u32>,
}

impl Keys {
    pub(super) fn key(&mut self, name: &str, region: Region, dtype: Dtype, rank: usize) -> Key {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        Key(*self.numbers.entry((name.to_owned(), region, dtype, rank)).or_insert(next))
    }

    /// The names of the askers.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(|(name, ..)| name.as_str())
    }
}

/// A name without the number that TensorFlow gives a function in each process anew.
fn without_number(name: &str) -> &str {
    if !name.starts_with("__inference_")
        && !name.starts_with("__forward_")
        && !name.starts_with("__backward_")
    {
        return name;
    }
    name.trim_end_matches(|symbol: char| symbol.is_ascii_digit()).trim_end_matches('_')
}

/// The position of an op in the model, as far as its name shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The layer, of those that work in 32 bits whatever the others do.
    pub(super) wide: Option<u32>,
    /// Whether that is the loss.
    pub(super) is_loss: bool,
    /// Whether it belongs to the backward pass.
    pub(super) is_back: bool,
    /// The loop it is in.
    pub(super) looped: Option<u32>,
    /// What its name begins with, but for the last part. Told in loops only.
    pub(super) within: Option<u32>,
}

/// The places of a probe's ops.
#[derive(Debug, Default)]
struct Places {
    known: FxHashMap<Name, Place>,
    numbers: FxHashMap<String, u32>,
}

impl Places {
    fn of(&mut self, name: Name, text: &str) -> Place {
        if let Some(&place) = self.known.get(&name) {
            return place;
        }
        let place = self.read(text);
        self.known.insert(name, place);
        place
    }

    fn read(&mut self, text: &str) -> Place {
        let is_back = text.contains("gradient_tape/") || text.contains("/gradients/");
        let wide = wide(text);
        // Inside a loop names stand twice, of the loop and of what its body does.
        let inner = ["/gradients/", "/body/_"].iter().filter_map(|word| Some(text.rfind(word)? + word.len()));
        let inner = inner.max().and_then(|at| text.get(at..)).unwrap_or(text);
        let looped = inner.split_once("/while/").map(|(before, _)| after_number(before));
        let within = looped.and(text.rsplit_once('/')).map(|(before, _)| before);
        Place {
            wide: wide.map(|(layer, _)| self.number(layer)),
            is_loss: wide.is_some_and(|(_, is_loss)| is_loss),
            is_back,
            looped: looped.map(|text| self.number(text)),
            within: within.map(|text| self.number(text)),
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(text.to_owned()).or_insert(next)
    }
}

/// What follows the number that a body of a loop has: `33/model/lstm` is `model/lstm`.
fn after_number(text: &str) -> &str {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('/').filter(|(first, _)| is_number(first)).map_or(text, |(_, rest)| rest)
}

/// The layer of an op that works in 32 bits whatever the others do, and whether it is the loss. Keras casts what such layers
/// are given: those that normalise, the loss, and tables that are looked up.
fn wide(name: &str) -> Option<(&str, bool)> {
    const LAYERS: [&str; 5] = ["normalization", "batchnorm", "layer_norm", "layernorm", "embedding"];
    const LOSSES: [&str; 2] = ["compile_loss", "crossentropy"];
    let has = |part: &str, words: &[&str]| words.iter().any(|word| part.contains(word));
    // Nobody calls the op itself so: the last part is not a layer.
    let layers = name.rsplit_once('/')?.0;
    let part = layers.split('/').find(|part| has(part, &LAYERS) || has(part, &LOSSES))?;
    Some((part, has(part, &LOSSES)))
}

/// The dimensions of a shape as the frameworks write it.
fn dimensions(text: &str) -> Vec<u64> {
    let inside = text.split_once('[').map_or("", |(_, rest)| rest.split(']').next().unwrap_or(""));
    let all = inside.split(',').map(|part| part.trim().parse::<u64>());
    all.collect::<Result<Vec<_>, _>>().unwrap_or_default()
}

/// A request of a probe.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// The act of the program.
    pub(super) act: usize,
    /// Who asks.
    pub(super) key: Key,
    /// How often that asked before in the same stretch.
    pub(super) occurrence: u32,
    /// The stretch it lies in.
    pub(super) stretch: usize,
    /// The requested bytes.
    pub(super) bytes: u64,
    /// The dimensions, if known.
    pub(super) shape: Vec<u64>,
    /// What it is for.
    pub(super) role: Role,
    /// Whether anything names it.
    pub(super) is_named: bool,
    /// Whether XLA's compiler asks in JAX, to try kernels: before the program that it compiles runs.
    pub(super) tries_kernels: bool,
    /// How many acts it lives for; `None` where it is never freed.
    pub(super) life: Option<usize>,
    /// Its element type.
    pub(super) dtype: Dtype,
    /// Where in the model.
    pub(super) place: Place,
    /// What of a training step of PyTorch asks.
    pub(super) pass: Option<Pass>,
    /// What runs there in PyTorch.
    pub(super) call: Option<Call>,
}

impl Ask {
    /// Whether nothing tells who asks: a compiled program may.
    pub(super) fn is_nameless(&self) -> bool {
        !self.is_named && !self.tries_kernels
    }
}

/// What a stretch of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Before the first step.
    Start,
    /// The first step, which makes what later ones find.
    FirstStep,
    /// A later training step.
    Step,
    /// A step that evaluates.
    Validation,
    /// A step that predicts.
    Predict,
    /// Any other step.
    Other,
}

impl Part {
    /// Whether it is a training step.
    pub(super) fn trains(self) -> bool {
        matches!(self, Part::FirstStep | Part::Step)
    }
}

words!(Part {
    Start => "start",
    FirstStep => "first-step",
    Step => "step",
    Validation => "validation",
    Predict => "predict",
    Other => "other",
});

/// A stretch of a probe: the time before the first step, or a step up to the next.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) part: Part,
    /// The how manieth of its part it is.
    pub(super) ordinal: usize,
    pub(super) acts: Range<usize>,
}

/// Where a probe comes from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The batch, or whatever else is varied.
    pub batch: u64,
    /// Its trace.
    pub trace: &'a Trace,
    /// The pool of it.
    pub pool: &'a PoolTrace,
    /// The framework's version, where it is known.
    pub version: Option<&'a str>,
    /// Whether memory ran out before the program was done.
    pub ended_early: bool,
    /// The threads that its device runs at once, where that is known.
    pub threads: Option<u64>,
}

/// A small run to plan from.
#[derive(Debug)]
pub struct Probe {
    /// The batch, or whatever else is varied.
    pub batch: u64,
    /// Its requests through its own allocator.
    pub ran: PoolRun,
    /// How many training steps it has.
    pub steps: usize,
    pub(super) asks: Vec<Ask>,
    /// The modules of its asks, in PyTorch.
    pub(super) modules: Modules,
    pub(super) stretches: Vec<Stretch>,
    /// How long its later training steps take, in the middle.
    pub(super) step_time: Option<Span>,
    pub(super) framework: Option<Framework>,
    /// Whether the program uses Keras, as far as is known: with TensorFlow it is taken for granted.
    pub(super) has_keras: bool,
    /// Whether its pool is of a device, not of the host.
    pub(super) is_on_device: bool,
    /// Whether memory ran out before the program was done.
    pub(super) ended_early: bool,
    /// The threads that its device runs at once, where that is known.
    pub(super) threads: Option<u64>,
    /// Whether a gradient scaler of PyTorch is at work, as half precision needs and bfloat16 does not; `None` without stacks.
    pub(super) has_scaler: Option<bool>,
    /// Whether other probes have optimizer state before their last step and it has none: a gradient scaler skipped its updates.
    pub(super) lacks_state: bool,
}

impl Probe {
    pub(super) fn new(source: Source<'_>, keys: &mut Keys) -> Result<Probe, NotReplayed> {
        let Source { batch, trace, pool, version, ended_early, threads } = source;
        let ran = replay::run(trace, pool, version)?;
        let ended_early = ended_early || ran.ends_in_failure().is_some();
        let mut stretches = stretches(trace, &ran);
        let steps = stretches.iter().filter(|stretch| stretch.part.trains()).count();
        if trace.history.framework != Some(Framework::PyTorch) {
            leave_enough(&mut stretches);
        }
        let (asks, modules) = asks(source, &ran, &stretches, keys);
        let step_time = step_time(trace);
        let framework = trace.history.framework;
        let has_keras =
            framework == Some(Framework::TensorFlow) || trace.steps.iter().any(|step| step.how == How::Keras);
        let is_on_device = trace.device_of(pool).starts_with("GPU");
        Ok(Probe {
            batch,
            ran,
            asks,
            modules,
            stretches,
            step_time,
            steps,
            framework,
            has_keras,
            is_on_device,
            ended_early,
            threads,
            has_scaler: has_scaler(trace),
            lacks_state: false,
        })
    }

    /// The acts at which its stretches but the first begin.
    pub(super) fn cuts(&self) -> Vec<usize> {
        self.stretches.iter().skip(1).map(|stretch| stretch.acts.start).collect()
    }

    /// How often a later training step asks with a key, in the mean, and what it asks for then, in the mean.
    pub(super) fn asks_a_step(&self) -> FxHashMap<Key, (u64, u64)> {
        let is_step = |stretch: &Stretch| stretch.part == Part::Step;
        let steps = self.stretches.iter().filter(|stretch| is_step(stretch)).count().max(1);
        let mut asked: FxHashMap<Key, (u64, u64)> = FxHashMap::default();
        for ask in self.asks.iter().filter(|ask| self.stretches.get(ask.stretch).is_some_and(is_step)) {
            let (count, bytes) = asked.entry(ask.key).or_default();
            *count += 1;
            *bytes = bytes.saturating_add(ask.bytes);
        }
        for (count, bytes) in asked.values_mut() {
            *bytes /= *count;
            *count /= steps as u64;
        }
        asked
    }

    /// The most that its pool may take of its device, where the run tells it. What a framework says of pools in host memory is no limit: it
    /// is the same on every machine.
    pub(super) fn own_limit(&self) -> Option<Bytes> {
        self.ran.limit.filter(|_| self.is_on_device)
    }

    /// The requests of a stretch.
    pub(super) fn asks_of(&self, stretch: usize) -> Range<usize> {
        let from = self.asks.partition_point(|ask| ask.stretch < stretch);
        from..self.asks.partition_point(|ask| ask.stretch <= stretch)
    }

    /// The requests that are kept for good, but for those of the last stretch, which keeps its gradients too.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Ask> {
        let last = self.stretches.len().saturating_sub(1);
        self.asks.iter().filter(move |ask| ask.life.is_none() && ask.stretch < last)
    }

    /// Whether a request is made in a training step after the first.
    pub(super) fn is_in_later_step(&self, ask: &Ask) -> bool {
        self.stretches.get(ask.stretch).is_some_and(|stretch| stretch.part == Part::Step)
    }

    /// The act at which what is planned with ends.
    pub(super) fn end(&self) -> usize {
        self.stretches.last().map_or(usize::MAX, |stretch| stretch.acts.end)
    }
}

/// Of programs with very long steps a few will do: each is one draw, and the longer a step the less one differs from another.
fn leave_enough(stretches: &mut Vec<Stretch>) {
    const ENOUGH: usize = 400_000;
    let first = stretches.iter().position(|stretch| stretch.part == Part::FirstStep).unwrap_or(0);
    let fits = stretches.iter().take_while(|stretch| stretch.acts.end <= ENOUGH).count();
    // But no part of a run is left out.
    let is_first = |&(at, stretch): &(usize, &Stretch)| {
        stretches.iter().take(at).all(|earlier| earlier.part != stretch.part)
    };
    let last_new = stretches.iter().enumerate().filter(is_first).map(|(at, _)| at).max().unwrap_or(0);
    stretches.truncate(fits.max(first + 2).max(last_new + 1));
}

/// How long the training steps after the first take, in the middle.
fn step_time(trace: &Trace) -> Option<Span> {
    let train = trace.steps.iter().filter(|step| step.phase == Phase::Train).skip(1);
    let mut times: Vec<Span> = train.map(|step| step.end.since(step.begin)).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// The stretches of a program, one after the other.
fn stretches(trace: &Trace, ran: &PoolRun) -> Vec<Stretch> {
    let count = ran.program.acts.len();
    let mut stretches = vec![Stretch { part: Part::Start, ordinal: 0, acts: 0..count }];
    let mut at = 0;
    let mut has_trained = false;
    for step in &trace.steps {
        let answers = ran.program.answers.iter().enumerate().skip(at);
        let begins = |event: u32| trace.history.events.time(event as usize) >= step.begin;
        let Some(begin) = answers.clone().find(|(_, answer)| begins(answer.event)).map(|(at, _)| at) else {
            break;
        };
        let part = match step.phase {
            Phase::Train if has_trained => Part::Step,
            Phase::Train => Part::FirstStep,
            Phase::Validation => Part::Validation,
            Phase::Predict => Part::Predict,
            Phase::Other => Part::Other,
        };
        has_trained |= step.phase == Phase::Train;
        if let Some(last) = stretches.last_mut() {
            last.acts.end = begin;
        }
        let ordinal = stretches.iter().filter(|stretch| stretch.part == part).count();
        stretches.push(Stretch { part, ordinal, acts: begin..count });
        at = begin;
    }
    stretches
}

fn asks(source: Source<'_>, ran: &PoolRun, stretches: &[Stretch], keys: &mut Keys) -> (Vec<Ask>, Modules) {
    let Source { trace, pool, .. } = source;
    let history = &trace.history;
    let is_torch = history.framework == Some(Framework::PyTorch);
    let is_jax = history.framework == Some(Framework::Jax);
    let end = stretches.last().map_or(0, |stretch| stretch.acts.end);
    let requests = ran.program.acts.iter().take(end).filter(|act| act.requested().is_some()).count();
    // Events may stand a little away from where the allocator served them.
    let born = requests.saturating_add(1024);
    let roles = trace.lifetimes(pool).map(|life| life.held.role).take(born);
    let roles: FxHashMap<usize, Role> = pool.lives().map(|life| life.birth).zip(roles).collect();
    let mut lives = lives(ran);
    let mut known: FxHashMap<(Name, bool, bool, Region, Dtype, usize), Key> = FxHashMap::default();
    let mut shapes: FxHashMap<Name, Vec<u64>> = FxHashMap::default();
    let mut places = Places::default();
    let mut calls = Calls::new(trace);
    let mut asks = Vec::with_capacity(requests);
    for (number, stretch) in stretches.iter().enumerate() {
        let mut counts: FxHashMap<Key, u32> = FxHashMap::default();
        let acts = ran.program.acts.iter().zip(&ran.program.answers).enumerate();
        for (act, (what, answer)) in acts.take(stretch.acts.end).skip(stretch.acts.start) {
            let Some(bytes) = what.requested() else { continue };
            let event = history.events.at(answer.event as usize);
            let shape =
                shapes.entry(event.shape()).or_insert_with(|| dimensions(history.names.get(event.shape())));
            let name = event.op_or_scope();
            let is_named = !event.op().is_empty();
            let tries_kernels = is_jax && trace.is_compiler(answer.event as usize);
            let traits = (name, is_named, tries_kernels, event.region(), event.dtype(), shape.len());
            let key = *known.entry(traits).or_insert_with(|| {
                let name = if tries_kernels { AUTOTUNING } else { without_number(history.names.get(name)) };
                keys.key(name, event.region(), event.dtype(), shape.len())
            });
            let occurrence = counts.entry(key).or_default();
            asks.push(Ask {
                act,
                key,
                occurrence: *occurrence,
                stretch: number,
                bytes: bytes.0,
                shape: shape.clone(),
                role: roles.get(&(answer.event as usize)).copied().unwrap_or(Role::Unknown),
                is_named: is_named || is_torch,
                tries_kernels,
                life: lives.remove(&act),
                dtype: event.dtype(),
                place: places.of(name, history.names.get(name)),
                pass: trace.pass_of(answer.event as usize),
                call: is_torch.then(|| calls.of(answer.event as usize)),
            });
            *occurrence += 1;
        }
    }
    (asks, calls.modules)
}

/// Whether a gradient scaler of PyTorch divides gradients by its factor. One that is switched off does not.
fn has_scaler(trace: &Trace) -> Option<bool> {
    let history = &trace.history;
    let mut frames =
        history.names.iter().map(|(_, name)| name).filter(|name| name.contains(".py:")).peekable();
    frames.peek()?;
    let divides = |frame: &str| {
        let function = frame.rsplit(' ').next().unwrap_or_default();
        frame.contains("/torch/") && frame.contains("amp/grad_scaler.py") && function.contains("unscale_")
    };
    Some(frames.any(divides))
}

/// How many acts each block lives for, by the act that asks for it.
fn lives(ran: &PoolRun) -> FxHashMap<usize, usize> {
    let mut born = vec![None; ran.program.slots];
    let mut lives = FxHashMap::default();
    for (at, act) in ran.program.acts.iter().enumerate() {
        let Some(slot) = born.get_mut(act.slot()) else { continue };
        if act.requested().is_some() {
            *slot = Some(at);
        } else if act.ends()
            && let Some(begin) = slot.take()
        {
            lives.insert(begin, at - begin);
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_the_number_of_a_process() {
        assert_eq!(without_number("__inference_one_step_on_data_1234"), "__inference_one_step_on_data");
        assert_eq!(without_number("model/conv2d_1/Conv2D"), "model/conv2d_1/Conv2D");
    }

    #[test]
    fn names_tell_where_an_op_stands() {
        let mut places = Places::default();
        let mut of = |text: &str| places.read(text);
        let forth = of("StatefulPartitionedCall/model/batch_normalization_1/batchnorm/mul_1");
        let back =
            of("StatefulPartitionedCall/gradient_tape/model/batch_normalization_1/moments/BroadcastTo");
        assert!(forth.wide.is_some() && forth.wide == back.wide && !forth.is_back && back.is_back);
        assert_ne!(of("model/batch_normalization_2/batchnorm/mul_1").wide, forth.wide);
        let loss = of("StatefulPartitionedCall/compile_loss/mse/Square");
        assert!(loss.is_loss && loss.wide.is_some() && !forth.is_loss);
        assert_eq!(of("StatefulPartitionedCall/model/dense_1/BiasAdd"), Place::default());
        let forth =
            of("StatefulPartitionedCall/model/lstm_1/while/body/_33/model/lstm_1/while/lstm_cell_1/MatMul");
        let text = "StatefulPartitionedCall/gradient_tape/model/lstm_1/while/model/lstm_1/while_grad/body/_289/\
                    gradient_tape/model/lstm_1/while/gradients/model/lstm_1/while/lstm_cell_1/MatMul_grad/MatMul_1";
        let back = of(text);
        assert!(forth.looped.is_some() && forth.looped == back.looped && back.is_back && !forth.is_back);
        assert_eq!(back.within, of(&text.replace("MatMul_1", "MatMul")).within);
        assert_ne!(back.within, forth.within);
    }

    #[test]
    fn shapes_are_read() {
        assert_eq!(dimensions("[16, 26,26,32]"), [16, 26, 26, 32]);
        assert_eq!(dimensions("[]"), Vec::<u64>::new());
        assert_eq!(dimensions("(scalar)"), Vec::<u64>::new());
    }
}
