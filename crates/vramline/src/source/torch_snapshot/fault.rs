//! Why a pickle cannot be read, and what to do about it.

/// Why a pickle cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the file ends at byte {0}, in the middle of the pickle")]
    Cut(u64),
    #[error("byte {at} is {byte:#04x}, which is not a pickle instruction")]
    UnknownOp { at: u64, byte: u8 },
    #[error("{0}, so Python did not write this pickle")]
    Mismatch(&'static str),
    #[error("its values are nested more than 64 levels deep, and a snapshot is not")]
    TooDeep,
    #[error("its values refer to each other so that they unpack to far more than the size of the file")]
    Bomb,
    #[error("it puts more than 16 million values on its stack, and a snapshot does not")]
    TooTall,
    #[error("it has more than 4 billion values")]
    TooMany,
    #[error("it is a pickle that makes Python call '{0}', and Vramline does not run code from files")]
    Calls(String),
    #[error("it is a PyTorch checkpoint in the old format (before PyTorch 1.6), not a memory snapshot")]
    Checkpoint,
    #[error("it is a pickle of {0}, not of a PyTorch memory snapshot")]
    Foreign(String),
    #[error("its '{0}' does not have the structure of a PyTorch memory snapshot")]
    Shape(&'static str),
}

const DUMP: &str = "make a snapshot: call torch.cuda.memory._record_memory_history(), train, then call \
                    torch.cuda.memory._dump_snapshot('snapshot.pickle')";

impl Fault {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Fault::Cut(_) => "copy the file again, or wait until the program has written it",
            Fault::Calls(_) => {
                "a memory snapshot contains plain data only: do not load this file with Python's pickle unless you know who wrote it"
            }
            Fault::UnknownOp { .. } | Fault::Mismatch(_) => {
                "the file is damaged, or it was not written by Python: make the snapshot again"
            }
            Fault::TooDeep | Fault::TooTall | Fault::Bomb | Fault::TooMany => {
                "the file may be an attack, or is not a snapshot: do not load it with Python's pickle"
            }
            Fault::Checkpoint | Fault::Foreign(_) | Fault::Shape(_) => DUMP,
        }
    }
}
