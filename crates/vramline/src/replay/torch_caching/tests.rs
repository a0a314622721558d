//! Private pools that a trace does not name. Traces are made with the model itself, their pools are forgotten as a snapshot forgets
//! them, and the replay must find them again.

use super::pools::infer;
use super::restore::restores;
use super::run::compare;
use crate::allocator::torch_caching::{
    Lane, Options, PoolId, PoolOptions, Request, State, Ticket, TorchCaching,
};
use crate::allocator::{Placed, Placement, Supplier};
use crate::event::caching::CallKind;
use crate::replay::program::{Act, Answer, DriverCall, Program};
use crate::units::Bytes;

const MIB: u64 = 1 << 20;
const CAPTURE_STREAM: u64 = 7;

/// A driver that writes down its calls.
struct Noted {
    placed: Placed,
    calls: Vec<(CallKind, u64, u64)>,
}

impl Noted {
    fn note(&mut self, kind: CallKind, address: u64, size: Bytes) {
        self.calls.push((kind, address, size.0));
    }
}

impl Supplier for Noted {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        let base = self.placed.take(size)?;
        self.note(CallKind::SegmentAlloc, base, size);
        Some(base)
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        self.placed.give_back(base, size);
        self.note(CallKind::SegmentFree, base, size);
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.placed.reserve(size)
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        self.note(CallKind::SegmentMap, address, size);
        self.placed.map(address, size)
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
        self.placed.unmap(address, size);
        self.note(CallKind::SegmentUnmap, address, size);
    }
}

/// A process that uses PyTorch: its allocator, and the trace of it.
struct Process {
    allocator: TorchCaching,
    driver: Noted,
    /// Pool and stream of each lane, as the trace would number them.
    lanes: Vec<(PoolId, u64, Lane)>,
    program: Program,
    live: Vec<(u32, Ticket)>,
    /// The lane of each call to the driver.
    pools: Vec<PoolId>,
}

impl Process {
    fn new(options: Options) -> Process {
        let driver = Noted { placed: Placed::new(Placement::Alternating), calls: Vec::new() };
        let mut process = Process {
            allocator: TorchCaching::new(options),
            driver,
            lanes: Vec::new(),
            program: Program::default(),
            live: Vec::new(),
            pools: vec![PoolId::DEFAULT],
        };
        process.lane(PoolId::DEFAULT, 0);
        process.lane(PoolId::DEFAULT, CAPTURE_STREAM);
        process
    }

    fn lane(&mut self, pool: PoolId, stream: u64) -> u16 {
        let known = self.lanes.iter().position(|lane| (lane.0, lane.1) == (pool, stream));
        let number = known.unwrap_or_else(|| {
            let lane = self.allocator.lane(pool, stream).unwrap();
            self.lanes.push((pool, stream, lane));
            let number = self.pools.iter().position(|&other| other == pool).unwrap();
            self.program.driver.lanes.push((u32::try_from(number).unwrap(), stream));
            self.lanes.len() - 1
        });
        u16::try_from(number).unwrap()
    }

    fn begin_capture(&mut self) -> u16 {
        let pool = self.allocator.add_pool(PoolOptions::default());
        self.pools.push(pool);
        self.lane(pool, CAPTURE_STREAM)
    }

    /// Writes down the driver's calls before the next act; `lane` is that of what was taken.
    fn take_calls(&mut self, lane: u16) {
        let before = u32::try_from(self.program.acts.len()).unwrap();
        for (kind, address, size) in std::mem::take(&mut self.driver.calls) {
            self.program.driver.calls.push(DriverCall { before, kind, address, size, lane, is_asked: false });
        }
    }

    fn push(&mut self, act: Act, address: u64, chunk: Bytes) {
        self.program.acts.push(act);
        self.program.answers.push(Answer { address, chunk, event: 0 });
    }

    fn alloc(&mut self, bytes: u64, lane: u16) -> usize {
        let request = Request::of(Bytes(bytes), self.lanes[usize::from(lane)].2);
        let made = self.allocator.allocate(request, &mut self.driver).unwrap();
        self.take_calls(lane);
        self.keep(bytes, lane, made.ticket, made.address, made.size)
    }

