//! Private texts replaced by placeholders, so that a report can be shared.
//!
//! Facts are redacted after they are read and before they are analysed: every sentence, document, page and
//! export is then made from clean facts, and the figures stay the same. Names keep their structure (`names`), because the analyses
//! use it. Sentences that were made while reading are replaced, unless they contain only numbers (`messages`).
//!
//! Names given by frameworks, compilers and Vramline itself are public (`words`); everything else is private. A text has the same
//! placeholder as long as the [`Redaction`] exists, so that compared runs can still be matched.

mod facts;
#[cfg(feature = "recording")]
mod live;
mod machine;
mod messages;
mod names;
mod places;
mod ranks;
mod words;

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use names::Rewritten;
use words::Words;

use crate::recording::rows::PINNED;
use crate::source::fingerprint::Fingerprint;

/// The placeholder without a number.
pub const HIDDEN: &str = "(hidden)";

/// Replaces private texts with numbered placeholders. The same text always gets the same placeholder.
#[derive(Debug, Default)]
pub struct Redaction {
    words: Words,
    rewritten: Rewritten,
    numbers: FxHashMap<(Placeholder, Box<str>), u32>,
    counts: FxHashMap<Placeholder, u32>,
    /// Names of pools, with their redacted names.
    pools: Vec<(String, String)>,
    /// Whether machines have fingerprints instead of numbers.
    has_fingerprints: bool,
}

/// The kind of text that a placeholder replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Placeholder {
    Layer,
    Op,
    Variable,
    Label,
    Frame,
    Path,
    Host,
    Word,
    Command,
    Thread,
    Pool,
    Device,
    Bus,
    Job,
    Text,
}

impl Placeholder {
    fn word(self) -> &'static str {
        match self {
            Placeholder::Layer => "layer",
            Placeholder::Op => "op",
            Placeholder::Variable => "variable",
            Placeholder::Label => "label",
            Placeholder::Frame => "frame",
            Placeholder::Path => "file",
            Placeholder::Host => "host",
            Placeholder::Word => "word",
            Placeholder::Command => "command",
            Placeholder::Thread => "thread",
            Placeholder::Pool => "pool",
            Placeholder::Device => "device",
            Placeholder::Bus => "bus",
            Placeholder::Job => "job",
            Placeholder::Text => "text",
        }
    }
}

/// Endings of names that show the kind of a file.
const ENDINGS: [&str; 19] = [
    ".vram",
    ".xplane.pb.gz",
    ".xplane.pb",
    ".snapshot.pickle.gz",
    ".snapshot.pickle",
    ".pickle.gz",
    ".pickle",
    ".memory.prof",
    ".prof",
    ".memorydump.pb",
    ".hlo.pb.gz",
    ".hlo.pb",
    ".pb.gz",
    ".pb",
    ".log",
    ".txt",
    ".json",
    ".html",
    ".py",
];

impl Redaction {
    /// A redaction for sources that are exported at different times: a machine has the same placeholder in all of them.
    ///
    /// Its placeholder is made from its name, so whoever guesses the name can check the guess.
    #[must_use]
    pub fn across_sources() -> Redaction {
        Redaction { has_fingerprints: true, ..Redaction::default() }
    }

    /// Redacts a file or folder: `file-1`, with the ending that shows its kind.
    pub fn path(&mut self, path: &Path) -> PathBuf {
        PathBuf::from(self.file(&path.to_string_lossy()))
    }

    /// The same for a path that is text.
    pub fn file(&mut self, path: &str) -> String {
        if path.is_empty() {
            return String::new();
        }
        // A shell completes the name of a folder with a slash.
        let path = path.trim_end_matches('/');
        let ending = ENDINGS.into_iter().find(|ending| path.ends_with(ending)).unwrap_or_default();
        format!("{}{ending}", self.placeholder(Placeholder::Path, path))
    }

    /// Redacts a host name.
    pub fn host(&mut self, host: &str) -> String {
        match host {
            "" | "localhost" => host.to_owned(),
            host if self.has_fingerprints => {
                let mut print = Fingerprint::default();
                print.add_text(host);
                format!("{}-{}", Placeholder::Host.word(), print.digits(12))
            }
            host => self.placeholder(Placeholder::Host, host),
        }
    }

    /// Redacts a command; the number of arguments stays.
    pub fn command(&mut self, command: &[String]) -> Vec<String> {
        command.iter().map(|word| self.placeholder(Placeholder::Word, word)).collect()
    }

    /// Redacts the command line of a process.
    pub fn command_line(&mut self, command: &str) -> String {
        if command.is_empty() { String::new() } else { self.placeholder(Placeholder::Command, command) }
    }

    /// Redacts a label: the name that a program or a user gave to a moment, a step or a run.
    pub fn label(&mut self, label: &str) -> String {
        if label.is_empty() || words::is_own_sentence(label) {
            return label.to_owned();
        }
        self.placeholder(Placeholder::Label, label)
    }

