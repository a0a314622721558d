//! The owner of an op, as the program reported it while it ran: a layer, a variable or a source line.
//!
//! Three sorts of rows, each certain by itself. A scope of a graph is a layer's: every op below it is. An op of a graph assigns to a
//! variable, or works for one, or comes from a line. And what ran by itself in a span of time ran for a layer and a line.
//! Graphs are inlined into one another, which puts the names of calls before a name, and a backward pass puts `gradient_tape`; so a
//! scope is looked for at every place of a name, and the first place wins.
//!
//! Two graphs may have the same name for something else. Where it is known which function was being called, that function's graph is
//! meant; else what was learned last before a block was made.

use rustc_hash::{FxHashMap, FxHashSet};

use super::PoolTrace;
use super::recorded::moment;
use crate::event::{History, ModuleCall, ModulePass};
use crate::names::Name;
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{LayerPath, OwnerKind, OwnerRow};
use crate::snapshot::Role;
use crate::units::{Bytes, Picos};

/// Names with more parts than this are cut.
const DEEPEST: usize = 32;

/// What follows a variable's name in the names of the ops that compute its first value, and of the one that assigns it.
const FIRST_VALUE: &str = "/Initializer/";
const FIRST_ASSIGN: &str = "/cond/Assign";

/// In the names of constants that TensorFlow computed while it prepared a graph.
const FOLDED: &str = "__cf__";

/// The name of spans in which the program computes gradients.
const GRADIENTS: &str = "gradient_tape";

/// Whose something is. Empty where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The layer.
    pub(crate) layer: String,
    /// Function, file and line.
    pub(crate) source: String,
    /// The variable that the op assigns to, or works for.
    pub(crate) variable: String,
    /// The number of that variable.
    pub(crate) number: Option<i64>,
    /// What that variable is for.
    pub(crate) role: Role,
    /// The bytes of its value, where it was listed.
    pub(crate) bytes: Option<Bytes>,
}

/// What tells a variable apart from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// Its number in its process.
    Number(i64),
    /// Its name, layer and source: several variables may have the same.
    Names(String, String, String),
}

/// What the program reported, by the op names of the trace.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By op, in order of the moments from which on it holds.
    ops: FxHashMap<Name, Vec<Learned>>,
    /// From when to when, in order.
    spans: Vec<(Picos, Picos, Owner)>,
    /// Which function was called, from when to when, in order.
    calls: Vec<(Picos, Picos, i64)>,
    /// When ops that ran by themselves computed gradients, in order.
    pub(crate) gradients: Vec<(Picos, Picos)>,
    /// The module of PyTorch that ran, from when to when, in order.
    modules: Vec<(Picos, Picos, ModuleCall)>,
}

/// Whose an op is, from when on, and in the graph of which function.
#[derive(Clone, Debug)]
struct Learned {
    since: Picos,
    function: Option<i64>,
    owner: Owner,
}

impl Owners {
    /// Assigns what a process reported to the ops of its trace.
    pub(crate) fn of(process: &RecordedProcess, history: &History) -> Owners {
        let told = Told::of(process, history);
        let (spans, calls, gradients) = (told.spans(), told.calls(), told.gradients());
        let modules = modules(process, history);
        let mut owners = Owners { spans, calls, gradients, modules, ..Owners::default() };
        let mut seen: FxHashSet<Name> = FxHashSet::default();
        for event in history.events.unordered().filter(|event| event.is_alloc()) {
            let op = event.op();
            if !op.is_empty() && seen.insert(op) {
                let found = told.about(history.names.get(op));
                if !found.is_empty() {
                    owners.ops.insert(op, found);
                }
            }
        }
        owners
    }

