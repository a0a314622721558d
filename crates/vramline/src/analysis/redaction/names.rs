//! Redaction of names: the structure stays, and private parts become placeholders.
//!
//! Later analyses use names: the layer of an op, the role of a compiled instruction, the function of a call,
//! whether two requests of a plan have the same origin. So a redacted name has the same scopes in the same places, keeps the words
//! that these rules look for, and different names stay different.

use rustc_hash::FxHashMap;

use super::words::{TORCH_OPTIMIZERS, TRANSFORMS, Words};
use super::{Placeholder, Redaction};
use crate::executable::function_of;
use crate::snapshot::Role;
use crate::source::hlo::role::argument_role;
use crate::trace::{is_optimizer, without_number};

/// Words in layer names that tell a plan that the layer works in 32 bits.
const WIDE: [&str; 7] =
    ["normalization", "batchnorm", "layer_norm", "layernorm", "embedding", "compile_loss", "crossentropy"];

/// Parts of the name of a compiled instruction that show its role.
const MARKERS: [&str; 3] = ["rematted_computation", "transpose(", "jvp("];

/// The prefix that TensorFlow gives to traced functions.
const TRACED: [&str; 4] = ["__inference_", "__forward_", "__backward_", "a_inference_"];

/// The prefixes of the threads of XLA's compiler and of tf.data.
const THREADS: [&str; 2] = ["tf_pjrt_compile_thread_pool", "tf_data_"];

/// Words that show that an op reads data, or that it updates a weight.
const LEADING: [&str; 4] = ["Iterator", "Optional", "ResourceApply", "ResourceSparseApply"];
const TRAILING: &str = "Dataset";

/// The greatest depth of nested brackets that is parsed.
const MAX_BRACKETS: usize = 64;

/// The position of a part in a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the last: a layer, unless it is a framework's scope.
    Scope,
    /// The last.
    Leaf,
}

/// Names and functions that were rewritten.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    names: FxHashMap<Box<str>, Box<str>>,
    /// Parts of names that are private.
    parts: FxHashMap<Box<str>, Box<str>>,
    /// Functions without their numbers.
    stems: FxHashMap<Box<str>, u32>,
    /// Functions with their numbers: the index of each among those with the same stem.
    functions: FxHashMap<Box<str>, Box<str>>,
    counts: FxHashMap<Box<str>, u32>,
    /// Functions as they were written.
    spellings: FxHashMap<Box<str>, Box<str>>,
}

impl Redaction {
    /// Redacts the name of an op, a thread's scope, a step or a variable; `kind` names its last part if that is private.
    pub(super) fn name(&mut self, text: &str, kind: Placeholder) -> String {
        if let Some(known) = self.rewritten.names.get(text) {
            return known.clone().into_string();
        }
        let shown = self.rewrite(text, kind);
        self.rewritten.names.insert(text.into(), shown.as_str().into());
        shown
    }

    /// The layers around an op.
    pub(super) fn layer(&mut self, text: &str) -> String {
        let parts: Vec<String> = text.split('/').map(|part| self.part(part)).collect();
        parts.join("/")
    }

    /// A compiled program: `jit_step`, `a_inference_one_step_on_data_258__.15`.
    pub(super) fn program(&mut self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        let shown = match name.strip_prefix("jit_") {
            Some(function) => format!("jit_{}", self.function(function)),
            None => self.traced(name).unwrap_or_else(|| self.function(name)),
        };
        // Blocks that belong to several instructions have the program's name.
        self.rewritten.names.insert(name.into(), shown.as_str().into());
        shown
    }

