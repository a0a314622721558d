//! Lines as they were before a terminal, a pager or a chat window broke them.
//!
//! Colours are taken out, a carriage return ends a line like a line feed, and a line that was broken is put together
//! again: it begins like one that matters and is not whole, and what follows has no prefix of its own. A logger's
//! prefix tells the thread, so that the dumps of two threads can be told apart.

use super::said::{self, Line, Reading, Said};
use super::text::find;

/// A line was broken into at most so many pieces.
const MOST_PIECES: usize = 24;

/// A job has at most so many processes in one log.
const MOST_TAGS: usize = 1024;

/// Of so many of them a line may be unfinished.
const MOST_PENDING: usize = 64;

/// Whoever wrote a line: threads of one process, or processes whose output a launcher marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Speaker {
    /// What the launcher puts before each line, such as `[1,0]<stderr>:`.
    pub(crate) tag: Vec<u8>,
    pub(crate) thread: Option<u64>,
}

/// A message with its speaker, its place and its time.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) said: Said,
    pub(crate) speaker: Speaker,
    pub(crate) line: u64,
    pub(crate) time: String,
}

/// Puts lines together.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The lines that are not finished yet: one for each mark of a launcher, the last that was written to at the end.
    pending: Vec<Pending>,
    /// The longest line so far, and how many are as long: where there are several, a terminal broke them.
    longest: usize,
    as_long: u32,
    /// Marks that were seen, with the thread that last spoke behind each.
    tags: Vec<Speaker>,
    /// Who wrote the last line, and when somebody last said the time.
    last: Speaker,
    time: String,
    clean: Vec<u8>,
    trial: (Vec<u8>, Vec<u8>),
}

/// A line so far, cleaned.
#[derive(Debug, Default)]
struct Pending {
    raw: Vec<u8>,
    dense: Vec<u8>,
    message: usize,
    pieces: usize,
    last_piece: usize,
    number: u64,
    is_stamped: bool,
    prefix: Vec<u8>,
    speaker: Speaker,
    time: String,
}

impl Lines {
    /// Takes the next line of the file, without its end. `is_ended` is whether it had one.
    pub(crate) fn push(&mut self, bytes: &[u8], number: u64, is_ended: bool, out: &mut Vec<Message>) {
        let mut clean = std::mem::take(&mut self.clean);
        without_colours(bytes, &mut clean);
        let stamp = stamp(&clean);
        let mark = stamp.as_ref().map_or_else(|| launcher_mark(&clean), |stamp| stamp.begin);
        self.measure(clean.len());
        match self.place_of_rest(&clean, stamp.as_ref(), mark, is_ended) {
            Some((at, from)) => {
                let mut pending = self.pending.remove(at);
                pending.join(&clean, from);
                self.pending.push(pending);
            }
            None => {
                let speaker = self.speaker_of(&clean, stamp.as_ref(), mark);
                let same = self.pending.iter().position(|pending| pending.speaker.tag == speaker.tag);
                if let Some(at) = same {
                    self.pending.remove(at).finish(true, out);
                } else if self.pending.len() >= MOST_PENDING {
                    self.pending.remove(0).finish(true, out);
                }
                let message = stamp.as_ref().map_or(mark, |stamp| stamp.message);
                self.begin(&clean, stamp, speaker, message, number);
            }
        }
        if !is_ended {
            self.finish(false, out);
        }
        self.clean = clean;
    }

    /// All lines that are not finished yet are.
    pub(crate) fn finish(&mut self, is_ended: bool, out: &mut Vec<Message>) {
        // Only the last can be cut by the end of the file.
        let last = self.pending.len().saturating_sub(1);
        for (at, pending) in self.pending.drain(..).enumerate() {
            pending.finish(is_ended || at < last, out);
        }
    }

    fn measure(&mut self, length: usize) {
        if length > self.longest {
            (self.longest, self.as_long) = (length, 0);
        }
        self.as_long += u32::from(length == self.longest);
    }

    /// Which line goes on with this text, and where in the text its rest begins.
    fn place_of_rest(
        &mut self,
        clean: &[u8],
        stamp: Option<&Stamp>,
        mark: usize,
        is_ended: bool,
    ) -> Option<(usize, usize)> {
        let last = self.pending.len().checked_sub(1)?;
        let tag = clean.get(..mark).filter(|tag| is_tag(tag)).unwrap_or_default();
        let same = self.pending.iter().position(|pending| pending.speaker.tag == tag);
        if let Some(stamp) = stamp {
            // Whoever broke the line gave its prefix to each piece.
            let at = same?;
            let is_prefixed = self.pending.get(at)?.prefix.as_slice() == clean.get(..stamp.message)?;
            let rest = clean.get(stamp.message..)?;
            return (is_prefixed && self.is_rest(at, rest, is_ended)).then_some((at, stamp.message));
        }
        // A logger's prefix of its own, with another time, before each piece of a sentence.
        let at = same.unwrap_or(last);
        if let Some(prefix) = self.pending.get(at)?.shared_prefix(clean).filter(|prefix| *prefix > mark)
            && matches!(self.pending.get(at)?.read(true), Reading::Part)
            && self.is_rest(at, clean.get(prefix..)?, is_ended)
        {
            return Some((at, prefix));
        }
        let (at, from) = same.filter(|_| mark > 0).map_or((last, 0), |at| (at, mark));
        self.is_rest(at, clean.get(from..)?, is_ended).then_some((at, from))
    }

