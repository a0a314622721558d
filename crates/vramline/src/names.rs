//! *Internal.* Interned strings: an op name that occurs in a million events is stored once.
//!
//! A [`Name`] is a number that means something only together with the [`Names`] that gave it.

use rustc_hash::FxHashMap;

/// An interned string. Four bytes, compared by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub(crate) u32);

impl Name {
    /// The empty string, in every [`Names`].
    pub const EMPTY: Name = Name(0);

    /// Whether this is the empty string.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Name::EMPTY
    }
}

/// The table behind [`Name`].
#[derive(Clone, Debug)]
pub struct Names {
    texts: Vec<Box<str>>,
    numbers: FxHashMap<Box<str>, u32>,
}

impl Default for Names {
    fn default() -> Self {
        Names { texts: vec![Box::default()], numbers: FxHashMap::from_iter([(Box::default(), 0)]) }
    }
}

impl Names {
    /// The name of `text`, new or known.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(&number) = self.numbers.get(text) {
            return Name(number);
        }
        // A table of four billion distinct names does not fit any machine this runs on; fold the rest into "".
        let Ok(number) = u32::try_from(self.texts.len()) else { return Name::EMPTY };
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        Name(number)
    }

    /// The text of a name; empty for a name of another table.
    #[must_use]
    pub fn get(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// The name of `text`, if it was interned.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Name> {
        self.numbers.get(text).map(|&number| Name(number))
    }

    /// How many names there are. Never zero: the empty string is always one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Gives every name another text; names stay what they are. Two names whose texts become one are still two.
    pub(crate) fn rewrite(&mut self, mut change: impl FnMut(Name, &str) -> String) {
        self.numbers.clear();
        for (number, text) in (0..).zip(&mut self.texts) {
            if number > 0 {
                *text = change(Name(number), text).into();
            }
            self.numbers.entry(text.clone()).or_insert(number);
        }
    }

    /// Every name with its text.
    pub fn iter(&self) -> impl Iterator<Item = (Name, &str)> {
        (0..).map(Name).zip(self.texts.iter().map(|text| &**text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_a_name() {
        let mut names = Names::default();
        let relu = names.intern("Relu");
        assert_eq!(relu, names.intern("Relu"));
        assert_eq!(names.get(relu), "Relu");
        assert_eq!(names.intern(""), Name::EMPTY);
        assert_eq!(names.find("MatMul"), None);
        assert_eq!(names.get(Name(99)), "");
    }

    #[test]
    fn names_keep_their_numbers_under_other_texts() {
        let mut names = Names::default();
        let [relu, secret] = ["Relu", "secret"].map(|text| names.intern(text));
        names.rewrite(|_, text| if text == "secret" { "op-1".to_owned() } else { text.to_owned() });
        assert_eq!((names.get(relu), names.get(secret), names.get(Name::EMPTY)), ("Relu", "op-1", ""));
        assert_eq!((names.find("op-1"), names.find("secret")), (Some(secret), None));
        assert_eq!(names.intern("Relu"), relu);
    }
}