    fn rewrite(&mut self, text: &str, kind: Placeholder) -> String {
        if text.is_empty() || is_shape(text) {
            return text.to_owned();
        }
        if let Some(function) = text.strip_prefix("PjitFunction(").and_then(|rest| rest.strip_suffix(')')) {
            return format!("PjitFunction({})", self.function(function));
        }
        if let Some(function) = text.strip_prefix("jit_").filter(|rest| !rest.contains('/')) {
            return format!("jit_{}", self.function(function));
        }
        // The names of fused instructions are listed one after the other.
        let sides: Vec<String> = text.split(';').map(|side| self.scoped(side, kind)).collect();
        with_markers(text, sides.join(";"))
    }

    fn scoped(&mut self, text: &str, kind: Placeholder) -> String {
        let (scopes, leaf) = match text.rsplit_once('/') {
            Some((scopes, leaf)) => (Some(scopes), leaf),
            None => (None, text),
        };
        let scopes = scopes.map(|scopes| self.layer(scopes));
        let shown = match self.public_or_parts(leaf, Place::Leaf) {
            Some(shown) => shown,
            None => self.private(leaf, kind),
        };
        scopes.map_or_else(|| shown.clone(), |scopes| format!("{scopes}/{shown}"))
    }

    fn part(&mut self, text: &str) -> String {
        self.public_or_parts(text, Place::Scope).unwrap_or_else(|| self.private(text, Placeholder::Layer))
    }

