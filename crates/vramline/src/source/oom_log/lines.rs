//! Lines as they were before a terminal, a pager or a chat window broke them.
//!
//! Colours are taken out, a carriage return ends a line like a line feed, and a line that was broken is put together
//! again: it begins like one that matters and is not whole, and what follows has no prefix of its own. A logger's
//! prefix tells the thread, so that the dumps of two threads can be told apart.

use super::said::{self, Line, Reading, Said};

/// A line was broken into at most so many pieces.
const MOST_PIECES: usize = 24;

/// A job has at most so many processes in one log.
const MOST_TAGS: usize = 1024;

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
    /// The line so far, cleaned.
    raw: Vec<u8>,
    dense: Vec<u8>,
    message: usize,
    pieces: usize,
    last_piece: usize,
    longest_piece: usize,
    number: u64,
    is_stamped: bool,
    prefix: Vec<u8>,
    speaker: Speaker,
    time: String,
    /// Tags that were seen, with the thread that last spoke behind each.
    tags: Vec<Speaker>,
    clean: Vec<u8>,
    trial: (Vec<u8>, Vec<u8>),
}

impl Lines {
    /// Takes the next line of the file, without its end. `is_ended` is whether it had one.
    pub(crate) fn push(&mut self, bytes: &[u8], number: u64, is_ended: bool, out: &mut Vec<Message>) {
        let mut clean = std::mem::take(&mut self.clean);
        without_colours(bytes, &mut clean);
        let stamp = stamp(&clean);
        if stamp.is_none() && self.is_rest(&clean, is_ended) {
            self.join(&clean, 0);
        } else if let Some(stamp) = &stamp
            && self.pieces > 0
            && clean.get(..stamp.message) == Some(&*self.prefix)
            && self.is_rest(clean.get(stamp.message..).unwrap_or_default(), is_ended)
        {
            // Whoever broke the line gave its prefix to each piece.
            self.join(&clean, stamp.message);
        } else {
            self.finish(true, out);
            self.begin(&clean, stamp, number);
        }
        if !is_ended {
            self.finish(false, out);
        }
        self.clean = clean;
    }

    /// The line that is not finished yet is.
    pub(crate) fn finish(&mut self, is_ended: bool, out: &mut Vec<Message>) {
        if self.pieces == 0 {
            return;
        }
        let line = Line { raw: &self.raw, dense: &self.dense, message: self.message, is_ended };
        let said = match said::read(&line) {
            Reading::Says(said) | Reading::EndsInName(said) => Some(said),
            // Digits at the very end of a file may be cut.
            Reading::EndsInDigits(said) => is_ended.then_some(said),
            Reading::Part => said::salvage(&line),
            Reading::Foreign => None,
        };
        if let Some(said) = said {
            let (speaker, time) = (self.speaker.clone(), self.time.clone());
            out.push(Message { said, speaker, line: self.number, time });
        }
        self.pieces = 0;
        self.raw.clear();
        self.dense.clear();
    }

    fn begin(&mut self, clean: &[u8], stamp: Option<Stamp>, number: u64) {
        self.number = number;
        self.pieces = 1;
        self.last_piece = clean.len();
        self.longest_piece = self.longest_piece.max(clean.len());
        self.is_stamped = stamp.is_some();
        self.prefix.clear();
        let mut from = 0;
        if let Some(stamp) = stamp {
            self.prefix.extend_from_slice(clean.get(..stamp.message).unwrap_or_default());
            from = stamp.message;
            self.time = stamp.time;
            let tag = clean.get(..stamp.begin).filter(|tag| is_tag(tag)).unwrap_or_default();
            self.speaker = Speaker { tag: tag.to_vec(), thread: stamp.thread };
            if !tag.is_empty() {
                if let Some(known) = self.tags.iter_mut().find(|known| known.tag == tag) {
                    known.thread = stamp.thread;
                } else if self.tags.len() < MOST_TAGS {
                    self.tags.push(self.speaker.clone());
                }
            }
        } else if let Some(known) = self.tags.iter().find(|known| clean.starts_with(&known.tag)) {
            self.speaker = known.clone();
            from = known.tag.len();
        }
        self.raw.extend_from_slice(clean);
        squeeze(clean.get(..from).unwrap_or_default(), &mut self.dense);
        self.message = self.dense.len();
        squeeze(clean.get(from..).unwrap_or_default(), &mut self.dense);
    }

    fn join(&mut self, clean: &[u8], from: usize) {
        let rest = self.without_tag(clean.get(from..).unwrap_or_default()).to_vec();
        self.raw.extend_from_slice(&rest);
        squeeze(&rest, &mut self.dense);
        self.pieces += 1;
        self.last_piece = clean.len();
        self.longest_piece = self.longest_piece.max(clean.len());
    }

    fn without_tag<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        if self.speaker.tag.is_empty() { text } else { text.strip_prefix(&*self.speaker.tag).unwrap_or(text) }
    }

    /// Whether a text is the rest of the line that is not finished yet.
    fn is_rest(&mut self, text: &[u8], is_ended: bool) -> bool {
        if self.pieces == 0 || self.pieces >= MOST_PIECES || self.raw.len() > LONGEST_LINE {
            return false;
        }
        let text = self.without_tag(text).to_vec();
        let known = Line { raw: &self.raw, dense: &self.dense, message: self.message, is_ended: true };
        let is_part = match said::read(&known) {
            Reading::Says(_) => return false,
            // Only a line that fills the width goes on in the next.
            Reading::EndsInDigits(_) => {
                let word = text.trim_ascii();
                let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
                return is_number && self.last_piece >= self.longest_piece;
            }
            Reading::EndsInName(_) => {
                let word = text.trim_ascii();
                let is_word = !word.is_empty() && !word.iter().any(u8::is_ascii_whitespace);
                return is_word && self.last_piece >= self.longest_piece.max(60);
            }
            Reading::Part => true,
            Reading::Foreign => false,
        };
        // Where it does not begin like a line that matters, only what has a logger's prefix or fills the width is worth a try.
        let is_worth_it = is_part || self.is_stamped || self.last_piece >= self.longest_piece;
        if !is_worth_it || text.is_empty() {
            return false;
        }
        let (mut raw, mut dense) = std::mem::take(&mut self.trial);
        dense.clear();
        squeeze(&text, &mut dense);
        let alone = said::read(&Line { raw: &text, dense: &dense, message: 0, is_ended });
        let is_rest = matches!(alone, Reading::Foreign) && {
            raw.clear();
            raw.extend_from_slice(&self.raw);
            raw.extend_from_slice(&text);
            let mut both = self.dense.clone();
            both.extend_from_slice(&dense);
            let joined = Line { raw: &raw, dense: &both, message: self.message, is_ended };
            !matches!(said::read(&joined), Reading::Foreign)
        };
        self.trial = (raw, dense);
        is_rest
    }
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
