//! What the path of an argument says: `params['l'][0]['q']` is a parameter of layer `l[0]`.
//!
//! JAX names each leaf of an argument by the argument's name and the keys that lead to the leaf. People keep parameters and the
//! optimizer's state in trees with well-known names, and an optimizer's tree repeats the tree of the parameters. Everything here depends
//! on paths only; which block is passed is the business of the trace.

use rustc_hash::FxHashMap;

use crate::names::{Name, Names};
use crate::snapshot::Role;

/// The number of keys of a path that are read.
const MOST_KEYS: usize = 64;

/// A key of a path and where its text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key<'a> {
    at: usize,
    text: &'a str,
    is_name: bool,
}

/// The path of an argument: its name and the keys below it.
#[derive(Clone, Debug)]
pub(crate) struct ArgumentPath<'a> {
    text: &'a str,
    root: &'a str,
    keys: Vec<Key<'a>>,
}

/// What a word of a path says about the role of everything below it.
fn role_of_word(word: &str) -> Option<Role> {
    Some(match word {
        "params" | "param" | "parameters" | "weights" | "batch_stats" | "trainable_variables" => {
            Role::Parameters
        }
        "opt_state" | "opt_states" | "optimizer_state" | "optim_state" | "optimizer" | "opt" | "momentum"
        | "momenta" | "velocity" | "mu" | "nu" => Role::Optimizer,
        "grads" => Role::Gradients,
        "batch" | "inputs" | "labels" | "images" | "tokens" | "targets" | "data" => Role::Inputs,
        _ => return None,
    })
}

/// Leaves that only parameters have.
fn is_parameter_leaf(word: &str) -> bool {
    matches!(word, "kernel" | "bias" | "embedding" | "scale")
}

impl<'a> ArgumentPath<'a> {
    /// Reads a path. What is no key ends it.
    pub(crate) fn parse(text: &'a str) -> ArgumentPath<'a> {
        let end = text.find(['[', '.']).unwrap_or(text.len());
        let root = text.get(..end).unwrap_or_default();
        let (mut at, mut keys) = (end, Vec::new());
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty())
            && keys.len() < MOST_KEYS
        {
            let Some((text, is_name, length)) = key(rest) else { break };
            keys.push(Key { at, text, is_name });
            at += length;
        }
        ArgumentPath { text, root, keys }
    }

    /// Whether it leads into a tree of the program. Ops that JAX runs one by one call their arguments `args[0]`.
    pub(crate) fn is_in_tree(&self) -> bool {
        self.keys.len() > usize::from(self.root == "args")
    }

    /// The role that the words tell, and how many keys belong to the tree that has it.
    fn told(&self) -> Option<(Role, usize)> {
        // Flax NNX passes the state of a model without its names: `model.states[0][3]`.
        if self.root == "model" && !self.keys.is_empty() {
            return Some((Role::Parameters, 0));
        }
        let names = self.keys.iter().zip(1..).filter(|(key, _)| key.is_name).map(|(key, at)| (key.text, at));
        let mut words = [(self.root, 0)].into_iter().chain(names);
        words.find_map(|(word, at)| Some((role_of_word(word)?, at)))
    }

    /// The role that the path tells.
    pub(crate) fn role(&self) -> Role {
        let leaf = self.keys.last().filter(|key| key.is_name && is_parameter_leaf(key.text));
        self.told().map_or(if leaf.is_some() { Role::Parameters } else { Role::Unknown }, |(role, _)| role)
    }

    /// The keys below the tree of parameters or state that it is in.
    fn below(&self) -> &[Key<'a>] {
        let mut from = self.told().map_or(0, |(_, keys)| keys);
        // Flax keeps its parameters in a collection of the same name.
        let is_collection = |word: &str| word == "states" || role_of_word(word).is_some();
        while self.keys.get(from).is_some_and(|key| key.is_name && is_collection(key.text)) {
            from += 1;
        }
        self.keys.get(from..).unwrap_or_default()
    }

