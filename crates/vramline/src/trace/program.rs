//! The blocks of a pool that a compiled program requested, and their contents.
//!
//! JAX's pools carry no op names, but its programs do: the compiler decided what each one asks for, in which order, and
//! what lies where. A call of a function makes the requests of its program one by one, so the blocks of a call are
//! matched with the requests of the programs of that name. All of them in a row is proof; failing that, a size that the
//! programs of that name ask for exactly once will do. Where two programs would answer differently, none does.

use rustc_hash::{FxHashMap, FxHashSet};

use super::PoolTrace;
use crate::event::{History, MarkKind};
use crate::executable::{Allocation, Buffer, Executable, How, Purpose, function_of};
use crate::names::Name;
use crate::snapshot::{Held, Role};
use crate::source::hlo::role::{self, By, name_of};
use crate::stack::Stack;
use crate::units::{Bytes, Picos};

/// A call within calls within calls: further out is not looked.
const DEEPEST: usize = 256;

/// Comparisons of sizes, in all: a file can be made to ask for any number of them.
const MOST_WORK: usize = 200_000_000;
/// Parts that blocks are split into, in all.
const MOST_PARTS: usize = 1 << 18;
/// How far before the end of a call its program's requests may end.
const LATEST: usize = 1024;

/// What lies in a block, as its program knows it.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    by: By,
    purpose: Purpose,
    /// The program's name.
    pub(crate) program: Name,
    /// Adds up to the requested bytes.
    parts: Vec<(Bytes, Option<Buffer>, How)>,
}

/// A request: of which program, and which of its allocations.
type Request<'a> = (&'a Executable, &'a Allocation);

/// The programs of a function, with the requests of each.
struct Programs<'a> {
    requests: Vec<Vec<Request<'a>>>,
    arguments: Vec<Request<'a>>,
}

/// Finds the programs behind the blocks that `births` allocated.
pub(crate) fn find(history: &History, pool: &PoolTrace, births: &[usize]) -> FxHashMap<usize, Match> {
    let mut found = FxHashMap::default();
    let is_host = history.pool(pool.id).is_none_or(|pool| pool.name.contains("host"));
    let Some(&last) = births.iter().max() else { return found };
    if history.executables.is_empty() || is_host {
        return found;
    }
    let mut finder = Finder {
        wanted: births.iter().copied().collect(),
        programs: programs(history),
        functions: FxHashMap::default(),
        found: &mut found,
        work: MOST_WORK,
        parts: MOST_PARTS,
    };
    let calls = calls(history);
    let mut open: FxHashMap<Name, Open> = FxHashMap::default();
    // A call that is under way at the last of them asks for more afterwards.
    let until = history.events.time(last);
    for birth in pool.births() {
        let event = history.events.at(birth);
        let name = event.context();
        let calls = calls.get(&event.thread());
        let Some((number, begin)) = calls.and_then(|calls| enclosing(calls, event.time(), name)) else {
            continue;
        };
        if event.time() > until && begin > until {
            break;
        }
        let call = open.entry(event.thread()).or_insert_with(|| Open { number, name, asked: Vec::new() });
        if call.number != number {
            finder.settle(history, call);
            call.asked.clear();
            (call.number, call.name) = (number, name);
        }
        call.asked.push((birth, event.requested().or(event.size()).unwrap_or_default()));
    }
    for call in open.values() {
        finder.settle(history, call);
    }
    found
}

/// The current call of a thread, and its requests: events and bytes.
struct Open {
    number: usize,
    name: Name,
    asked: Vec<(usize, Bytes)>,
}

/// A call.
struct Call {
    begin: Picos,
    end: Picos,
    name: Name,
    /// The call around it, by its place among the calls of the thread.
    outer: Option<usize>,
}

