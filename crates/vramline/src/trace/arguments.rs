//! The blocks that are passed to compiled programs, by the paths of the arguments.
//!
//! A program of JAX knows the path of each argument, but a pool does not know which block is passed. Three facts tell:
//!
//! - A result lies in a block that the call requested, or in the block of a donated argument. If the results repeat the arguments in
//!   shape and order, the results of a call are the arguments of the next: parameters, optimizer state, caches.
//! - The process may have noted the addresses that it passed to a program.
//! - Before a first call, the blocks of an argument's size are there. One block of one argument is certain. Of several, the parameters
//!   were made before the optimizer's state, which repeats them; which of the parameters a block is stays open.
//!
//! An argument that no result replaces is an input if it is new for each call, and state if it stays.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::op::INPUT_DATA;
use super::owners::Owner;
use super::pairing::PoolTrace;
use super::program::{MatchedCall, function_around, matched_calls};
use super::recorded::moment;
use super::returned::carried;
use crate::event::History;
use crate::executable::{Executable, Purpose, function_of};
use crate::names::Name;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::OwnerKind;
use crate::snapshot::Role;
use crate::source::hlo::argument::{ArgumentName, ArgumentPath, name_all, shared};
use crate::source::hlo::role::layer_of;
use crate::stack::Stack;
use crate::units::{Bytes, Picos};

const RETURNED: &str =
    "an argument of a compiled program: the call before returned it, by its place in the results";
const NOTED: &str = "an argument of a compiled program, by the address that the process passed";
const ALONE: &str = "an argument of a compiled program: the only block of its size";
const AMONG: &str = "an argument of a compiled program: one of several blocks of its size, in the order in which they were made";
const NEXT: &str =
    "the next value of an argument; the program does not donate it, so both exist until the call ends";
const EARLIER: &str = "an earlier value of an argument; the program still holds it";

/// Arguments of all calls together.
const MOST_WORK: usize = 50_000_000;

/// An argument whose address the process noted: the function, the number of the parameter, when, and the block.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    function: String,
    parameter: i64,
    time: Picos,
    birth: usize,
}

/// The arguments whose addresses a process noted, in order of time.
pub(super) fn noted(process: &RecordedProcess, history: &History, pools: &[PoolTrace]) -> Vec<Noted> {
    let mut rows: FxHashMap<u64, Vec<(Picos, i64, String)>> = FxHashMap::default();
    for row in process.owners.iter().filter(|row| row.kind == OwnerKind::Argument) {
        let name = row.name.strip_prefix("jit(").and_then(|name| name.strip_suffix(')')).unwrap_or(&row.name);
        let function = function_of(&format!("PjitFunction({name})"));
        let place = row.address.zip(row.variable_number).zip(function).zip(moment(history, row.time));
        if let Some((((address, parameter), function), time)) = place {
            rows.entry(address).or_default().push((time, parameter, function));
        }
    }
    let mut noted = Vec::new();
    for pool in pools.iter().filter(|_| !rows.is_empty()) {
        for life in pool.lives() {
            let event = history.events.at(life.birth);
            let Some(rows) = event.address().and_then(|address| rows.get(&address)) else { continue };
            let freed = life.freed_at.map(|at| pool.time(&history.events, at));
            let here =
                rows.iter().filter(|row| event.time() <= row.0 && freed.is_none_or(|freed| row.0 < freed));
            noted.extend(here.map(|(time, parameter, function)| Noted {
                function: function.clone(),
                parameter: *parameter,
                time: *time,
                birth: life.birth,
            }));
        }
    }
    noted.sort_by_key(|noted| noted.time);
    noted
}

/// What a block is at a moment, to the programs that it is passed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) role: Role,
    pub(crate) evidence: &'static str,
}

/// The time for which a block is an argument.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    since: Picos,
    until: Picos,
    owner: usize,
    evidence: &'static str,
}

/// The arguments of all programs, by block.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    owners: Vec<Owner>,
    /// By the event that allocated the block, in order of time.
    tenures: FxHashMap<usize, Vec<Tenure>>,
    /// By the name of an instruction: an argument of the layer that computes it.
    layers: FxHashMap<Name, usize>,
    /// By the call stack of a value: an owner with the function that computes it.
    functions: FxHashMap<Stack, usize>,
    /// By the name of a program: an owner with its function.
    programs: FxHashMap<Name, usize>,
}

