"""What a trace says, worked out a second time: slowly, in Python, with Google's own protocol buffer classes.

The tests hold the report against this, so it shares nothing with the tool: no code, no shortcuts, no rules about
names. It pairs frees with allocations by address and sums up. It does not judge what a block is for.
"""

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tensorflow.dtypes import as_dtype
from tensorflow.tsl.profiler.protobuf import xplane_pb2

NAMES = {"MemoryAllocation": True, "MemoryDeallocation": False}


@dataclass(frozen=True)
class Event:
    """One memory event, its stats under the names of the wire."""

    is_alloc: bool
    time_ps: int
    line_begin_ns: int
    offset_ps: int
    stats: dict

    @property
    def in_use(self):
        return self.stats["bytes_allocated"]

    @property
    def chunk(self):
        return self.stats["allocation_bytes"]


@dataclass
class Block:
    """What one event allocated. Born and freed are positions in the pool's order; freed is None where it never was."""

    event: Event
    born: int
    freed: int | None = None

    def lives_at(self, position):
        return self.born <= position and (self.freed is None or self.freed > position)

    @property
    def address(self):
        return self.event.stats["addr"]

    @property
    def requested(self):
        return self.event.stats["requested_bytes"]

    @property
    def op(self):
        return self.event.stats.get("tf_op", "")

    @property
    def key(self):
        """Op, shape and element type, in the report's words."""
        number = self.event.stats.get("data_type", 0)
        return self.op, self.event.stats.get("shape", ""), as_dtype(number).name if number else ""


@dataclass
class Pool:
    """A pool's events in the order in which they happened."""

    events: list = field(default_factory=list)

    @property
    def allocs(self):
        return sum(event.is_alloc for event in self.events)

    @property
    def frees(self):
        return len(self.events) - self.allocs

    @property
    def peak(self):
        """The position where the most was in use, for the first time."""
        return max(range(len(self.events)), key=lambda i: (self.events[i].in_use, -i))

    @property
    def limits(self):
        return {e.in_use + e.stats["bytes_reserved"] + e.stats["bytes_available"] for e in self.events}

    def before(self):
        """In use when the trace begins."""
        first = self.events[0]
        return first.in_use - first.chunk if first.is_alloc else first.in_use + first.chunk

    def position_at(self, time_ps):
        """The last event not after a moment."""
        return sum(event.time_ps <= time_ps for event in self.events) - 1

    def blocks(self):
        """Every allocation of the trace, and the frees that have none."""
        live, blocks, unmatched = {}, [], []
        for position, event in enumerate(self.events):
            address = event.stats["addr"]
            if event.is_alloc:
                assert address not in live, "handed out twice"
                live[address] = Block(event, position)
                blocks.append(live[address])
            elif address in live:
                live.pop(address).freed = position
            else:
                unmatched.append((position, event))
        return blocks, unmatched

    def live_at(self, position):
        return [block for block in self.blocks()[0] if block.lives_at(position)]

    def before_at(self, position):
        """Of what was in use when the trace begins, what is still held."""
        return self.before() - sum(event.chunk for at, event in self.blocks()[1] if at <= position)


def read(path):
    """The pools of a trace, by name."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    pools = defaultdict(Pool)
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        stat_names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
        kinds = {number: NAMES.get(metadata.name) for number, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                is_alloc = kinds[event.metadata_id]
                if is_alloc is None:
                    continue
                stats = {}
                for stat in event.stats:
                    which = stat.WhichOneof("value")
                    value = getattr(stat, which)
                    stats[stat_names[stat.metadata_id]] = stat_names[value] if which == "ref_value" else value
                time = line.timestamp_ns * 1000 + event.offset_ps
                pools[stats["allocator_name"]].events.append(
                    Event(is_alloc, time, line.timestamp_ns, event.offset_ps, stats)
                )
    for pool in pools.values():
        pool.events = in_order(pool.events)
    return dict(pools)


def in_order(events):
    """By time; where threads share a moment, in the one order that the allocator's own count allows."""
    ordered = []
    for _, tied in itertools.groupby(sorted(events, key=lambda event: event.time_ps), key=lambda event: event.time_ps):
        tied = list(tied)
        if len(tied) > 1 and ordered:
            tied = next(order for order in itertools.permutations(tied) if follows(ordered[-1].in_use, order))
        ordered.extend(tied)
    return ordered


def follows(in_use, events):
    for event in events:
        in_use += event.chunk if event.is_alloc else -event.chunk
        if in_use != event.in_use:
            return False
    return True


def requested_by_key(blocks):
    """Requested bytes by op, shape and type."""
    total = Counter()
    for block in blocks:
        total[block.key] += block.requested
    return total


def assert_rows_are(rows, live):
    """The report's rows are the live blocks: the same bytes for each op, shape and type that the events tell.

    Where an event tells no op, the report may name the call around it, or break the block down to what a compiled program
    keeps in it; then only the sum can be compared.
    """
    told = requested_by_key(block for block in live if block.op)
    untold = sum(block.requested for block in live if not block.op)
    ours = Counter()
    for row in rows:
        ours[row["op"], row["shape"], row["dtype"]] += row["bytes"]
    assert {key: ours[key] for key in told} == dict(told)
    assert sum(size for key, size in ours.items() if key not in told) == untold
    count = sum(row["count"] for row in rows)
    assert count == len(live) if all(block.op for block in live) else count >= len(live)