    /// Who wrote a line: a line without a mark or a thread of its own goes on with what the last one was about.
    fn speaker_of(&mut self, clean: &[u8], stamp: Option<&Stamp>, mark: usize) -> Speaker {
        let tag = clean.get(..mark).filter(|tag| is_tag(tag)).unwrap_or_default();
        let known = self.tags.iter().position(|known| known.tag == tag);
        let mut speaker = match known.and_then(|at| self.tags.get(at)) {
            Some(known) => known.clone(),
            None if stamp.is_none() && tag.is_empty() => self.last.clone(),
            None => Speaker { tag: tag.to_vec(), thread: None },
        };
        if let Some(stamp) = stamp {
            speaker.thread = stamp.thread;
            if let Some(known) = known.and_then(|at| self.tags.get_mut(at)) {
                known.thread = stamp.thread;
            } else if !tag.is_empty() && self.tags.len() < MOST_TAGS {
                self.tags.push(speaker.clone());
            }
        }
        self.last.clone_from(&speaker);
        speaker
    }

    fn begin(&mut self, clean: &[u8], stamp: Option<Stamp>, speaker: Speaker, message: usize, number: u64) {
        let mut pending =
            Pending { number, speaker, pieces: 1, last_piece: clean.len(), ..Pending::default() };
        if let Some(stamp) = stamp {
            pending.is_stamped = true;
            pending.prefix.extend_from_slice(clean.get(..message).unwrap_or_default());
            self.time = stamp.time;
        }
        pending.time.clone_from(&self.time);
        pending.raw.extend_from_slice(clean);
        squeeze(clean.get(..message).unwrap_or_default(), &mut pending.dense);
        pending.message = pending.dense.len();
        squeeze(clean.get(message..).unwrap_or_default(), &mut pending.dense);
        self.pending.push(pending);
    }

    /// Whether a text is the rest of a line that is not finished yet.
    fn is_rest(&mut self, at: usize, text: &[u8], is_ended: bool) -> bool {
        let Some(pending) = self.pending.get(at) else { return false };
        if pending.pieces >= MOST_PIECES || pending.raw.len() > LONGEST_LINE {
            return false;
        }
        // Only a line that fills the width of a terminal goes on in the next.
        let fills = pending.last_piece >= self.longest;
        let is_part = match pending.read(true) {
            Reading::Says(_) => return false,
            Reading::EndsInDigits(_) => {
                let word = text.trim_ascii();
                let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
                return is_number && fills;
            }
            Reading::EndsInName(said) => {
                let word = text.trim_ascii();
                let is_word = !word.is_empty() && !word.iter().any(u8::is_ascii_whitespace);
                // A word that follows by chance is no part of a name: lines of one length show that a terminal broke them.
                let is_broken = fills && pending.last_piece >= 60 && self.as_long > 1;
                return is_word && is_broken && !said.has_whole_name();
            }
            Reading::Part => true,
            Reading::Foreign => false,
        };
        // Where it does not begin like a line that matters, only what has a logger's prefix or fills the width is worth a try.
        let is_worth_it = is_part || pending.is_stamped || fills;
        if !is_worth_it || text.is_empty() {
            return false;
        }
        let (mut raw, mut dense) = std::mem::take(&mut self.trial);
        dense.clear();
        squeeze(text, &mut dense);
        let alone = said::read(&Line { raw: text, dense: &dense, message: 0, is_ended });
        let is_rest = matches!(alone, Reading::Foreign) && {
            raw.clear();
            raw.extend_from_slice(&pending.raw);
            raw.extend_from_slice(text);
            let mut both = pending.dense.clone();
            both.extend_from_slice(&dense);
            let joined = Line { raw: &raw, dense: &both, message: pending.message, is_ended };
            !matches!(said::read(&joined), Reading::Foreign)
        };
        self.trial = (raw, dense);
        is_rest
    }
}

impl Pending {
    fn read(&self, is_ended: bool) -> Reading {
        said::read(&Line { raw: &self.raw, dense: &self.dense, message: self.message, is_ended })
    }

    fn join(&mut self, clean: &[u8], from: usize) {
        let rest = clean.get(from..).unwrap_or_default();
        self.raw.extend_from_slice(rest);
        squeeze(rest, &mut self.dense);
        self.pieces += 1;
        self.last_piece = clean.len();
    }