/// The calls of each thread, in order of their beginning.
fn calls(history: &History) -> FxHashMap<Name, Vec<Call>> {
    let mut threads: FxHashMap<Name, (Vec<Call>, Vec<usize>)> = FxHashMap::default();
    for mark in history.marks.iter().filter(|mark| mark.kind == MarkKind::Jit) {
        let end = Picos(mark.begin.0.saturating_add_unsigned(mark.length.0));
        let (calls, open) = threads.entry(mark.thread).or_default();
        let has_ended = |&last: &usize| calls.get(last).is_none_or(|call| call.end <= mark.begin);
        while open.last().is_some_and(has_ended) {
            open.pop();
        }
        let outer = open.last().copied();
        open.push(calls.len());
        calls.push(Call { begin: mark.begin, end, name: mark.name, outer });
    }
    threads.into_iter().map(|(thread, (calls, _))| (thread, calls)).collect()
}

/// The outermost call of `name` around a moment, with no call of another name between: its number and beginning.
fn enclosing(calls: &[Call], time: Picos, name: Name) -> Option<(usize, Picos)> {
    let last = calls.partition_point(|call| call.begin <= time).checked_sub(1)?;
    let outwards = std::iter::successors(Some(last), |&number| calls.get(number)?.outer);
    // A call is traced before it runs, and calls others meanwhile: they end before it makes requests.
    let around = outwards.take(DEEPEST).filter_map(|number| Some((number, calls.get(number)?)));
    let around = around.filter(|(_, call)| call.end > time).take_while(|(_, call)| call.name == name);
    around.last().map(|(number, call)| (number, call.begin))
}

fn programs(history: &History) -> FxHashMap<String, Programs<'_>> {
    let mut programs: FxHashMap<String, Programs<'_>> = FxHashMap::default();
    for executable in &history.executables {
        let Some(function) = function_of(&executable.name) else { continue };
        let known = programs
            .entry(function)
            .or_insert_with(|| Programs { requests: Vec::new(), arguments: Vec::new() });
        let all: Vec<Request<'_>> = executable.requests().map(|request| (executable, request)).collect();
        let own: Vec<Request<'_>> = all.iter().copied().filter(|(_, request)| request.space == 0).collect();
        // Other kinds of memory may come from another pool.
        if own.len() < all.len() && !own.is_empty() {
            known.requests.push(own);
        }
        known.requests.push(all);
        let arguments = executable.allocations.iter().filter(|allocation| {
            matches!(allocation.purpose, Purpose::Parameter { .. }) && allocation.size > Bytes::ZERO
        });
        known.arguments.extend(arguments.map(|argument| (executable, argument)));
    }
    programs
}

struct Finder<'a, 'f> {
    wanted: FxHashSet<usize>,
    programs: FxHashMap<String, Programs<'a>>,
    /// The function of a call, by the call's name.
    functions: FxHashMap<Name, Option<String>>,
    found: &'f mut FxHashMap<usize, Match>,
    /// The remaining budget of comparisons and results.
    work: usize,
    parts: usize,
}

impl Finder<'_, '_> {
    /// Matches the requests of one call.
    fn settle(&mut self, history: &History, call: &Open) {
        let Open { name, asked, .. } = call;
        let function = self.functions.entry(*name).or_insert_with(|| function_of(history.names.get(*name)));
        let Some(programs) = function.as_ref().and_then(|function| self.programs.get(function)) else {
            return;
        };
        if !asked.iter().any(|(birth, _)| self.wanted.contains(birth)) {
            return;
        }
        let (begin, matching) = sequence(programs, asked, &mut self.work);
        let length = matching.first().map_or(0, |requests| requests.len());
        for (at, &(birth, size)) in asked.iter().enumerate() {
            if !self.wanted.contains(&birth) || self.work == 0 {
                continue;
            }
            let in_sequence = at.checked_sub(begin).filter(|&at| at < length);
            let (by, requests): (By, Vec<Request<'_>>) = match in_sequence {
                Some(at) => {
                    let requests = matching.iter().filter_map(|requests| requests.get(at).copied());
                    (By::Sequence, requests.collect())
                }
                None if length > 0 => {
                    self.work = self.work.saturating_sub(programs.arguments.len());
                    let same = |argument: &&Request<'_>| at < begin && argument.1.size == size;
                    (By::Argument, programs.arguments.iter().filter(same).copied().collect())
                }
                None => (By::Size, once(programs, size, &mut self.work)),
            };
            let length: usize = requests.iter().map(|(_, request)| request.parts.len()).sum();
            if length <= self.parts
                && let Some(agreed) = agree(history, by, &requests)
            {
                self.parts -= length;
                self.found.insert(birth, agreed);
            }
        }
    }
}