    /// A part that is public or consists of other parts; `None` if a single placeholder must replace it.
    fn public_or_parts(&mut self, text: &str, place: Place) -> Option<String> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.strip_prefix(['_', '-']).unwrap_or(text);
        if is_number(number) || self.is_public(text, place) {
            return Some(text.to_owned());
        }
        if text.bytes().filter(|byte| matches!(byte, b'(' | b')')).count() > MAX_BRACKETS {
            return None;
        }
        if let Some((transform, inner)) = text.strip_suffix(')').and_then(|open| open.split_once('(')) {
            let inner = match transform {
                "jit" | "pjit" | "xla_call" if !inner.is_empty() && !inner.contains('(') => {
                    self.function(inner)
                }
                _ if inner.is_empty() => String::new(),
                _ => self.part(inner),
            };
            return Some(format!("{}({inner})", self.transform(transform)));
        }
        // Scopes within a transform that contain a slash.
        if let Some((transform, inner)) = text.split_once('(').filter(|(known, _)| TRANSFORMS.contains(known))
        {
            return Some(format!("{transform}({}", self.part(inner)));
        }
        if let Some(inner) = text.strip_suffix(')') {
            return Some(format!("{})", self.part(inner)));
        }
        if let Some(branch) = text.strip_prefix("branch_") {
            let is_plain = is_number(branch.strip_suffix("_fun").unwrap_or(branch));
            let branch =
                if is_plain { branch.to_owned() } else { self.placeholder(Placeholder::Layer, branch) };
            return Some(format!("branch_{branch}"));
        }
        if let Some(before) = THREADS.into_iter().find(|before| text.starts_with(before)) {
            return Some(format!("{before}{}", self.placeholder(Placeholder::Thread, text)));
        }
        self.traced(text).or_else(|| self.argument(text)).or_else(|| self.with_settings(text, place))
    }

    fn is_public(&self, text: &str, place: Place) -> bool {
        match place {
            Place::Scope => self.words.is_scope(text) || is_optimizer(text),
            Place::Leaf => self.words.is_leaf(text) || is_torch_parameter(&self.words, text),
        }
    }

    fn transform(&mut self, text: &str) -> String {
        if text.is_empty() || TRANSFORMS.contains(&text) {
            return text.to_owned();
        }
        let mut shown = self.private(text, Placeholder::Layer);
        // Rules look for "transpose(" and "jvp(", whatever precedes them.
        if let Some(known) = ["transpose", "jvp"].into_iter().find(|known| text.ends_with(known)) {
            shown.push('-');
            shown.push_str(known);
        }
        shown
    }

    /// A part of a name without public words. A text has the same placeholder everywhere; its first occurrence decides the placeholder's kind.
    fn private(&mut self, text: &str, kind: Placeholder) -> String {
        if let Some(known) = self.rewritten.parts.get(text) {
            return known.clone().into_string();
        }
        let number = self.number(kind, text);
        let shown = match text.strip_prefix("Optimizer.step#").and_then(|rest| rest.strip_suffix(".step")) {
            Some(optimizer) if TORCH_OPTIMIZERS.contains(&optimizer) => text.to_owned(),
            Some(_) => format!("Optimizer.step#{}-{number}.step", kind.word()),
            None => dressed(kind.word(), number, text),
        };
        self.rewritten.parts.insert(text.into(), shown.as_str().into());
        shown
    }

    /// A function that TensorFlow traced, with its number.
    fn traced(&mut self, text: &str) -> Option<String> {
        let (before, function) =
            TRACED.into_iter().find_map(|before| Some((before, text.strip_prefix(before)?)))?;
        Some(format!("{before}{}", self.function(function)))
    }

    /// A function. Calls and modules spell the same function differently and append numbers, which comparisons
    /// ignore; so placeholders of functions have letters, and their own numbers.
    pub(super) fn function(&mut self, text: &str) -> String {
        let plain = function_of(&format!("jit_{text}")).unwrap_or_default();
        let stem = without_numbers(&plain);
        if self.words.is_function(text) || self.words.is_function(&plain) || self.words.is_function(stem) {
            return text.to_owned();
        }
        if let Some(known) = self.rewritten.spellings.get(text) {
            return known.clone().into_string();
        }
        let Rewritten { stems, functions, counts, spellings, .. } = &mut self.rewritten;
        let next = u32::try_from(stems.len()).unwrap_or(u32::MAX);
        let number = *stems.entry(stem.into()).or_insert(next);
        let shown = functions.entry(plain.as_str().into()).or_insert_with(|| {
            let traits = traits(stem);
            let shown = format!("function-{}{traits}", letters(number));
            match nth(counts, &shown) {
                0 => shown.into(),
                again => format!("{shown}_{again}").into(),
            }
        });
        // Comparisons ignore these endings.
        let more = nth(counts, &format!("{shown} "));
        let shown = format!("{shown}{}", "_".repeat(usize::try_from(more).unwrap_or(0)));
        spellings.insert(text.into(), shown.as_str().into());
        shown
    }

    /// An argument of a program, by its path: `state.params['dense'][0]`.
    fn argument(&mut self, text: &str) -> Option<String> {
        let (first, mut rest) = text.split_at(text.find(['.', '[']).filter(|&at| at > 0)?);
        if !is_word(first) {
            return None;
        }
        let mut parts = vec![("", first, "")];
        while !rest.is_empty() {
            let (before, after) = [("['", "']"), ("[\"", "\"]"), ("[", "]"), (".", "")]
                .into_iter()
                .find(|(before, _)| rest.starts_with(before))?;
            let inner = rest.get(before.len()..)?;
            let end = if after.is_empty() {
                inner.find(['.', '[']).unwrap_or(inner.len())
            } else {
                inner.find(after)?
            };
            let (word, behind) = inner.split_at(end);
            let is_index = word.bytes().all(|byte| byte.is_ascii_digit());
            if word.is_empty() || (before == "[") != is_index || (before == "." && !is_word(word)) {
                return None;
            }
            parts.push((before, word, after));
            rest = behind.get(after.len()..)?;
        }
        let mut shown = String::new();
        for (before, word, after) in parts {
            let is_plain = before == "[" || self.words.is_argument(word);
            let word = if is_plain { word.to_owned() } else { self.private(word, Placeholder::Variable) };
            shown.push_str(&format!("{before}{word}{after}"));
        }
        Some(shown)
    }

    /// An op followed by its settings, as older versions of JAX write it: `dot_general[precision=None]`.
    fn with_settings(&mut self, text: &str, place: Place) -> Option<String> {
        let (op, settings) = text.strip_suffix(']')?.split_once('[')?;
        let is_known = place == Place::Leaf && self.words.is_leaf(op);
        is_known.then(|| format!("{op}[{}]", self.placeholder(Placeholder::Text, settings)))
    }
}

