//! Requests of several probes, matched by who asks: for executors that run ops in any order.
//!
//! Ops reuse the buffers of their inputs where they hold the last reference, and which of two does is a race; so requests come
//! and go between steps and runs, and what is the first in one step may be the second in another. What is certain is used
//! first: the same asker, the same how manieth, one size a batch. Then the sizes that the asker ever asked for; then another
//! request of the same size; then the shape. What is left is held as it is, and counted as such.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::probe::{Ask, Key, Part, Probe};
use super::size::{Basis, Form, Point, Size};

/// Below this a request that nothing names is not worth a word.
const SMALL: u64 = 1024;

/// A request's place: who, how manieth, and in which stretch where that matters.
type Place = (Key, u32, Option<(Part, usize)>);

/// The requests at a place by batch size: the sizes, with shape and count.
type Seen = BTreeMap<u64, FxHashMap<u64, (Vec<u64>, u32)>>;

/// The sizes of every request of every probe, in the order of its asks.
pub(super) fn sizes(probes: &[Probe]) -> Vec<Vec<Size>> {
    let fits = Fits::of(probes);
    probes.iter().map(|probe| fits.of_probe(probe)).collect()
}

struct Fits {
    by_place: FxHashMap<Place, (Size, Seen)>,
    /// Every size that an op requested, by batch size.
    by_key: FxHashMap<Key, BTreeMap<u64, Vec<u64>>>,
    /// Every size without a known op, by batch size.
    nameless: BTreeMap<u64, Vec<u64>>,
    tried: Tried,
    batches: Vec<u64>,
}