impl Arguments {
    /// What a block is at a moment.
    pub(crate) fn at(&self, birth: usize, now: Picos) -> Option<Passed<'_>> {
        let tenures = self.tenures.get(&birth)?;
        let current = tenures.iter().rev().find(|tenure| tenure.since <= now && now < tenure.until);
        let (tenure, other) = match (current, tenures.first()?, tenures.last()?) {
            (Some(current), ..) => (current, None),
            (None, first, _) if now < first.since => (first, Some(NEXT)),
            (None, _, last) => (last, Some(EARLIER)),
        };
        let owner = self.owners.get(tenure.owner)?;
        Some(match other {
            None => Passed { owner, role: owner.role, evidence: tenure.evidence },
            Some(evidence) => Passed { owner, role: Role::State, evidence },
        })
    }

    /// What a block was for most of its life.
    pub(crate) fn of_life(&self, birth: usize) -> Option<Passed<'_>> {
        let tenure = self.tenures.get(&birth)?.last()?;
        let owner = self.owners.get(tenure.owner)?;
        Some(Passed { owner, role: owner.role, evidence: tenure.evidence })
    }

    /// The moments at which a block may become something else, in order; none if it is not an argument.
    pub(crate) fn turns(&self, birth: usize) -> Vec<Picos> {
        let tenures = self.tenures.get(&birth).into_iter().flatten();
        let mut turns: Vec<Picos> = tenures.flat_map(|tenure| [tenure.since, tenure.until]).collect();
        turns.sort_unstable();
        turns
    }

    /// The layer that an instruction belongs to, if its scopes are those of a layer with arguments.
    pub(crate) fn layer_of_op(&self, op: Name) -> Option<&str> {
        Some(&self.owners.get(*self.layers.get(&op)?)?.layer)
    }

    /// The function that computes a value, else the function that the program was compiled from.
    pub(crate) fn function_of(&self, stack: Stack, program: Name) -> Option<&str> {
        let owner = self.functions.get(&stack).or_else(|| self.programs.get(&program))?;
        Some(&self.owners.get(*owner)?.layer)
    }

    /// Notes the functions behind the values of all programs. They are owners: what is redacted in one place is in all.
    fn note_functions(&mut self, history: &History) {
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        let owners = &mut self.owners;
        let mut owner = |layer: String| {
            *known.entry(layer).or_insert_with_key(|layer| {
                owners.push(Owner { layer: layer.clone(), ..Owner::default() });
                owners.len() - 1
            })
        };
        for executable in &history.executables {
            if let Some((name, function)) =
                history.names.find(&executable.name).zip(function_of(&executable.name))
            {
                self.programs.insert(name, owner(function));
            }
            for stack in executable.buffers.iter().map(|buffer| buffer.stack) {
                if !stack.is_empty()
                    && !self.functions.contains_key(&stack)
                    && let Some(function) = function_around(history, stack)
                {
                    self.functions.insert(stack, owner(function));
                }
            }
        }
    }

    /// All owners.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        self.owners.iter_mut()
    }
}

/// A program and what its signature tells.
struct Program<'a> {
    executable: &'a Executable,
    /// Bytes of each parameter.
    sizes: Vec<Bytes>,
    names: Vec<ArgumentName>,
    /// For each result, the parameter of the next call that it becomes.
    carried: Vec<Option<usize>>,
    /// Whether a result becomes the parameter.
    is_carried: Vec<bool>,
    /// The owner of each parameter, by its place in [`Arguments::owners`].
    owners: Vec<usize>,
    /// For each parameter: the result of the last call, the block of the last call, and how many blocks there were.
    next: Vec<Option<usize>>,
    last: Vec<Option<usize>>,
    blocks: Vec<usize>,
    calls: usize,
}

