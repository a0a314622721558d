//! What pools held at their traced peaks, part by part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::DiffBy;
use super::rows::{ComparedRow, Figure, RowSubject};
use super::slots::Comparison;
use crate::analysis::held::{HeldRow, HeldRows};
use crate::snapshot::Role;
use crate::units::Bytes;

/// A part of what a pool held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldPart {
    /// Everything of a role.
    Role(Role),
    /// Everything of an op or a variable.
    Op(String),
    /// What nothing names.
    Unnamed,
    /// What has no name but a place in the program.
    UnnamedIn(String),
    /// Everything of a layer.
    Layer(String),
    /// What belongs to no layer.
    NoLayer,
    /// Taken beyond the requests.
    Slack,
    /// Allocated before the source begins.
    BeforeRecording,
}

impl fmt::Display for HeldPart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldPart::Role(role) => out.write_str(role.word()),
            HeldPart::Op(name) | HeldPart::Layer(name) => out.write_str(name),
            HeldPart::Unnamed => out.write_str("(no name)"),
            HeldPart::UnnamedIn(source) => write!(out, "(no name, in {source})"),
            HeldPart::NoLayer => out.write_str("(no layer)"),
            HeldPart::Slack => out.write_str("(rounding)"),
            HeldPart::BeforeRecording => out.write_str("(before the recording)"),
        }
    }
}

impl HeldPart {
    /// Whether the program requested it: rounding and blocks from before the trace do not count.
    pub(super) fn is_requested(&self) -> bool {
        !matches!(self, HeldPart::Slack | HeldPart::BeforeRecording)
    }

    /// The part that a row belongs to. A row by op omits shapes, so that two batch sizes match. It also omits the call that wraps every name of
    /// a graph.
    fn of(row: &HeldRow, by: DiffBy) -> HeldPart {
        match by {
            DiffBy::Role => HeldPart::Role(row.role.unwrap_or(Role::Unknown)),
            DiffBy::Layer if row.layer.is_empty() => HeldPart::NoLayer,
            DiffBy::Layer => HeldPart::Layer(row.layer.clone()),
            _ if !row.variable.is_empty() => HeldPart::Op(row.variable.clone()),
            DiffBy::Op | DiffBy::Device | DiffBy::Step => match (row.op.as_str(), row.source.as_str()) {
                ("", "") => HeldPart::Unnamed,
                ("", source) => HeldPart::UnnamedIn(source.to_owned()),
                (op, _) => HeldPart::Op(op.strip_prefix("StatefulPartitionedCall/").unwrap_or(op).to_owned()),
            },
        }
    }
}

/// The bytes of a part, and the layer and role that its rows share.
#[derive(Clone, Copy, Debug, Default)]
struct PartFigures<'a> {
    bytes: Bytes,
    layer: Option<&'a str>,
    role: Option<Role>,
}

/// Groups what was held; with slack and what is older than the trace it adds up to what was in use.
fn parts(held: &HeldRows, by: DiffBy) -> BTreeMap<HeldPart, PartFigures<'_>> {
    let mut parts: BTreeMap<HeldPart, PartFigures<'_>> = BTreeMap::new();
    for row in &held.rows {
        let (layer, role) = (Some(row.layer.as_str()), row.role);
        let part =
            parts.entry(HeldPart::of(row, by)).or_insert(PartFigures { bytes: Bytes::ZERO, layer, role });
        part.bytes += row.bytes;
        part.layer = part.layer.filter(|_| part.layer == layer);
        part.role = part.role.filter(|_| part.role == role);
    }
    for (part, bytes) in [(HeldPart::Slack, held.slack), (HeldPart::BeforeRecording, held.before_recording)] {
        if bytes > Bytes::ZERO {
            parts.insert(part, PartFigures { bytes, layer: None, role: None });
        }
    }
    parts
}

impl Comparison<'_> {
    /// What the pool held at its traced peak: roles in their own order, else what changed most first.
    pub(super) fn held(&self, slot: usize, by: DiffBy) -> Vec<ComparedRow> {
        let all: Vec<Option<BTreeMap<HeldPart, PartFigures<'_>>>> = (0..self.reports.len())
            .map(|report| Some(parts(self.pool(slot, report)?.at_peak.as_ref()?, by)))
            .collect();
        let distinct: BTreeSet<&HeldPart> = all.iter().flatten().flat_map(BTreeMap::keys).collect();
        let row = |part: &HeldPart| {
            // A pool whose peak is known and in which an op holds nothing holds zero bytes of it.
            let of = |report: usize| {
                let parts = all.get(report)?.as_ref()?;
                Some(parts.get(part).map_or(Bytes::ZERO, |part| part.bytes))
            };
            let mut every = all.iter().flatten().filter_map(|parts| parts.get(part));
            let first = every.next().copied().unwrap_or_default();
            let (layer, role) = every.fold((first.layer, first.role), |(layer, role), part| {
                (layer.filter(|_| part.layer == layer), role.filter(|_| part.role == role))
            });
            ComparedRow {
                layer: layer.unwrap_or_default().to_owned(),
                role,
                ..self.row(slot, (by, Figure::AtPeak), RowSubject::Held(part.clone()), of)
            }
        };
        let mut rows: Vec<ComparedRow> = distinct.into_iter().map(row).collect();
        if by == DiffBy::Role {
            let rank = |row: &ComparedRow| match row.part() {
                Some(HeldPart::Role(role)) => Role::ALL.iter().position(|one| one == role),
                _ => None,
            };
            rows.sort_by_cached_key(|row| (rank(row).unwrap_or(usize::MAX), row.text()));
        } else {
            // Texts decide only between rows whose figures are the same, so that the order does not change with the names.
            rows.sort_by_cached_key(|row| {
                let figures: Vec<Option<(Bytes, Bytes, Bytes)>> =
                    row.runs.iter().map(|run| run.map(|run| (run.bytes, run.low, run.high))).collect();
                let most = (Reverse(row.change()), Reverse(row.known().max()));
                (most, figures, row.role, row.layer.is_empty(), row.text())
            });
        }
        rows
    }
}
