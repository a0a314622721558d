//! How many bytes a request takes at any batch, from what it took at a few.
//!
//! Three probes can contradict a straight line, two cannot: what rests on two is said to. Everything is integers; a size that
//! is no line is one of a shape whose dimensions are, or it is held to be irregular.

use crate::units::Bytes;

/// What a request took at one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The batch, or whatever else is varied.
    pub batch: u64,
    /// The bytes.
    pub bytes: u64,
}

/// What a size rests on, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Three probes or more agree on it.
    Exact,
    /// A compiler decided on it, and told: exact at the batches that were compiled.
    Compiled,
    /// Two probes, which always agree.
    TwoProbes,
    /// Another request of the same size in the same probe.
    Twin,
    /// A dimension of its shape is the batch.
    Shape,
    /// Three probes or more agree on it, but it is scratch of one op: for another size a library may choose another algorithm.
    Scratch,
    /// Three probes or more agree on a line but for padding of a few bytes.
    Padded,
    /// The probes contradict a line: scratch, padding, or an algorithm chosen by size.
    Irregular,
    /// Seen at one batch only; taken as constant.
    Held,
}

words!(Basis {
    Exact => "exact",
    Compiled => "compiled",
    TwoProbes => "two-probes",
    Twin => "twin",
    Shape => "shape",
    Scratch => "scratch",
    Padded => "padded",
    Irregular => "irregular",
    Held => "held",
});

/// A size as a function of the batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The same at every batch.
    Constant(u64),
    /// The line through two points; what is between whole bytes is rounded up.
    Line {
        /// The batch and bytes of one.
        from: (u64, u64),
        /// The batch and bytes of the other, at a higher batch.
        to: (u64, u64),
    },
    /// The product of dimensions, each a line, times the bytes of an element.
    Product {
        /// Bytes of an element.
        unit: u64,
        /// What is constant in each dimension, and what the batch is multiplied by.
        dimensions: Vec<(i64, i64)>,
    },
    /// Copies that a library makes up to a batch size, and what is not copied, which stays.
    Copies {
        /// Bytes at every batch.
        constant: u64,
        /// Bytes of the copies of a sample.
        slope: u64,
        /// The last batch with copies.
        last: u64,
    },
    /// Partial sums of a reduction: so many bytes for each part of the input, and never more parts than the device has room for.
    Parts(Parts),
    /// Known at these batches, two or more of them in their order; between them in a straight line, and beyond them as between
    /// the last two.
    Known(Vec<(u64, u64)>),
}

/// How many bytes the partial sums of a reduction take: see `plan/reduction.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Bytes for each part.
    pub unit: u64,
    /// A batch, and the parts that its input alone would make.
    pub at: (u64, u64),
    /// The parts that fill the device.
    pub most: u64,
}

impl Parts {
    /// No part is more than this many times the smallest.
    const LONGEST: u128 = 16;

    fn bytes(self, batch: u64) -> i128 {
        let wanted = (u128::from(self.at.1) * u128::from(batch)).div_ceil(u128::from(self.at.0.max(1)));
        let parts = wanted.min(u128::from(self.most)).max(wanted.div_ceil(Parts::LONGEST));
        i128::try_from(parts).unwrap_or(i128::MAX).saturating_mul(i128::from(self.unit))
    }
}

impl Form {
    /// The bytes at a batch size; at least one, because requests are never empty.
    #[must_use]
    pub fn at(&self, batch: u64) -> Bytes {
        let bytes = match *self {
            Form::Constant(bytes) => i128::from(bytes),
            Form::Line { from, to } => {
                let (run, rise) =
                    (i128::from(to.0) - i128::from(from.0), i128::from(to.1) - i128::from(from.1));
                let across = (i128::from(batch) - i128::from(from.0)).saturating_mul(rise);
                // Rounded up.
                i128::from(from.1).saturating_sub(across.saturating_neg().div_euclid(run.max(1)))
            }
            Form::Product { unit, ref dimensions } => {
                let dimension = |&(constant, times): &(i64, i64)| {
                    i128::from(constant).saturating_add(i128::from(times).saturating_mul(i128::from(batch)))
                };
                let all = dimensions.iter().map(dimension).map(|dimension| dimension.max(0));
                all.fold(i128::from(unit), i128::saturating_mul)
            }
            Form::Copies { constant, slope, last } => {
                let copied = if batch <= last { batch } else { 0 };
                i128::from(constant).saturating_add(i128::from(slope).saturating_mul(i128::from(copied)))
            }
            Form::Parts(parts) => parts.bytes(batch),
            Form::Known(ref points) => {
                let after =
                    points.partition_point(|&(known, _)| known < batch).clamp(1, points.len().max(2) - 1);
                match (points.get(after - 1), points.get(after)) {
                    (Some(&from), Some(&to)) if batch <= to.0 || to.1 > from.1 => {
                        return Form::Line { from, to }.at(batch);
                    }
                    // Beyond the last, where it fell: it need not go on falling.
                    (Some(from), Some(to)) => i128::from(from.1.max(to.1)),
                    (Some(only), None) => i128::from(only.1),
                    (None, _) => 1,
                }
            }
        };
        Bytes(u64::try_from(bytes.max(1)).unwrap_or(u64::MAX >> 8))
    }