    /// Whether the program reported nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.spans.is_empty()
    }

    /// Whose an op is that asked for a block at a moment: what was learned last before it counts, and fills what it leaves open.
    pub(crate) fn of_op(&self, op: Name, time: Picos) -> Option<Owner> {
        let mut owner = Owner::default();
        self.known(op, time)?.into_iter().rev().for_each(|earlier| owner.fill(&earlier.owner));
        Some(owner)
    }

    /// What was learned of an op before a moment, of the function that was being called then where that is known.
    fn known(&self, op: Name, time: Picos) -> Option<Vec<&Learned>> {
        let told = self.ops.get(&op)?;
        let function = at(&self.calls, time);
        let is_of_call =
            |learned: &&Learned| learned.function.is_some() && learned.function == function.copied();
        let mut told: Vec<&Learned> = match told.iter().any(|learned| is_of_call(&learned)) {
            true => told.iter().filter(is_of_call).collect(),
            false => told.iter().collect(),
        };
        told.truncate(told.partition_point(|learned| learned.since <= time).max(1));
        Some(told)
    }

    /// What the variable is for that an op assigns to or works for, and its bytes.
    pub(crate) fn variable_of_op(&self, op: Name, time: Picos) -> Option<(Role, Option<Bytes>)> {
        let known = self.known(op, time)?;
        let last = known.iter().rev().find(|learned| !learned.owner.variable.is_empty())?;
        Some((last.owner.role, last.owner.bytes))
    }

    /// Whose what ran by itself at a moment is.
    pub(crate) fn at(&self, time: Picos) -> Option<&Owner> {
        at(&self.spans, time)
    }

    /// When the span ends in which something ran by itself at a moment.
    pub(crate) fn span_end(&self, time: Picos) -> Option<Picos> {
        let after = self.spans.partition_point(|(begin, ..)| *begin <= time);
        let (_, end, _) = after.checked_sub(1).and_then(|last| self.spans.get(last))?;
        (time <= *end).then_some(*end)
    }

    /// The module of PyTorch that ran at a moment, by what the program noted.
    pub(crate) fn module_at(&self, time: Picos) -> Option<&ModuleCall> {
        at(&self.modules, time)
    }

    /// Whether the program noted which modules ran.
    pub(crate) fn has_modules(&self) -> bool {
        !self.modules.is_empty()
    }

    /// All of them.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let of_ops = self.ops.values_mut().flatten().map(|learned| &mut learned.owner);
        of_ops.chain(self.spans.iter_mut().map(|(.., owner)| owner))
    }
}

/// When which module of PyTorch ran, in order.
fn modules(process: &RecordedProcess, history: &History) -> Vec<(Picos, Picos, ModuleCall)> {
    let ran = |row: &OwnerRow| {
        let pass = ModulePass::of_word(&row.name)?;
        let (begin, end) = lasted(history, row)?;
        let path = row.layer.layer.clone().unwrap_or_default();
        Some((begin, end, ModuleCall { pass, model: row.layer.model.clone(), path }))
    };
    let rows = process.owners.iter().filter(|row| row.kind == OwnerKind::Module);
    let mut ran: Vec<(Picos, Picos, ModuleCall)> = rows.filter_map(ran).collect();
    ran.sort_by_key(|&(begin, end, _)| (begin, end));
    ran
}

/// What holds at a moment, of spans in order that do not overlap.
fn at<T>(spans: &[(Picos, Picos, T)], time: Picos) -> Option<&T> {
    let after = spans.partition_point(|(begin, ..)| *begin <= time);
    let (_, end, told) = after.checked_sub(1).and_then(|last| spans.get(last))?;
    (time <= *end).then_some(told)
}

/// The name of a layer as it is shown: with its model where there are several.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerNames {
    has_several_models: bool,
}

impl LayerNames {
    /// The layers that a process and its allocator reported.
    pub(crate) fn of(process: &RecordedProcess, history: &History) -> LayerNames {
        let listed = process.inventories.iter().flat_map(|inventory| &inventory.variables);
        let paths = process.owners.iter().map(|row| &row.layer).chain(listed.map(|variable| &variable.layer));
        let calls = history.module_calls.values().filter_map(|call| call.model.as_deref());
        let models: FxHashSet<&str> = paths.filter_map(|path| path.model.as_deref()).chain(calls).collect();
        LayerNames { has_several_models: models.len() > 1 }
    }