/// The longest programs whose requests all stand in a row among `asked`, and where; the last place where they do.
fn sequence<'p, 'a>(
    programs: &'p Programs<'a>,
    asked: &[(usize, Bytes)],
    work: &mut usize,
) -> (usize, Vec<&'p Vec<Request<'a>>>) {
    let mut best: (usize, Vec<&Vec<Request<'_>>>) = (0, Vec::new());
    for requests in &programs.requests {
        let known = best.1.first().map_or(1, |known| known.len());
        if requests.len() < known || requests.len() > asked.len() {
            continue;
        }
        let fits = |begin: &usize| {
            let here = asked.get(*begin..).unwrap_or_default();
            let is_same = |((_, request), (_, size)): (&Request<'_>, &(usize, Bytes))| {
                *work = work.saturating_sub(1);
                request.size == *size && *work > 0
            };
            requests.iter().zip(here).all(is_same)
        };
        let Some(begin) = (0..=asked.len() - requests.len()).rev().take(LATEST).find(fits) else { continue };
        if requests.len() > known || best.1.is_empty() || begin > best.0 {
            best = (begin, vec![requests]);
        } else if begin == best.0 {
            best.1.push(requests);
        }
    }
    best
}

/// The requests of a size, where no program of the function makes two of them.
fn once<'a>(programs: &Programs<'a>, size: Bytes, work: &mut usize) -> Vec<Request<'a>> {
    let mut once = Vec::new();
    for requests in &programs.requests {
        *work = work.saturating_sub(requests.len());
        let mut same = requests.iter().filter(|(_, request)| request.size == size);
        match (same.next(), same.next()) {
            (Some(&only), None) => once.push(only),
            (Some(_), Some(_)) => return Vec::new(),
            (None, _) => {}
        }
    }
    once
}

/// The innermost function of the program itself that a stack is in: not of a library, and not a lambda.
pub(super) fn function_around(history: &History, stack: Stack) -> Option<String> {
    let frames = history.stacks.frames(stack).map(|frame| history.names.get(frame));
    let mut functions = frames.filter(|frame| !frame.contains("-packages/")).filter_map(|frame| {
        let qualified = frame.rsplit_once(' ')?.1;
        let function = qualified.rsplit_once("<locals>.").map_or(qualified, |(_, function)| function);
        (!function.starts_with('<')).then_some(function)
    });
    functions.next().map(str::to_owned)
}

/// A call of a program, with the blocks that it requested.
#[derive(Debug)]
pub(super) struct MatchedCall<'a> {
    pub(super) executable: &'a Executable,
    pub(super) begin: Picos,
    pub(super) end: Picos,
    /// When it made its first request.
    first: Option<Picos>,
    /// The events of its requests, by the places of the program's allocations.
    pub(super) births: FxHashMap<u32, usize>,
}

impl MatchedCall<'_> {
    /// The moment at which all arguments are there, and no result yet.
    pub(super) fn time(&self) -> Picos {
        self.first.unwrap_or(self.end)
    }
}

