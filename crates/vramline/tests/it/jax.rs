//! JAX's memory profiles and XLA's compiled programs: real ones and their known truths, and ones that lie.

use std::fs;
use std::path::Path;

use vramline::Reading;
use vramline::analysis::held::GroupBy;
use vramline::analysis::report::ReportOptions;
use vramline::event::Framework;
use vramline::source::read_bytes;
use vramline::units::Bytes;
use vramline::view::report::{HeldView, Report};

use crate::writer::{Message, Plane, Value, memory_stats};
use crate::{checked_report, codes, fixture, pool, report_on};

const PROFILE: &str = "jax0112_h200.memory.prof";
const PROGRAM: &str = "jax0102_cpu_step.hlo.pb";

fn read(name: &str, wanted: &ReportOptions) -> Report {
    checked_report(&vramline::read(&fixture(name)).expect("a file"), wanted)
}

fn held<'a>(report: &'a Report, name: &str) -> &'a HeldView {
    pool(report, name).at_peak.as_ref().unwrap()
}

#[test]
fn a_memory_profile_by_device_and_stack() {
    let report = read(PROFILE, &ReportOptions::default());
    assert_eq!((report.source.format, report.source.framework.map(Framework::word)), ("pprof", Some("jax")));
    assert_eq!(report.pools.len(), 1);
    assert_eq!(report.pools[0].device, "GPU:0");
    // As another decoder adds them up: 44 buffers in 19 samples, and 42 executables without a size.
    let all = held(&report, "cuda:0");
    assert_eq!(all.in_use_bytes, Bytes(251_129_596));
    assert_eq!(all.named_bytes, all.in_use_bytes);
    assert_eq!(all.rows.iter().map(|row| row.count).sum::<u64>(), 44);
    assert_eq!(codes(&report), ["executables-without-size"]);
    assert!(report.warnings[0].text.starts_with("42 executables"));
    // The program's own frames name what they asked for.
    let first = &all.rows[0];
    assert_eq!((first.op.as_str(), first.bytes), ("train/demo.py:27 <module>", Bytes(170_606_716)));
    let by_stack = read(PROFILE, &ReportOptions { by: GroupBy::Stack, ..ReportOptions::default() });
    let deepest = held(&by_stack, "cuda:0").rows.iter().max_by_key(|row| row.stack.len()).unwrap();
    assert!(deepest.stack.len() > 10);
    assert!(deepest.stack.last().unwrap().starts_with("/home/user/train/demo.py:"));
    assert!(deepest.stack[0].contains("/jax/_src/"));
}

#[test]
fn profiles_of_other_programs_are_refused() {
    let profile = |types: &[(u64, u64)], texts: &[&str]| {
        let profile = types.iter().fold(Message::default(), |profile, &(kind, unit)| {
            profile.message(1, &Message::default().varint(1, kind).varint(2, unit))
        });
        texts.iter().fold(profile, |profile, text| profile.bytes(6, text)).0
    };
    let heap = profile(
        &[(1, 2), (3, 4), (5, 2), (6, 4)],
        &["", "alloc_objects", "count", "alloc_space", "bytes", "inuse_objects", "inuse_space"],
    );
    let error = read_bytes(&heap, Path::new("heap.pb")).unwrap_err();
    assert!(error.to_string().contains("Go program"), "{error}");
    assert!(error.hint().contains("save_device_memory_profile"));
    let cpu = profile(&[(1, 2), (3, 4)], &["", "samples", "count", "cpu", "nanoseconds"]);
    let error = read_bytes(&cpu, Path::new("cpu.pb")).unwrap_err();
    assert!(error.to_string().contains("but not of device memory"), "{error}");
}

