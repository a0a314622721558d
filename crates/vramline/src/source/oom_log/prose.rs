//! Whether a line that says that memory ran out tells an event, or is a program's text or somebody's sentence about such events.
//!
//! Only sentences without figures are judged so: nobody makes up the figures of a failure.

use super::said::Line;

/// What stands before the words in a sentence about failures.
const ABOUT: [&[u8]; 15] = [
    b"if you",
    b"to avoid",
    b"how to",
    b"when you",
    b"you may",
    b"you might",
    b"you can",
    b"you get",
    b"you see",
    b"in case of",
    b"for example",
    b"such as",
    b"fixed",
    b"i get",
    b"i got",
];

/// What follows the words in such a sentence.
const ABOUT_BEHIND: [&[u8]; 9] =
    [b" is ", b" means", b" happens", b" errors", b" issue", b" problem", b" exceptions", b" can ", b"?"];

/// What a line of a program has.
const CODE: [&[u8]; 21] = [
    b"except ",
    b" in str(",
    b"raise ",
    b"return ",
    b"case ",
    b"printf(",
    b"print(",
    b"assert ",
    b"logger.",
    b"logging.",
    b"log.error(",
    b"log.warn",
    b"#define",
    b"log(",
    b" << ",
    b"elif ",
    b"throw ",
    b"catch (",
    b"match:",
    b"import ",
    b"def ",
];

/// So much of a line before and behind the words is looked at.
const NEAR: usize = 400;

/// Whether the words that begin at `at` in a line's message and have this length, both without blanks, are about failures in general.
pub(crate) fn is_about(line: &Line<'_>, at: usize, length: usize) -> bool {
    let Some(place) = Place::of(line, at, length) else { return false };
    let begin = place.head.trim_ascii_start();
    let is_comment =
        [&b"#"[..], b"//", b"/*", b"- ", b"* ", b"+ "].iter().any(|mark| begin.starts_with(mark));
    let has = |text: &[u8], words: &[u8]| text.windows(words.len()).any(|window| window == words);
    let is_cell = begin.starts_with(b"|") && line.raw.trim_ascii_end().ends_with(b"|");
    is_comment
        || is_cell
        || place.is_quoted()
        || CODE.iter().any(|code| has(&place.head, code) || has(&place.tail, code))
        || ABOUT.iter().any(|words| has(&place.head, words))
        || ABOUT_BEHIND.iter().any(|words| place.tail.starts_with(words))
}

/// Whether a text with figures is a program's own, such as one of a test: in quotes, in a line of code.
pub(crate) fn is_literal(line: &Line<'_>, at: usize, length: usize) -> bool {
    const SETS: [&[u8]; 2] = [b" = ", b"=("];
    let Some(place) = Place::of(line, at, length) else { return false };
    let has = |words: &&[u8]| place.head.windows(words.len()).any(|window| window == *words);
    let is_in_quotes = place.before_name().last().is_some_and(|sign| b"\"'`".contains(sign));
    is_in_quotes && (CODE.iter().any(has) || place.is_quoted() && SETS.iter().any(has))
}

/// Whether the words stand where somebody reports them: at a line's begin, or behind a sign that ends what went before. The device that
/// they are about may stand between.
pub(crate) fn is_reported(line: &Line<'_>, at: usize, length: usize) -> bool {
    const SUBJECTS: [&[u8]; 15] = [
        b"cuda", b"gpu", b"device", b"hip", b"rocm", b"xpu", b"npu", b"vulkan", b"opencl", b"metal", b"ran",
        b"is", b"runs", b"the", b"error",
    ];
    let Some(place) = Place::of(line, at, length) else { return false };
    let mut head = place.head.trim_ascii_end();
    for _ in 0..4 {
        let Some(last) = head.last() else { return true };
        if !(last.is_ascii_alphanumeric() || *last == b'_') {
            return !matches!(last, b'"' | b'`' | b'*' | b'?');
        }
        let word =
            head.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let (before, word) = head.split_at(head.len() - word);
        if !(SUBJECTS.contains(&word) || word.iter().all(u8::is_ascii_digit)) {
            return false;
        }
        head = before.trim_ascii_end();
    }
    false
}

