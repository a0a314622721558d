//! Messages to the file, whole or not at all.

use std::fs::File;
use std::io::{self, Write};

use crate::recording::room::{Refused, Room};

/// The number of messages after which a stream reserves space ahead of time, because more will follow.
const FEW: u32 = 8;

/// The file, and how much of it is whole.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    whole: u64,
    /// Behind what is whole lies something else: room that was not filled, or a message that was written in part and could not
    /// be cut off.
    pub(super) is_longer: bool,
    /// Messages before room is made; `None` where the system gives none.
    until_room: Option<u32>,
    room: Option<Room>,
}

impl Disk {
    /// A file of which so much is whole, and nothing lies behind that.
    pub(super) fn new(file: File, whole: u64) -> Disk {
        Disk { file, whole, is_longer: false, until_room: Some(FEW), room: None }
    }

    /// Puts a message down, whole or not at all.
    #[inline]
    pub(super) fn write(&mut self, message: &[u8]) -> io::Result<()> {
        if self.until_room == Some(0) {
            match self.store(message) {
                Ok(()) => {
                    self.whole += message.len() as u64;
                    return Ok(());
                }
                Err(Refused::Full) => self.until_room = None,
                Err(Refused::Lost) => return Err(io::Error::other("another program truncated the file")),
            }
        }
        self.until_room = self.until_room.map(|messages| messages - 1);
        self.append(message)
    }

    /// Stores a message in the room behind the file, or in new room behind that.
    fn store(&mut self, message: &[u8]) -> Result<(), Refused> {
        if let Some(room) = &mut self.room {
            match room.put(message) {
                Err(Refused::Full) => self.room = None,
                done => return done,
            }
        }
        let room = Room::behind(&self.file, self.whole);
        self.is_longer = self.file.metadata().is_ok_and(|found| found.len() > self.whole);
        self.room.insert(room.map_err(|_| Refused::Full)?).put(message)
    }

    fn append(&mut self, message: &[u8]) -> io::Result<()> {
        self.cut()?;
        let mut rest = message;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return self.undo(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.undo(error),
            }
        }
        self.whole += message.len() as u64;
        Ok(())
    }

    /// Cuts off what lies behind what is whole: what follows it would not be found again.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        self.room = None;
        if self.is_longer {
            self.file.set_len(self.whole)?;
            self.is_longer = false;
        }
        Ok(())
    }

    fn undo(&mut self, error: io::Error) -> io::Result<()> {
        // Where even this fails, the reader leaves the torn tail out.
        self.is_longer = self.file.set_len(self.whole).is_err();
        Err(error)
    }
}