impl<'a> Program<'a> {
    fn new(history: &History, executable: &'a Executable, owners: &mut Vec<Owner>) -> Option<Program<'a>> {
        let parameters = &executable.parameters;
        let is_wanted = parameters.iter().any(|parameter| {
            ArgumentPath::parse(history.names.get(parameter.path)).is_in_tree()
                || executable.allocation(parameter.allocation).is_some_and(|allocation| {
                    matches!(allocation.purpose, Purpose::Parameter { is_output: true, .. })
                })
        });
        if !is_wanted {
            return None;
        }
        let sizes = parameters.iter().map(|parameter| {
            executable.allocation(parameter.allocation).map(|allocation| allocation.size).unwrap_or_default()
        });
        let signature: Vec<(Name, Name)> = parameters.iter().map(|each| (each.path, each.shape)).collect();
        let names = name_all(&history.names, &signature);
        let carried = carried(history, executable, &names);
        let mut is_carried = vec![false; parameters.len()];
        for &parameter in carried.iter().flatten() {
            is_carried.get_mut(parameter).into_iter().for_each(|is_carried| *is_carried = true);
        }
        let sizes: Vec<Bytes> = sizes.collect();
        let first = owners.len();
        owners.extend(names.iter().zip(&sizes).map(|(name, &bytes)| Owner {
            layer: name.layer.clone(),
            variable: name.variable.clone(),
            role: name.role,
            bytes: Some(bytes),
            ..Owner::default()
        }));
        let count = parameters.len();
        Some(Program {
            executable,
            sizes,
            names,
            carried,
            is_carried,
            owners: (first..owners.len()).collect(),
            next: vec![None; count],
            last: vec![None; count],
            blocks: vec![0; count],
            calls: 0,
        })
    }

    fn path(&self, parameter: usize) -> Name {
        self.executable.parameters.get(parameter).map_or(Name::EMPTY, |parameter| parameter.path)
    }

    fn role(&self, parameter: usize) -> Role {
        self.names.get(parameter).map_or(Role::Unknown, |name| name.role)
    }

    fn is_carried(&self, parameter: usize) -> bool {
        self.is_carried.get(parameter).is_some_and(|&is_carried| is_carried)
    }

    /// Whether each call may bring another block.
    fn is_input(&self, parameter: usize) -> bool {
        match self.role(parameter) {
            Role::Inputs | Role::Gradients => true,
            Role::Unknown => !self.is_carried(parameter),
            _ => false,
        }
    }
}

/// A block of the pool.
#[derive(Clone, Copy)]
struct Block {
    birth: usize,
    born: Picos,
    freed: Picos,
    size: Bytes,
}

/// Finds the blocks that are passed to programs in the pools of a device.
pub(crate) fn find(history: &History, pools: &[PoolTrace], noted: &[Noted]) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.note_functions(history);
    if history.executables.iter().all(|executable| executable.parameters.is_empty()) {
        return arguments;
    }
    let mut programs: Vec<Program<'_>> = Vec::new();
    for executable in &history.executables {
        programs.extend(Program::new(history, executable, &mut arguments.owners));
    }
    if programs.is_empty() {
        return arguments;
    }
    arguments.layers = layers(history, &programs);
    for pool in pools {
        let calls = matched_calls(history, pool);
        if !calls.is_empty() {
            Finder::new(history, pool, &mut programs, &mut arguments, noted).follow(&calls);
        }
    }
    for program in &programs {
        for (parameter, &owner) in program.owners.iter().enumerate() {
            let Some(owner) = arguments.owners.get_mut(owner) else { continue };
            let is_new =
                program.calls <= 1 || program.blocks.get(parameter).is_some_and(|&blocks| blocks > 1);
            owner.role = match owner.role {
                Role::Unknown if !program.is_carried(parameter) && is_new => Role::Inputs,
                Role::Unknown => Role::State,
                told => told,
            };
            if owner.role == Role::Inputs {
                INPUT_DATA.clone_into(&mut owner.layer);
            } else if owner.layer.is_empty() {
                let path = history.names.get(program.path(parameter));
                owner.layer =
                    path.find(['[', '.']).map_or(path, |end| path.get(..end).unwrap_or(path)).to_owned();
            }
        }
    }
    arguments
}

/// For each instruction of the programs whose scopes lead to a layer with arguments, one of these arguments.
fn layers(history: &History, programs: &[Program<'_>]) -> FxHashMap<Name, usize> {
    let mut known: FxHashMap<Vec<&str>, usize> = FxHashMap::default();
    for program in programs {
        for (name, &owner) in program.names.iter().zip(&program.owners) {
            if name.role == Role::Parameters && !name.layer.is_empty() {
                known.entry(name.layer.split(['.', '/']).collect()).or_insert(owner);
            }
        }
    }
    let mut layers = FxHashMap::default();
    let mut seen: FxHashSet<Name> = FxHashSet::default();
    let buffers = history.executables.iter().flat_map(|executable| &executable.buffers);
    for op in buffers.map(|buffer| buffer.op).filter(|op| seen.insert(*op)) {
        let scopes = layer_of(history.names.get(op));
        let scopes: Vec<&str> = scopes.split('/').filter(|scope| !scope.is_empty()).take(32).collect();
        // The longest one that is known; the first scopes are those of the model.
        let begins = 0..scopes.len();
        let spans = begins.flat_map(|begin| (begin + 1..=scopes.len()).map(move |end| (begin, end)));
        let found = spans.filter_map(|(begin, end)| Some((end - begin, known.get(scopes.get(begin..end)?)?)));
        if let Some((_, &owner)) = found.max_by_key(|(length, _)| *length) {
            layers.insert(op, owner);
        }
    }
    layers
}

struct Finder<'a, 'p, 'f> {
    history: &'a History,
    programs: &'f mut Vec<Program<'p>>,
    arguments: &'f mut Arguments,
    noted: &'f [Noted],
    blocks: Vec<Block>,
    /// By the event of their allocation.
    places: FxHashMap<usize, usize>,
    /// The blocks so far that may live, by size.
    by_size: FxHashMap<Bytes, Vec<usize>>,
    reached: usize,
    /// The block that a path was last passed in.
    by_path: FxHashMap<Name, usize>,
    work: usize,
}

