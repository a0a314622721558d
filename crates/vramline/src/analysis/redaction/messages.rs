//! Sentences that were made while reading: kept if they contain only numbers, otherwise replaced.

use std::io;

use super::{HIDDEN, Redaction, words};
use crate::source::SourceError;
use crate::warning::{NamingText, PrivateName, Warning, Warnings};

/// Warnings whose texts contain only Vramline's own words and numbers.
const PLAIN: [&str; 25] = [
    "another-limit",
    "bare-events",
    "broken-samples",
    "chunks-disagree",
    "end-disagrees",
    "entries-disagree",
    "executables-without-size",
    "host-memory",
    "huge-event",
    "large-program",
    "large-programs",
    "malformed",
    "no-driver-calls",
    "many-failures",
    "memory-profile",
    "on-chip-memory",
    "mixed-dump",
    "more-failures",
    "more-warnings",
    "no-chunks",
    "no-history",
    "no-times",
    "odd-numbers",
    "torn-dump",
    "truncated",
];

/// Warnings whose texts contain paths, names or text of others, with their replacements. A warning that knows its private name
/// ([`NamingText`]) keeps the rest of its text.
const REPLACED: [(&str, &str); 10] = [
    ("dump-disagrees", "the log and the dump of one failure differ; the dump is used"),
    (
        "pickle-calls",
        "the pickle wants Python to call functions. Vramline calls nothing and skips the results",
    ),
    ("profiler", "the profiler reported a message"),
    ("requests-unknown", "the log shows block sizes but not requested sizes"),
    ("torn-tail", "the end of a file of the recording is incomplete and was skipped"),
    ("unknown-keys", "keys of a newer PyTorch version were skipped"),
    ("unreadable", "a file cannot be read"),
    ("unreadable-facts", "a file with the facts of a process cannot be read"),
    ("unreadable-manifest", "run.json cannot be read"),
    ("unreadable-stream", "a file of the recording cannot be read"),
];

impl Redaction {
    /// Redacts warnings that were made while reading.
    pub(super) fn warnings(&mut self, warnings: &mut Warnings) {
        for (warning, naming) in warnings.iter_mut() {
            match naming {
                Some(NamingText { before, name, after }) => {
                    let name = match name {
                        PrivateName::Path(name) => self.file(name),
                        PrivateName::Pool(name) => self.pool(name),
                    };
                    warning.text = format!("{before}{name}{after}");
                }
                None => self.warning(warning),
            }
        }
    }

    pub(super) fn warning(&mut self, warning: &mut Warning) {
        if PLAIN.contains(&warning.code) {
            return;
        }
        let known = REPLACED.iter().find(|(known, _)| *known == warning.code);
        warning.text =
            known.map_or_else(|| format!("{} {HIDDEN}", warning.code), |(_, text)| (*text).to_owned());
    }

    /// A sentence of Vramline in which only the quoted parts are private.
    pub(super) fn quoted(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut parts = text.split('\'').enumerate().peekable();
        while let Some((at, part)) = parts.next() {
            // An unclosed quote hides the rest.
            let is_quoted = at % 2 == 1;
            match (is_quoted, parts.peek().is_some()) {
                (true, true) => shown.push_str(&format!("'{}'", self.file(part))),
                (true, false) => shown.push_str(HIDDEN),
                (false, _) => shown.push_str(part),
            }
        }
        shown
    }

    /// An exception: its type stays if it is a public one, its message does not.
    pub(super) fn exception(&self, text: &str) -> String {
        let name = text.split(':').next().unwrap_or_default().trim();
        let last = name.rsplit('.').next().unwrap_or_default();
        match (text.is_empty(), self.words.is_exception(last)) {
            (true, _) => String::new(),
            (false, true) => format!("{last}: {HIDDEN}"),
            (false, false) => HIDDEN.to_owned(),
        }
    }