    /// The line through the first and the last of points that all lie on it, in the order of their batches. `None` where they
    /// do not, or where it falls.
    #[must_use]
    pub fn line(points: &[Point]) -> Option<Form> {
        let (first, last) = (points.first()?, points.last()?);
        if points.iter().all(|point| point.bytes == first.bytes) {
            return Some(Form::Constant(first.bytes));
        }
        let form = Form::Line { from: (first.batch, first.bytes), to: (last.batch, last.bytes) };
        let rises = last.batch > first.batch && last.bytes > first.bytes;
        let is_on_it = |point: &Point| {
            let run = i128::from(last.batch) - i128::from(first.batch);
            let rise = i128::from(last.bytes) - i128::from(first.bytes);
            (i128::from(point.bytes) - i128::from(first.bytes)).checked_mul(run)
                == (i128::from(point.batch) - i128::from(first.batch)).checked_mul(rise)
        };
        (rises && points.iter().all(is_on_it)).then_some(form)
    }

    /// The product of a shape's dimensions, where each is a line and the bytes agree at every point.
    #[must_use]
    pub(crate) fn product(points: &[(Point, Vec<u64>)]) -> Option<Form> {
        let (first, shape) = points.first()?;
        let rank = shape.len();
        if rank == 0 || points.iter().any(|(_, shape)| shape.len() != rank) {
            return None;
        }
        let elements = shape.iter().try_fold(1_u64, |all, &dimension| all.checked_mul(dimension))?;
        let unit = first.bytes.checked_div(elements).filter(|unit| (1..=16).contains(unit))?;
        let dimensions = (0..rank).map(|at| {
            let values = points.iter().filter_map(|(point, shape)| {
                shape.get(at).map(|&dimension| Point { batch: point.batch, bytes: dimension })
            });
            let values: Vec<Point> = values.collect();
            match Form::line(&values)? {
                Form::Line { from, to } => {
                    let run = i64::try_from(to.0.checked_sub(from.0)?).ok()?;
                    let rise = i64::try_from(to.1.checked_sub(from.1)?).ok()?;
                    let times = rise.checked_div(run).filter(|times| times * run == rise)?;
                    let constant = i64::try_from(from.1)
                        .ok()?
                        .checked_sub(times.checked_mul(i64::try_from(from.0).ok()?)?)?;
                    Some((constant, times))
                }
                Form::Constant(value) => Some((i64::try_from(value).ok()?, 0)),
                Form::Product { .. } | Form::Copies { .. } | Form::Parts(_) | Form::Known(_) => None,
            }
        });
        let form = Form::Product { unit, dimensions: dimensions.collect::<Option<Vec<_>>>()? };
        points.iter().all(|(point, _)| form.at(point.batch).0 == point.bytes).then_some(form)
    }
}

/// How a request's size follows from the batch, and why that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// The function.
    pub form: Form,
    /// What it rests on.
    pub basis: Basis,
}

impl Size {
    /// Whether the bytes at a batch are exact. Between and beyond the batches that a compiler told they are not: its packing is no line.
    #[must_use]
    pub(super) fn is_exact_at(&self, batch: u64) -> bool {
        match (self.basis, &self.form) {
            (Basis::Compiled, Form::Known(points)) => points.iter().any(|(known, _)| *known == batch),
            (basis, _) => basis == Basis::Exact,
        }
    }

    /// A size that is taken as constant.
    #[must_use]
    pub fn held(bytes: u64) -> Size {
        Size { form: Form::Constant(bytes), basis: Basis::Held }
    }

