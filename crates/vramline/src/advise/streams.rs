//! Rule `many-streams`: a library made a whole set of streams, and each of them takes memory of the device.

use super::{Device, Finding, held_share};
use crate::ledger::LineKind;
use crate::units::{Bytes, counted};

/// The minimum memory of one library's streams; a few streams take less.
const LEAST: Bytes = Bytes(32 << 20);
/// The minimum share of what the process holds, in percent.
const SHARE: u64 = 5;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let (line, bytes, percent) = held_share(device, |line| line.kind == LineKind::Streams, LEAST, SHARE)?;
    let library = &line.library.name;
    let place = line.place.as_ref().map_or(String::new(), |place| format!(", first at {place}"));
    // Measured on an H200 with PyTorch 2.11: no streams in a job that uses neither, 128 of them in jobs that use either.
    let fix = match library.as_str() {
        "PyTorch" => {
            "nothing if the job needs side streams or CUDA graphs: PyTorch makes all of its streams when the first one is used \
             (torch.cuda.Stream, torch.cuda.graph, the allocator cudaMallocAsync). A job without them does not have this memory"
        }
        _ => {
            "nothing is known to avoid it; leave room for it when you set a limit, which covers only the pool"
        }
    };
    Some(Finding {
        rule: "many-streams",
        bytes,
        text: format!(
            "{library} made {} on {}, which hold {bytes} ({percent} % of the process){place}.",
            counted(line.count, "stream"),
            device.name
        ),
        fix: fix.to_owned(),
        verify: "see the line \"streams\" of the ledger, recorded with --driver-trace on".to_owned(),
    })
}