/// Counts how many times each text was requested before.
fn nth(counts: &mut FxHashMap<Box<str>, u32>, text: &str) -> u32 {
    let count = counts.entry(text.into()).or_default();
    *count += 1;
    *count - 1
}

/// 0 is `a`, 25 is `z`, 26 is `aa`.
fn letters(number: u32) -> String {
    let mut left = u64::from(number) + 1;
    let mut letters = Vec::new();
    while left > 0 {
        left -= 1;
        letters.push(char::from(b'a' + u8::try_from(left % 26).unwrap_or(0)));
        left /= 26;
    }
    letters.into_iter().rev().collect()
}

/// The name of a program without the numbers that differ between processes, which is what plans compare.
fn without_numbers(name: &str) -> &str {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('_');
    name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_')
}

/// A placeholder with the words that rules look for in a part of a name.
fn dressed(kind: &str, number: u32, text: &str) -> String {
    let mark = ["_MklNative", "_MklEager", "_Mkl"].into_iter().find(|mark| text.starts_with(mark));
    let mark = mark.unwrap_or_default();
    let op = without_number(text.get(mark.len()..).unwrap_or(text));
    let before = LEADING.into_iter().find(|before| op.starts_with(before));
    let after = if op.ends_with(TRAILING) { "-Dataset" } else { "" };
    let kind = match (before, text.chars().next(), kind.split_at_checked(1)) {
        (Some(before), ..) => format!("{before}-{kind}"),
        // Scopes in camel case belong to ops and are not layers.
        (None, Some(first), Some((initial, rest))) if first.is_ascii_uppercase() => {
            format!("{}{rest}", initial.to_ascii_uppercase())
        }
        (None, Some('_'), _) if mark.is_empty() => format!("_{kind}"),
        _ => kind.to_owned(),
    };
    format!("{mark}{kind}-{number}{}{after}", traits(text))
}

/// Other words that later rules look for in a part of a name.
fn traits(text: &str) -> String {
    let mut traits: String =
        WIDE.into_iter().filter(|word| text.contains(word)).map(|word| format!("-{word}")).collect();
    if let Some(word) = role_word(text) {
        traits.push('.');
        traits.push_str(word);
    }
    for marker in MARKERS.into_iter().filter(|marker| text.contains(marker)) {
        traits.push('-');
        traits.push_str(marker);
    }
    if text.ends_with("gradient_tape") {
        traits.push_str("-gradient_tape");
    }
    traits
}

/// The first word in a text that shows the role of an argument, if the text is the path of one.
fn role_word(text: &str) -> Option<&str> {
    if argument_role(text) == Role::Unknown {
        return None;
    }
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.find(|word| argument_role(word) != Role::Unknown)
}

