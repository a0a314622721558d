//! Requests of programs that XLA compiled: as large as the compiler says, at every batch that it compiled for.
//!
//! A compiled step asks for its working memory in one piece. How large that is comes out of the compiler's own packing, and is no
//! line of the batch; but the compiler tells it without running anything. A request of a probe is the program's where the sizes
//! agree to the byte in every probe that has a dump; at another batch it is then what the dump of that batch says.

use std::collections::{BTreeMap, BTreeSet};

use super::probe::{Probe, Source};
use super::size::{Basis, Form, Point, Size};
use super::{Doubt, Plan};
use crate::executable::{Executable, Purpose};
use crate::units::Bytes;

/// Smaller requests are found too easily among others.
const SMALL: u64 = 1024;

/// From this size on a request that no op names and that grows may be one of a compiled program.
const WEIGHTY: u64 = 1 << 20;

/// What XLA compiled at one batch.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The batch.
    pub batch: u64,
    /// Where from; empty where the trace of a probe holds it.
    pub file: String,
    /// The programs, in the order in which they were compiled.
    pub programs: Vec<Executable>,
}

/// A request of a program, the same at every batch: the program's name without the numbers of its process and how many of that name
/// came before; whether it is a result; the kind of memory; and how many of these came before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramRequest {
    program: String,
    ordinal: usize,
    is_result: bool,
    space: i64,
    number: usize,
}

/// A module's name without the numbers that differ from process to process.
fn without_numbers(name: &str) -> &str {
    let is_number = |symbol: char| symbol.is_ascii_digit() || symbol == '.';
    let name = name.trim_end_matches(is_number).trim_end_matches('_');
    name.trim_end_matches(|symbol: char| symbol.is_ascii_digit()).trim_end_matches('_')
}

impl Compiled {
    /// The programs that a probe's own trace holds.
    pub(super) fn of_probe(source: &Source<'_>) -> Option<Compiled> {
        let programs = source.trace.history.executables.clone();
        let is_any = programs.iter().any(|program| program.requests().next().is_some());
        is_any.then(|| Compiled { batch: source.batch, file: String::new(), programs })
    }

    /// The programs, each with its name at any batch and how many of that name came before.
    fn named(&self) -> impl Iterator<Item = (&str, usize, &Executable)> {
        let mut ordinals: BTreeMap<&str, usize> = BTreeMap::new();
        self.programs.iter().map(move |executable| {
            let name = without_numbers(&executable.name);
            let ordinal = ordinals.entry(name).or_default();
            (name, std::mem::replace(ordinal, *ordinal + 1), executable)
        })
    }

    /// The requests of all programs, with what they are.
    fn requests(&self) -> BTreeMap<ProgramRequest, u64> {
        let mut requests = BTreeMap::new();
        for (program, ordinal, executable) in self.named() {
            let mut numbers: BTreeMap<(bool, i64), usize> = BTreeMap::new();
            for request in executable.requests().filter(|request| request.size.0 >= SMALL) {
                let (is_result, space) = (request.purpose == Purpose::Output, request.space);
                let number = numbers.entry((is_result, space)).or_default();
                let (program, number) = (program.to_owned(), std::mem::replace(number, *number + 1));
                requests
                    .insert(ProgramRequest { program, ordinal, is_result, space, number }, request.size.0);
            }
        }
        requests
    }

    /// The bytes of the arguments of each program.
    fn arguments(&self) -> BTreeMap<(String, usize), u64> {
        let bytes = |executable: &Executable| {
            executable.total(|purpose| matches!(purpose, Purpose::Parameter { .. })).0
        };
        self.named().map(|(name, ordinal, one)| ((name.to_owned(), ordinal), bytes(one))).collect()
    }

    /// Whether programs make requests of all these sizes.
    #[must_use]
    pub fn explains(&self, sizes: &BTreeSet<u64>) -> bool {
        let known: BTreeSet<u64> = self.requests().into_values().collect();
        sizes.is_subset(&known)
    }

    /// Whether programs make requests of any of these sizes.
    #[must_use]
    pub fn explains_any(&self, sizes: &BTreeSet<u64>) -> bool {
        self.requests().values().any(|size| sizes.contains(size))
    }

    /// Whether all these requests are among those of its programs.
    #[must_use]
    pub fn has(&self, places: &[ProgramRequest]) -> bool {
        let known = self.requests();
        places.iter().all(|place| known.contains_key(place))
    }

    /// The program that takes the most, with all that it takes.
    #[must_use]
    pub fn largest(&self) -> Option<(&Executable, Bytes)> {
        let taken = |program: &Executable| program.total(|purpose| *purpose != Purpose::ThreadLocal);
        self.programs.iter().map(|program| (program, taken(program))).max_by_key(|(_, taken)| *taken)
    }
}

