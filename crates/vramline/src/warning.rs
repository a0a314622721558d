//! *Internal.* Partial failures as data: warnings and unknown values are part of the result.
//!
//! A [`Warning`] is about the input ("cut off at byte N"). An [`Unknown`] is about one null in the output, with the reason and, if there is
//! one, the setting that would make it known.

use serde::Serialize;

use crate::document::Document;
pub use crate::document::Unknown;

/// Something about the input that the reader of a report should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct Warning {
    /// A stable code.
    pub code: &'static str,
    /// What happened.
    pub text: String,
    /// What to do; may be empty.
    pub hint: String,
}

/// A name in the text of a warning that `--redact` replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PrivateName {
    /// A path, or the name of something on disk.
    Path(String),
    /// A pool.
    Pool(String),
}

impl PrivateName {
    fn text(&self) -> &str {
        match self {
            PrivateName::Path(name) | PrivateName::Pool(name) => name,
        }
    }
}

/// The text of a warning with one private name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamingText {
    /// The text before the name.
    pub(crate) before: String,
    /// The name.
    pub(crate) name: PrivateName,
    /// The text after the name.
    pub(crate) after: String,
}

/// Collects warnings while a source is read. If there are too many, the last one says how many are not listed.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    list: Vec<Warning>,
    /// For each warning, its text in parts, if it contains a private name.
    naming: Vec<Option<NamingText>>,
    left_out: u64,
}

impl Warnings {
    /// The maximum number of listed warnings; the rest is only counted.
    const MAX_LISTED: usize = 50;

    /// Adds a warning, or counts it if the list is full.
    pub fn add(&mut self, code: &'static str, text: impl Into<String>, hint: impl Into<String>) {
        self.push(Warning { code, text: text.into(), hint: hint.into() }, None);
    }

    /// Adds a warning whose text contains a private name, which a redaction replaces and the rest of the text not.
    pub(crate) fn add_naming(&mut self, code: &'static str, text: NamingText, hint: impl Into<String>) {
        let NamingText { before, name, after } = &text;
        let shown = format!("{before}{}{after}", name.text());
        self.push(Warning { code, text: shown, hint: hint.into() }, Some(text));
    }

    fn push(&mut self, warning: Warning, naming: Option<NamingText>) {
        if self.list.len() < Self::MAX_LISTED {
            self.list.push(warning);
            self.naming.push(naming);
        } else {
            self.leave_out(1);
        }
    }

    /// Adds the warnings of another collection, including those that it only counted.
    pub fn append(&mut self, mut other: Warnings) {
        // The last warning, which has the count, is replaced by one for both.
        other.list.truncate(Self::MAX_LISTED);
        for (warning, naming) in other.list.into_iter().zip(other.naming) {
            self.push(warning, naming);
        }
        self.leave_out(other.left_out);
    }

    /// Counts warnings that are not listed, in the last one of the list.
    fn leave_out(&mut self, more: u64) {
        self.left_out = self.left_out.saturating_add(more);
        let text = match self.left_out {
            0 => return,
            1 => "1 more warning is not listed".to_owned(),
            count => format!("{count} more warnings are not listed"),
        };
        self.list.truncate(Self::MAX_LISTED);
        self.naming.truncate(Self::MAX_LISTED);
        self.list.push(Warning { code: "more-warnings", text, hint: String::new() });
        self.naming.push(None);
    }

    /// The warnings, in order.
    #[must_use]
    pub(crate) fn into_vec(self) -> Vec<Warning> {
        self.list
    }

    /// The warnings so far, to be reworded, with the parts of texts that contain a private name.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Warning, Option<&NamingText>)> {
        self.list.iter_mut().zip(self.naming.iter().map(Option::as_ref))
    }

    /// The warnings so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Warning] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(count: usize) -> Warnings {
        let mut warnings = Warnings::default();
        (0..count).for_each(|number| warnings.add("cut", format!("cut at byte {number}"), "record again"));
        warnings
    }

    /// How many warnings are listed, and what is said of the others.
    fn told(warnings: &Warnings) -> (usize, Option<&str>) {
        let is_count = |warning: &&Warning| warning.code == "more-warnings";
        let said = warnings.as_slice().iter().filter(is_count).map(|warning| warning.text.as_str());
        let said: Vec<&str> = said.collect();
        assert!(said.len() <= 1, "{said:?}");
        let last = warnings.as_slice().last().filter(is_count);
        assert_eq!(said.first().copied(), last.map(|warning| warning.text.as_str()));
        (warnings.as_slice().len() - said.len(), said.first().copied())
    }

    #[test]
    fn warnings_beyond_the_most_are_counted() {
        for (count, expected) in [
            (0, (0, None)),
            (50, (50, None)),
            (51, (50, Some("1 more warning is not listed"))),
            (87, (50, Some("37 more warnings are not listed"))),
        ] {
            let warnings = warnings(count);
            assert_eq!(told(&warnings), expected, "{count}");
            assert_eq!(warnings.as_slice(), warnings.clone().into_vec());
        }
        assert_eq!(warnings(60).as_slice()[49].text, "cut at byte 49");
    }

    #[test]
    fn names_stay_with_their_warnings() {
        let text = |name: &str| NamingText {
            before: "the end of ".to_owned(),
            name: PrivateName::Path(name.to_owned()),
            after: " is lost".to_owned(),
        };
        let mut mine = warnings(2);
        let mut others = warnings(1);
        others.add_naming("torn", text("marks"), "");
        mine.append(others);
        mine.append(warnings(60));
        let named: Vec<(usize, String)> = mine
            .iter_mut()
            .enumerate()
            .filter_map(|(at, (warning, naming))| {
                Some((at, format!("{} {}", naming?.name.text(), warning.text)))
            })
            .collect();
        assert_eq!(named, [(3, "marks the end of marks is lost".to_owned())]);
        assert_eq!(mine.as_slice().len(), 51);
        assert_eq!(mine.iter_mut().count(), 51);
    }

    #[test]
    fn what_another_collection_left_out_is_counted_too() {
        for (mine, others, expected) in [
            (0, 87, (50, Some("37 more warnings are not listed"))),
            (87, 0, (50, Some("37 more warnings are not listed"))),
            (10, 60, (50, Some("20 more warnings are not listed"))),
            (60, 60, (50, Some("70 more warnings are not listed"))),
            (20, 20, (40, None)),
        ] {
            let mut both = warnings(mine);
            both.append(warnings(others));
            assert_eq!(told(&both), expected, "{mine} and {others}");
        }
        let mut both = warnings(60);
        both.append(warnings(60));
        both.add("late", "one more", "");
        assert_eq!(told(&both), (50, Some("71 more warnings are not listed")));
    }
}
