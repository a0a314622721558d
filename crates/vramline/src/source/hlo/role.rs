//! The role of a value in a compiled program, by the framework's name for its instruction.
//!
//! JAX writes the origin of each instruction into its name: `jvp` around what a differentiated function computes,
//! `transpose` around its backward pass. Arguments have the names that the program gives them. Everything here depends
//! on those names only.

use super::argument::ArgumentPath;
use crate::event::Dtype;
use crate::executable::{Buffer, How, Purpose};
use crate::names::{Name, Names};
use crate::snapshot::{Held, Role};
use crate::stack::Stack;
use crate::units::Bytes;

/// How it is known that the bytes belong to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The file describes that program.
    File,
    /// The call made all requests of the program, in order.
    Sequence,
    /// The programs of that name request this size once.
    Size,
    /// Allocated before the program's requests, and as large as one of its arguments.
    Argument,
}

/// The name of a value: the framework's, else the compiler's.
pub(crate) fn name_of(buffer: &Buffer) -> Name {
    if buffer.op.is_empty() { buffer.instruction } else { buffer.op }
}

/// A value as a held block.
pub(crate) fn held(
    names: &Names,
    purpose: Purpose,
    bytes: Bytes,
    buffer: Option<&Buffer>,
    how: How,
    by: By,
) -> Held {
    let op = buffer.map_or(Name::EMPTY, name_of);
    let (role, evidence) = of_text(names.get(op), purpose, buffer, how, by);
    let evidence = match by {
        By::File => evidence[0],
        By::Sequence => evidence[1],
        By::Size => evidence[2],
        By::Argument => evidence[3],
    };
    Held {
        op,
        layer: layer_of(names.get(op)),
        role,
        shape: buffer.map_or(Name::EMPTY, |buffer| buffer.shape),
        dtype: buffer.map_or(Dtype::Unknown, |buffer| buffer.dtype),
        source: buffer.map_or(String::new(), |buffer| names.get(buffer.source).to_owned()),
        stack: buffer.map_or(Stack::EMPTY, |buffer| buffer.stack),
        ..Held::bare(bytes, bytes, evidence)
    }
}

/// A reason with the evidence for the name, in the order of [`By`].
macro_rules! reasons {
    ($reason:literal) => {
        [
            concat!($reason, "; from the compiler's buffer assignment"),
            concat!($reason, "; the requests of the call match those of the compiled program, in order"),
            concat!($reason, "; the called program requests this size once"),
            concat!($reason, "; it has the size of that argument of the compiled program"),
        ]
    };
}

/// The role of a value, by the framework's name for the instruction, and the evidence.
fn of_text(
    op: &str,
    purpose: Purpose,
    buffer: Option<&Buffer>,
    how: How,
    by: By,
) -> (Role, [&'static str; 4]) {
    let Some(buffer) = buffer else {
        return if how == How::Free {
            (
                Role::Temporaries,
                reasons!("free memory inside the program's buffer at its peak: gaps and alignment"),
            )
        } else {
            (Role::Temporaries, reasons!("a value of the program without an instruction"))
        };
    };
    match purpose {
        Purpose::Parameter { .. } => {
            return match (argument_role(op), by) {
                // The call itself copied it to the device.
                (Role::Unknown, By::Argument) => (Role::Inputs, reasons!("an argument from the host")),
                (Role::Unknown, _) => {
                    (Role::Unknown, reasons!("an argument whose name does not show its role"))
                }
                (role, _) => (role, reasons!("an argument with a known name")),
            };
        }
        Purpose::Constant => return (Role::Unknown, reasons!("a constant of the program")),
        Purpose::Output | Purpose::Temporary | Purpose::ThreadLocal => {}
    }
    if buffer.is_scratch {
        return (Role::Temporaries, reasons!("workspace of a library call"));
    }
    if op.contains("rematted_computation") {
        return (Role::Activations, reasons!("recomputed for the backward pass: remat in its name"));
    }
    if op.contains("transpose(") {
        return (Role::Gradients, reasons!("an instruction of the backward pass: transpose in its name"));
    }
    if op.contains("jvp(") {
        return (Role::Activations, reasons!("an instruction of the forward pass: jvp in its name"));
    }
    match (purpose, how) {
        (Purpose::Output, _) => {
            (Role::Unknown, reasons!("a result of the program; its op does not show its role"))
        }
        (_, How::TakesTurns) => {
            (Role::Temporaries, reasons!("scratch memory of the program, shared by several values in turn"))
        }
        _ => (Role::Temporaries, reasons!("scratch memory of the program")),
    }
}

/// The role of an argument, by its name in the program: `state.params['dense']['kernel']`.
pub(crate) fn argument_role(name: &str) -> Role {
    ArgumentPath::parse(name).role()
}

/// The named scopes of an op without what JAX puts around them: `jit(step)/transpose(jvp(MLP))/Dense_0/dot_general` is in
/// `MLP/Dense_0`.
pub(crate) fn layer_of(op: &str) -> String {
    // Several that became one stand side by side.
    let first = op.split(';').next().unwrap_or(op);
    let Some((scopes, _)) = first.rsplit_once('/') else { return String::new() };
    let mut layer = String::new();
    for scope in scopes.split('/') {
        let mut inner = scope;
        while let Some((transform, rest)) = inner.strip_suffix(')').and_then(|open| open.split_once('(')) {
            // The name of a function is no layer.
            inner = if matches!(transform, "jit" | "pjit" | "xla_call") { "" } else { rest };
        }
        let is_plain = matches!(
            inner,
            "" | "while"
                | "body"
                | "cond"
                | "scan"
                | "closed_call"
                | "core_call"
                | "checkpoint"
                | "remat"
                | "rematted_computation"
                | "custom_jvp_call"
                | "custom_vjp_call"
                | "shard_map"
                | "pjit"
        ) || inner.starts_with("branch_");
        if is_plain {
            continue;
        }
        if !layer.is_empty() {
            layer.push('/');
        }
        layer.push_str(inner);
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_what_is_left_of_scopes() {
        assert_eq!(layer_of("jit(step)/transpose(jvp(MLP))/Dense_0/dot_general"), "MLP/Dense_0");
        assert_eq!(layer_of("jit(step)/jvp()/jit(relu)/max"), "");
        assert_eq!(layer_of("jit(f)/while/body/attention/dot_general"), "attention");
        assert_eq!(layer_of("jit(f)/a/mul;jit(f)/b/add"), "a");
        assert_eq!(layer_of("x"), "");
        assert_eq!(layer_of("a)(/b"), "a)(");
    }

    #[test]
    fn arguments_tell_by_their_names() {
        assert_eq!(argument_role("state.params['Dense_0']['kernel']"), Role::Parameters);
        assert_eq!(argument_role("opt_state[0].mu['w']"), Role::Optimizer);
        assert_eq!(argument_role("batch['image']"), Role::Inputs);
        assert_eq!(argument_role("p[0][1]"), Role::Unknown);
    }
}
