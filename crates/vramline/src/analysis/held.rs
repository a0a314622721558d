//! What a pool held at one moment, in rows: blocks grouped by op, layer, role or call stack, the most bytes first.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::event::{Dtype, History, OpTime};
use crate::names::{Name, Names};
use crate::snapshot::{Held, Role, Snapshot, Still};
use crate::stack::{Stack, Stacks};
use crate::trace::LongHeld;
use crate::units::{Bytes, Nanos, Picos};

/// How the blocks of a moment are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// One row for each op, shape and type.
    #[default]
    Op,
    /// One row for each model layer.
    Layer,
    /// The same, with one row for layers that a model repeats: `layers.*.mlp`.
    RepeatedLayer,
    /// One row for each role.
    Role,
    /// One row for each call stack.
    Stack,
}

/// The moment at which it is known what a pool held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldMoment {
    /// The peak, which a history or the framework's high-water mark knows.
    Peak,
    /// When the file was written: no history knows the peak, which was as high or higher.
    Dump,
    /// None: it is what a compiled program asks for.
    Program,
    /// A failed allocation, at which a snapshot was taken: more was in use than at any traced moment.
    Failure,
}

words!(HeldMoment { Peak => "peak", Dump => "dump", Program => "program", Failure => "failure" });

/// What a pool held: named + unnamed + slack + before the recording = in use, and the roles add up to named + unnamed.
#[derive(Clone, Debug)]
pub struct HeldRows {
    /// The moment, on the source's clock.
    pub time: Option<Nanos>,
    /// In use then.
    pub in_use: Bytes,
    /// Requested by blocks of which something says what they are.
    pub named: Bytes,
    /// Requested by the others.
    pub unnamed: Bytes,
    /// Taken beyond the requests.
    pub slack: Bytes,
    /// In use, but allocated before the source begins.
    pub before_recording: Bytes,
    /// Requested, by role.
    pub by_role: BTreeMap<Role, Bytes>,
    /// The rows, the most bytes first.
    pub rows: Vec<HeldRow>,
    /// The rows that were left out, summed up.
    pub rest: Option<RestOfRows>,
}

/// A group of blocks. What its blocks do not share is empty.
#[derive(Clone, Debug)]
pub struct HeldRow {
    /// Requested by all of them.
    pub bytes: Bytes,
    /// How many blocks.
    pub count: u64,
    /// The op that asked.
    pub op: String,
    /// The model layer.
    pub layer: String,
    /// What they are for.
    pub role: Option<Role>,
    /// Their shape.
    pub shape: String,
    /// Their element type.
    pub dtype: Option<Dtype>,
    /// The place in the program.
    pub source: String,
    /// What the role rests on, or why there is no name.
    pub evidence: &'static str,
    /// The variable whose value they are.
    pub variable: String,
    /// Where the program asked, innermost frame first.
    pub stack: Vec<String>,
    /// Taken beyond the requests.
    pub slack: Bytes,
    /// How long the oldest had been held, in nanoseconds.
    pub age_ns: Option<u64>,
    /// How often the op ran in the trace.
    pub op_calls: Option<u64>,
    /// How long it ran, all calls together, in nanoseconds.
    pub op_time_ns: Option<u64>,
}

/// Rows that were left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestOfRows {
    /// How many.
    pub rows: usize,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their blocks.
    pub count: u64,
}

/// A block that was held long.
#[derive(Clone, Debug)]
pub struct LongHeldBlock {
    /// The block, as a row of its own.
    pub row: HeldRow,
    /// When it was allocated.
    pub born: Nanos,
    /// When it was freed.
    pub freed: Option<Nanos>,
    /// Chunk bytes times seconds held.
    pub byte_seconds: f64,
}

/// The tables that turn the names and times of a source into text and into its clock.
#[derive(Clone, Copy)]
pub(crate) struct NameTables<'a> {
    names: &'a Names,
    stacks: &'a Stacks,
    op_times: Option<&'a FxHashMap<Name, OpTime>>,
    origin: Nanos,
}

