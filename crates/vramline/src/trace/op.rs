//! What an op's name tells: its scope, its layer, the part of a training step it belongs to.
//!
//! Names are paths: `StatefulPartitionedCall/gradient_tape/sequential/dense/MatMul/MatMul`. Everything here is a
//! function of the text alone.

/// The part of a training program that an op belongs to, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing in the name tells.
    Plain,
    /// Inside a model's scope.
    Forward,
    /// Backward pass.
    Gradient,
    /// The optimizer's scope.
    Optimizer(Update),
    /// Reads or prepares training data.
    Input,
    /// Makes the first value of a variable.
    Initializer,
}

/// What an op in an optimizer's scope does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// The first value of a slot.
    Slot,
    /// `variable -= ...`
    AssignSub,
    /// `variable += ...`
    AssignAdd,
    /// A fused update such as `ResourceApplyAdam`.
    Apply,
    /// Arithmetic.
    Other,
}

/// Function calls that wrap every name of a graph.
const WRAPPERS: [&str; 3] = ["StatefulPartitionedCall", "PartitionedCall", "while/body"];

const OPTIMIZERS: [&str; 16] = [
    "adam",
    "adamw",
    "sgd",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adamax",
    "nadam",
    "ftrl",
    "lion",
    "lamb",
    "adafactor",
    "muon",
    "loss_scale_optimizer",
    "lossscaleoptimizer",
    "optimizer",
];

/// `dense_12` -> `dense`
fn without_number(component: &str) -> &str {
    let stem = component.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() < component.len() { stem.strip_suffix('_').unwrap_or(component) } else { component }
}

/// The name without the calls that wrap it.
fn unwrapped(mut name: &str) -> &str {
    'again: loop {
        for wrapper in WRAPPERS {
            if let Some(rest) = name.strip_prefix(wrapper)
                && let Some((number, rest)) = rest.split_once('/')
                && (number.is_empty()
                    || number.strip_prefix('_').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())))
            {
                name = rest;
                continue 'again;
            }
        }
        return name;
    }
}

pub(crate) fn part_of(name: &str) -> Part {
    let name = unwrapped(name);
    let leaf = name.rsplit('/').next().unwrap_or(name);
    let kind = without_number(leaf);
    if kind.starts_with("Iterator") || kind.ends_with("Dataset") || kind.starts_with("Optional") {
        return Part::Input;
    }
    let mut components = name.split('/').map(without_number).take(3);
    let is_gradient = |component: &str| component == "gradient_tape" || component == "gradients";
    let is_optimizer = |component: &str| OPTIMIZERS.contains(&component.to_ascii_lowercase().as_str());
    let first = components.next().unwrap_or_default();
    let second = components.next().unwrap_or_default();
    let third = components.next().unwrap_or_default();
    // The first version of TensorFlow's API put both under `training/`.
    let (first, second) = if first == "training" { (second, third) } else { (first, second) };
    let is_path = name.contains('/');
    if is_gradient(first) || (is_optimizer(first) && is_gradient(second)) {
        return Part::Gradient;
    }
    if kind.starts_with("ResourceApply") || kind.starts_with("ResourceSparseApply") {
        return Part::Optimizer(Update::Apply);
    }
    if is_path && is_optimizer(first) {
        let update = if name.contains("/Initializer/") {
            Update::Slot
        } else if kind.starts_with("AssignSub") {
            Update::AssignSub
        } else if kind.starts_with("AssignAdd") {
            Update::AssignAdd
        } else {
            Update::Other
        };
        return Part::Optimizer(update);
    }
    if name.contains("/Initializer/") {
        return Part::Initializer;
    }
    if is_path { Part::Forward } else { Part::Plain }
}

/// The model layer of an op: its scope without the model's own name and without the op. Empty where there is none.
///
/// `StatefulPartitionedCall/gradient_tape/sequential_1/conv2d_2/convolution/Conv2DBackpropInput` is in `conv2d_2`.
#[must_use]
pub fn layer_of(name: &str) -> String {
    let name = unwrapped(name);
    let (name, of_model) = match part_of(name) {
        Part::Forward => (name, true),
        Part::Gradient => match name.split_once("gradient_tape/").or_else(|| name.split_once("gradients/")) {
            Some((_, rest)) => (rest, rest.contains('/')),
            None => (name, false),
        },
        _ => (name, false),
    };
    if !of_model {
        return String::new();
    }
    let components: Vec<&str> = name.split('/').collect();
    let Some((_op, scope)) = components.split_last() else { return String::new() };
    let layers: Vec<&str> =
        scope.iter().skip(1).take_while(|component| !is_op_scope(component)).copied().collect();
    if layers.is_empty() {
        // A layer called on its own, without a model around it.
        return scope
            .first()
            .filter(|component| !is_op_scope(component))
            .map_or(String::new(), |&s| s.to_owned());
    }
    layers.join("/")
}

/// Scopes that ops open, not layers: TensorFlow's are in camel case, Keras' few are known.
fn is_op_scope(component: &str) -> bool {
    let stem = without_number(component);
    component.starts_with(|c: char| c.is_ascii_uppercase())
        || matches!(
            stem,
            "convolution" | "einsum" | "moments" | "batchnorm" | "while" | "cond" | "add" | "mul" | "sub"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_step() {
        assert_eq!(part_of("StatefulPartitionedCall/sequential_1/conv2d_1_2/Relu"), Part::Forward);
        assert_eq!(
            part_of("StatefulPartitionedCall/gradient_tape/sequential_1/d/MatMul/MatMul"),
            Part::Gradient
        );
        assert_eq!(
            part_of("StatefulPartitionedCall_3/adam/AssignSubVariableOp_2"),
            Part::Optimizer(Update::AssignSub)
        );
        assert_eq!(part_of("adam/dense_kernel_momentum/Initializer/zeros"), Part::Optimizer(Update::Slot));
        assert_eq!(part_of("Adam/Adam/update_3/ResourceApplyAdam"), Part::Optimizer(Update::Apply));
        assert_eq!(part_of("training/Adam/gradients/dense/MatMul_grad/MatMul"), Part::Gradient);
        assert_eq!(part_of("sequential/dense/kernel/Initializer/random_uniform"), Part::Initializer);
        assert_eq!(part_of("IteratorGetNext"), Part::Input);
        assert_eq!(part_of("PrefetchDataset"), Part::Input);
        assert_eq!(part_of("AddV2"), Part::Plain);
        assert_eq!(part_of(""), Part::Plain);
    }

    #[test]
    fn layers_from_scopes() {
        assert_eq!(layer_of("StatefulPartitionedCall/sequential_1/conv2d_1_2/Relu"), "conv2d_1_2");
        assert_eq!(
            layer_of(
                "StatefulPartitionedCall/gradient_tape/sequential_1/conv2d_2_1/convolution/Conv2DBackpropInput"
            ),
            "conv2d_2_1"
        );
        assert_eq!(
            layer_of("functional_1/block_3/attention_1/query_1/einsum/Einsum"),
            "block_3/attention_1/query_1"
        );
        assert_eq!(layer_of("dense_1/MatMul"), "dense_1");
        assert_eq!(layer_of("adam/AssignSubVariableOp_2"), "");
        assert_eq!(layer_of("AddV2"), "");
    }
}