#[test]
fn a_dumped_program_by_instruction() {
    let report = read(PROGRAM, &ReportOptions::default());
    assert_eq!((report.source.format, report.source.framework.map(Framework::word)), ("hlo", Some("jax")));
    // As `memory_analysis()` said; the table of results is among them.
    let sizes = ["temporaries", "arguments", "results"]
        .map(|purpose| held(&report, &format!("jit_step {purpose}")).in_use_bytes);
    assert_eq!(sizes, [Bytes(32_768), Bytes(429_056), Bytes(396_384)]);
    let temporary = &held(&report, "jit_step temporaries").rows[0];
    assert_eq!((temporary.bytes, temporary.role), (Bytes(32_768), "gradients"));
    assert_eq!(temporary.op, "jit(step)/transpose(jvp(dense_2))/dot_general");
    assert_eq!((temporary.layer.as_str(), temporary.shape.as_str()), ("dense_2", "[64,128]"));
    assert_eq!((temporary.dtype, temporary.source.as_str()), ("float32", "train.py:7"));
    let arguments = &held(&report, "jit_step arguments").rows;
    let weight = arguments.iter().find(|row| row.op == "params[0][0]").unwrap();
    assert_eq!((weight.role, weight.bytes), ("parameters", Bytes(65_536)));
    // Results are the values that stay, not those that lay there before.
    let results = &held(&report, "jit_step results").rows;
    assert!(
        results
            .iter()
            .all(|row| row.op == "jit(step)/sub" || row.op == "jit(step)/add" || row.shape == "tuple")
    );
}

/// The folder that XLA_FLAGS=--xla_dump_to names holds each program in many forms: the compiled ones are read.
#[test]
fn a_folder_of_dumps_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let program = fs::read(fixture(PROGRAM)).unwrap();
    put("module_0001.jit_step.cpu_after_optimizations.hlo.pb", &program);
    put("module_0002.jit_step.cpu_after_optimizations.hlo.pb", &program);
    put("module_0001.jit_step.before_optimizations.hlo.pb", &program);
    put("module_0001.jit_step.ir-with-opt.ll", b"; code");
    let report = checked_report(&vramline::read(folder.path()).unwrap(), &ReportOptions::default());
    assert_eq!(report.source.files.len(), 2);
    let alone = read(PROGRAM, &ReportOptions::default());
    assert_eq!(report.pools.len(), 2 * alone.pools.len());
    assert_eq!(report.pools[0].peak_bytes, alone.pools[0].peak_bytes);
}

#[test]
fn a_program_that_was_not_compiled_is_refused() {
    let module = Message::default()
        .bytes(1, "jit_f")
        .bytes(2, "main")
        .message(3, &Message::default().bytes(1, "main"));
    let proto = Message::default().message(1, &module).0;
    let error = read_bytes(&proto, Path::new("before.hlo.pb")).unwrap_err();
    assert!(error.hint().contains("after_optimizations"), "{error}");
}

/// Parts of a proto, as XLA writes them.
mod proto {
    use super::Message;

    pub(super) fn instruction(id: u64, name: &str, op: &str, lengths: &[u64], frame: u64) -> Message {
        let shape =
            lengths.iter().fold(Message::default().varint(2, 11), |shape, &length| shape.varint(3, length));
        let metadata = Message::default().bytes(2, op).varint(15, frame);
        let told = Message::default().bytes(1, name).bytes(2, "fusion").message(3, &shape);
        told.message(7, &metadata).varint(35, id)
    }

    pub(super) fn value(id: u64, size: u64, instruction: u64) -> Message {
        let location = Message::default().varint(4, instruction);
        Message::default().varint(1, id).varint(2, size).message(3, &location)
    }

    /// `flags` are fields that are set, such as 7 for a result.
    pub(super) fn allocation(index: u64, size: u64, flags: &[u64], placed: &[(u64, u64, u64)]) -> Message {
        let told = Message::default().varint(1, index).varint(2, size);
        let told = flags.iter().fold(told, |told, &flag| told.varint(flag, 1));
        placed.iter().fold(told, |told, &(value, offset, size)| {
            told.message(9, &Message::default().varint(1, value).varint(2, offset).varint(3, size))
        })
    }

    /// Kinds: 0 begins, 1 ends, 2 takes the place of the third.
    pub(super) fn simulation(events: &[(u64, u64, u64)]) -> Message {
        events.iter().fold(Message::default(), |trace, &(kind, value, place)| {
            trace.message(1, &Message::default().varint(1, kind).varint(2, value).varint(5, place))
        })
    }