    /// Of the modules that the allocator told of.
    pub(crate) fn of_calls(history: &History) -> LayerNames {
        let models = history.module_calls.values().filter_map(|call| call.model.as_deref());
        LayerNames { has_several_models: models.collect::<FxHashSet<&str>>().len() > 1 }
    }

    /// The name of a module that ran.
    pub(crate) fn show_call(&self, call: &ModuleCall) -> String {
        match &call.model {
            Some(_) => self.show(&LayerPath { model: call.model.clone(), layer: Some(call.path.clone()) }),
            None => call.path.clone(),
        }
    }

    pub(crate) fn show(&self, path: &LayerPath) -> String {
        match (path.model.as_deref(), path.layer.as_deref()) {
            (None, None) => String::new(),
            (None, Some(layer)) => layer.to_owned(),
            (Some(model), None | Some("")) => model.to_owned(),
            (Some(model), Some(layer)) if self.has_several_models => format!("{model}/{layer}"),
            (Some(_), Some(layer)) => layer.to_owned(),
        }
    }
}

/// The rows of a process, by name.
struct Told<'a> {
    names: LayerNames,
    scopes: FxHashMap<&'a str, Vec<(Picos, &'a OwnerRow)>>,
    ops: FxHashMap<&'a str, Vec<(Picos, &'a OwnerRow)>>,
    in_spans: Vec<(Picos, Picos, &'a OwnerRow)>,
    in_calls: Vec<(Picos, Picos, i64)>,
    /// Bytes of variables: by their numbers and, of an earlier recorder, by their names.
    sizes: FxHashMap<i64, Bytes>,
    sizes_by_name: FxHashMap<(&'a str, &'a LayerPath), Bytes>,
}

