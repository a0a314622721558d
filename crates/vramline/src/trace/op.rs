//! What the name of an op shows: its scope, its layer, and its part of a training step.
//!
//! Names are paths: `StatefulPartitionedCall/gradient_tape/sequential/dense/MatMul/MatMul`. Everything here is a
//! function of the text alone.

/// The part of a training program that an op belongs to, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The name does not show it.
    Plain,
    /// Inside a model's scope.
    Forward,
    /// Backward pass.
    Gradient,
    /// An op without a scope, so it ran eagerly, of a kind that only a backward pass has.
    EagerGradient,
    /// An op without a scope, so it ran eagerly, that multiplies or adds up tensors: in a backward pass, gradients.
    EagerProduct,
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
    FirstSlot,
    /// Changes a weight of the model: `variable -= ...`
    Model,
    /// Changes a slot: `slot += ...`
    Slot,
    /// A fused update such as `ResourceApplyAdam`.
    Apply,
    /// Arithmetic. What outlives its step was assigned to a slot or, in some optimizers, to a weight.
    Other {
        /// To a weight.
        is_weight: bool,
    },
}

/// Names of optimizers, as scopes have them, without case and underscores.
const OPTIMIZERS: [&str; 15] = [
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
    "lossscaleoptimizer",
    "optimizer",
];

/// `dense_12` -> `dense`
pub(crate) fn without_number(component: &str) -> &str {
    let stem = component.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() < component.len() { stem.strip_suffix('_').unwrap_or(component) } else { component }
}

/// Whether a scope only says how a graph was called: `StatefulPartitionedCall/cond/then/_12/cond/...`
fn is_call(component: &str) -> bool {
    matches!(
        without_number(component),
        "StatefulPartitionedCall"
            | "PartitionedCall"
            | "cond"
            | "then"
            | "else"
            | "while"
            | "body"
            | ""
            | "training"
    )
}

fn is_gradient(component: &str) -> bool {
    matches!(component, "gradient_tape" | "gradients")
}

/// The optimizer that a scope is of.
fn optimizer(component: &str) -> Option<&'static str> {
    let letters = without_number(component).chars().filter(|&c| c != '_').map(|c| c.to_ascii_lowercase());
    OPTIMIZERS.into_iter().find(|known| letters.clone().eq(known.chars()))
}

/// Whether a scope is an optimizer's, in any spelling.
pub(crate) fn is_optimizer(component: &str) -> bool {
    optimizer(component).is_some()
}

/// What an op of an optimizer does. Keras' optimizers subtract from weights and add to slots, except that plain descent
/// with momentum and Adadelta add to weights too, and Muon assigns the decayed weights.
fn update_of(optimizer: &str, kind: &str) -> Update {
    if kind.starts_with("AssignSub") {
        Update::Model
    } else if kind.starts_with("AssignAdd") {
        if matches!(optimizer, "sgd" | "adadelta") { Update::Model } else { Update::Slot }
    } else {
        Update::Other { is_weight: optimizer == "muon" }
    }
}

/// The scopes of a name without those that only say how the graph was called, and the op.
fn split(name: &str) -> (Vec<&str>, &str) {
    let mut scopes: Vec<&str> = name.split('/').collect();
    let leaf = scopes.pop().unwrap_or_default();
    let calls = scopes.iter().take_while(|scope| is_call(scope)).count();
    scopes.drain(..calls);
    (scopes, leaf)
}

/// The kind of an op, whichever library's kernel it runs: oneDNN's kernels have names of their own, `_MklMatMul`.
fn kind_of(leaf: &str) -> &str {
    let kind = without_number(leaf);
    ["_MklNative", "_MklEager", "_Mkl"].into_iter().find_map(|mark| kind.strip_prefix(mark)).unwrap_or(kind)
}

pub(crate) fn part_of(name: &str) -> Part {
    let (scopes, leaf) = split(name);
    let kind = kind_of(leaf);
    if kind.starts_with("Iterator") || kind.ends_with("Dataset") || kind.starts_with("Optional") {
        return Part::Input;
    }
    // The optimizer that computes gradients itself has them in a scope within its own.
    if scopes.iter().any(|scope| is_gradient(scope)) {
        return Part::Gradient;
    }
    if kind.starts_with("ResourceApply") || kind.starts_with("ResourceSparseApply") {
        return Part::Optimizer(Update::Apply);
    }
    let is_initializer = scopes.contains(&"Initializer");
    if let Some(optimizer) = scopes.first().and_then(|scope| optimizer(scope)) {
        let update = if is_initializer { Update::FirstSlot } else { update_of(optimizer, kind) };
        return Part::Optimizer(update);
    }
    match (is_initializer, scopes.is_empty()) {
        (true, _) => Part::Initializer,
        (false, false) => Part::Forward,
        (false, true) if is_backward_kind(kind) => Part::EagerGradient,
        (false, true) if is_product_kind(kind) => Part::EagerProduct,
        (false, true) => Part::Plain,
    }
}

