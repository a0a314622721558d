//! Redaction of places in a program: frames of call stacks, source lines, and ops that are named after them.
//!
//! PyTorch's snapshots and JAX's memory profiles name an op by the end of one of its frames, and a trace finds that frame again by
//! its end. So the placeholder of a place that ends with another one ends with that one's.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Placeholder, Redaction};
use crate::names::{Name, Names};

/// The number of path endings to look up: an op is named after the last two parts of a path.
const MAX_ENDS: usize = 64;

impl Redaction {
    /// Redacts a table in which some ops, `ops`, are named after places.
    pub(super) fn place_names(&mut self, names: &mut Names, ops: &FxHashSet<Name>, labels: &FxHashSet<Name>) {
        let texts: FxHashMap<String, Name> = names
            .iter()
            .filter(|(name, _)| ops.contains(name))
            .map(|(name, text)| (text.to_owned(), name))
            .collect();
        let is_op = |text: &str| texts.contains_key(text);
        names.rewrite(|name, text| {
            if labels.contains(&name) && !ops.contains(&name) {
                self.name(text, Placeholder::Label)
            } else {
                self.place(text, &is_op)
            }
        });
    }

    /// A frame or a source line.
    pub(super) fn frame(&mut self, text: &str) -> String {
        self.place(text, &|_| false)
    }

    fn place(&mut self, text: &str, is_op: &dyn Fn(&str) -> bool) -> String {
        let mut parts = Vec::new();
        let mut rest = Some(text).filter(|text| !text.is_empty());
        while let Some(here) = rest {
            if self.words.is_of_torch(here) {
                parts.push(here.to_owned());
                break;
            }
            parts.push(self.placeholder(Placeholder::Frame, here));
            rest = end_of(here).find(|end| is_op(end));
        }
        parts.join("/")
    }
}

/// The ends of a place, the longest first.
fn end_of(text: &str) -> impl Iterator<Item = &str> {
    let borders: Vec<usize> = text
        .rmatch_indices(['/', ' '])
        .map(|(at, _)| at + 1)
        .filter(|&at| at < text.len())
        .take(MAX_ENDS)
        .collect();
    borders.into_iter().rev().filter_map(move |at| text.get(at..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_with_an_op_still_does() {
        let mut names = Names::default();
        let op = names.intern("models/net.py:3 forward");
        let native = names.intern("ConvolutionBackward0");
        let frames =
            ["/home/me/models/net.py:3 forward", "/srv/models/net.py:3 forward", "/home/me/train.py:9 main"]
                .map(|text| names.intern(text));
        let ops = FxHashSet::from_iter([op, native]);
        Redaction::default().place_names(&mut names, &ops, &FxHashSet::default());
        let text = |name: Name| names.get(name);
        assert!(text(frames[0]).ends_with(text(op)) && text(frames[1]).ends_with(text(op)));
        assert!(!text(frames[2]).ends_with(text(op)) && text(frames[0]) != text(frames[1]));
        assert_eq!(text(native), "ConvolutionBackward0");
        assert!(names.iter().all(|(_, text)| !text.contains("home") && !text.contains("net")));
    }
}