impl Fits {
    fn of(probes: &[Probe]) -> Fits {
        let mut seen: FxHashMap<Place, Seen> = FxHashMap::default();
        let mut by_key: FxHashMap<Key, BTreeMap<u64, Vec<u64>>> = FxHashMap::default();
        let mut nameless: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for probe in probes {
            for ask in probe.asks.iter().filter(|ask| !ask.tries_kernels) {
                let stretch = probe.stretches.get(ask.stretch).map(|stretch| (stretch.part, stretch.ordinal));
                for place in [(ask.key, ask.occurrence, None), (ask.key, ask.occurrence, stretch)] {
                    let sizes = seen.entry(place).or_default().entry(probe.batch).or_default();
                    sizes.entry(ask.bytes).or_insert_with(|| (ask.shape.clone(), 0)).1 += 1;
                }
                by_key.entry(ask.key).or_default().entry(probe.batch).or_default().push(ask.bytes);
                if ask.is_nameless() {
                    nameless.entry(probe.batch).or_default().push(ask.bytes);
                }
            }
        }
        for sizes in by_key.values_mut().flat_map(BTreeMap::values_mut).chain(nameless.values_mut()) {
            sizes.sort_unstable();
            sizes.dedup();
        }
        let mut batches: Vec<u64> = probes.iter().map(|probe| probe.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        let fitted = seen.into_iter().filter_map(|(place, seen)| Some((place, (fit(&seen)?, seen))));
        Fits { by_place: fitted.collect(), by_key, nameless, tried: Tried::of(probes), batches }
    }

    fn of_probe(&self, probe: &Probe) -> Vec<Size> {
        let first: Vec<Option<Size>> = probe.asks.iter().map(|ask| self.at_place(probe, ask)).collect();
        let twins = Twins::of(probe, &first);
        let mut tried: FxHashMap<u64, Size> = FxHashMap::default();
        let sized = probe.asks.iter().zip(first);
        let size = |(ask, size): (&Ask, Option<Size>)| match size {
            _ if ask.tries_kernels => tried
                .entry(ask.bytes)
                .or_insert_with(|| self.tried.size(Point { batch: probe.batch, bytes: ask.bytes }))
                .clone(),
            Some(size) => size,
            None => self.otherwise(probe, ask, &twins),
        };
        sized.map(size).collect()
    }

    /// The size by place, where that is certain.
    fn at_place(&self, probe: &Probe, ask: &Ask) -> Option<Size> {
        let stretch = probe.stretches.get(ask.stretch).map(|stretch| (stretch.part, stretch.ordinal));
        let everywhere = self.by_place.get(&(ask.key, ask.occurrence, None));
        let here = self.by_place.get(&(ask.key, ask.occurrence, stretch));
        // Sizes that differ from step to step are those of data of varying length: only the same step compares.
        let is_one = |(_, seen): &&(Size, Seen)| seen.values().all(|sizes| sizes.len() == 1);
        let (size, _) = everywhere.filter(is_one).or(here.filter(is_one))?;
        // What three probes contradict may be two askers that came in another order.
        (size.basis != Basis::Irregular && size.form.at(probe.batch).0 == ask.bytes).then(|| size.clone())
    }

    fn otherwise(&self, probe: &Probe, ask: &Ask, twins: &Twins) -> Size {
        let others = self.by_key.get(&ask.key);
        let among = others.and_then(|others| self.among(probe.batch, ask.bytes, others, true));
        if let Some(size) = among {
            return size;
        }
        if let Some(form) = twins.of_bytes(ask.bytes) {
            return Size { form, basis: Basis::Twin };
        }
        if ask.is_nameless()
            && let Some(size) = self.among(probe.batch, ask.bytes, &self.nameless, false)
        {
            return size;
        }
        let place = self.by_place.get(&(ask.key, ask.occurrence, None));
        let irregular = place
            .filter(|(size, seen)| size.basis == Basis::Irregular && is_of(seen, probe.batch, ask.bytes));
        irregular.map_or_else(|| by_shape(ask, probe.batch), |(size, _)| size.clone())
    }

    /// The size among those of other batches, where it is found in each as it is, or in proportion; or, with `lines`, where
    /// just one line goes through all of them.
    fn among(&self, batch: u64, bytes: u64, others: &BTreeMap<u64, Vec<u64>>, lines: bool) -> Option<Size> {
        let basis = if self.batches.len() > 2 { Basis::Exact } else { Basis::TwoProbes };
        let rest: Vec<u64> = self.batches.iter().copied().filter(|&other| other != batch).collect();
        let has =
            |other: u64, bytes: u64| others.get(&other).is_some_and(|all| all.binary_search(&bytes).is_ok());
        if rest.is_empty() {
            return None;
        }
        if rest.iter().all(|&other| has(other, bytes)) {
            return Some(Size { form: Form::Constant(bytes), basis });
        }
        let proportional = |other: u64| {
            let scaled = u128::from(bytes) * u128::from(other);
            let scaled =
                scaled.checked_div(u128::from(batch)).filter(|one| one * u128::from(batch) == scaled)?;
            u64::try_from(scaled).ok()
        };
        if rest.iter().all(|&other| proportional(other).is_some_and(|bytes| has(other, bytes))) {
            return Form::line(&[Point { batch: 0, bytes: 0 }, Point { batch, bytes }])
                .map(|form| Size { form, basis });
        }
        // With two probes any two sizes make a line.
        if !lines || rest.len() < 2 {
            return None;
        }
        let mut found: Option<Form> = None;
        let first = *rest.first()?;
        for &other in others.get(&first)?.iter().take(64) {
            let mut points = vec![Point { batch, bytes }, Point { batch: first, bytes: other }];
            points.sort_unstable();
            let Some(form) = Form::line(&points) else { continue };
            if rest.iter().all(|&at| has(at, form.at(at).0)) && found.replace(form).is_some() {
                return None;
            }
        }
        found.map(|form| Size { form, basis })
    }
}

/// What XLA's compiler asks for to try kernels, at each batch: the sizes, and how often.
///
/// It tries a kernel in buffers of the kernel's tensors and of guards around them, so each size is a line of the batch that begins at zero
/// or above. Several threads try kernels at once, so the order says nothing; the sizes do.
struct Tried(BTreeMap<u64, BTreeMap<u64, u32>>);

impl Tried {
    /// Of more sizes at another batch than these, too many are on a line by chance.
    const MOST: usize = 512;

    fn of(probes: &[Probe]) -> Tried {
        let mut sizes: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for probe in probes {
            let sizes = sizes.entry(probe.batch).or_default();
            for ask in probe.asks.iter().filter(|ask| ask.tries_kernels) {
                *sizes.entry(ask.bytes).or_default() += 1;
            }
        }
        Tried(sizes)
    }