/// The calls in which a pool shows all requests of one program, in order of time.
pub(super) fn matched_calls<'a>(history: &'a History, pool: &PoolTrace) -> Vec<MatchedCall<'a>> {
    let is_host = history.pool(pool.id).is_none_or(|pool| pool.name.contains("host"));
    if history.executables.is_empty() || is_host {
        return Vec::new();
    }
    let (programs, calls) = (programs(history), calls(history));
    let mut asked: FxHashMap<(Name, usize), Vec<(usize, Bytes)>> = FxHashMap::default();
    for birth in pool.births() {
        let event = history.events.at(birth);
        let of_thread = calls.get(&event.thread());
        let call = of_thread.and_then(|calls| enclosing(calls, event.time(), event.context()));
        if let Some((number, _)) = call {
            let size = event.requested().or(event.size()).unwrap_or_default();
            asked.entry((event.thread(), number)).or_default().push((birth, size));
        }
    }
    let mut found = Vec::new();
    let mut work = MOST_WORK;
    for ((thread, number), asked) in asked {
        let Some(&Call { begin, end, name, .. }) = calls.get(&thread).and_then(|calls| calls.get(number))
        else {
            continue;
        };
        let function = function_of(history.names.get(name));
        let Some(programs) = function.and_then(|function| programs.get(&function)) else { continue };
        let (from, matching) = sequence(programs, &asked, &mut work);
        let Some(requests) = matching.first() else { continue };
        let Some(&(executable, _)) = requests.first() else { continue };
        let is_same = |other: &&Vec<Request<'_>>| {
            other.first().is_some_and(|(other, _)| {
                other.parameters == executable.parameters && other.results == executable.results
            })
        };
        if !matching.iter().all(is_same) {
            continue;
        }
        let mut places = executable.allocations.iter().zip(0u32..);
        let births = requests.iter().zip(asked.get(from..).unwrap_or_default());
        let births = births.filter_map(|((_, request), &(birth, _))| {
            let place = places.find(|(allocation, _)| std::ptr::eq(*allocation, *request))?.1;
            Some((place, birth))
        });
        let first = asked.get(from).map(|&(birth, _)| history.events.time(birth));
        found.push(MatchedCall { executable, begin, end, first, births: births.collect() });
    }
    found.sort_by_key(|call| (call.begin, call.end));
    found
}

/// What several programs that fit agree on; `None` where they name different ops.
fn agree(history: &History, by: By, requests: &[Request<'_>]) -> Option<Match> {
    let &(executable, first) = requests.first()?;
    let parts = |(executable, request): Request<'_>| -> Vec<(Bytes, Option<Buffer>, How)> {
        request.parts.iter().map(|part| (part.bytes, executable.buffer(part).copied(), part.how)).collect()
    };
    let mut agreed = parts((executable, first));
    for &other in requests.get(1..).unwrap_or_default() {
        let others = parts(other);
        if others.len() != agreed.len() || other.1.purpose != first.purpose {
            return None;
        }
        for (mine, theirs) in agreed.iter_mut().zip(others) {
            match (&mut mine.1, theirs.1) {
                (None, None) => {}
                (Some(mine), Some(theirs)) if name_of(mine) == name_of(&theirs) => {
                    let keep = |mine: &mut Name, theirs: Name| {
                        if *mine != theirs {
                            *mine = Name::EMPTY;
                        }
                    };
                    keep(&mut mine.shape, theirs.shape);
                    keep(&mut mine.source, theirs.source);
                    if mine.stack != theirs.stack {
                        mine.stack = Stack::EMPTY;
                    }
                    if mine.dtype != theirs.dtype {
                        mine.dtype = crate::event::Dtype::Unknown;
                    }
                }
                _ => return None,
            }
            if mine.0 != theirs.0 {
                return None;
            }
        }
    }
    let program = history.names.find(&executable.name).unwrap_or(Name::EMPTY);
    Some(Match { by, purpose: first.purpose, program, parts: agreed })
}

impl Match {
    /// Splits a block into what lies in it. What was asked for and what was taken stay the same in all.
    pub(crate) fn explode(&self, history: &History, block: &Held) -> Vec<Held> {
        let total: Bytes = self.parts.iter().map(|part| part.0).sum();
        if total != block.requested {
            return vec![block.clone()];
        }
        let mut slack = block.slack();
        let held = |&(bytes, buffer, how): &(Bytes, Option<Buffer>, How)| {
            let mut held = role::held(&history.names, self.purpose, bytes, buffer.as_ref(), how, self.by);
            held.chunk = bytes + std::mem::take(&mut slack);
            held.age = block.age;
            if held.source.is_empty() {
                held.source.clone_from(&block.source);
            }
            held
        };
        self.parts.iter().map(held).collect()
    }

    /// The block as a whole: the op of its only value, or the program.
    pub(crate) fn whole(&self, history: &History, block: Held) -> Held {
        match self.explode(history, &block).as_slice() {
            [only] => only.clone(),
            _ => Held { op: self.program, role: Role::Temporaries, ..block },
        }
    }
}