    /// What fits points in the order of their batches, one a batch; shapes where they are told. Where nothing does, the line
    /// through the last two goes on.
    #[must_use]
    pub fn fit(points: &[(Point, Vec<u64>)]) -> Option<Size> {
        if points.len() < 2 {
            return None;
        }
        let bytes: Vec<Point> = points.iter().map(|(point, _)| *point).collect();
        let basis = if points.len() > 2 { Basis::Exact } else { Basis::TwoProbes };
        if let Some(form) = Form::line(&bytes) {
            return Some(Size { form, basis });
        }
        if let Some(form) = Form::product(points) {
            return Some(Size { form, basis });
        }
        let last = bytes.get(bytes.len().saturating_sub(2)..).unwrap_or_default();
        let most = bytes.iter().map(|point| point.bytes).max().unwrap_or(1);
        let form = Form::line(last).unwrap_or(Form::Constant(most));
        Some(Size { form, basis: Basis::Irregular })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(list: &[(u64, u64)]) -> Vec<(Point, Vec<u64>)> {
        list.iter().map(|&(batch, bytes)| (Point { batch, bytes }, Vec::new())).collect()
    }

    #[test]
    fn lines_are_exact_where_three_agree() {
        let size = Size::fit(&points(&[(7, 4 + 28 * 7), (11, 4 + 28 * 11), (13, 4 + 28 * 13)])).unwrap();
        assert_eq!((size.basis, size.form.at(1000)), (Basis::Exact, Bytes(28_004)));
        let size = Size::fit(&points(&[(7, 512), (11, 512), (13, 512)])).unwrap();
        assert_eq!((size.basis, size.form.at(1000)), (Basis::Exact, Bytes(512)));
        let size = Size::fit(&points(&[(7, 512), (11, 700)])).unwrap();
        assert_eq!((size.basis, size.form.at(15)), (Basis::TwoProbes, Bytes(888)));
    }

    #[test]
    fn what_is_no_line_is_irregular() {
        let size = Size::fit(&points(&[(2, 34_304), (4, 58_880), (8, 116_224)])).unwrap();
        assert_eq!((size.basis, size.form.at(8)), (Basis::Irregular, Bytes(116_224)));
        let size = Size::fit(&points(&[(2, 900), (4, 800), (8, 700)])).unwrap();
        assert_eq!((size.basis, size.form.at(64)), (Basis::Irregular, Bytes(900)));
        assert_eq!(Size::fit(&points(&[(2, 900)])), None);
    }

    #[test]
    fn a_square_is_a_product_of_its_dimensions() {
        let square =
            |length: u64| (Point { batch: length, bytes: 4 * 3 * length * length }, vec![3, length, length]);
        let size = Size::fit(&[square(7), square(11), square(13)]).unwrap();
        assert_eq!((size.basis, size.form.at(100)), (Basis::Exact, Bytes(120_000)));
    }

    #[test]
    fn what_is_known_at_some_batches_is_exact_there_and_goes_on_as_between_the_last_two() {
        let form = Form::Known(vec![(7, 700), (11, 1000), (19, 3001)]);
        let at = |batch| form.at(batch).0;
        assert_eq!([at(7), at(11), at(19)], [700, 1000, 3001]);
        assert_eq!([at(9), at(12), at(27), at(3)], [850, 1251, 5002, 400]);
        let falls = Form::Known(vec![(7, 700), (11, 600)]);
        assert_eq!([7, 9, 11, 12, 100].map(|batch| falls.at(batch).0), [700, 650, 600, 700, 700]);
        assert_eq!(Form::Known(vec![(7, 700)]).at(9), Bytes(700));
        assert_eq!(Form::Known(vec![]).at(9), Bytes(1));
    }

    #[test]
    fn copies_end_after_their_last_batch() {
        let form = Form::Copies { constant: 10, slope: 100, last: 41 };
        assert_eq!([8, 41, 42, 64].map(|batch| form.at(batch).0), [810, 4110, 10, 10]);
        let huge = Form::Copies { constant: u64::MAX, slope: u64::MAX, last: u64::MAX };
        assert!(huge.at(u64::MAX) > Bytes(1 << 50));
    }

    #[test]
    fn sizes_beyond_all_bounds_stay_finite() {
        let size = Size::fit(&points(&[(1, 1), (2, u64::MAX)])).unwrap();
        assert!(size.form.at(u64::MAX) > Bytes(1 << 50));
        let falling = Form::Line { from: (2, 10), to: (4, 20) };
        assert_eq!(falling.at(0), Bytes(1));
    }
}
