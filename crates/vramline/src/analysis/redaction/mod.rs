//! Private texts replaced by placeholders, so that a report can be shared.
//!
//! What was read is rewritten once it has been understood, and before anything is said of it: every sentence, document, page and
//! export is then made from clean facts, and figures are what they were. Names keep their structure (`names`), because conclusions
//! read them again. What was put into words while reading is replaced as a whole, unless it holds numbers only (`messages`).
//!
//! Public is what frameworks, compilers and Vramline itself name (`words`); everything else is private. One text has one placeholder
//! for as long as the [`Redaction`] lives, so that runs that are compared still meet.

mod facts;
#[cfg(feature = "recording")]
mod live;
mod machine;
mod messages;
mod names;
mod places;
mod words;

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use names::Rewritten;
use words::Words;

/// Stands for what is left out without a number.
pub const HIDDEN: &str = "(hidden)";

/// Replaces what is private by numbered placeholders. The same text gets the same one in everything that it is shown.
#[derive(Debug, Default)]
pub struct Redaction {
    words: Words,
    rewritten: Rewritten,
    numbers: FxHashMap<(Placeholder, Box<str>), u32>,
    counts: FxHashMap<Placeholder, u32>,
    /// Pools by their own names, with those that are shown.
    pools: Vec<(String, String)>,
}

/// What a placeholder stands for.
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

/// What the names of files end with that tell what they are.
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
    /// A file or folder: `file-1`, with the ending that tells what it is.
    pub fn path(&mut self, path: &Path) -> PathBuf {
        PathBuf::from(self.file(&path.to_string_lossy()))
    }

    /// The same of a path that is text.
    pub fn file(&mut self, path: &str) -> String {
        if path.is_empty() {
            return String::new();
        }
        // A shell completes the name of a folder with a slash.
        let path = path.trim_end_matches('/');
        let ending = ENDINGS.into_iter().find(|ending| path.ends_with(ending)).unwrap_or_default();
        format!("{}{ending}", self.placeholder(Placeholder::Path, path))
    }

    /// A machine.
    pub fn host(&mut self, host: &str) -> String {
        match host {
            "" | "localhost" => host.to_owned(),
            host => self.placeholder(Placeholder::Host, host),
        }
    }

    /// A command with its arguments, as many as there were.
    pub fn command(&mut self, command: &[String]) -> Vec<String> {
        command.iter().map(|word| self.placeholder(Placeholder::Word, word)).collect()
    }

    /// The command line of a process.
    pub fn command_line(&mut self, command: &str) -> String {
        if command.is_empty() { String::new() } else { self.placeholder(Placeholder::Command, command) }
    }

    /// What a program or a user called a moment, a step or a run.
    pub fn label(&mut self, label: &str) -> String {
        if label.is_empty() || words::is_own_sentence(label) {
            return label.to_owned();
        }
        self.placeholder(Placeholder::Label, label)
    }

    /// The op that a user names for a request that a trace does not have.
    pub fn op(&mut self, op: &str) -> String {
        self.name(op, Placeholder::Op)
    }

    /// What a plan varies, as the user calls it: `batch` stays, because plans know it.
    pub fn varied(&mut self, variable: &str) -> String {
        match variable {
            "batch" | "length" | "sequence" | "steps" | "size" | "width" | "height" | "depth" => {
                variable.to_owned()
            }
            variable => self.placeholder(Placeholder::Variable, variable),
        }
    }

    /// A pool, a device or a compiled program, as the framework names it.
    pub fn pool(&mut self, name: &str) -> String {
        let shown = self.pool_text(name);
        if !self.pools.iter().any(|(known, _)| known == name) {
            self.pools.push((name.to_owned(), shown.clone()));
        }
        shown
    }

    /// What picks the pools in what was redacted that `part` picked before: those whose names contain it. To be asked after the reading.
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
        // From the shortest beginning of the first that picks the same ones; names have no more than a few words.
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
        // What later rules look for in a pool's name.
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        let before = ["GPU_", "gpu_async_", "cuda:", "TPU:"].into_iter().find_map(|before| {
            let number = digits(name.strip_prefix(before)?);
            Some(if number.is_empty() { before.to_owned() } else { format!("{before}{number}_") })
        });
        let after = ["host", "cpu", "bfc"].into_iter().filter(|word| name.contains(word));
        let after: String = after.map(|word| format!("_{word}")).collect();
        format!("{}{}{after}", before.unwrap_or_default(), self.placeholder(Placeholder::Pool, name))
    }

    /// A device as a framework names it: `GPU:0`, `/job:localhost/replica:0/task:0/device:GPU:0`.
    fn device(&mut self, name: &str) -> String {
        if self.words.is_pool(name) || matches!(name, "tensorflow" | "jax" | "torch") {
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