/// Whether only a backward pass has such an op: `ReluGrad`, `Conv2DBackpropFilter`. `StopGradient` and `PreventGradient` belong to the forward pass.
fn is_backward_kind(kind: &str) -> bool {
    (kind.contains("Grad") || kind.contains("Backprop"))
        && !matches!(kind, "StopGradient" | "PreventGradient")
}

fn is_product_kind(kind: &str) -> bool {
    matches!(kind, "MatMul" | "BatchMatMul" | "BatchMatMulV2" | "BatchMatMulV3" | "Einsum" | "AddN")
}

/// Whether an op is in a scope. Ops that run by themselves never are.
pub(crate) fn has_scope(name: &str) -> bool {
    name.contains('/')
}

/// Whether an op gives a variable another value: `AssignSubVariableOp_2`.
pub(crate) fn assigns(name: &str) -> bool {
    let (_, leaf) = split(name);
    kind_of(leaf).starts_with("Assign")
}

/// The layer name of training data that is being loaded.
pub(crate) const INPUT_DATA: &str = "input data";
/// The layer name of a loss and its metrics, which Keras computes in a separate scope.
pub(crate) const LOSS: &str = "loss";

/// The model layer of an op: its scope without the model's own name and without the op. Empty where there is none.
///
/// `StatefulPartitionedCall/gradient_tape/sequential_1/conv2d_2/convolution/Conv2DBackpropInput` is in `conv2d_2`.
#[must_use]
pub(crate) fn layer_of(name: &str) -> String {
    let (mut scopes, _) = split(name);
    match part_of(name) {
        Part::Forward => {}
        Part::Gradient => {
            let gradient = scopes.iter().rposition(|scope| is_gradient(scope)).unwrap_or(0);
            scopes.drain(..=gradient);
        }
        _ => return String::new(),
    }
    if scopes.first().is_some_and(|&scope| matches!(scope, "compile_loss" | "compile_metrics")) {
        return LOSS.to_owned();
    }
    let layers: Vec<&str> = scopes.iter().skip(1).take_while(|scope| !is_op_scope(scope)).copied().collect();
    if !layers.is_empty() {
        return layers.join("/");
    }
    // A layer called on its own, without a model around it.
    scopes.first().filter(|scope| !is_op_scope(scope)).map_or(String::new(), |&scope| scope.to_owned())
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
            Part::Optimizer(Update::Model)
        );
        assert_eq!(
            part_of("adam/dense_kernel_momentum/Initializer/zeros"),
            Part::Optimizer(Update::FirstSlot)
        );
        assert_eq!(part_of("Adam/Adam/update_3/ResourceApplyAdam"), Part::Optimizer(Update::Apply));
        assert_eq!(part_of("training/Adam/gradients/dense/MatMul_grad/MatMul"), Part::Gradient);
        assert_eq!(part_of("sequential/dense/kernel/Initializer/random_uniform"), Part::Initializer);
        assert_eq!(
            part_of("StatefulPartitionedCall/rm_sprop/Sqrt"),
            Part::Optimizer(Update::Other { is_weight: false })
        );
        assert_eq!(
            part_of("StatefulPartitionedCall/cond/then/_10/cond/adam_w/AssignSubVariableOp"),
            Part::Optimizer(Update::Model)
        );
        assert_eq!(part_of("adam/AssignAddVariableOp_1"), Part::Optimizer(Update::Slot));
        assert_eq!(part_of("SGD/AssignAddVariableOp_1"), Part::Optimizer(Update::Model));
        assert_eq!(part_of("sequential/adamant_1/Relu"), Part::Forward);
        assert_eq!(part_of("IteratorGetNext"), Part::Input);
        assert_eq!(part_of("PrefetchDataset"), Part::Input);
        assert_eq!(part_of("AddV2"), Part::Plain);
        assert_eq!(part_of("StopGradient"), Part::Plain);
        assert_eq!(part_of("Conv2DBackpropFilter"), Part::EagerGradient);
        assert_eq!(part_of("ReluGrad"), Part::EagerGradient);
        assert_eq!(part_of("MatMul"), Part::EagerProduct);
        assert_eq!(part_of("_MklMatMul"), Part::EagerProduct);
        assert_eq!(part_of("_MklNativeConv2DBackpropInput"), Part::EagerGradient);
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
