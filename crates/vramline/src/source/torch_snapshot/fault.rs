//! Why a pickle is not read: one sentence each, and what to do.

/// What is wrong with a pickle.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the file ends at byte {0}, in the middle of the pickle")]
    Cut(u64),
    #[error("byte {at} is {byte:#04x}, which is no instruction of a pickle")]
    UnknownOp { at: u64, byte: u8 },
    #[error("{0}, as no pickle does that Python wrote")]
    Mismatch(&'static str),
    #[error("its values are nested more than 64 deep, as no snapshot's are")]
    TooDeep,
    #[error("its values refer to each other so often that they unfold to far more than the file holds")]
    Bomb,
    #[error("it puts more than 16 million values on its stack, as no snapshot does")]
    TooTall,
    #[error("it holds more than four billion values")]
    TooMany,
    #[error("it is a pickle that asks Python to call '{0}'; Vramline calls nothing")]
    Calls(String),
    #[error("it is a PyTorch checkpoint in the format from before PyTorch 1.6, not a memory snapshot")]
    Checkpoint,
    #[error("it is a pickle of {0}, not of a PyTorch memory snapshot")]
    Foreign(String),
    #[error("its '{0}' is not what a PyTorch memory snapshot has there")]
    Shape(&'static str),
}

const DUMP: &str = "torch.cuda.memory._record_memory_history(); train; \
                    torch.cuda.memory._dump_snapshot('snapshot.pickle')";

impl Fault {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Fault::Cut(_) => "copy the file again, or let the program finish writing it",
            Fault::Calls(_) => {
                "a memory snapshot holds plain data only: do not load this file with Python's pickle either unless you \
                 know who wrote it"
            }
            Fault::UnknownOp { .. } | Fault::Mismatch(_) => {
                "the file was damaged, or something else than Python wrote it: write the snapshot again"
            }
            Fault::TooDeep | Fault::TooTall | Fault::Bomb | Fault::TooMany => {
                "the file was made to do harm, or is something else: do not load it with Python's pickle"
            }
            Fault::Checkpoint | Fault::Foreign(_) | Fault::Shape(_) => DUMP,
        }
    }
}