    fn keep(&mut self, bytes: u64, lane: u16, ticket: Ticket, address: u64, size: Bytes) -> usize {
        let slot = u32::try_from(self.program.slots).unwrap();
        self.program.slots += 1;
        self.program.requests += 1;
        self.push(Act::request(Bytes(bytes), slot).asking(Bytes(bytes), lane), address, size);
        self.live.push((slot, ticket));
        self.live.len() - 1
    }

    fn free(&mut self, number: usize) {
        let (slot, ticket) = self.live.swap_remove(number);
        let address = self.allocator.address_of(ticket).unwrap();
        self.allocator.free(ticket).unwrap();
        self.push(Act::free(slot), address, Bytes::ZERO);
    }

    /// `torch.cuda.empty_cache()`. The next act must not be one that needs room, or the trace would not tell them apart.
    fn empty_cache(&mut self) {
        self.allocator.empty_cache(&mut self.driver);
        self.take_calls(0);
    }

    /// Forgets what a snapshot does not name: the pools of segments that no longer exist.
    fn forget(mut self) -> Program {
        let mut owners: Vec<(usize, u64, u64, Option<usize>)> = Vec::new();
        for (number, call) in self.program.driver.calls.iter().enumerate() {
            match call.kind {
                CallKind::SegmentAlloc => owners.push((number, call.address, call.address + call.size, None)),
                CallKind::SegmentFree => {
                    let owner = owners.iter_mut().rfind(|owner| owner.1 == call.address && owner.3.is_none());
                    owner.unwrap().3 = Some(number);
                }
                _ => {}
            }
        }
        let default_of = |lanes: &[(u32, u64)], lane: u16| {
            let stream = lanes[usize::from(lane)].1;
            u16::try_from(lanes.iter().position(|&lane| lane == (0, stream)).unwrap()).unwrap()
        };
        let lanes = self.program.driver.lanes.clone();
        for (taken, begin, end, returned) in owners {
            let Some(returned) = returned else { continue };
            let until = self.program.driver.calls[returned].before as usize;
            let lane = default_of(&lanes, self.program.driver.calls[taken].lane);
            let from = self.program.driver.calls[taken].before as usize;
            self.program.driver.calls[taken].lane = lane;
            self.program.driver.calls[returned].lane = lane;
            for at in from..until {
                let (act, answer) = (self.program.acts[at], self.program.answers[at]);
                if act.requested().is_some() && (begin..end).contains(&answer.address) {
                    self.program.acts[at] = act.asking(act.asked().unwrap(), lane);
                }
            }
        }
        self.program
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn size(&mut self) -> u64 {
        let scale = [4 << 10, 256 << 10, 3 * MIB, 12 * MIB, 30 * MIB][self.below(5) as usize];
        1 + self.below(scale)
    }
}

/// Graphs that are captured, replayed and dropped beside eager work, as `torch.cuda.graph` does it: the cache is emptied first, the
/// seeds of the generator come from the default pool, and everything else of the capture from the graph's own pool.
fn graphs(seed: u64) -> Process {
    let mut chance = Chance(seed);
    let mut process = Process::new(Options::default());
    let mut used: Vec<(PoolId, Vec<u32>)> = Vec::new();
    for _ in 0..12 {
        for _ in 0..chance.below(12) {
            process.alloc(chance.size(), 0);
            if chance.below(3) > 0 {
                let number = chance.below(process.live.len() as u64) as usize;
                let is_captured = used.iter().any(|(_, slots)| slots.contains(&process.live[number].0));
                if !is_captured {
                    process.free(number);
                }
            }
        }
        process.empty_cache();
        // The seeds.
        process.alloc(8, 1);
        process.alloc(8, 1);
        let lane = process.begin_capture();
        let mut mine = Vec::new();
        for _ in 0..8 + chance.below(40) {
            if chance.below(5) < 3 || mine.is_empty() {
                let number = process.alloc(chance.size(), lane);
                mine.push(process.live[number].0);
            } else {
                let slot = mine.swap_remove(chance.below(mine.len() as u64) as usize);
                let number = process.live.iter().position(|live| live.0 == slot).unwrap();
                process.free(number);
            }
        }
        used.push((*process.pools.last().unwrap(), mine));
        if chance.below(3) > 0 {
            // A graph goes, with its outputs.
            let (pool, slots) = used.swap_remove(chance.below(used.len() as u64) as usize);
            for slot in slots {
                let number = process.live.iter().position(|live| live.0 == slot).unwrap();
                process.free(number);
            }
            process.allocator.release_pool(pool);
        }
    }
    process
}

#[test]
fn forgotten_pools_are_found_again() {
    let (mut inferred, mut plain) = (0, 0);
    for seed in 1..=60_u64 {
        let process = graphs(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let end = process.allocator.clone();
        let mut program = process.forget();
        let (exact, driver, _) = compare(&program, Options::default());
        plain += u64::from(exact.is_whole() && driver.is_whole());
        inferred += infer(&mut program, &Options::default());
        let (exact, driver, allocator) = compare(&program, Options::default());
        assert!(exact.is_whole(), "{seed}: {:?}", exact.first_mismatch);
        assert!(driver.is_whole(), "{seed}: {driver:?}");
        let blocks = |allocator: &TorchCaching| -> Vec<(u64, Bytes, Bytes, State)> {
            let all =
                allocator.segments().flat_map(|segment| allocator.blocks(segment.base).collect::<Vec<_>>());
            all.map(|block| (block.address, block.size, block.requested, block.state)).collect()
        };
        assert_eq!(blocks(&allocator), blocks(&end), "{seed}");
        assert_eq!(allocator.stats().reserved_bytes, end.stats().reserved_bytes, "{seed}");
        assert_eq!(allocator.stats().inactive_split_bytes, end.stats().inactive_split_bytes, "{seed}");
    }
    // The default pool for all of them is wrong.
    assert!(inferred > 60 && plain < 30, "{inferred} inferred, {plain} without");
}

/// What `torch.compile` does before it captures another branch: everything in the pool is freed, and the blocks of the checkpoint are
/// handed out again from the first to the last of each segment, wherever the search would put them.
#[test]
fn a_restored_pool() {
    let mut process = Process::new(Options::default());
    let lane = process.begin_capture();
    for bytes in [300 << 10, 200 << 10, 900 << 10, 900 << 10, 3 * MIB, 12 * MIB] {
        process.alloc(bytes, lane);
    }
    // Free in the checkpoint: the second and the fifth.
    process.free(4);
    process.free(1);
    let checkpoint: Vec<Vec<(u64, Bytes, State)>> = process
        .allocator
        .segments()
        .map(|segment| {
            let blocks = process.allocator.blocks(segment.base);
            blocks.map(|block| (block.address, block.size, block.state)).collect()
        })
        .collect();
    // Another branch leaves other blocks.
    process.alloc(100 << 10, lane);
    process.alloc(5 * MIB, lane);
    while !process.live.is_empty() {
        process.free(0);
    }
    let request = |bytes: Bytes, lane: Lane| Request::of(bytes, lane);
    let allocator_lane = process.lanes[usize::from(lane)].2;
    for blocks in checkpoint.iter().rev() {
        let mut unused = Vec::new();
        for &(address, size, state) in blocks {
            let asked = request(size, allocator_lane);
            let made = process.allocator.allocate_at(asked, address);
            let made =
                made.unwrap_or_else(|| process.allocator.allocate(asked, &mut process.driver).unwrap());
            assert_eq!((made.address, made.size), (address, size));
            let number = process.keep(size.0, lane, made.ticket, made.address, made.size);
            if state == State::Free {
                unused.push(process.live[number].0);
            }
        }
        for slot in unused {
            let number = process.live.iter().position(|live| live.0 == slot).unwrap();
            process.free(number);
        }
    }
    process.alloc(150 << 10, lane);
    let mut program = process.forget();
    program.driver.restores = restores(&program);
    assert_eq!(program.driver.restores.len(), checkpoint.len());
    let (exact, driver, _) = compare(&program, Options::default());
    assert!(exact.is_whole() && driver.is_whole(), "{:?}", exact.first_mismatch);
    assert!(driver.restored > 0);
    // A search alone would put them elsewhere.
    program.driver.restores.clear();
    let (exact, ..) = compare(&program, Options::default());
    assert!(!exact.is_whole());
}