impl Plan {
    /// Takes sizes from what was compiled at several batches; at a batch that is given twice, from the last.
    pub fn add_compiled(&mut self, more: Vec<Compiled>) {
        self.compiled.extend(more);
        if self.is_ordered || self.compiled.is_empty() {
            return;
        }
        let mut by_batch: BTreeMap<u64, BTreeMap<ProgramRequest, u64>> =
            self.compiled.iter().map(|one| (one.batch, one.requests())).collect();
        drop_others(&self.probes, &self.compiled, &mut by_batch);
        let forms = forms(&self.probes, &by_batch);
        for (probe, sizes) in self.probes.iter().zip(&mut self.sizes) {
            let Some(requests) = by_batch.get(&probe.batch) else { continue };
            let mut by_size: BTreeMap<u64, Vec<&ProgramRequest>> = BTreeMap::new();
            for (place, &bytes) in requests {
                by_size.entry(bytes).or_default().push(place);
            }
            for (ask, size) in probe.asks.iter().zip(sizes).filter(|(ask, _)| ask.is_nameless()) {
                let places = by_size.get(&ask.bytes).map_or(&[][..], Vec::as_slice);
                // A result is as large as a tensor, and so may be a request that has nothing to do with it.
                let is_open = |place: &&&ProgramRequest| !place.is_result || size.basis != Basis::Exact;
                let mut found = places.iter().filter(is_open).filter_map(|place| forms.get(*place));
                // Where two programs would answer differently, none does.
                if let Some(first) = found.next()
                    && found.all(|other| other == first)
                {
                    *size = Size { form: first.clone(), basis: Basis::Compiled };
                }
            }
        }
        self.places = forms.into_keys().collect();
    }

    /// The requests of programs that the probes made.
    #[must_use]
    pub fn places(&self) -> &[ProgramRequest] {
        &self.places
    }

    /// Large requests of the probes of a batch that no op names and that are not the same at every batch: a compiler may be
    /// behind them. Those of programs that are known are among them.
    #[must_use]
    pub fn unexplained(&self, batch: u64) -> BTreeSet<u64> {
        if self.is_ordered {
            return BTreeSet::new();
        }
        let probes = self.probes.iter().zip(&self.sizes).filter(|(probe, _)| probe.batch == batch);
        let asks = probes.flat_map(|(probe, sizes)| probe.asks.iter().zip(sizes));
        let is_open = |size: &Size| size.basis == Basis::Held || !matches!(size.form, Form::Constant(_));
        asks.filter(|(ask, size)| ask.is_nameless() && ask.bytes >= WEIGHTY && is_open(size))
            .map(|(ask, _)| ask.bytes)
            .collect()
    }

    /// Whether it is known what a compiler did at the batch of a probe, as far as anything tells of it.
    #[must_use]
    pub fn is_explained(&self, batch: u64) -> bool {
        let sizes = self.unexplained(batch);
        let mut known = self.compiled.iter().filter(|one| one.batch == batch);
        sizes.is_empty() || known.any(|one| one.explains_any(&sizes))
    }

    /// The batches that the programs of the probes are known at; `None` where the probes are of no compiled program.
    #[must_use]
    pub fn compiled_batches(&self) -> Option<Vec<u64>> {
        let forms = self.sizes.iter().flatten().filter(|size| size.basis == Basis::Compiled);
        let mut all: Option<Vec<u64>> = None;
        let mut seen: Vec<&Form> = Vec::new();
        for form in forms.map(|size| &size.form) {
            let Form::Known(points) = form else { continue };
            if seen.contains(&form) {
                continue;
            }
            seen.push(form);
            let is_known = |batch: &u64| points.iter().any(|(known, _)| known == batch);
            let known = all.unwrap_or_else(|| points.iter().map(|(batch, _)| *batch).collect());
            all = Some(known.into_iter().filter(is_known).collect());
        }
        all
    }

    /// The largest batch up to this that is known to be as it is said: of a compiled program one that was compiled.
    pub(super) fn known_at_most(&self, batch: u64) -> Option<u64> {
        match self.compiled_batches() {
            None => Some(batch),
            Some(known) => known.into_iter().filter(|&known| known <= batch).max(),
        }
    }