    /// Redacts the op name that a user gives to a hypothetical request.
    pub fn op(&mut self, op: &str) -> String {
        self.name(op, Placeholder::Op)
    }

    /// Redacts the name of the varied quantity; `batch` stays.
    pub fn varied(&mut self, variable: &str) -> String {
        match variable {
            "batch" | "length" | "sequence" | "steps" | "size" | "width" | "height" | "depth" => {
                variable.to_owned()
            }
            variable => self.placeholder(Placeholder::Variable, variable),
        }
    }

    /// Redacts the framework's name of a pool, a device or a compiled program.
    pub fn pool(&mut self, name: &str) -> String {
        let shown = self.pool_text(name);
        if !self.pools.iter().any(|(known, _)| known == name) {
            self.pools.push((name.to_owned(), shown.clone()));
        }
        shown
    }

    /// A filter that selects the same pools after redaction that `part` selected before. Call it after the reading was redacted.
    #[must_use]
    pub fn pool_part(&self, part: &str) -> String {
        let picked: Vec<&str> = self
            .pools
            .iter()
            .filter(|(name, _)| name.contains(part))
            .map(|(_, shown)| shown.as_str())
            .collect();
        let picks = |candidate: &str| {
            self.pools.iter().all(|(name, shown)| shown.contains(candidate) == name.contains(part))
        };
        let first = picked.first().copied().unwrap_or_default();
        // Tries prefixes of the first name, the shortest first, until one selects the same pools; names have few words.
        let beginnings =
            first.char_indices().map(|(at, sign)| first.get(..at + sign.len_utf8()).unwrap_or(first));
        let mut candidates = std::iter::once(part).chain(beginnings);
        candidates.find(|candidate| picks(candidate)).unwrap_or(HIDDEN).to_owned()
    }

    fn pool_text(&mut self, name: &str) -> String {
        if self.words.is_pool(name) {
            return name.to_owned();
        }
        // A compiled program has a pool for each purpose.
        const PURPOSES: [&str; 4] = [" temporaries", " arguments", " results", " constants"];
        let purpose = PURPOSES.into_iter().find_map(|purpose| {
            let (program, rest) = name.rsplit_once(purpose)?;
            let space = rest.strip_prefix(", memory space ");
            let is_whole = rest.is_empty() || space.is_some_and(|space| space.parse::<i64>().is_ok());
            is_whole.then(|| (program.to_owned(), format!("{purpose}{rest}")))
        });
        if let Some((program, purpose)) = purpose {
            return format!("{}{purpose}", self.program(&program));
        }
        // Words in the name of a pool that later rules look for.
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        let before = ["GPU_", "gpu_async_", "cuda:", "TPU:"].into_iter().find_map(|before| {
            let number = digits(name.strip_prefix(before)?);
            Some(if number.is_empty() { before.to_owned() } else { format!("{before}{number}_") })
        });
        let after = ["host", "cpu", "bfc"].into_iter().filter(|word| name.contains(word));
        let after: String = after.map(|word| format!("_{word}")).collect();
        format!("{}{}{after}", before.unwrap_or_default(), self.placeholder(Placeholder::Pool, name))
    }

    /// Redacts the framework's name of a device: `GPU:0`, `/job:localhost/replica:0/task:0/device:GPU:0`.
    fn device(&mut self, name: &str) -> String {
        if self.words.is_pool(name) || matches!(name, "tensorflow" | "jax" | "torch" | PINNED) {
            return name.to_owned();
        }
        let part = |part: &str, redaction: &mut Redaction| -> String {
            match part.split_once(':') {
                Some(("job", "localhost" | "worker" | "ps" | "chief" | "evaluator")) => part.to_owned(),
                Some(("job", job)) => format!("job:{}", redaction.placeholder(Placeholder::Job, job)),
                Some(("replica" | "task" | "device" | "physical_device", rest))
                    if redaction.words.is_pool(rest) =>
                {
                    part.to_owned()
                }
                _ if part.is_empty() || redaction.words.is_pool(part) => part.to_owned(),
                _ => redaction.placeholder(Placeholder::Device, part),
            }
        };
        let parts: Vec<String> = name.split('/').map(|one| part(one, self)).collect();
        parts.join("/")
    }

    fn placeholder(&mut self, kind: Placeholder, text: &str) -> String {
        format!("{}-{}", kind.word(), self.number(kind, text))
    }

    /// The number of a text among those of its kind, from 1.
    fn number(&mut self, kind: Placeholder, text: &str) -> u32 {
        if let Some(&known) = self.numbers.get(&(kind, text.into())) {
            return known;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        self.numbers.insert((kind, text.into()), *count);
        *count
    }
}