impl<'a, 'p, 'f> Finder<'a, 'p, 'f> {
    fn new(
        history: &'a History,
        pool: &PoolTrace,
        programs: &'f mut Vec<Program<'p>>,
        arguments: &'f mut Arguments,
        noted: &'f [Noted],
    ) -> Finder<'a, 'p, 'f> {
        let events = &history.events;
        let sizes: FxHashSet<Bytes> =
            programs.iter().flat_map(|program| program.sizes.iter().copied()).collect();
        let block = |life: super::Life| {
            let event = events.at(life.birth);
            let freed = life.freed_at.map_or(Picos(i64::MAX), |at| pool.time(events, at));
            let size = event.requested().or(event.size())?;
            (sizes.contains(&size) && size > Bytes::ZERO).then_some(Block {
                birth: life.birth,
                born: event.time(),
                freed,
                size,
            })
        };
        let blocks: Vec<Block> = pool.lives().filter_map(block).collect();
        let places = blocks.iter().enumerate().map(|(place, block)| (block.birth, place)).collect();
        for program in programs.iter_mut() {
            program.next.iter_mut().chain(&mut program.last).for_each(|block| *block = None);
        }
        Finder {
            history,
            programs,
            arguments,
            noted,
            blocks,
            places,
            by_size: FxHashMap::default(),
            reached: 0,
            by_path: FxHashMap::default(),
            work: MOST_WORK,
        }
    }

    fn follow(&mut self, calls: &[MatchedCall<'_>]) {
        let numbers: FxHashMap<usize, usize> = self
            .programs
            .iter()
            .enumerate()
            .map(|(number, program)| (std::ptr::from_ref(program.executable).addr(), number))
            .collect();
        for call in calls {
            let Some(&number) = numbers.get(&std::ptr::from_ref(call.executable).addr()) else { continue };
            let Some(count) = self.programs.get(number).map(|program| program.sizes.len()) else { continue };
            self.work = self.work.saturating_sub(count);
            if self.work == 0 {
                break;
            }
            self.reach(call.time());
            let passed = self.passed(number, call);
            self.note_results(number, call, &passed);
        }
    }

    /// Goes on to a moment.
    fn reach(&mut self, time: Picos) {
        while let Some(block) = self.blocks.get(self.reached)
            && block.born < time
        {
            self.by_size.entry(block.size).or_default().push(self.reached);
            self.reached += 1;
        }
    }

    /// What the process noted during a call.
    fn noted_in(&self, call: &MatchedCall<'_>) -> &[Noted] {
        let begin = self.noted.partition_point(|noted| noted.time < call.begin);
        let end = self.noted.partition_point(|noted| noted.time <= call.end);
        self.noted.get(begin..end).unwrap_or_default()
    }

    fn lives(&self, birth: usize, time: Picos) -> bool {
        let block = self.places.get(&birth).and_then(|&place| self.blocks.get(place));
        block.is_some_and(|block| block.born < time && time < block.freed)
    }

    /// The block of each parameter of a call, as far as it is known.
    fn passed(&mut self, number: usize, call: &MatchedCall<'_>) -> Vec<Option<usize>> {
        let time = call.time();
        let Some(program) = self.programs.get(number) else { return Vec::new() };
        let mut passed: Vec<Option<usize>> = vec![None; program.sizes.len()];
        let mut used: FxHashSet<usize> = FxHashSet::default();
        let function = function_of(&program.executable.name);
        let noted: FxHashMap<i64, usize> = self
            .noted_in(call)
            .iter()
            .filter(|noted| Some(&noted.function) == function.as_ref())
            .filter(|noted| self.places.contains_key(&noted.birth))
            .map(|noted| (noted.parameter, noted.birth))
            .collect();
        let mut found: Vec<(usize, usize, usize, &'static str)> = Vec::new();
        let mut open: BTreeMap<Bytes, Vec<usize>> = BTreeMap::new();
        for (parameter, &size) in program.sizes.iter().enumerate() {
            let of_number = program.executable.parameters.get(parameter).map(|parameter| parameter.number);
            let noted = of_number.and_then(|number| noted.get(&number).copied());
            let returned = program.next.get(parameter).copied().flatten();
            let same = self.by_path.get(&program.path(parameter)).copied();
            let same = same.filter(|_| !program.is_input(parameter));
            let is_there = |birth: &usize| self.lives(*birth, time) && !used.contains(birth);
            let is_as_large = |birth: &usize| {
                self.places
                    .get(birth)
                    .and_then(|&place| self.blocks.get(place))
                    .is_some_and(|b| b.size == size)
            };
            let owner = program.owners.get(parameter).copied().unwrap_or_default();
            let block = match (noted.filter(is_as_large), returned.filter(is_there)) {
                (Some(noted), _) => {
                    found.push((noted, parameter, owner, NOTED));
                    Some(noted)
                }
                (None, Some(returned)) => Some(returned),
                (None, None) => same.filter(is_there).filter(is_as_large),
            };
            match block {
                Some(block) => {
                    used.insert(block);
                    passed.get_mut(parameter).into_iter().for_each(|passed| *passed = Some(block));
                }
                None if size > Bytes::ZERO => open.entry(size).or_default().push(parameter),
                None => {}
            }
        }
        for (size, parameters) in open {
            found.extend(self.choose(number, size, &parameters, time, &used));
        }
        for (birth, parameter, owner, evidence) in found {
            passed.get_mut(parameter).into_iter().for_each(|passed| *passed = Some(birth));
            let tenure = Tenure { since: Picos(i64::MIN), until: Picos(i64::MAX), owner, evidence };
            let tenures = self.arguments.tenures.entry(birth).or_default();
            if tenures.is_empty() {
                tenures.push(tenure);
            } else if evidence == NOTED
                && let Some(last) = tenures.last_mut()
            {
                (last.owner, last.evidence) = (owner, evidence);
            }
        }
        let Some(program) = self.programs.get_mut(number) else { return passed };
        program.calls += 1;
        for (parameter, block) in passed.iter().enumerate() {
            let (Some(last), Some(blocks)) =
                (program.last.get_mut(parameter), program.blocks.get_mut(parameter))
            else {
                continue;
            };
            *blocks += usize::from(block.is_some() && block != last);
            *last = *block;
        }
        passed
    }

    /// Chooses blocks for the parameters of one size: birth, parameter, owner, evidence.
    fn choose(
        &mut self,
        number: usize,
        size: Bytes,
        parameters: &[usize],
        time: Picos,
        used: &FxHashSet<usize>,
    ) -> Vec<(usize, usize, usize, &'static str)> {
        let blocks = &self.blocks;
        let freed = |place: usize| blocks.get(place).map_or(time, |block| block.freed);
        let live = self.by_size.entry(size).or_default();
        self.work = self.work.saturating_sub(live.len());
        live.retain(|&place| freed(place) > time);
        let births = live.iter().filter_map(|&place| blocks.get(place).map(|block| block.birth));
        let is_free = |birth: &usize| !used.contains(birth) && !self.arguments.tenures.contains_key(birth);
        let mut free: Vec<usize> = births.filter(is_free).collect();
        let Some(program) = self.programs.get(number) else { return Vec::new() };
        let owner = |parameter: usize| program.owners.get(parameter).copied().unwrap_or_default();
        let (inputs, mut states): (Vec<usize>, Vec<usize>) =
            parameters.iter().partition(|&&parameter| program.is_input(parameter));
        let mut chosen = Vec::new();
        // Data may be copied to the device some steps ahead: the oldest comes first. State of the same size is older.
        let skipped = if states.is_empty() { 0 } else { free.len().saturating_sub(inputs.len()) };
        let evidence = if free.len() == 1 && parameters.len() == 1 { ALONE } else { AMONG };
        let taken = skipped..skipped.saturating_add(inputs.len()).min(free.len());
        let blocks: Vec<usize> = free.drain(taken).collect();
        chosen
            .extend(inputs.iter().zip(blocks).map(|(&input, birth)| (birth, input, owner(input), evidence)));
        free.drain(..free.len().saturating_sub(states.len()));
        let rank = |&parameter: &usize| match program.role(parameter) {
            Role::Parameters => 0,
            Role::Optimizer => 1,
            _ => 2,
        };
        states.sort_by_key(|parameter| (rank(parameter), *parameter));
        let is_short = free.len() < states.len();
        let mut groups: Vec<&[usize]> = states.chunk_by(|a, b| rank(a) == rank(b)).collect();
        // With too few blocks, nobody knows which are missing.
        if is_short && groups.len() > 1 {
            groups.clear();
        }
        let mut free = free.into_iter();
        for group in groups {
            let (owner, evidence) = match group {
                [only] if states.len() == 1 && inputs.is_empty() => (owner(*only), ALONE),
                [only] => (owner(*only), AMONG),
                several => {
                    let shared = shared_owner(self.history, program, several);
                    self.arguments.owners.push(shared);
                    (self.arguments.owners.len() - 1, AMONG)
                }
            };
            let blocks = group.iter().zip(free.by_ref());
            chosen.extend(blocks.map(|(&parameter, birth)| (birth, parameter, owner, evidence)));
        }
        chosen
    }

    /// Notes where the results of a call lie, and what they are to the next call.
    fn note_results(&mut self, number: usize, call: &MatchedCall<'_>, passed: &[Option<usize>]) {
        let Some(program) = self.programs.get_mut(number) else { return };
        let executable = program.executable;
        let block_of = |place: Option<u32>| {
            let allocation = executable.allocation(place)?;
            if let Purpose::Parameter { number, .. } = allocation.purpose {
                let at = executable.parameters.iter().position(|parameter| parameter.number == number)?;
                return passed.get(at).copied().flatten();
            }
            call.births.get(&place?).copied()
        };
        let mut next: Vec<Option<usize>> = vec![None; passed.len()];
        for (result, carried) in executable.results.iter().zip(&program.carried) {
            let (Some(parameter), Some(block)) = (*carried, block_of(result.allocation)) else { continue };
            let before = passed.get(parameter).copied().flatten();
            next.get_mut(parameter).into_iter().for_each(|next| *next = Some(block));
            self.by_path.insert(program.path(parameter), block);
            // Donated arguments that cannot be told apart may change places: what they share stays true.
            let tenures = self.arguments.tenures.get(&block);
            let is_open = tenures.is_some_and(|all| all.last().is_some_and(|last| last.evidence == AMONG));
            if before == Some(block) || is_open {
                continue;
            }
            if let Some(last) = before.and_then(|before| self.arguments.tenures.get_mut(&before)?.last_mut())
                && last.until > call.end
            {
                last.until = call.end;
            }
            let owner = program.owners.get(parameter).copied().unwrap_or_default();
            let tenure = Tenure { since: call.end, until: Picos(i64::MAX), owner, evidence: RETURNED };
            self.arguments.tenures.entry(block).or_default().push(tenure);
        }
        program.next = next;
        for (parameter, block) in passed.iter().enumerate() {
            if let Some(block) = block.filter(|_| !program.is_carried(parameter)) {
                self.by_path.insert(program.path(parameter), block);
            }
        }
    }
}

/// What arguments have in common that cannot be told apart.
fn shared_owner(history: &History, program: &Program<'_>, parameters: &[usize]) -> Owner {
    let names: Vec<&ArgumentName> =
        parameters.iter().filter_map(|&parameter| program.names.get(parameter)).collect();
    let paths: Vec<&str> =
        parameters.iter().map(|&parameter| history.names.get(program.path(parameter))).collect();
    let path = shared(&paths);
    let first = names.first().copied().cloned().unwrap_or_default();
    let is_one_layer = names.iter().all(|name| name.layer == first.layer);
    let is_carried = parameters.iter().any(|&parameter| program.is_carried(parameter));
    let role = match names.iter().all(|name| name.role == first.role) {
        true if first.role == Role::Unknown && is_carried => Role::State,
        true => first.role,
        false => Role::State,
    };
    let layer = if is_one_layer && !first.layer.is_empty() { first.layer } else { path.clone() };
    let bytes = program.sizes.get(parameters.first().copied().unwrap_or_default()).copied();
    Owner { layer, variable: path, role, bytes, ..Owner::default() }
}