    /// What is not known of compiled programs at a batch.
    pub(super) fn compiled_doubt(&self, batch: u64) -> Option<Doubt> {
        if self.is_ordered {
            return None;
        }
        let asks =
            self.probes.iter().zip(&self.sizes).flat_map(|(probe, sizes)| probe.asks.iter().zip(sizes));
        let irregular = asks.filter(|(ask, size)| ask.is_nameless() && size.basis == Basis::Irregular);
        let largest = irregular.map(|(_, size)| size.form.at(batch)).max();
        if let Some(bytes) = largest.filter(|&bytes| bytes >= Bytes(WEIGHTY)) {
            return Some(Doubt::Compiled(bytes));
        }
        let is_missing = self.compiled_batches().is_some_and(|known| !known.contains(&batch));
        is_missing.then_some(Doubt::NotCompiled(batch))
    }
}

/// Drops programs whose arguments are not those of the batch: data that has fewer samples makes a smaller batch of them.
fn drop_others(
    probes: &[Probe],
    compiled: &[Compiled],
    by_batch: &mut BTreeMap<u64, BTreeMap<ProgramRequest, u64>>,
) {
    let mut points: BTreeMap<(String, usize), BTreeMap<u64, u64>> = BTreeMap::new();
    for one in compiled {
        for (program, bytes) in one.arguments() {
            points.entry(program).or_default().insert(one.batch, bytes);
        }
    }
    for ((program, ordinal), points) in points {
        let is_probed = |batch: u64| probes.iter().any(|probe| probe.batch == batch);
        let probed = points.iter().filter(|(batch, _)| is_probed(**batch));
        let probed: Vec<Point> = probed.map(|(&batch, &bytes)| Point { batch, bytes }).collect();
        // Two at least: one would say that nothing may change.
        let Some(line) = Form::line(&probed).filter(|_| probed.len() > 1) else { continue };
        for (batch, bytes) in points {
            if line.at(batch).0 != bytes
                && let Some(requests) = by_batch.get_mut(&batch)
            {
                requests.retain(|place, _| place.program != program || place.ordinal != ordinal);
            }
        }
    }
}

/// The sizes of requests that all probes with a dump made, and that are known at two batches or more.
fn forms(
    probes: &[Probe],
    by_batch: &BTreeMap<u64, BTreeMap<ProgramRequest, u64>>,
) -> BTreeMap<ProgramRequest, Form> {
    let mut asked: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for probe in probes {
        let nameless = probe.asks.iter().filter(|ask| ask.is_nameless()).map(|ask| ask.bytes);
        asked.entry(probe.batch).or_default().extend(nameless);
    }
    let mut points: BTreeMap<&ProgramRequest, Vec<(u64, u64)>> = BTreeMap::new();
    for (&batch, requests) in by_batch {
        for (place, &bytes) in requests {
            points.entry(place).or_default().push((batch, bytes));
        }
    }
    let is_asked = |points: &[(u64, u64)]| {
        let probed: Vec<_> =
            points.iter().filter_map(|(batch, bytes)| Some((asked.get(batch)?, bytes))).collect();
        !probed.is_empty() && probed.iter().all(|(sizes, bytes)| sizes.contains(bytes))
    };
    let known = points.into_iter().filter(|(_, points)| points.len() > 1 && is_asked(points));
    known.map(|(place, points)| (place.clone(), Form::Known(points))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::Allocation;

    #[test]
    fn modules_lose_the_numbers_of_a_process() {
        assert_eq!(without_numbers("a_inference_one_step_on_data_1869__.29"), "a_inference_one_step_on_data");
        assert_eq!(without_numbers("jit_step"), "jit_step");
        assert_eq!(without_numbers("1234"), "");
    }

    #[test]
    fn programs_of_one_name_are_told_apart_by_their_order() {
        let allocation =
            |size, purpose| Allocation { size: Bytes(size), purpose, space: 0, parts: Vec::new() };
        let program = |name: &str, size| Executable {
            name: name.to_owned(),
            allocations: vec![allocation(size, Purpose::Temporary), allocation(size * 2, Purpose::Output)],
            ..Executable::default()
        };
        let at = |batch: u64, programs| Compiled { batch, file: String::new(), programs };
        let one = at(7, vec![program("step_12__.3", 7000), program("step_19__.3", 9000)]);
        let other = at(11, vec![program("step_14__.3", 11_000), program("step_17__.3", 12_000)]);
        assert_eq!(one.requests().keys().collect::<Vec<_>>(), other.requests().keys().collect::<Vec<_>>());
        let places: Vec<ProgramRequest> = one.requests().into_keys().collect();
        assert!(other.has(&places) && !at(11, vec![program("step_1__.3", 11_000)]).has(&places));
        assert!(one.explains(&[7000, 18_000].into()) && !one.explains(&[7000, 1].into()));
        assert_eq!(
            one.largest().map(|(program, taken)| (program.name.as_str(), taken)),
            Some(("step_19__.3", Bytes(27_000)))
        );
    }
}