    pub(super) fn program(name: &str, instructions: &[Message], assignment: &Message) -> Vec<u8> {
        let computation = Message::default().bytes(1, "main").varint(5, 1);
        let computation = instructions.iter().fold(computation, |all, one| all.message(2, one));
        let location = Message::default().varint(1, 1).varint(2, 1).varint(3, 7);
        // The second frame is its own caller.
        let frames = Message::default()
            .bytes(1, "train.py")
            .bytes(2, "loss")
            .message(3, &location)
            .message(4, &Message::default().varint(1, 1).varint(2, 2))
            .message(4, &Message::default().varint(1, 1).varint(2, 2));
        let module = Message::default().bytes(1, name).bytes(2, "main").message(3, &computation);
        let module = module.varint(6, 1).message(17, &frames);
        Message::default().message(1, &module).message(3, assignment).0
    }
}

/// A slab of 1000 bytes. The first value ends before the second takes its place; the third and fourth are there together
/// with it, which is the highest moment; the fifth has a place of its own.
fn simulated() -> Message {
    let values = (1..=5).fold(Message::default(), |all, id| all.message(1, &proto::value(id, 300, 10 + id)));
    let placed = [(1, 0, 300), (2, 0, 300), (3, 300, 300), (4, 640, 200), (5, 900, 50)];
    let events = [(0, 1, 0), (0, 3, 0), (1, 1, 0), (2, 2, 1), (0, 4, 0), (1, 3, 0), (1, 2, 0), (1, 4, 0)];
    values.message(3, &proto::allocation(9, 1000, &[], &placed)).message(4, &proto::simulation(&events))
}

fn instructions() -> Vec<Message> {
    let name = |id: u64| format!("fusion.{id}");
    (1..=5).map(|id| proto::instruction(10 + id, &name(id), "jit(f)/jvp()/mul", &[id, 4], 2)).collect()
}

#[test]
fn a_slab_at_its_highest_moment() {
    let report =
        report_on(&proto::program("jit_f", &instructions(), &simulated()), &ReportOptions::default());
    let slab = held(&report, "jit_f temporaries");
    let rows: Vec<(&str, u64)> = slab.rows.iter().map(|row| (row.shape.as_str(), row.bytes.0)).collect();
    // 1000 - 300 - 300 - 200 - 50 are free.
    assert_eq!(rows, [("[2,4]", 300), ("[3,4]", 300), ("[4,4]", 200), ("", 150), ("[5,4]", 50)]);
    assert_eq!(slab.unnamed_bytes, Bytes(150));
    // The frames go round in circles; the stack ends all the same.
    assert_eq!((slab.rows[0].source.as_str(), slab.rows[0].stack.len()), ("train.py:7", 64));
}

#[test]
fn programs_that_lie_add_up_all_the_same() {
    let huge = u64::MAX >> 1;
    let lies = [
        // Larger than the slab, outside of it, overlapping, twice, of no value, of no instruction.
        simulated()
            .message(3, &proto::allocation(1, 100, &[], &[(1, 50, huge), (2, huge, huge), (77, 0, 10)])),
        simulated().message(3, &proto::allocation(9, 500, &[7], &[(1, 0, 300), (1, 0, 300), (2, 100, 300)])),
        simulated().message(3, &proto::allocation(2, u64::MAX, &[5], &[(3, 0, 4)])),
        // Ends without a beginning, begins twice, shares with itself.
        simulated().message(4, &proto::simulation(&[(1, 1, 0), (0, 2, 0), (0, 2, 0), (2, 3, 3), (9, 4, 0)])),
        simulated().message(1, &proto::value(1, 5, 12)),
    ];
    for lie in lies {
        let report = report_on(&proto::program("jit_f", &instructions(), &lie), &ReportOptions::default());
        assert!(!report.pools.is_empty());
    }
}

/// A trace of one call of `f`, whose program asks for two results and a slab.
fn called(sizes: &[i64], programs: &[Vec<u8>]) -> Report {
    let mut host = Plane::host();
    let mut events = vec![host.event("PjitFunction(f)", 0, 1_000_000, &[])];
    let mut in_use = 0;
    for (number, &size) in sizes.iter().enumerate() {
        let number = i64::try_from(number).unwrap();
        in_use += size;
        let stats = memory_stats("GPU_0_bfc", size, size, 4096 + number * 65_536, in_use);
        events.push(host.event("MemoryAllocation", 1000 + number, 0, &stats));
    }
    host.line("python3", 0, &events);
    let mut metadata = Plane::named("/host:metadata");
    metadata.fact("jax_version", &Value::Text("0.11".to_owned()));
    let stat = metadata.stat_id("Hlo Proto");
    let mut plane = metadata.message();
    for (id, program) in (50..).zip(programs) {
        let proto = Message::default().varint(1, stat).bytes(6, program);
        let value = Message::default().varint(1, id).bytes(2, format!("jit_f({id})")).message(5, &proto);
        plane = plane.message(4, &Message::default().varint(1, id).message(2, &value));
    }
    let bytes = Message::default().message(1, &host.message()).message(1, &plane).0;
    report_on(&bytes, &ReportOptions::default())
}