    /// The text from a key on.
    fn from(&self, key: Option<&Key<'_>>) -> &'a str {
        key.and_then(|key| self.text.get(key.at..)).unwrap_or_default()
    }

    /// The layer: the keys between the tree and the leaf. A leaf that is in no other is its own layer.
    fn layer(&self) -> String {
        match self.below() {
            [] => self.root.to_owned(),
            [only] if only.is_name => only.text.to_owned(),
            [first, ..] if !first.is_name => {
                let leaf = self.keys.last().map_or(self.text.len(), |key| key.at);
                self.text.get(..leaf).unwrap_or_default().to_owned()
            }
            [inner @ .., _] => show(inner),
        }
    }

    /// The name of a parameter as Flax and others write it, where the path has that form: `Conv_0.kernel`.
    fn module_name(&self) -> Option<String> {
        let below = self.below();
        let leaf = below.last().filter(|leaf| is_parameter_leaf(leaf.text) || is_statistic(leaf.text))?;
        (leaf.is_name && below.len() > 1 && below.iter().all(|key| key.is_name)).then(|| show(below))
    }
}

/// Leaves of Flax's collection `batch_stats`.
fn is_statistic(word: &str) -> bool {
    matches!(word, "mean" | "var")
}

/// Keys as people write them: `l[0].q`.
fn show(keys: &[Key<'_>]) -> String {
    let mut shown = String::new();
    for key in keys {
        match key.is_name {
            true if shown.is_empty() => shown.push_str(key.text),
            true => shown.extend([".", key.text]),
            false => shown.extend(["[", key.text, "]"]),
        }
    }
    shown
}

/// The first key of a text: its own text, whether it is a name, and how long it is with its brackets.
fn key(rest: &str) -> Option<(&str, bool, usize)> {
    if let Some(name) = rest.strip_prefix('.') {
        let end = name.find(['[', '.']).unwrap_or(name.len());
        return Some((name.get(..end)?, true, end + 1));
    }
    let inner = rest.strip_prefix('[')?;
    for quote in ['\'', '"'] {
        if let Some(name) = inner.strip_prefix(quote) {
            let end = name.find(&*format!("{quote}]"))?;
            return Some((name.get(..end)?, true, end + 4));
        }
    }
    let end = inner.find(']')?;
    Some((inner.get(..end)?, false, end + 2))
}

/// Whose an argument is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArgumentName {
    /// What it is for, as far as the paths of the program tell.
    pub(crate) role: Role,
    /// The layer; empty where there is none.
    pub(crate) layer: String,
    /// Its path or, where a library gave it another, the name that people know.
    pub(crate) variable: String,
}

/// Names the parameters of a program, each given by its path and shape.
pub(crate) fn name_all(names: &Names, parameters: &[(Name, Name)]) -> Vec<ArgumentName> {
    let paths: Vec<ArgumentPath<'_>> =
        parameters.iter().map(|(path, _)| ArgumentPath::parse(names.get(*path))).collect();
    // The tree of the parameters: what lies below its name.
    let mut tree: FxHashMap<(&str, Name), usize> = FxHashMap::default();
    for (at, (path, (_, shape))) in paths.iter().zip(parameters).enumerate() {
        let below = path.from(path.below().first());
        if path.role() == Role::Parameters && !below.is_empty() {
            tree.entry((below, *shape)).or_insert(at);
        }
    }
    let name = |(path, &(_, shape)): (&ArgumentPath<'_>, &(Name, Name))| {
        let role = path.role();
        let own = |role| ArgumentName {
            role,
            layer: match role {
                Role::Parameters | Role::Gradients | Role::Optimizer => path.layer(),
                _ => String::new(),
            },
            variable: path.module_name().filter(|_| role == Role::Parameters).unwrap_or(path.text.to_owned()),
        };
        // A slot of an optimizer repeats the path of its parameter.
        let is_slot = matches!(role, Role::Optimizer | Role::Gradients | Role::Unknown);
        let keys = path.keys.iter().enumerate().filter(|_| is_slot);
        let mut ends = keys.filter_map(|(at, key)| Some((at, *tree.get(&(path.from(Some(key)), shape))?)));
        let Some((at, parameter)) = ends.next().and_then(|(at, of)| Some((at, paths.get(of)?))) else {
            return own(role);
        };
        let slot = path.keys.get(..at).and_then(|keys| keys.iter().rev().find(|key| key.is_name));
        let slot = slot.map_or(path.root, |key| key.text);
        let is_moment = matches!(path.root, "m" | "v") && at == 0;
        let named = parameter.module_name().map(|parameter| format!("{parameter} {slot}"));
        ArgumentName {
            role: if is_moment { Role::Optimizer } else { role },
            layer: parameter.layer(),
            variable: named.unwrap_or_else(|| path.text.to_owned()),
        }
    };
    paths.iter().zip(parameters).map(name).collect()
}

/// The longest beginning that some paths share, at the end of a key.
pub(crate) fn shared(paths: &[&str]) -> String {
    let Some((first, others)) = paths.split_first() else { return String::new() };
    let path = ArgumentPath::parse(first);
    let ends = path.keys.iter().map(|key| key.at).chain([first.len()]);
    let is_shared = |end: &usize| {
        let start = first.get(..*end).unwrap_or_default();
        others.iter().all(|other| other.starts_with(start))
    };
    let end = ends.take_while(is_shared).last().unwrap_or(0);
    first.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Vec<(&'static str, String, String)> {
        let mut names = Names::default();
        let shape = names.intern("[8]");
        let parameters: Vec<(Name, Name)> = paths.iter().map(|path| (names.intern(path), shape)).collect();
        let told = |name: ArgumentName| (name.role.word(), name.layer, name.variable);
        name_all(&names, &parameters).into_iter().map(told).collect()
    }

    fn one(paths: &[&str], at: usize) -> (&'static str, String, String) {
        named(paths)[at].clone()
    }

    #[test]
    fn plain_trees_keep_their_paths() {
        let tree =
            ["params['l'][0]['q']", "opt['m']['l'][0]['q']", "opt['count']", "batch", "params['embed']"];
        let told = |role, layer: &str, variable: &str| (role, layer.to_owned(), variable.to_owned());
        assert_eq!(one(&tree, 0), told("parameters", "l[0]", "params['l'][0]['q']"));
        assert_eq!(one(&tree, 1), told("optimizer", "l[0]", "opt['m']['l'][0]['q']"));
        assert_eq!(one(&tree, 2), told("optimizer", "count", "opt['count']"));
        assert_eq!(one(&tree, 3), told("inputs", "", "batch"));
        assert_eq!(one(&tree, 4), told("parameters", "embed", "params['embed']"));
    }

    #[test]
    fn optax_and_flax_have_the_names_that_people_know() {
        let tree = [
            "state.params['Conv_0']['kernel']",
            "state.opt_state[0].mu['Conv_0']['kernel']",
            "state.opt_state[0].count",
            "state.step",
        ];
        let told = |role, layer: &str, variable: &str| (role, layer.to_owned(), variable.to_owned());
        assert_eq!(one(&tree, 0), told("parameters", "Conv_0", "Conv_0.kernel"));
        assert_eq!(one(&tree, 1), told("optimizer", "Conv_0", "Conv_0.kernel mu"));
        assert_eq!(one(&tree, 2).0, "optimizer");
        assert_eq!(one(&tree, 3), told("unknown", "", "state.step"));
        let nested = ["variables['params']['block']['Dense_1']['bias']"];
        assert_eq!(one(&nested, 0), told("parameters", "block.Dense_1", "block.Dense_1.bias"));
        let nnx = ["model.states[0][1]", "optimizer.states[0][2]"];
        assert_eq!(one(&nnx, 0), told("parameters", "model.states[0]", "model.states[0][1]"));
        assert_eq!(one(&nnx, 1).0, "optimizer");
    }

    #[test]
    fn trees_of_other_names_are_found_by_the_tree_of_the_parameters() {
        let tree = ["weights[1][0]", "momentum[1][0]", "m[1][0]", "grads[1][0]", "v[7]"];
        let role = |at| one(&tree, at).0;
        assert_eq!(
            [role(0), role(1), role(2), role(3), role(4)].map(str::to_owned).to_vec(),
            ["parameters", "optimizer", "optimizer", "gradients", "unknown"]
        );
        assert!((0..4).all(|at| one(&tree, at).1 == "weights[1]"), "{:?}", named(&tree));
        // The name of a leaf says nothing about another tree.
        assert_eq!(one(&["params['v']", "v['w']"], 0).0, "parameters");
        assert_eq!(one(&["params['v']", "v['w']"], 1).0, "unknown");
    }

    #[test]
    fn strange_paths_are_read_as_far_as_they_go() {
        for path in ["", ".", "[", "a[", "a['", "a['b", "a]", "a..b", "a[']']", "é['ü']"] {
            let parsed = ArgumentPath::parse(path);
            let _ = (parsed.role(), parsed.layer(), parsed.module_name(), shared(&[path, "a['b']"]));
        }
        assert_eq!(shared(&["a['b'][0]", "a['b'][1]"]), "a['b']");
        assert_eq!(shared(&["a['b1']", "a['b']"]), "a");
        assert_eq!(shared(&["a", "b"]), "");
    }
}