impl<'a> Told<'a> {
    fn of(process: &'a RecordedProcess, history: &History) -> Told<'a> {
        let listed = || process.inventories.iter().flat_map(|inventory| &inventory.variables);
        let mut told = Told {
            names: LayerNames::of(process, history),
            scopes: FxHashMap::default(),
            ops: FxHashMap::default(),
            in_spans: Vec::new(),
            in_calls: Vec::new(),
            sizes: listed().filter_map(|each| Some((each.number?, each.bytes))).collect(),
            sizes_by_name: listed().map(|each| ((each.name.as_str(), &each.layer), each.bytes)).collect(),
        };
        let now = |row: &OwnerRow| moment(history, row.time).unwrap_or(Picos(i64::MIN));
        for row in &process.owners {
            match row.kind {
                OwnerKind::Scope => told.scopes.entry(&row.name).or_default().push((now(row), row)),
                OwnerKind::Op => told.ops.entry(&row.name).or_default().push((now(row), row)),
                OwnerKind::Span => {
                    told.in_spans.extend(lasted(history, row).map(|(begin, end)| (begin, end, row)));
                }
                OwnerKind::Call => {
                    let call = lasted(history, row).zip(row.function);
                    told.in_calls.extend(call.map(|((begin, end), function)| (begin, end, function)));
                }
                // Blocks and modules, and no ops.
                OwnerKind::Value | OwnerKind::Module | OwnerKind::Argument => {}
            }
        }
        told
    }

    fn spans(&self) -> Vec<(Picos, Picos, Owner)> {
        let span = |&(begin, end, row): &(Picos, Picos, &OwnerRow)| (begin, end, self.owner(row));
        let mut spans: Vec<(Picos, Picos, Owner)> = self.in_spans.iter().map(span).collect();
        spans.sort_by_key(|(begin, end, _)| (*begin, *end));
        spans
    }

    fn gradients(&self) -> Vec<(Picos, Picos)> {
        let is_gradient = |row: &OwnerRow| row.name == GRADIENTS;
        let spans = self.in_spans.iter().filter(|(.., row)| is_gradient(row));
        let mut spans: Vec<(Picos, Picos)> = spans.map(|&(begin, end, _)| (begin, end)).collect();
        spans.sort_unstable();
        spans
    }

    fn calls(&self) -> Vec<(Picos, Picos, i64)> {
        let mut calls = self.in_calls.clone();
        calls.sort_unstable();
        calls
    }

    fn owner(&self, row: &OwnerRow) -> Owner {
        Owner {
            layer: self.names.show(&row.layer),
            source: row.source.clone().unwrap_or_default(),
            variable: row.variable.clone().unwrap_or_default(),
            number: row.variable_number,
            role: row.role,
            bytes: self.bytes(row),
        }
    }

    /// The bytes of a row's variable.
    fn bytes(&self, row: &OwnerRow) -> Option<Bytes> {
        match (row.variable_number, row.variable.as_deref()) {
            (Some(number), _) => self.sizes.get(&number).copied(),
            (None, Some(name)) => self.sizes_by_name.get(&(name, &row.layer)).copied(),
            (None, None) => None,
        }
    }

    /// What was reported about an op, by the time from which it applies.
    fn about(&self, op: &str) -> Vec<Learned> {
        let op = before_folding(op);
        let rows = self.rows_of_scope(op).into_iter().chain(self.rows_of_op(op));
        let learned = |(since, row): (Picos, &OwnerRow)| Learned {
            since,
            function: row.function,
            owner: self.owner(row),
        };
        let mut found: Vec<Learned> = rows.map(learned).collect();
        found.sort_by_key(|learned| learned.since);
        found
    }

    /// The rows of the op itself: of the longest end of its name that is known.
    fn rows_of_op(&self, op: &str) -> Vec<(Picos, &'a OwnerRow)> {
        // A variable that a function makes gets its first value under a condition of its own.
        let first_value = op.split_once(FIRST_VALUE).map(|(variable, _)| format!("{variable}{FIRST_ASSIGN}"));
        let name = first_value.as_deref().unwrap_or(op);
        let ends = starts(name).filter_map(|at| name.get(at..));
        ends.take(DEEPEST).find_map(|end| self.ops.get(end)).cloned().unwrap_or_default()
    }

    /// The rows of the innermost scope that it is in, from the first place where one is known.
    fn rows_of_scope(&self, op: &str) -> Vec<(Picos, &'a OwnerRow)> {
        let Some((scopes, _)) = op.rsplit_once('/') else { return Vec::new() };
        for at in starts(scopes).take(DEEPEST) {
            let Some(from) = scopes.get(at..) else { continue };
            let ends = from.match_indices('/').map(|(end, _)| end).chain([from.len()]);
            let ends: Vec<usize> = ends.take(DEEPEST).collect();
            let known = ends.into_iter().rev().find_map(|end| self.scopes.get(from.get(..end)?));
            if let Some(rows) = known {
                return rows.clone();
            }
        }
        Vec::new()
    }
}

/// From when to when a row lasted, on a trace's axis.
fn lasted(history: &History, row: &OwnerRow) -> Option<(Picos, Picos)> {
    let (begin, end) = row.span?;
    let now = moment(history, row.time)?;
    let at = |monotonic: i64| {
        let behind = row.time.monotonic.saturating_sub(monotonic);
        Picos(now.0.saturating_sub(behind.saturating_mul(1000)))
    };
    Some((at(begin), at(end)))
}

/// For each block that was the first value of a variable which a step made: whose it is.
pub(super) fn first_values(
    process: &RecordedProcess,
    history: &History,
    pools: &[PoolTrace],
) -> FxHashMap<usize, Owner> {
    let told = Told::of(process, history);
    let rows = process.owners.iter().filter(|row| row.kind == OwnerKind::Value);
    let mut values: FxHashMap<u64, Vec<(Picos, &OwnerRow)>> = FxHashMap::default();
    for row in rows {
        if let Some((address, time)) = row.address.zip(moment(history, row.time)) {
            values.entry(address).or_default().push((time, row));
        }
    }
    let mut found = FxHashMap::default();
    for pool in pools.iter().filter(|_| !values.is_empty()) {
        for life in pool.lives() {
            let event = history.events.at(life.birth);
            let Some(values) = event.address().and_then(|address| values.get(&address)) else { continue };
            let freed = life.freed_at.map(|at| pool.time(&history.events, at));
            let is_there = |time: Picos| event.time() <= time && freed.is_none_or(|freed| time < freed);
            let Some((_, row)) = values.iter().find(|(time, _)| is_there(*time)) else { continue };
            let owner = told.owner(row);
            if owner.bytes.is_none_or(|bytes| event.size().is_some_and(|size| size >= bytes)) {
                found.insert(life.birth, owner);
            }
        }
    }
    found
}

impl Owner {
    /// What tells a variable apart from others: its number; of an earlier recorder, as far as anything does.
    pub(crate) fn identity(&self) -> Identity {
        match self.number {
            Some(number) => Identity::Number(number),
            None => Identity::Names(self.variable.clone(), self.layer.clone(), self.source.clone()),
        }
    }