/// Adds the part that shows the role of an instruction, if the redacted name has lost it.
fn with_markers(text: &str, mut shown: String) -> String {
    for marker in MARKERS {
        if text.contains(marker) && !shown.contains(marker) {
            shown.push('-');
            shown.push_str(marker);
        }
    }
    if argument_role(&shown) != argument_role(text)
        && let Some(word) = role_word(text)
    {
        shown.push('.');
        shown.push_str(word);
    }
    shown
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a name is Vramline's own name for a PyTorch parameter: `parameter 3 exp_avg`.
fn is_torch_parameter(words: &Words, text: &str) -> bool {
    let Some(rest) = text.strip_prefix("parameter ") else { return false };
    let (number, state) = rest.split_once(' ').unwrap_or((rest, "step"));
    number.bytes().all(|byte| byte.is_ascii_digit()) && words.is_leaf(state)
}

/// Whether a text is a shape, with or without its type and layout: `[64,28,28]`, `f32[8,8]{1,0:T(8,128)}`.
pub(super) fn is_shape(text: &str) -> bool {
    const WORDS: [&str; 22] = [
        "f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "s64", "s32", "s16", "s8", "s4", "u64", "u32",
        "u16", "u8", "u4", "c64", "c128", "pred", "tuple", "token", "opaque",
    ];
    // Dimensions, layouts with their tiles (T), memory spaces (S) and element sizes (E).
    let is_known = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_digit())
            || WORDS.contains(&word)
            || matches!(word, "T" | "S" | "E")
    };
    let is_mark = |c: char| "[](){},:? *<=".contains(c);
    (text.starts_with(['[', '(']) || text.contains('[') || WORDS.contains(&text))
        && text.split(is_mark).all(is_known)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::hlo::role;
    use crate::trace::layer_of;

    fn shown(text: &str) -> String {
        Redaction::default().name(text, Placeholder::Op)
    }

    #[test]
    fn structure_stays_and_names_go() {
        for (name, expected) in [
            (
                "StatefulPartitionedCall/sequential_1/conv2d_1_2/Relu",
                "StatefulPartitionedCall/layer-1/layer-2/Relu",
            ),
            (
                "StatefulPartitionedCall/gradient_tape/bert/customers/MatMul/MatMul_1",
                "StatefulPartitionedCall/gradient_tape/layer-1/layer-2/MatMul/MatMul_1",
            ),
            ("adam/dense_kernel_momentum/Initializer/zeros", "adam/layer-1/Initializer/zeros"),
            (
                "jit(step)/transpose(jvp(MLP))/Dense_0/dot_general",
                "jit(function-a)/transpose(jvp(Layer-1))/Layer-2/dot_general",
            ),
            (
                "jit(f)/while/body/attention/dot_general[precision=None]",
                "jit(function-a)/while/body/layer-1/dot_general[text-1]",
            ),
            ("state.params['Dense_0']['kernel']", "state.params['Variable-1']['kernel']"),
            ("PjitFunction(step)", "PjitFunction(function-a)"),
            ("PjitFunction(<lambda>)", "PjitFunction(<lambda>)"),
            ("jit_step", "jit_function-a"),
            ("__inference_train_customers_1234", "__inference_function-a"),
            ("model/batch_normalization_1/batchnorm/mul_1", "layer-1/layer-2-normalization/batchnorm/mul_1"),
            ("tf_data_private_threadpool/123", "tf_data_private_threadpool/123"),
            ("tf_data_customers/-1", "tf_data_thread-1/-1"),
            ("CustomerDataset_3", "Op-1-Dataset"),
            ("IteratorOfCustomers", "Iterator-op-1"),
            ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"),
            ("Optimizer.step#Secret.step", "Optimizer.step#op-1.step"),
            ("parameter 3 exp_avg", "parameter 3 exp_avg"),
            ("[64,28,28]", "[64,28,28]"),
            ("f32[8,8]{1,0:T(8,128)}", "f32[8,8]{1,0:T(8,128)}"),
            ("", ""),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
    }

    #[test]
    fn calls_and_programs_still_meet() {
        let mut redaction = Redaction::default();
        let call = redaction.name("PjitFunction(my step)", Placeholder::Op);
        let program = redaction.program("jit_my_step");
        assert_eq!(function_of(&call), function_of(&program));
        assert_ne!(call, redaction.name("PjitFunction(my_step)", Placeholder::Op));
        // Plans compare programs without their numbers.
        let [one, other] = ["step_12__.3", "step_19__.3"].map(|name| redaction.program(name));
        assert_ne!(one, other);
        assert_eq!(without_numbers(&one), without_numbers(&other));
        assert_ne!(without_numbers(&one), without_numbers(&program));
        assert_eq!(redaction.name("step_12__.3", Placeholder::Op), one, "blocks of a program have its name");
        let [one, other] = ["__inference_secret_12", "__inference_secret_345"]
            .map(|name| redaction.name(name, Placeholder::Op));
        assert_ne!(one, other);
        assert_eq!(without_numbers(&one), without_numbers(&other));
    }

    /// Names as frameworks compose them, from private words and words that look like those of the rules.
    fn any_name() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec![
            "StatefulPartitionedCall",
            "gradient_tape",
            "gradients",
            "while",
            "body",
            "_33",
            "cond_1",
            "adam",
            "Adam_2",
            "Initializer",
            "secret",
            "Secret",
            "_secret",
            "secret_1",
            "my_layer_norm",
            "embedding_secret",
            "MatMul",
            "MatMul_grad",
            "Relu",
            "secretDataset",
            "IteratorSecret",
            "ResourceApplySecret",
            "jit(secret)",
            "jvp(secret)",
            "transpose(jvp(Secret))",
            "secret(other)",
            "jvp(secret",
            "secret)",
            "params['secret']",
            "secret.params[0]",
            "branch_0_fun",
            "branch_secret",
            "rematted_computation",
            "rematted_computation_secret",
            "my params x",
            "12",
            "",
            "dot_general",
            "fusion.3",
            "convolution",
            "einsum",
            "mul_1",
            "concatenate",
            "secret transpose(",
            "mytranspose(x)",
            "__inference_secret_12",
            "jit_secret",
            "my_gradient_tape",
            "training",
            "batch",
            "opt",
        ]);
        prop::collection::vec(part, 1..6).prop_map(|parts| parts.join("/"))
    }

    proptest! {
        #[test]
        fn what_rules_read_is_the_same(names in prop::collection::vec(any_name(), 1..8)) {
            let mut redaction = Redaction::default();
            let shown: Vec<String> = names.iter().map(|name| redaction.name(name, Placeholder::Op)).collect();
            for (name, shown) in names.iter().zip(&shown) {
                prop_assert_eq!(layer_of(shown), redaction.layer(&layer_of(name)), "{}", name);
                prop_assert_eq!(role::layer_of(shown), redaction.layer(&role::layer_of(name)), "{}", name);
                prop_assert_eq!(role::argument_role(shown), role::argument_role(name), "{} {}", name, shown);
                for marker in MARKERS {
                    prop_assert_eq!(shown.contains(marker), name.contains(marker), "{} {}", name, shown);
                }
                for word in ["gradient_tape/", "/gradients/", "/body/_", "/while/"] {
                    prop_assert_eq!(shown.rfind(word).is_some(), name.rfind(word).is_some(), "{} {}", name, shown);
                }
                prop_assert!(!shown.to_lowercase().contains("secret"), "{} {}", name, shown);
                prop_assert_eq!(redaction.name(name, Placeholder::Label), shown.as_str());
            }
            for (at, one) in names.iter().enumerate() {
                for (other_at, other) in names.iter().enumerate() {
                    prop_assert_eq!(one == other, shown[at] == shown[other_at], "{} and {}: {}", one, other, shown[at]);
                }
            }
        }

        #[test]
        fn any_text_is_taken(name in "\\PC{0,60}", other in "[()\\[\\]'./; a-c]{0,40}") {
            let mut redaction = Redaction::default();
            for text in [&name, &other] {
                let shown = redaction.name(text, Placeholder::Op);
                prop_assert_eq!(shown.is_empty(), text.is_empty());
                redaction.layer(text);
                redaction.program(text);
                redaction.pool(text);
            }
        }
    }

    #[test]
    fn brackets_without_end_are_taken() {
        for sign in ["(", ")", "jvp(", "branch_", "["] {
            let text = sign.repeat(100_000);
            assert!(shown(&text).len() <= text.len());
        }
    }

    #[test]
    fn numbers_become_letters() {
        assert_eq!([0, 25, 26, 701, 702].map(letters), ["a", "z", "aa", "zz", "aaa"]);
    }
}