/// Words in their line, in small letters.
struct Place {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Place {
    fn of(line: &Line<'_>, at: usize, length: usize) -> Option<Place> {
        let from = place_of(line.raw, line.message + at)?;
        let to = place_of(line.raw, (line.message + at + length).checked_sub(1)?)? + 1;
        let head = line.raw.get(from.saturating_sub(NEAR)..from)?;
        let tail = line.raw.get(to..line.raw.len().min(to + NEAR))?;
        // A logger of JSON writes a traceback in one line, with these signs for its ends.
        let head = head
            .windows(2)
            .rposition(|pair| pair == b"\\n")
            .and_then(|at| head.get(at + 2..))
            .unwrap_or(head);
        let tail =
            tail.windows(2).position(|pair| pair == b"\\n").and_then(|at| tail.get(..at + 2)).unwrap_or(tail);
        Some(Place { head: head.to_ascii_lowercase(), tail: tail.to_ascii_lowercase() })
    }

    /// What stands before the words and the name of an error.
    fn before_name(&self) -> &[u8] {
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.: ".contains(byte);
        let name = self.head.iter().rev().take_while(|byte| is_name(byte)).count();
        self.head.get(..self.head.len() - name).unwrap_or_default()
    }

    /// Whether somebody quotes the words, perhaps with the name of an error before them. What a logger of JSON writes is in quotes too,
    /// and so is the text of an error that is printed as a value.
    fn is_quoted(&self) -> bool {
        let Some((quote @ (b'"' | b'`' | b'\''), before)) = self.before_name().split_last() else {
            return false;
        };
        let before = before.trim_ascii_end();
        // An apostrophe quotes behind a sign only.
        let is_behind_sign = before.last().is_none_or(|last| b"([{,:=".contains(last));
        if !self.tail.contains(quote) || *quote == b'\'' && !is_behind_sign {
            return false;
        }
        const KEYS: [&[u8]; 9] =
            [b"msg", b"message", b"error", b"err", b"exception", b"log", b"detail", b"reason", b"stderr"];
        let key: &[u8] = match before.split_last() {
            Some((b':', before)) => match before.trim_ascii_end().split_last() {
                Some((b'"' | b'\'', key)) => key,
                _ => &[],
            },
            Some((b'=', before)) => before.trim_ascii_end(),
            Some((b'(', before)) => return !before.ends_with(b"error"),
            _ => return true,
        };
        !KEYS.iter().any(|known| key.ends_with(known))
    }
}

/// Where the sign stands that has that number without blanks.
fn place_of(raw: &[u8], number: usize) -> Option<usize> {
    let mut signs = raw.iter().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace());
    signs.nth(number).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, words: &str) -> bool {
        let raw = text.as_bytes();
        let squeeze =
            |text: &str| -> Vec<u8> { text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect() };
        let (dense, words) = (squeeze(text), squeeze(words));
        let at = dense.windows(words.len()).position(|window| window == words).unwrap();
        let line = Line { raw, dense: &dense, message: 0, is_ended: true };
        !is_about(&line, at, words.len())
    }

    #[test]
    fn events_and_talk_are_told_apart() {
        const WORDS: &str = "CUDA error: out of memory";
        for text in [
            "RuntimeError: CUDA error: out of memory",
            "  what():  CUDA error: out of memory",
            "> RuntimeError: CUDA error: out of memory",
            "{\"level\":\"error\",\"msg\":\"CUDA error: out of memory\"}",
            "level=ERROR error=\"CUDA error: out of memory\"",
            "failed: RuntimeError('CUDA error: out of memory')",
            "it's gone: CUDA error: out of memory",
            "driver error 'CUDA error: out of memory' (2)",
            "{\"trace\": \"  File a.py, line 3\\n    return f(x)\\nRuntimeError: CUDA error: out of memory\\n\"}",
            "{'status': 'failed', 'error': 'CUDA error: out of memory'}",
        ] {
            assert!(told(text, WORDS), "{text}");
        }
        for text in [
            "if \"CUDA error: out of memory\" in str(e):",
            "# RuntimeError: CUDA error: out of memory sometimes",
            "If you see `RuntimeError: CUDA error: out of memory`, use less.",
            "- CUDA error: out of memory",
            "printf(\"CUDA error: out of memory\\n\");",
            "A CUDA error: out of memory means that it is full.",
            "| CUDA error: out of memory | smaller batches |",
            "Why CUDA error: out of memory?",
        ] {
            assert!(!told(text, WORDS), "{text}");
        }
    }
}