    /// Takes what is not known from another.
    fn fill(&mut self, other: &Owner) {
        fn take(mine: &mut String, theirs: &str) {
            if mine.is_empty() {
                theirs.clone_into(mine);
            }
        }
        if self.variable.is_empty() {
            (self.role, self.bytes, self.number) = (other.role, other.bytes, other.number);
        }
        take(&mut self.variable, &other.variable);
        take(&mut self.layer, &other.layer);
        take(&mut self.source, &other.source);
    }
}

/// The op that TensorFlow replaced by a constant: `gradient_tape/Tile/_0__cf__0` was `gradient_tape/Tile`.
fn before_folding(op: &str) -> &str {
    match op.rsplit_once('/') {
        Some((folded, constant)) if constant.starts_with('_') && constant.contains(FOLDED) => folded,
        _ => op,
    }
}

/// Where the parts of a name begin.
fn starts(name: &str) -> impl Iterator<Item = usize> {
    [0].into_iter().chain(name.match_indices('/').map(|(at, _)| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::folder::ProcessId;
    use crate::recording::rows::{Inventory, Moment, Variable};
    use crate::units::Nanos;

    fn path(model: Option<&str>, layer: &str) -> LayerPath {
        LayerPath { model: model.map(str::to_owned), layer: Some(layer.to_owned()) }
    }

    fn process(owners: Vec<OwnerRow>) -> RecordedProcess {
        let mut process = RecordedProcess::new(ProcessId::new("host", 1, 2));
        process.owners = owners;
        process
    }

    fn scope(name: &str, layer: LayerPath) -> OwnerRow {
        OwnerRow { name: name.to_owned(), layer, ..OwnerRow::default() }
    }

    fn op(name: &str, variable: &str) -> OwnerRow {
        OwnerRow {
            kind: OwnerKind::Op,
            name: name.to_owned(),
            variable: Some(variable.to_owned()),
            role: Role::Optimizer,
            ..OwnerRow::default()
        }
    }

    /// The layer and the variable that an op is of.
    fn of(rows: Vec<OwnerRow>, name: &str) -> (String, String) {
        let (process, history) = (process(rows), History::default());
        let mut owner = Owner::default();
        let told = Told::of(&process, &history);
        told.about(name).iter().rev().for_each(|known| owner.fill(&known.owner));
        (owner.layer, owner.variable)
    }

    #[test]
    fn a_scope_is_found_behind_calls_and_gradients() {
        let rows = || {
            vec![
                scope("net_1", path(Some("net"), "")),
                scope("net_1/block_1", path(Some("net"), "block")),
                scope("net_1/block_1/dense_7", path(Some("net"), "block/dense")),
                scope("dense_7", path(None, "another")),
            ]
        };
        let layer = |name: &str| of(rows(), name).0;
        assert_eq!(layer("StatefulPartitionedCall/net_1/block_1/dense_7/MatMul"), "block/dense");
        assert_eq!(layer("gradient_tape/net_1/block_1/dense_7/MatMul/MatMul_1"), "block/dense");
        assert_eq!(layer("net_1/block_1/while/body/_3/net_1/block_1/while/add"), "block");
        assert_eq!(layer("StatefulPartitionedCall/net_1/add"), "net");
        assert_eq!(layer("dense_7/MatMul"), "another");
        // A name that only begins like a scope is another.
        assert_eq!(layer("net_10/add"), "");
        assert_eq!(layer("MatMul"), "");
        assert_eq!(layer(""), "");
    }

    #[test]
    fn a_module_is_found_by_the_time_it_ran() {
        let ran = |part: &str, layer: &str, begin: i64, end: i64| OwnerRow {
            kind: OwnerKind::Module,
            name: part.to_owned(),
            layer: path(Some("Net"), layer),
            time: Moment { monotonic: end, wall: end },
            span: Some((begin, end)),
            ..OwnerRow::default()
        };
        // They are written when they end: the inner module comes first.
        let rows = vec![
            ran("forward", "layers.0", 20, 30),
            ran("forward", "", 10, 20),
            ran("backward", "layers.0", 40, 50),
            ran("sideways", "layers.0", 60, 70),
        ];
        let history = History { wall_clock_zero: Some(Nanos(0)), ..History::default() };
        let owners = Owners::of(&process(rows), &history);
        let at = |nanos: i64| {
            let call = owners.module_at(Picos(nanos * 1000))?;
            Some((call.pass, call.path.clone()))
        };
        assert_eq!(at(9), None);
        assert_eq!(at(15), Some((ModulePass::Forward, String::new())));
        assert_eq!(at(25), Some((ModulePass::Forward, "layers.0".to_owned())));
        assert_eq!(at(35), None);
        assert_eq!(at(45), Some((ModulePass::Backward, "layers.0".to_owned())));
        assert_eq!(at(65), None);
        assert!(owners.has_modules() && owners.is_empty());
    }

    #[test]
    fn an_op_is_of_the_variable_that_it_assigns_to() {
        let rows = || vec![op("adam/Sqrt_3", "kernel"), op("adam/kernel_momentum_1/cond/Assign", "momentum")];
        let variable = |name: &str| of(rows(), name).1;
        assert_eq!(variable("StatefulPartitionedCall/adam/Sqrt_3"), "kernel");
        assert_eq!(variable("adam/Sqrt_30"), "");
        assert_eq!(variable("adam/kernel_momentum_1/Initializer/zeros"), "momentum");
        assert_eq!(variable("adam/kernel_momentum/Initializer/zeros"), "");
        assert_eq!(variable("adam/Sqrt_3/_12__cf__12"), "kernel");
        assert_eq!(variable("__cf__/12"), "");
    }

    #[test]
    fn variables_of_the_same_name_have_their_own_sizes() {
        let variable = |number: i64, bytes: u64| Variable {
            name: "Variable:0".to_owned(),
            bytes: Bytes(bytes),
            number: Some(number),
            ..Variable::default()
        };
        let named =
            |name: &str, number: i64| OwnerRow { variable_number: Some(number), ..op(name, "Variable:0") };
        let mut process = process(vec![named("Assign", 1), named("Assign_1", 2)]);
        let variables = vec![variable(1, 40), variable(2, 8)];
        process.inventories = vec![Inventory { variables, ..Inventory::default() }];
        let (history, size) =
            (History::default(), |told: &Told<'_>, name: &str| told.about(name)[0].owner.bytes);
        let told = Told::of(&process, &history);
        assert_eq!((size(&told, "Assign"), size(&told, "Assign_1")), (Some(Bytes(40)), Some(Bytes(8))));
        assert_ne!(told.about("Assign")[0].owner.identity(), told.about("Assign_1")[0].owner.identity());
    }

    #[test]
    fn models_are_named_where_there_are_several() {
        let one = vec![scope("a_1/d", path(Some("a"), "d"))];
        let two = vec![scope("a_1/d", path(Some("a"), "d")), scope("b_1/d", path(Some("b"), "d"))];
        assert_eq!(of(one, "a_1/d/Relu").0, "d");
        assert_eq!(of(two, "b_1/d/Relu").0, "b/d");
    }

    #[test]
    fn a_very_deep_name_is_no_burden() {
        let deep = "a/".repeat(5_000) + "op";
        assert_eq!(of(vec![scope("b", path(None, "b"))], &deep).0, "");
    }
}