    /// The one line through sizes at all batches; of several the one whose sizes occur equally often. Without one, it is held at its size:
    /// what the compiler tries for one batch only, it need not try for another.
    fn size(&self, own: Point) -> Size {
        let line = self.line(own).map(|form| Size { form, basis: Basis::Scratch });
        line.unwrap_or(Size { form: Form::Constant(own.bytes), basis: Basis::Irregular })
    }

    fn line(&self, own: Point) -> Option<Form> {
        let count = *self.0.get(&own.batch)?.get(&own.bytes)?;
        // Any two sizes make a line.
        let (&other, sizes) = self.0.iter().find(|(batch, _)| **batch != own.batch && self.0.len() > 2)?;
        let scaled = u128::from(own.bytes) * u128::from(other) / u128::from(own.batch.max(1));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let between = sizes.range(own.bytes.min(scaled)..=own.bytes.max(scaled)).map(|(&bytes, _)| bytes);
        let lines = between.take(Tried::MOST).filter_map(|bytes| {
            let mut points = [own, Point { batch: other, bytes }];
            points.sort_unstable();
            let line = Form::line(&points)?;
            let points = self.0.iter().map(|(&batch, sizes)| {
                let bytes = line.at(batch).0;
                Some((Point { batch, bytes }, *sizes.get(&bytes)? == count))
            });
            let (points, equal): (Vec<Point>, Vec<bool>) =
                points.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            Some((equal.into_iter().filter(|is_equal| *is_equal).count(), Form::line(&points)?))
        });
        let mut lines: Vec<(usize, Form)> = lines.collect();
        let most = lines.iter().map(|(equal, _)| *equal).max()?;
        lines.retain(|(equal, _)| *equal == most);
        lines.pop().filter(|_| lines.is_empty()).map(|(_, form)| form)
    }
}

/// Whether a place had one size at a batch, and it was this.
fn is_of(seen: &Seen, batch: u64, bytes: u64) -> bool {
    seen.get(&batch).is_some_and(|sizes| sizes.len() == 1 && sizes.contains_key(&bytes))
}

/// What fits the sizes of a place: at each batch, the one that was seen most often.
fn fit(seen: &Seen) -> Option<Size> {
    let points: Vec<(Point, Vec<u64>)> = seen
        .iter()
        .filter_map(|(&batch, sizes)| {
            let often = sizes.iter().max_by_key(|(bytes, (_, count))| (*count, **bytes))?;
            Some((Point { batch, bytes: *often.0 }, often.1.0.clone()))
        })
        .collect();
    Size::fit(&points)
}

/// A request whose first dimension is the batch grows with it.
fn by_shape(ask: &Ask, batch: u64) -> Size {
    let is_batch = ask.shape.first().is_some_and(|&first| batch > 1 && first == batch);
    let line = Form::line(&[Point { batch: 0, bytes: 0 }, Point { batch, bytes: ask.bytes }]);
    match line.filter(|_| is_batch) {
        Some(form) => Size { form, basis: Basis::Shape },
        None if ask.bytes < SMALL => Size { form: Form::Constant(ask.bytes), basis: Basis::Twin },
        None => Size::held(ask.bytes),
    }
}

/// Requests of a probe that are certain, by their size.
struct Twins(FxHashMap<u64, Form>);

impl Twins {
    fn of(probe: &Probe, sizes: &[Option<Size>]) -> Twins {
        let mut votes: FxHashMap<u64, FxHashMap<&Form, u32>> = FxHashMap::default();
        for (ask, size) in probe.asks.iter().zip(sizes) {
            if let Some(size) = size {
                *votes.entry(ask.bytes).or_default().entry(&size.form).or_default() += 1;
            }
        }
        let most = |votes: FxHashMap<&Form, u32>| {
            // Of as many, the one that grows: too much is safer than too little.
            let best = votes
                .into_iter()
                .max_by_key(|&(form, count)| (count, form.at(probe.batch.saturating_mul(2))));
            best.map(|(form, _)| form.clone())
        };
        Twins(votes.into_iter().filter_map(|(bytes, votes)| Some((bytes, most(votes)?))).collect())
    }

    fn of_bytes(&self, bytes: u64) -> Option<Form> {
        self.0.get(&bytes).cloned()
    }
}
