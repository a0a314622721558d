//! *Internal.* Turns events into allocations with lifetimes, and assigns steps, layers and roles to them.
//!
//! A [`Trace`] is built once from a [`History`]. It then answers questions: the peak of a pool, what it held at any
//! moment, its steps. Each conclusion comes with its evidence. It neither reads files nor formats anything.

mod arguments;
mod bands;
mod carried;
mod count;
pub mod cuda_library;
pub mod driver_holdings;
mod dump;
mod frames;
mod op;
mod owners;
mod pairing;
mod pattern;
mod program;
pub mod recorded;
mod returned;
mod role;
mod step;
mod survivors;
mod why;
mod workspaces;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Framework, History, ModuleCall, OPTIMIZER_STEP, Region, WORTH_A_THREAD};
use crate::names::Name;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Inventory, Moment, Variable};
use crate::recording::windows::RecordedWindow;
use crate::snapshot::{Held, Role, Snapshot};
use crate::units::{Bytes, Picos};
use crate::worker;

pub use bands::Band;
pub(crate) use carried::PoolRange;
pub use count::{Count, Disagreement, Peak};
pub(crate) use dump::Places;
pub(crate) use frames::Pass;
pub(crate) use op::layer_of;
use op::{Part, Update};
pub(crate) use op::{is_optimizer, without_number};
pub(crate) use owners::Owner;
pub use pairing::{Life, PoolTrace, UnmatchedFree};
pub(crate) use pattern::OpSizes;
pub(crate) use step::StepUse;
pub use step::{How, Phase, Step};
pub use survivors::SurvivorKind;
pub(crate) use survivors::{StayedBlocks, StepBegins, Surviving};

/// Why an allocation has no name.
const NO_NAME: &str = "the event names no op and is in no named scope of its thread";
const NO_NAME_JAX: &str = "JAX does not report op names in its pools";
/// The evidence for a block that XLA's compiler allocates to try kernels.
pub(crate) const COMPILER: &str = "allocated by a compiler thread of XLA, which tries kernels on the device to find the fastest (autotuning)";
/// The owner of such a block.
pub(crate) const AUTOTUNING: &str = "XLA autotuning";
const COMPILER_THREADS: &str = "tf_pjrt_compile_thread_pool";
const INVENTORY: &str = "in the program's list of variables";
const NEW_VALUE: &str = "new value of a variable in the program's list";
const ASSIGNED: &str = "a result that is assigned to a variable in the program's list";
const ARGUMENT: &str = "an argument of the model's forward pass";
const NO_GRADIENT: &str =
    "a result of the backward pass that is not the gradient of a parameter; freed within the step";
/// The layer of buffers that processes exchange.
const EXCHANGED: &str = "communication buckets";
/// The layer of results that an optimizer frees in its update.
const UPDATE: &str = "optimizer update";
const BACKWARD_PASS: &str = "backward pass";
const LINE_DONE: &str = "freed before its line of code was done";
const HELD_ON: &str = "the program held it after its line of code was done";
const LOST: &str = "the allocator counts it, but its allocation event is missing from the trace";

/// A history with everything that follows from it.
#[derive(Debug)]
pub struct Trace {
    /// The facts it rests on.
    pub history: History,
    /// The pools, those with the highest peaks first.
    pub pools: Vec<PoolTrace>,
    /// Calls of the training program, in order.
    pub steps: Vec<Step>,
    roles: role::Roles,
    /// By the event of its allocation: the variable that a block holds, if the program reported it.
    owned: FxHashMap<usize, Owner>,
    /// The values of those variables when they were last listed, as blocks.
    listed: Vec<recorded::Listed>,
    /// The owners of ops, if the program reported them.
    owners: owners::Owners,
    /// Variables that lay in its pools since before it began.
    carried: Vec<carried::Carried>,
    /// Blocks that are passed to compiled programs of JAX.
    arguments: arguments::Arguments,
    /// When the gradients of PyTorch's parameters were listed, in order.
    gradients_listed: Vec<Picos>,
    /// The events that allocated workspaces of cuBLAS.
    workspaces: FxHashSet<usize>,
    /// Whose the blocks are that a snapshot of one moment lists.
    at_moment: dump::MomentOwners,
    names: owners::LayerNames,
}