    fn finish(self, is_ended: bool, out: &mut Vec<Message>) {
        let mut parts = parts(&self.dense).into_iter().peekable();
        let mut message = self.message;
        while let Some(dense) = parts.next() {
            let is_ended = is_ended || parts.peek().is_some();
            let line = Line { raw: &self.raw, dense, message, is_ended };
            let said = match said::read(&line) {
                Reading::Says(said) | Reading::EndsInName(said) => Some(said),
                // Digits at the very end of a file may be cut.
                Reading::EndsInDigits(said) => is_ended.then_some(said),
                Reading::Part => said::salvage(&line),
                Reading::Foreign => None,
            };
            let told = |said| Message {
                said,
                speaker: self.speaker.clone(),
                line: self.number,
                time: self.time.clone(),
            };
            out.extend(said.map(told));
            message = 0;
        }
    }

    /// How much of a logger's prefix a line shares with this one: the same but for its digits, up to a sign that ends a prefix.
    fn shared_prefix(&self, line: &[u8]) -> Option<usize> {
        let same = |(a, b): &(&u8, &u8)| a == b || (a.is_ascii_digit() && b.is_ascii_digit());
        let length = self.raw.iter().zip(line).take(FARTHEST).take_while(same).count();
        let shared = line.get(..length)?;
        let end = shared.windows(2).rposition(|pair| matches!(pair, [b']' | b':' | b'|' | b'-', b' ']))? + 2;
        let has_time = shared.get(..end)?.iter().any(u8::is_ascii_digit);
        has_time.then_some(end)
    }
}

/// A table or a document may hold several of PyTorch's sentences in one line: each is a part.
fn parts(dense: &[u8]) -> Vec<&[u8]> {
    const WORDS: &[u8] = b"outofmemory.Triedtoallocate";
    let mut parts = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(at) = dense.get(from..).and_then(|rest| find(rest, WORDS)).map(|at| from + at) {
        if from > 0 && parts.len() < MOST_PIECES {
            // The name of the platform belongs to it.
            let head = dense.get(begin..at).unwrap_or_default();
            let name = head.iter().rev().take(12).take_while(|byte| byte.is_ascii_alphanumeric()).count();
            parts.extend(dense.get(begin..at - name));
            begin = at - name;
        }
        from = at + WORDS.len();
    }
    parts.extend(dense.get(begin..));
    parts
}

/// A line that is longer than this is not a framework's.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

fn squeeze(text: &[u8], dense: &mut Vec<u8>) {
    dense.extend(text.iter().filter(|byte| !byte.is_ascii_whitespace()));
}

/// Takes out what steers a terminal.
fn without_colours(bytes: &[u8], clean: &mut Vec<u8>) {
    clean.clear();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == 0x1b) {
        let (before, sequence) = rest.split_at(at);
        clean.extend_from_slice(before);
        rest = match sequence {
            [_, b'[', parameters @ ..] => {
                let length = parameters.iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
                parameters.get(length + 1..).unwrap_or_default()
            }
            _ => sequence.get(1..).unwrap_or_default(),
        };
    }
    clean.extend_from_slice(rest);
}

/// What a logger puts before a message.
#[derive(Debug)]
struct Stamp {
    begin: usize,
    message: usize,
    thread: Option<u64>,
    time: String,
}

/// How far into a line a logger's prefix may begin: a launcher's mark or a progress bar may stand before it.
const FARTHEST: usize = 160;

/// Finds `2020-01-02 03:04:05.678901: I some/file.cc:12] ` or `I0102 03:04:05.678901    1234 file.cc:12] `.
fn stamp(line: &[u8]) -> Option<Stamp> {
    (0..line.len().min(FARTHEST)).find_map(|begin| {
        let rest = line.get(begin..)?;
        let first = *rest.first()?;
        // Both shapes are looked for where they can begin only: this is done for every line.
        if first.is_ascii_digit() && rest.get(4) == Some(&b'-') {
            let rest = shape(rest, b"9999-99-99 99:99:99.999999: ")?;
            shape(rest, b"A ")?;
            let time = text(line.get(begin..begin + 26)?);
            return Some(Stamp { begin, message: message_at(line, begin + 28), thread: None, time });
        }
        if matches!(first, b'I' | b'W' | b'E' | b'F') && rest.get(5) == Some(&b' ') {
            let rest = shape(rest.get(1..)?, b"9999 99:99:")?;
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let rest = shape(rest.get(digits..)?, b".999999 ")?;
            let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
            let thread = super::sizes::number(rest.get(blanks..)?).map(|(thread, _)| thread);
            let used = line.len() - rest.len();
            let time = text(line.get(begin + 1..used)?.trim_ascii_end());
            return Some(Stamp { begin, message: message_at(line, used), thread, time });
        }
        None
    })
}

