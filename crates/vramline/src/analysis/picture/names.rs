//! The names of a picture, each once: the other parts have their numbers.

use rustc_hash::FxHashMap;

use super::bounds::PictureRoom;

/// The number of the name that stands for those left out.
const LEFT_OUT: usize = 1;

/// A table of names that has only so much room.
#[derive(Debug)]
pub(super) struct PictureNames {
    /// By number; the first is the empty name.
    pub(super) texts: Vec<String>,
    known: FxHashMap<String, usize>,
    left_bytes: usize,
    room: PictureRoom,
}

impl PictureNames {
    pub(super) fn new(room: PictureRoom) -> PictureNames {
        PictureNames {
            texts: vec![String::new(), "(name left out)".to_owned()],
            known: FxHashMap::from_iter([(String::new(), 0)]),
            left_bytes: room.name_bytes,
            room,
        }
    }

    /// The number of a name.
    pub(super) fn number(&mut self, text: &str) -> usize {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        let mut short = text.to_owned();
        self.room.cut_text(&mut short);
        let Some(left) = self.left_bytes.checked_sub(short.len()) else { return LEFT_OUT };
        self.left_bytes = left;
        self.texts.push(short);
        self.known.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}