/// An allocation with its whole life.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// The block, with its age at the end of its life or of the trace.
    pub held: Held,
    /// Where it lies.
    pub address: Option<u64>,
    /// When it was allocated.
    pub born: Picos,
    /// When it was freed; `None` where the trace does not show it.
    pub freed: Option<Picos>,
    /// Whether it lives at the pool's peak.
    pub is_at_peak: bool,
}

/// A block that was held for long.
#[derive(Clone, Debug)]
pub(crate) struct LongHeld {
    /// The block, with its age at the end of its life or of the trace.
    pub held: Held,
    /// When it was allocated.
    pub born: Picos,
    /// When it was freed; `None` where the trace does not show it.
    pub freed: Option<Picos>,
    /// Bytes times the time they were held, in byte-seconds.
    pub byte_seconds: f64,
}

impl Trace {
    /// Pairs, orders and classifies the events of a history.
    #[must_use]
    pub fn new(mut history: History) -> Trace {
        count::order_ties(&mut history.events);
        let classify = || {
            let roles = role::Roles::new(&history);
            let steps = step::find(&history, &roles);
            (count::counts(&history, &steps), roles, steps)
        };
        // Neither needs the other, and each goes through all events.
        let (mut pools, (counts, roles, mut steps)) = if history.events.len() < WORTH_A_THREAD {
            (pairing::pair(&history), classify())
        } else {
            std::thread::scope(|threads| {
                let classified = threads.spawn(classify);
                (pairing::pair(&history), worker::joined(classified))
            })
        };
        for pool in &mut pools {
            pool.count = counts.get(usize::from(pool.id.0)).cloned().unwrap_or_default();
        }
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.peak().map(|peak| peak.bytes)));
        step::set_cut(&mut steps, &history, &roles, &pools);
        let mut trace = Trace {
            arguments: arguments::find(&history, &pools, &[]),
            names: owners::LayerNames::of_calls(&history),
            gradients_listed: Vec::new(),
            workspaces: FxHashSet::default(),
            at_moment: dump::MomentOwners::default(),
            history,
            pools,
            steps,
            roles,
            owned: FxHashMap::default(),
            listed: Vec::new(),
            owners: owners::Owners::default(),
            carried: Vec::new(),
        };
        trace.workspaces = trace.workspaces();
        trace
    }

    /// Takes from what a process told whose memory each block is: it knows better than any rule. `listed` are the inventories that were
    /// taken while it was traced.
    #[must_use]
    pub(crate) fn with_owners(mut self, process: &RecordedProcess, listed: &[&Inventory]) -> Trace {
        let layers = owners::LayerNames::of(process, &self.history);
        let known = recorded::last_roles(process, &layers);
        let is_gradient = |variable: &Variable| variable.role == Role::Gradients;
        self.gradients_listed = listed
            .iter()
            .filter(|inventory| inventory.variables.iter().any(is_gradient))
            .filter_map(|inventory| recorded::moment(&self.history, inventory.time))
            .collect();
        self.gradients_listed.sort_unstable();
        self.names = layers.clone();
        for inventory in listed {
            let mut owned = recorded::owned(inventory, &layers, &self.history, &self.pools);
            // That a variable is trained shows with its first gradient.
            for owner in owned.values_mut() {
                owner.role = known.get(&owner.identity()).copied().unwrap_or(owner.role);
            }
            if !owned.is_empty() {
                self.listed = recorded::listed(&owned, &self.history);
                self.owned.extend(owned);
            }
        }
        for (birth, mut owner) in owners::first_values(process, &self.history, &self.pools) {
            owner.role = known.get(&owner.identity()).copied().unwrap_or(owner.role);
            self.owned.entry(birth).or_insert(owner);
        }
        let noted = arguments::noted(process, &self.history, &self.pools);
        if !noted.is_empty() {
            self.arguments = arguments::find(&self.history, &self.pools, &noted);
        }
        self.owners = owners::Owners::of(process, &self.history);
        self.roles.told_gradients.clone_from(&self.owners.gradients);
        // An earlier recorder listed only the variables of Keras.
        self.roles.knows_variables = !process.inventories.is_empty() && !self.owners.is_empty();
        self.workspaces = self.workspaces();
        self
    }

    /// Takes from all inventories of a process which variables lay in the pools since before the trace began. `end` is when the
    /// profiler was stopped; `earlier` is where earlier traces of the process saw its pools.
    #[must_use]
    pub(crate) fn with_carried(
        mut self,
        process: &RecordedProcess,
        end: Option<Moment>,
        earlier: &[PoolRange],
    ) -> Trace {
        let end = end.and_then(|end| recorded::moment(&self.history, end));
        self.carried =
            carried::carried(process, &self.history, &self.pools, |pool| self.device_of(pool), end, earlier);
        self
    }

    /// Where the pools of this trace lie, as far as its events show.
    pub(crate) fn ranges(&self) -> Vec<PoolRange> {
        let range = |pool: &PoolTrace| PoolRange::of(&self.history, pool, self.device_of(pool));
        self.pools.iter().map(range).collect()
    }

    /// Takes the steps that a process announced where the trace shows none: ops that are run one by one leave no call in it. Or where it
    /// shows fewer updates of an optimizer: those that a gradient scaler skips leave none.
    #[must_use]
    pub(crate) fn with_announced(mut self, process: &RecordedProcess, window: &RecordedWindow) -> Trace {
        let shown = self.steps.iter().filter(|step| step.phase == Phase::Train).count();
        let is_update = |step: &Step| self.history.names.get(step.name).starts_with(OPTIMIZER_STEP);
        if shown > 0 && !self.steps.iter().all(is_update) {
            return self;
        }
        let announced = recorded::announced(process, &self.history, window);
        let is_of_updates = announced.iter().all(|step| step.how == How::Inferred);
        // Where the trace ends with the last update, it does not show its end.
        if shown > 0 && (announced.len() <= shown + 1 || !is_of_updates) {
            return self;
        }
        self.steps = if announced.is_empty() { self.steps } else { announced };
        self.workspaces = self.workspaces();
        self
    }

    /// Whose blocks and ops are.
    pub(crate) fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let carried = self.carried.iter_mut().map(|carried| &mut carried.owner);
        let at_moment = self.at_moment.all_mut();
        let of_blocks = self.owned.values_mut().chain(self.owners.all_mut()).chain(carried);
        of_blocks.chain(self.arguments.all_mut()).chain(at_moment)
    }

    /// Bytes of a role that an inventory lists and that lie in the pools of this trace.
    #[must_use]
    pub(crate) fn listed_bytes(&self, role: Role) -> Bytes {
        let listed = self.listed.iter().map(|listed| (listed.role, listed.requested));
        let carried = self.carried.iter().map(|carried| (carried.owner.role, carried.bytes()));
        listed.chain(carried).filter(|&(of, _)| of == role).map(|(_, bytes)| bytes).sum()
    }

    /// The device that a pool is on, by the name the frameworks give it; empty where that does not tell.
    #[must_use]
    pub(crate) fn device_of(&self, pool: &PoolTrace) -> String {
        self.history.pool(pool.id).map_or(String::new(), |pool| crate::event::device_of(&pool.name))
    }

    /// What a pool held at its peak, or `None` where it has no events.
    #[must_use]
    pub fn at_peak(&self, pool: &PoolTrace) -> Option<Snapshot> {
        Some(self.snapshot_at(pool, pool.peak()?.position))
    }

    /// What a pool held at a moment, or `None` before its first event.
    #[must_use]
    pub fn snapshot(&self, pool: &PoolTrace, time: Picos) -> Option<Snapshot> {
        let position = pool.position_at(&self.history.events, time)?;
        Some(self.snapshot_at(pool, position))
    }

    fn snapshot_at(&self, pool: &PoolTrace, position: usize) -> Snapshot {
        self.snapshot_of(pool, position, pool.live_at(position).collect())
    }

    /// The snapshot at a position at which the blocks that the events `live` allocated are there.
    fn snapshot_of(&self, pool: &PoolTrace, position: usize, mut live: Vec<usize>) -> Snapshot {
        let time = pool.time(&self.history.events, position);
        let in_use = pool.in_use_at(&self.history.events, position);
        let chunk = |&event: &usize| self.history.events.at(event).size().unwrap_or_default();
        let mut known: Bytes = live.iter().map(chunk).sum();
        let before = pool.before_at(position);
        // Where frees are missing, more seems to live than the allocator counts. It counts right: the blocks seen
        // least recently go first.
        let mut gone = 0;
        while known > in_use && gone < live.len() {
            known = known.saturating_sub(live.get(gone).map(chunk).unwrap_or_default());
            gone += 1;
        }
        live.drain(..gone);
        let mut before_recording = before.min(in_use.saturating_sub(known));
        let lost = in_use.saturating_sub(known + before_recording);
        let programs = program::find(&self.history, pool, &live);
        let blocks = live.into_iter().flat_map(|event| {
            let block = self.held(pool, event, pool.freed(&self.history.events, event), time);
            // What the program says of its own variables stands.
            let program = programs.get(&event).filter(|_| !self.owned.contains_key(&event));
            let passed = self.arguments.at(event, time).filter(|_| !self.owned.contains_key(&event));
            match (program, passed) {
                (program, Some(passed)) => vec![self.named_argument(program, passed, block)],
                (Some(program), None) => self.exploded(program, &block),
                (None, None) => vec![block],
            }
        });
        let mut held: Vec<Held> = blocks.collect();
        if !self.gradients_listed.is_empty() {
            // PyTorch changes variables in place: their addresses say all.
        } else if self.owners.is_empty() {
            recorded::settle(&mut held, &self.listed);
        } else {
            recorded::settle_by_variable(&mut held);
        }
        for carried in self.carried.iter().filter(|carried| carried.is_at(pool, position)) {
            if carried.bytes() <= before_recording {
                before_recording = before_recording.saturating_sub(carried.bytes());
                held.push(carried.held());
            }
        }
        if lost > Bytes::ZERO {
            held.push(Held::bare(lost, lost, LOST));
        }
        Snapshot { time: Some(time), in_use, before_recording, held }
    }

    /// A block of a program, split into what lies in it.
    fn exploded(&self, program: &program::Match, block: &Held) -> Vec<Held> {
        let mut parts = program.explode(&self.history, block);
        parts.iter_mut().for_each(|part| self.name_layer(program, part));
        parts
    }

    /// Names the layer of a value: the one whose scopes it is in, else the function that computes it, else the program.
    fn name_layer(&self, program: &program::Match, part: &mut Held) {
        if let Some(layer) = self.arguments.layer_of_op(part.op) {
            layer.clone_into(&mut part.layer);
        } else if part.layer.is_empty() {
            let function = self.arguments.function_of(part.stack, program.program);
            function.unwrap_or_default().clone_into(&mut part.layer);
        }
    }

    /// A block with its whole life: what it is to the programs that it is passed to, else what lies in it.
    fn whole(&self, birth: usize, program: Option<&program::Match>, block: Held) -> Held {
        if self.owned.contains_key(&birth) {
            return block;
        }
        match (program, self.arguments.of_life(birth)) {
            (program, Some(passed)) => self.named_argument(program, passed, block),
            (Some(program), None) => {
                let mut whole = program.whole(&self.history, block);
                self.name_layer(program, &mut whole);
                whole
            }
            (None, None) => block,
        }
    }

    /// A block that is passed to a program. The program that made it tells its op and shape.
    fn named_argument(
        &self,
        program: Option<&program::Match>,
        passed: arguments::Passed<'_>,
        block: Held,
    ) -> Held {
        let made = program.map(|program| program.explode(&self.history, &block));
        let block = match made.as_deref() {
            Some([only]) => only.clone(),
            _ => block,
        };
        Held {
            layer: passed.owner.layer.clone(),
            variable: passed.owner.variable.clone(),
            role: passed.role,
            evidence: passed.evidence,
            ..block
        }
    }

    /// The allocations of a pool with the most bytes times seconds, heaviest first.
    #[must_use]
    pub(crate) fn held_longest(&self, pool: &PoolTrace) -> Vec<LongHeld> {
        let events = &self.history.events;
        let end = pool.last_time(events);
        let births: Vec<usize> = pool.heaviest().iter().map(|heavy| heavy.birth).collect();
        let programs = program::find(&self.history, pool, &births);
        let whole = |birth: usize, block: Held| self.whole(birth, programs.get(&birth), block);
        let long = |heavy: &pairing::Heavy| LongHeld {
            held: whole(heavy.birth, self.held(pool, heavy.birth, heavy.freed, heavy.freed.unwrap_or(end))),
            born: events.time(heavy.birth),
            freed: heavy.freed,
            byte_seconds: heavy.byte_seconds,
        };
        pool.heaviest().iter().map(long).collect()
    }

    /// Every allocation of a pool, in order; one at a time, because a trace may hold millions.
    pub fn lifetimes(&self, pool: &PoolTrace) -> impl Iterator<Item = Lifetime> {
        let events = &self.history.events;
        let end = pool.last_time(events);
        let births: Vec<usize> =
            if self.history.executables.is_empty() { Vec::new() } else { pool.births().collect() };
        let programs = program::find(&self.history, pool, &births);
        let peak = pool.peak().map(|peak| peak.position);
        pool.lives().map(move |Life { birth, born_at, freed_at }| {
            let freed = freed_at.map(|at| pool.time(events, at));
            let is_at_peak = peak.is_some_and(|peak| born_at <= peak && freed_at.is_none_or(|at| at > peak));
            let block = self.held(pool, birth, freed, freed.unwrap_or(end));
            let held = self.whole(birth, programs.get(&birth), block);
            Lifetime {
                held,
                address: events.at(birth).address(),
                born: events.time(birth),
                freed,
                is_at_peak,
            }
        })
    }

    /// The peak and final figure of each step in a pool.
    #[must_use]
    pub(crate) fn step_uses(&self, pool: &PoolTrace) -> Vec<StepUse> {
        pool.count.uses.of(&self.steps)
    }

    /// The role of a block by itself, and the evidence.
    fn role(&self, pool: &PoolTrace, birth: usize, freed: Option<Picos>) -> (Role, &'static str) {
        let owned = self.owned.get(&birth).filter(|owned| owned.role != Role::Unknown);
        if let Some(owned) = owned {
            return (owned.role, INVENTORY);
        }
        if self.workspaces.contains(&birth) {
            return (Role::Temporaries, workspaces::WORKSPACE);
        }
        if let Some(known) = self.role_of_owner(birth, freed) {
            return known;
        }
        let (role, evidence) = self.roles.of(&self.history, &self.steps, pool, birth, freed);
        match role {
            Role::Gradients if self.is_no_gradient(birth, freed) => (Role::Temporaries, NO_GRADIENT),
            Role::Unknown if self.is_compiler(birth) => (Role::Temporaries, COMPILER),
            Role::Unknown if self.steps.is_empty() => {
                self.role_by_line(birth, freed).unwrap_or((role, evidence))
            }
            _ => (role, evidence),
        }
    }

    /// Whether a block of PyTorch's backward pass is not the gradient of a parameter: those live until the optimizer's update, when they
    /// are listed.
    fn is_no_gradient(&self, birth: usize, freed: Option<Picos>) -> bool {
        let born = self.history.events.time(birth);
        let next = self.gradients_listed.partition_point(|&time| time < born);
        let (Some(&listed), Some(freed)) = (self.gradients_listed.get(next), freed) else { return false };
        let step = self.steps.partition_point(|step| step.begin <= born).checked_sub(1);
        let is_same_step = step.and_then(|at| self.steps.get(at)).is_some_and(|step| listed <= step.until);
        is_same_step && freed < listed
    }

    /// The role of a block in a program without steps: whether the program holds it longer than its line of code takes.
    fn role_by_line(&self, birth: usize, freed: Option<Picos>) -> Option<(Role, &'static str)> {
        self.ran_alone(birth)?;
        let end = self.owners.span_end(self.history.events.time(birth))?;
        Some(match freed {
            Some(freed) if freed <= end => (Role::Temporaries, LINE_DONE),
            _ => (Role::State, HELD_ON),
        })
    }

    /// The role of a block that an op asked for which the program says assigns to a variable, or works for one.
    fn role_of_owner(&self, birth: usize, freed: Option<Picos>) -> Option<(Role, &'static str)> {
        let event = self.history.events.at(birth);
        if self.ran_alone(birth).is_some() {
            return None;
        }
        let (role, bytes) = self.owners.variable_of_op(event.op(), event.time())?;
        // Other results on the way to a value are scratch: counts, places in it.
        if role == Role::Unknown || bytes != event.requested() {
            return None;
        }
        let is_first =
            matches!(self.roles.part(event.op()), Part::Initializer | Part::Optimizer(Update::FirstSlot));
        if is_first || op::assigns(self.history.names.get(event.op())) {
            return Some((role, NEW_VALUE));
        }
        let outlives =
            event.region() != Region::Temp && role::outlives_step(&self.steps, event.time(), freed);
        outlives.then_some((role, ASSIGNED))
    }

    /// The pass of a training step of PyTorch that an allocation belongs to, by its stack.
    pub(crate) fn pass_of(&self, birth: usize) -> Option<Pass> {
        self.roles.stacks()?.pass_of(&self.history, birth)
    }

    /// Whether PyTorch's backward pass allocated a block.
    fn is_backward(&self, birth: usize) -> bool {
        self.roles.stacks().is_some_and(|stacks| stacks.is_backward(&self.history, birth))
    }

    /// Whether a thread of XLA's compiler allocated a block that nothing else names.
    pub(crate) fn is_compiler(&self, birth: usize) -> bool {
        let event = self.history.events.at(birth);
        event.op().is_empty()
            && event.context().is_empty()
            && self.history.names.get(event.thread()).starts_with(COMPILER_THREADS)
    }

    /// The owner of an op, as the program reported it: by its name in a graph, or by what the program's own thread was doing.
    fn owner(&self, birth: usize) -> Option<Owner> {
        let event = self.history.events.at(birth);
        match self.ran_alone(birth) {
            Some(owner) => Some(owner.clone()),
            None => self.owners.of_op(event.op(), event.time()),
        }
    }

    /// Whose an op is that ran by itself, and not in a graph.
    fn ran_alone(&self, birth: usize) -> Option<&Owner> {
        let event = self.history.events.at(birth);
        let is_of_data = self.history.names.get(event.thread()).starts_with(role::DATA_THREADS);
        let is_alone = !op::has_scope(self.history.names.get(event.op())) && !is_of_data;
        self.owners.at(event.time()).filter(|_| is_alone)
    }

    /// The layers of ops, each by the largest block of it in a pool: what the rows of a snapshot say.
    pub(crate) fn layers_of(&self, pool: &PoolTrace, ops: &FxHashSet<Name>) -> FxHashMap<Name, String> {
        let events = &self.history.events;
        let mut largest: FxHashMap<Name, (Bytes, usize)> = FxHashMap::default();
        for birth in pool.births() {
            let event = events.at(birth);
            let (op, size) = (event.op_or_scope(), event.size().unwrap_or_default());
            if ops.contains(&op) && largest.get(&op).is_none_or(|&(known, _)| known <= size) {
                largest.insert(op, (size, birth));
            }
        }
        let layer = |birth| {
            let freed = pool.freed(events, birth);
            self.held(pool, birth, freed, events.time(birth)).layer
        };
        largest.into_iter().map(|(op, (_, birth))| (op, layer(birth))).collect()
    }

    /// The layer that a block belongs to, or the part of the program that is none: `input data`, `loss`, a function and its line.
    fn layer(&self, op: &str, role: Role, owned: Option<&Owner>, owner: Option<&Owner>) -> String {
        let of_variable = owned.map(|owned| &owned.layer);
        let told = of_variable.into_iter().chain(owner.map(|owner| &owner.layer));
        if let Some(layer) = told.into_iter().find(|layer| !layer.is_empty()) {
            return layer.clone();
        }
        let of_name = layer_of(op);
        match (role, owner) {
            _ if owned.is_some() => String::new(),
            (Role::Inputs, _) => op::INPUT_DATA.to_owned(),
            _ if of_name == op::LOSS => of_name,
            (_, Some(owner)) if !owner.source.is_empty() => owner.source.clone(),
            _ => of_name,
        }
    }

    /// The module of PyTorch that a block belongs to, or the part of the program that is none.
    fn module(&self, birth: usize, owned: Option<&Owner>, role: Role, evidence: &'static str) -> String {
        if owned.is_some_and(|owned| owned.role == Role::Inputs) {
            return op::INPUT_DATA.to_owned();
        }
        if let Some(layer) = owned.map(|owned| &owned.layer).filter(|layer| !layer.is_empty()) {
            return layer.clone();
        }
        match evidence {
            frames::COMMUNICATION => return EXCHANGED.to_owned(),
            frames::UPDATE => return UPDATE.to_owned(),
            workspaces::WORKSPACE => return workspaces::OWNER.to_owned(),
            _ => {}
        }
        if let Some(call) = self.module_call(birth) {
            return self.names.show_call(call);
        }
        match role {
            // Without module hooks nothing tells what is outside of modules.
            _ if self.history.module_calls.is_empty() && !self.owners.has_modules() => String::new(),
            Role::Unknown => String::new(),
            Role::Inputs => op::INPUT_DATA.to_owned(),
            // A backward pass begins with what the program computed from the results of its modules.
            _ if self.is_backward(birth) => op::LOSS.to_owned(),
            _ => self.history.names.get(self.history.events.at(birth).op()).to_owned(),
        }
    }

    /// The module of PyTorch that ran when event `birth` allocated, and its pass.
    pub(crate) fn module_call(&self, birth: usize) -> Option<&ModuleCall> {
        let event = self.history.events.at(birth);
        let told = self.history.module_calls.get(&event.module());
        told.or_else(|| self.owners.module_at(event.time()))
    }

    /// Everything known of the block that event `birth` allocated and that was `freed`, as of `now`.
    fn held(&self, pool: &PoolTrace, birth: usize, freed: Option<Picos>, now: Picos) -> Held {
        let events = &self.history.events;
        let told = events.at(birth).op();
        let context = events.at(birth).context();
        let context_text = self.history.names.get(context);
        // A JAX function says which call it was, not which tensor: that is a place, not a name.
        let is_function = context_text.starts_with("PjitFunction(");
        let is_torch = self.history.framework == Some(Framework::PyTorch);
        let stack = events.at(birth).stack();
        let (op, source) = match (told.is_empty(), is_function) {
            (false, _) => (told, ""),
            (true, true) => (Name::EMPTY, context_text),
            (true, false) => (context, ""),
        };
        let text = self.history.names.get(op);
        // The op of a stack is its place in short; here it is in full.
        let mut frames = self.history.stacks.frames(stack).map(|frame| self.history.names.get(frame));
        let source = frames.find(|frame| !text.is_empty() && frame.ends_with(text)).unwrap_or(source);
        let owned = self.owned.get(&birth);
        let is_compiler = self.is_compiler(birth);
        let (role, evidence) = self.role(pool, birth, freed);
        let source = if evidence == COMPILER { "XLA's compiler" } else { source };
        let owner = self.owner(birth);
        let evidence = match (op.is_empty(), role) {
            _ if owned.is_some_and(|owned| is_torch && owned.role == Role::Inputs) => ARGUMENT,
            _ if owned.is_some() => INVENTORY,
            _ if is_compiler => COMPILER,
            _ if is_torch => evidence,
            (true, Role::Unknown) if self.history.framework == Some(Framework::Jax) => NO_NAME_JAX,
            (true, Role::Unknown) => NO_NAME,
            _ => evidence,
        };
        let of_variable = match (owned, &owner) {
            (Some(owned), _) => Some(owned),
            (None, Some(owner)) if evidence == NEW_VALUE || evidence == ASSIGNED => Some(owner),
            _ => None,
        };
        let chunk = events.at(birth).size().unwrap_or_default();
        let layer = match is_torch {
            true => self.module(birth, owned, role, evidence),
            false if evidence == COMPILER => AUTOTUNING.to_owned(),
            false => self.layer(text, role, owned, owner.as_ref()),
        };
        // Threads of the backward pass run no Python.
        let is_silent = is_torch && op.is_empty() && stack.is_empty() && !layer.is_empty();
        let source = if is_silent && self.is_backward(birth) { BACKWARD_PASS } else { source };
        Held {
            // A request that the source does not tell is at most the chunk; what is told can be no more than it.
            requested: events.at(birth).requested().unwrap_or(chunk).min(chunk),
            chunk,
            op,
            layer,
            role,
            shape: events.at(birth).shape(),
            dtype: events.at(birth).dtype(),
            source: match (source, owned, &owner) {
                ("", Some(owned), _) if !owned.source.is_empty() => owned.source.clone(),
                ("", None, Some(owner)) => owner.source.clone(),
                _ => source.to_owned(),
            },
            evidence,
            age: Some(now.since(events.time(birth))),
            variable_number: of_variable.and_then(|owner| owner.number),
            variable: of_variable.map_or(String::new(), |owner| owner.variable.clone()),
            stack,
            count: 1,
        }
    }
}