/// What follows a text of that shape: 9 is any digit, A any letter.
fn shape<'a>(text: &'a [u8], shape: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(shape.len())?;
    let fits = head.iter().zip(shape).all(|(byte, wanted)| match wanted {
        b'9' => byte.is_ascii_digit(),
        b'A' => byte.is_ascii_uppercase(),
        _ => byte == wanted,
    });
    fits.then_some(rest)
}

/// Behind `file.cc:12] `; where that is broken off, where it would be.
fn message_at(line: &[u8], from: usize) -> usize {
    let rest = line.get(from..).unwrap_or_default();
    match rest.iter().take(256).position(|&byte| byte == b']') {
        Some(at) => from + at + 1,
        None => from.min(line.len()),
    }
}

/// Where what a launcher puts before a line ends: `[rank0]: `, `[1,0]<stderr>:`, `(RayTrainWorker pid=12) `, `trainer-1  | `, `3: `.
fn launcher_mark(line: &[u8]) -> usize {
    let mut end = 0;
    // There may be two: a launcher's and a framework's.
    for _ in 0..2 {
        let rest = line.get(end..).unwrap_or_default();
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        let body = rest.get(blanks..).unwrap_or_default();
        let Some(length) = bracketed(body).or_else(|| of_worker(body)).or_else(|| of_service(body)) else {
            break;
        };
        end += blanks + length;
    }
    let blanks = line.get(end..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count();
    if end > 0 { end + blanks } else { 0 }
}

/// `[rank0]:`, `[default0]:`, `[1,0]<stderr>:`, `3:`.
fn bracketed(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if (1..=4).contains(&digits) {
        let is_mark = text.get(digits) == Some(&b':') && text.get(digits + 1) == Some(&b' ');
        return is_mark.then_some(digits + 1);
    }
    let inner = text.strip_prefix(b"[")?;
    let close = inner.iter().take(40).position(|&byte| byte == b']')?;
    let name = inner.get(..close)?;
    let is_rank = name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b',' | b'_' | b'-'))
        && name.last().is_some_and(u8::is_ascii_digit);
    let mut end = close + 2;
    for stream in [&b"<stderr>"[..], b"<stdout>"] {
        end += if text.get(end..)?.starts_with(stream) { stream.len() } else { 0 };
    }
    (is_rank && text.get(end) == Some(&b':')).then_some(end + 1)
}

/// `(RayTrainWorker pid=12, ip=10.0.0.1)`.
fn of_worker(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"(")?;
    let close = inner.iter().take(80).position(|&byte| byte == b')')?;
    inner.get(..close)?.windows(4).any(|word| word == b"pid=").then_some(close + 2)
}

/// `trainer-1  |`.
fn of_service(text: &[u8]) -> Option<usize> {
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let name = text.iter().take(40).take_while(is_name).count();
    let blanks = text.get(name..)?.iter().take_while(|byte| **byte == b' ').count();
    let is_mark = name > 0 && blanks > 0 && text.get(name + blanks..)?.starts_with(b"| ");
    is_mark.then_some(name + blanks + 1)
}

/// Whether what stands before a logger's prefix marks a process, rather than being half of a progress bar.
fn is_tag(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii_end();
    !trimmed.is_empty()
        && trimmed.len() <= 48
        && matches!(trimmed.last(), Some(b':' | b']' | b')' | b'|' | b'>'))
        && !trimmed.iter().any(|byte| matches!(byte, b'%' | b'/' | 0x80..))
        && !trimmed.windows(2).any(|pair| pair == b"==" || pair == b"..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_loggers_are_known() {
        let classic =
            b"2020-05-01 12:00:00.123456: I tensorflow/core/common_runtime/bfc_allocator.cc:1024] Next";
        let found = stamp(classic).unwrap();
        assert_eq!(&classic[found.message..], b" Next");
        assert_eq!((found.begin, found.thread), (0, None));
        let tagged = b"[1,0]<stderr>:I0000 00:00:1794708904.662951    4411 bfc_allocator.cc:1105] InUse";
        let found = stamp(tagged).unwrap();
        assert_eq!(&tagged[found.message..], b" InUse");
        assert_eq!((found.begin, found.thread), (14, Some(4411)));
        assert_eq!(found.time, "0000 00:00:1794708904.662951");
        assert!(is_tag(&tagged[..14]));
        assert!(!is_tag(b" 12/100 [==>...] "));
        assert!(stamp(b"epoch 3 of 10").is_none());
    }

    #[test]
    fn colours_are_taken_out() {
        let mut clean = Vec::new();
        without_colours(b"\x1b[1;31mran out\x1b[0m of \x1b[Kmemory\x1b", &mut clean);
        assert_eq!(clean, b"ran out of memory");
    }
}