fn results(first: &str, second: &str) -> Vec<u8> {
    let made = [
        proto::instruction(1, "a", first, &[25], 1),
        proto::instruction(2, "b", second, &[25], 1),
        proto::instruction(3, "x", "x", &[1], 0),
    ];
    let assignment = (1..=3).fold(simulated(), |all, id| all.message(1, &proto::value(id + 20, 100, id)));
    let assignment = assignment
        .message(3, &proto::allocation(1, 100, &[7], &[(21, 0, 100)]))
        .message(3, &proto::allocation(2, 100, &[7], &[(22, 0, 100)]))
        .message(3, &proto::allocation(3, 4, &[5], &[(23, 0, 4)]));
    proto::program("jit_f", &[&made[..], &instructions()[..]].concat(), &assignment)
}

fn ops(report: &Report) -> Vec<(String, u64)> {
    let rows = &held(report, "GPU_0_bfc").rows;
    rows.iter()
        .filter(|row| row.shape == "[25]" || row.op.is_empty() || row.op == "x")
        .map(|row| (row.op.clone(), row.bytes.0))
        .collect()
}

#[test]
fn blocks_of_a_call_are_its_programs_requests() {
    let program = results("jit(f)/add", "jit(f)/sub");
    let op = |name: &str, bytes| (name.to_owned(), bytes);
    // An argument from the host, then all requests in order: equal sizes are told apart by their place.
    let report = called(&[4, 100, 100, 1000], std::slice::from_ref(&program));
    assert_eq!(ops(&report), [op("", 150), op("jit(f)/add", 100), op("jit(f)/sub", 100), op("x", 4)]);
    let argument = held(&report, "GPU_0_bfc").rows.iter().find(|row| row.op == "x").unwrap();
    assert_eq!(argument.role, "inputs");
    // One request is missing: only the size that is asked for once has a name.
    let report = called(&[100, 1000], std::slice::from_ref(&program));
    assert_eq!(ops(&report), [op("", 150), op("", 100)]);
    assert!(held(&report, "GPU_0_bfc").rows[0].evidence.ends_with("requests this size once"));
    // Sizes that no program asks for stay without a name.
    assert_eq!(ops(&called(&[100, 100, 999], std::slice::from_ref(&program))).len(), 2);
    // Two programs of that name that fit and agree; and two that do not.
    let same = called(&[100, 100, 1000], &[program.clone(), program.clone()]);
    assert_eq!(ops(&same), [op("", 150), op("jit(f)/add", 100), op("jit(f)/sub", 100)]);
    let other = results("jit(f)/mul", "jit(f)/sub");
    assert_eq!(
        ops(&called(&[100, 100, 1000], &[program, other])),
        [op("", 150), op("", 100), op("jit(f)/sub", 100)]
    );
}

#[test]
fn every_cut_and_flip_is_survived() {
    let unpacked = {
        let mut bytes = Vec::new();
        let packed = fs::File::open(fixture(PROFILE)).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut bytes).unwrap();
        bytes
    };
    let program = fs::read(fixture(PROGRAM)).unwrap();
    let survive = |bytes: &[u8]| {
        let path = Path::new("damaged");
        if let Ok(content) = read_bytes(bytes, path) {
            checked_report(&Reading::of(path.to_owned(), content), &ReportOptions::default());
        }
    };
    for whole in [unpacked, program] {
        for at in 0..whole.len() {
            survive(&whole[..at]);
            let mut bytes = whole.clone();
            for flip in [0xff, 1 << (at % 8)] {
                bytes[at] = whole[at] ^ flip;
                survive(&bytes);
            }
        }
    }
}
