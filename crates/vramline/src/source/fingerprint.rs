//! A number that tells contents apart: the same bytes have the same number on every machine and in every version.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// FNV-1a with 128 bits. It finds accidental duplicates; it does not resist somebody who constructs them.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint(OFFSET)
    }
}

impl Fingerprint {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// Adds a text and its end, so that `ab` + `c` is not `a` + `bc`.
    pub fn add_text(&mut self, text: &str) {
        self.add(text.as_bytes());
        self.add(&[0xFF]);
    }

    /// Adds the content of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn add_file(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(length) => self.add(part.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds the place of a path, whether it exists or not.
    pub fn add_place(&mut self, path: &Path) {
        let place = path.canonicalize().or_else(|_| std::path::absolute(path));
        self.add_text(&place.as_deref().unwrap_or(path).to_string_lossy());
    }

    /// The first digits, for names.
    #[must_use]
    pub fn digits(self, count: usize) -> String {
        let mut text = format!("{:032x}", self.0);
        text.truncate(count);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_function() {
        let of = |text: &str| {
            let mut print = Fingerprint::default();
            print.add(text.as_bytes());
            print.digits(32)
        };
        assert_eq!(of(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(of("a"), "d228cb696f1a8caf78912b704e4a8964");
    }

    #[test]
    fn texts_have_ends() {
        let of = |texts: [&str; 2]| {
            let mut print = Fingerprint::default();
            texts.iter().for_each(|text| print.add_text(text));
            print.digits(32)
        };
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }
}