    /// Redacts an error.
    pub fn source_error(&mut self, error: SourceError) -> SourceError {
        match error {
            SourceError::Io { path, error } => {
                // A message of a library may contain anything; one of the system does not.
                let error =
                    if error.raw_os_error().is_some() { error } else { io::Error::from(error.kind()) };
                SourceError::Io { path: self.path(&path), error }
            }
            SourceError::Empty { path } => SourceError::Empty { path: self.path(&path) },
            SourceError::Foreign { path, what, hint } => {
                SourceError::Foreign { path: self.path(&path), what, hint }
            }
            SourceError::NoLog { path, what } => SourceError::NoLog { path: self.path(&path), what },
            SourceError::Recording { hint, .. } => {
                SourceError::Recording { text: "a recording cannot be read".to_owned(), hint }
            }
            SourceError::Pickle { path, hint, .. } => {
                let what = "it is not a PyTorch snapshot, or it is damaged".to_owned();
                SourceError::Pickle { path: self.path(&path), what, hint }
            }
            SourceError::NoProgram { path } => SourceError::NoProgram { path: self.path(&path) },
            SourceError::NoTrace { path } => SourceError::NoTrace { path: self.path(&path) },
            SourceError::NoRecordings { path } => SourceError::NoRecordings { path: self.path(&path) },
        }
    }
}

/// Why a figure is missing, if the sentence is Vramline's own.
pub(super) fn reason(text: String) -> String {
    if text.is_empty() || words::is_own_sentence(&text) { text } else { HIDDEN.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The codes of all warnings that are made before anything is redacted.
    fn codes(path: &Path, found: &mut Vec<String>) {
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| codes(&entry.unwrap().path(), found));
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for call in code.split(".add").skip(1) {
            let call = call.trim_start_matches("_naming").trim_start_matches('(');
            let Some(rest) = call.trim_start().strip_prefix('"') else { continue };
            found.extend(rest.split('"').next().map(str::to_owned));
        }
    }

    #[test]
    fn every_warning_of_reading_is_known_here() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = Vec::new();
        for part in ["source", "recording", "postmortem", "failure", "analysis/reading.rs"] {
            codes(&src.join(part), &mut found);
        }
        assert!(found.len() > 30, "{found:?}");
        for code in found {
            let is_replaced = REPLACED.iter().any(|(known, _)| *known == code);
            assert!(PLAIN.contains(&code.as_str()) || is_replaced, "{code}");
        }
    }

    #[test]
    fn names_in_warnings_become_placeholders() {
        let mut warnings = Warnings::default();
        let text = |name: PrivateName| NamingText {
            before: "1 to 2 bytes of ".to_owned(),
            name,
            after: " are lost".to_owned(),
        };
        warnings.add_naming("a", text(PrivateName::Path("marks-secret-1-2.arrows".to_owned())), "");
        warnings.add_naming("b", text(PrivateName::Pool("GPU_0_bfc".to_owned())), "");
        warnings.add_naming("c", text(PrivateName::Pool("secret".to_owned())), "");
        Redaction::default().warnings(&mut warnings);
        let texts: Vec<&str> = warnings.as_slice().iter().map(|warning| warning.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "1 to 2 bytes of file-1 are lost",
                "1 to 2 bytes of GPU_0_bfc are lost",
                "1 to 2 bytes of pool-1 are lost"
            ]
        );
    }

    #[test]
    fn sentences_lose_what_others_wrote() {
        let mut redaction = Redaction::default();
        let mut said = |code, text: &str| {
            let mut warning = Warning { code, text: text.to_owned(), hint: String::new() };
            redaction.warning(&mut warning);
            warning.text
        };
        assert_eq!(said("truncated", "the file ends at byte 7"), "the file ends at byte 7");
        assert_eq!(said("profiler", "the profiler reported: secret"), "the profiler reported a message");
        // Names that are not marked as such hide the whole text.
        assert!(!said("torn-tail", "the last 3 bytes of 'secret'").contains("secret"));
        assert_eq!(said("new-code", "secret"), "new-code (hidden)");
        assert_eq!(redaction.exception("ValueError: secret"), "ValueError: (hidden)");
        assert_eq!(
            redaction.exception("tf.errors.ResourceExhaustedError: x"),
            "ResourceExhaustedError: (hidden)"
        );
        assert_eq!(redaction.exception("MySecretError: x"), "(hidden)");
        assert_eq!(
            redaction.quoted("'/secret/python' is no Python, 'cut"),
            "'file-1' is no Python, (hidden)"
        );
    }
}
