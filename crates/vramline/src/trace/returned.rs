//! Which results of a program are arguments of its next call.
//!
//! A training step returns its state in the order in which it takes it, with other results before, between or behind. Nothing in a compiled
//! program says so, but shapes and element types in the same order do.

use crate::event::History;
use crate::executable::{Executable, Purpose};
use crate::snapshot::Role;
use crate::source::hlo::argument::ArgumentName;

/// Comparisons of results with arguments for one program.
const MOST_COMPARISONS: usize = 1 << 24;
/// Times that results and arguments are compared to find another run.
const MOST_RUNS: usize = 64;

/// For each result, the parameter that repeats it: the longest runs of the same shapes and element types.
pub(super) fn carried(
    history: &History,
    executable: &Executable,
    names: &[ArgumentName],
) -> Vec<Option<usize>> {
    let (results, parameters) = (&executable.results, &executable.parameters);
    let mut carried: Vec<Option<usize>> = vec![None; results.len()];
    if results.len().saturating_mul(parameters.len()) > MOST_COMPARISONS {
        return carried;
    }
    let is_open = |(name, parameter): (&ArgumentName, _)| {
        (!matches!(name.role, Role::Inputs | Role::Gradients)).then_some(parameter)
    };
    let mut open: Vec<Option<_>> = names.iter().zip(parameters).map(is_open).collect();
    let mut left: Vec<Option<_>> = results.iter().map(Some).collect();
    let mut work = MOST_COMPARISONS;
    for _ in 0..MOST_RUNS {
        // The length of the run that ends at a result and a parameter, for one result after the other.
        let mut lengths = vec![0usize; open.len() + 1];
        let mut best = (0, 0, 0);
        work = work.saturating_sub(left.len().saturating_mul(open.len()));
        if work == 0 {
            break;
        }
        for (at, result) in left.iter().enumerate() {
            let mut ended = vec![0; open.len() + 1];
            for (to, parameter) in open.iter().enumerate() {
                let (Some(result), Some(parameter)) = (result, parameter) else { continue };
                if (result.shape, result.dtype) == (parameter.shape, parameter.dtype) {
                    let length = lengths.get(to).copied().unwrap_or(0) + 1;
                    ended.get_mut(to + 1).into_iter().for_each(|ended| *ended = length);
                    if length > best.0 {
                        best = (length, at + 1 - length, to + 1 - length);
                    }
                }
            }
            lengths = ended;
        }
        let (length, result, parameter) = best;
        if length == 0 {
            break;
        }
        let pairs: Vec<(usize, usize)> = (0..length).map(|step| (result + step, parameter + step)).collect();
        let is_accepted = is_state(history, executable, names, &pairs);
        for (result, parameter) in pairs {
            if let Some(carried) = carried.get_mut(result).filter(|_| is_accepted) {
                *carried = Some(parameter);
                open.get_mut(parameter).into_iter().for_each(|open| *open = None);
            }
            left.get_mut(result).into_iter().for_each(|left| *left = None);
        }
    }
    carried
}

/// Whether a run of results is the next value of a run of parameters. Gradients have the shapes of the parameters, too; and one value
/// alone may have the shape of a parameter by chance.
fn is_state(
    history: &History,
    executable: &Executable,
    names: &[ArgumentName],
    pairs: &[(usize, usize)],
) -> bool {
    let is_gradient = |&&(result, _): &&(usize, usize)| {
        let op = executable.results.get(result).map_or("", |result| history.names.get(result.op));
        op.contains("transpose(")
    };
    let gradients = pairs.iter().filter(is_gradient).count();
    if gradients * 2 > pairs.len() {
        return false;
    }
    let &[(_, only)] = pairs else { return true };
    let parameter = executable.parameters.get(only);
    let allocation = parameter.and_then(|parameter| executable.allocation(parameter.allocation));
    let is_donated = allocation
        .is_some_and(|allocation| matches!(allocation.purpose, Purpose::Parameter { is_output: true, .. }));
    let is_named =
        names.get(only).is_some_and(|name| matches!(name.role, Role::Parameters | Role::Optimizer));
    is_donated || is_named
}