impl<'a> NameTables<'a> {
    pub(crate) fn of_history(history: &'a History) -> NameTables<'a> {
        let History { names, stacks, op_times, origin, .. } = history;
        NameTables { names, stacks, op_times: Some(op_times), origin: *origin }
    }

    pub(crate) fn of_still(still: &'a Still) -> NameTables<'a> {
        NameTables { names: &still.names, stacks: &still.stacks, op_times: None, origin: Nanos::default() }
    }

    /// What a pool held, in rows; of more than `top` the rest is summed up.
    pub(crate) fn rows(self, snapshot: &Snapshot, by: GroupBy, top: Option<usize>) -> HeldRows {
        let requested = |is_named: bool| {
            let held = snapshot.held.iter().filter(move |held| held.is_named() == is_named);
            held.map(|held| held.requested).sum()
        };
        let mut by_role: BTreeMap<Role, Bytes> = BTreeMap::new();
        for held in &snapshot.held {
            *by_role.entry(held.role).or_default() += held.requested;
        }
        let mut held = HeldRows {
            time: snapshot.time.map(|time| time.on_clock(self.origin)),
            in_use: snapshot.in_use,
            named: requested(true),
            unnamed: requested(false),
            slack: snapshot.slack(),
            before_recording: snapshot.before_recording,
            by_role,
            rows: self.group(&snapshot.held, by),
            rest: None,
        };
        if let Some(top) = top {
            held.fold(top);
        }
        held
    }

    fn group(self, held: &[Held], by: GroupBy) -> Vec<HeldRow> {
        let mut groups: FxHashMap<GroupKey<'_>, HeldRow> = FxHashMap::default();
        for held in held {
            let row = self.row(held);
            match groups.entry(GroupKey::of(held, by)) {
                Entry::Vacant(slot) => {
                    slot.insert(row);
                }
                Entry::Occupied(mut slot) => slot.get_mut().join(&row),
            }
        }
        let mut rows: Vec<HeldRow> = groups.into_values().collect();
        // Texts decide only between rows whose figures are the same, so that the order does not change with the names.
        rows.sort_by(|a, b| {
            let figures = |row: &HeldRow| {
                let times = (Reverse(row.age_ns), Reverse(row.op_calls), Reverse(row.op_time_ns));
                (Reverse(row.bytes), row.role_word(), Reverse(row.count), Reverse(row.slack), times)
            };
            let kinds = |row: &HeldRow| (row.evidence, row.dtype, row.stack.len());
            (figures(a), &a.shape, kinds(a))
                .cmp(&(figures(b), &b.shape, kinds(b)))
                .then_with(|| (&a.op, &a.layer).cmp(&(&b.op, &b.layer)))
                .then_with(|| (&a.source, &a.variable).cmp(&(&b.source, &b.variable)))
                .then_with(|| a.stack.cmp(&b.stack))
        });
        rows
    }

    fn row(self, held: &Held) -> HeldRow {
        let time = self.op_times.and_then(|times| times.get(&held.op)).filter(|_| !held.op.is_empty());
        HeldRow {
            bytes: held.requested,
            count: held.count,
            op: self.names.get(held.op).to_owned(),
            layer: held.layer.clone(),
            role: Some(held.role),
            shape: self.names.get(held.shape).to_owned(),
            dtype: Some(held.dtype),
            source: held.source.clone(),
            evidence: held.evidence,
            variable: held.variable.clone(),
            stack: self.stacks.texts(held.stack, self.names),
            slack: held.slack(),
            age_ns: held.age.map(|age| age.nanos()),
            op_calls: time.map(|time| time.calls),
            op_time_ns: time.map(|time| time.total.nanos()),
        }
    }

    pub(crate) fn long_held(self, long: &LongHeld) -> LongHeldBlock {
        let clock = |time: Picos| time.on_clock(self.origin);
        LongHeldBlock {
            row: self.row(&long.held),
            born: clock(long.born),
            freed: long.freed.map(clock),
            byte_seconds: long.byte_seconds,
        }
    }
}

/// What the blocks of one row share.
#[derive(PartialEq, Eq, Hash)]
enum GroupKey<'a> {
    /// Of a block without an op the size is the best that is known; of the others it is left out.
    Op {
        op: Name,
        shape: Name,
        dtype: Dtype,
        layer: Cow<'a, str>,
        role: Role,
        evidence: &'static str,
        source: &'a str,
        variable: Cow<'a, str>,
        size: Option<Bytes>,
    },
    Layer(Cow<'a, str>),
    Role(Role),
    Stack(Stack),
}

impl<'a> GroupKey<'a> {
    fn of(held: &'a Held, by: GroupBy) -> GroupKey<'a> {
        match by {
            GroupBy::Op => GroupKey::Op {
                op: held.op,
                shape: held.shape,
                dtype: held.dtype,
                layer: folded(&held.layer),
                role: held.role,
                evidence: held.evidence,
                source: &held.source,
                variable: folded(&held.variable),
                size: held.op.is_empty().then_some(held.requested),
            },
            GroupBy::Layer => GroupKey::Layer(Cow::Borrowed(&held.layer)),
            GroupBy::RepeatedLayer => GroupKey::Layer(folded(&held.layer)),
            GroupBy::Role => GroupKey::Role(held.role),
            GroupBy::Stack => GroupKey::Stack(held.stack),
        }
    }
}

/// A path of PyTorch's modules without the numbers of layers that repeat: `layers.3.mlp` is `layers.*.mlp`.
pub(super) fn folded(path: &str) -> Cow<'_, str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // A path that is a number alone says nothing without it.
    if !path.contains('.') || !path.split('.').any(is_number) {
        return Cow::Borrowed(path);
    }
    let parts: Vec<&str> = path.split('.').map(|part| if is_number(part) { "*" } else { part }).collect();
    Cow::Owned(parts.join("."))
}

impl HeldRows {
    /// Sums up the rows beyond the first `top`.
    pub(crate) fn fold(&mut self, top: usize) {
        if top >= self.rows.len() {
            return;
        }
        let folded = self.rows.split_off(top);
        let rest = self.rest.get_or_insert_default();
        rest.rows += folded.len();
        rest.bytes += folded.iter().map(|row| row.bytes).sum();
        rest.count += folded.iter().map(|row| row.count).sum::<u64>();
    }

    /// The bytes of a role.
    #[must_use]
    pub fn of_role(&self, role: Role) -> Bytes {
        self.by_role.get(&role).copied().unwrap_or_default()
    }
}

impl HeldRow {
    fn role_word(&self) -> &'static str {
        self.role.map_or("", Role::word)
    }

    /// Adds another row to this one; what the two do not share is left empty.
    fn join(&mut self, other: &HeldRow) {
        fn keep(mine: &mut String, theirs: &str) {
            if mine != theirs {
                mine.clear();
            }
        }
        fn keep_path(mine: &mut String, theirs: &str) {
            if mine != theirs {
                let shared = folded(mine).into_owned();
                *mine = if shared == folded(theirs) { shared } else { String::new() };
            }
        }
        self.bytes += other.bytes;
        self.count += other.count;
        self.slack += other.slack;
        self.age_ns = self.age_ns.max(other.age_ns);
        if self.op != other.op {
            self.op.clear();
            (self.op_calls, self.op_time_ns) = (None, None);
        }
        keep_path(&mut self.layer, &other.layer);
        keep(&mut self.shape, &other.shape);
        keep(&mut self.source, &other.source);
        keep_path(&mut self.variable, &other.variable);
        if self.stack != other.stack {
            self.stack.clear();
        }
        self.role = self.role.filter(|_| self.role == other.role);
        self.dtype = self.dtype.filter(|_| self.dtype == other.dtype);
        if self.evidence != other.evidence {
            self.evidence = "";
        }
    }
}
