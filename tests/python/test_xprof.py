"""The report against xprof, Google's own reader of these files, on every recorded trace.

Both are also held against the file itself, read a third time by `xplane_truth`: where xprof is known to be wrong, that
says who is right. The known faults of xprof are asserted as such, so that a new version that mends one shows here.
Nothing is timed.
"""

import gzip
import json
from collections import Counter

import pytest
import xplane_truth
from conftest import REPOSITORY
from xprof.convert import raw_to_tool_data

TRACES = sorted(path.name for path in (REPOSITORY / "fixtures").glob("*.xplane.pb"))

# The pools of each trace. A trace that is added wants a line here: an empty comparison must not pass for a good one.
POOLS = {
    "jax0112_h200_from_start.xplane.pb": {"GPU_0_bfc", "xla_gpu_host_bfc"},
    "jax0112_h200_growth_window.xplane.pb": {"GPU_0_bfc", "xla_gpu_host_bfc"},
    "jax0112_h200_prealloc_window.xplane.pb": {"GPU_0_bfc", "xla_gpu_host_bfc"},
    "tf221_cpu_cnn_from_start.xplane.pb": {"bfc_cpu_allocator_for_gpu"},
    "tf221_cpu_mlp_nobfc_window.xplane.pb": {"mklcpu"},
    "tf221_cpu_mlp_window.xplane.pb": {"bfc_cpu_allocator_for_gpu"},
}

# xprof thins its timeline out to this many events.
TIMELINE = 1000
UNUSED = "unused preallocated device memory"


class Xprof:
    """What xprof says of one pool."""

    def __init__(self, profile):
        summary = profile["profileSummary"]
        peak = summary["peakStats"]
        self.lifetime_peak = int(summary["peakBytesUsageLifetime"])
        self.peak = int(peak["heapAllocatedBytes"]) + int(peak["stackReservedBytes"])
        self.capacity = int(summary["memoryCapacity"])
        self.fragmentation = float(peak["fragmentation"])
        self.peak_offset_ps = int(summary["peakStatsTimePs"])
        self.timeline = len(profile["sampledTimelineSnapshots"])
        # Blocks by op, shape, requested bytes and chunk; and what it makes up to reach the peak.
        self.active = Counter()
        self.special = Counter()
        for allocation in profile["activeAllocations"]:
            count = int(allocation["numOccurrences"])
            if allocation["specialIndex"] != "-1":
                block = profile["specialAllocations"][int(allocation["specialIndex"])]
                self.special[block["tfOpName"]] += int(block["allocationBytes"]) * count
            else:
                snapshot = profile["memoryProfileSnapshots"][int(allocation["snapshotIndex"])]
                block = snapshot["activityMetadata"]
                requested, chunk = int(block["requestedBytes"]), int(block["allocationBytes"])
                self.active[block["tfOpName"], block["tensorShape"], requested, chunk] += count


def countable(blocks):
    """The blocks in the words of `Xprof.active`."""
    return Counter((block.key[0], block.key[1], block.requested, block.event.chunk) for block in blocks)


def chunks(counted):
    return sum(chunk * count for (_, _, _, chunk), count in counted.items())


@pytest.fixture(scope="module")
def readings(fixtures, vramline):
    """A function: a trace's pools by name, each as the report, xprof and the file itself give them."""
    known = {}

    def read(trace):
        if trace not in known:
            path = fixtures / trace
            document, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "memory_profile", {})
            profiles = json.loads(document)["memoryProfilePerAllocator"]
            theirs = {name: Xprof(profile) for name, profile in profiles.items()}
            ours = {pool["name"]: pool for pool in vramline(path)["pools"]}
            known[trace] = ours, theirs, xplane_truth.read(path)
        return known[trace]

    return read


@pytest.fixture(params=TRACES)
def pools(request, readings):
    """Every pool of a trace: ours, xprof's, the file's."""
    ours, theirs, truth = readings(request.param)
    return [(ours[name], theirs[name], truth[name]) for name in sorted(POOLS[request.param])]


def their_peak(theirs, truth):
    """The event that xprof took for the peak. It tells the offset in the line alone."""
    top = max(event.in_use for event in truth.events)
    found = [
        position
        for position, event in enumerate(truth.events)
        if event.in_use == top and event.offset_ps == theirs.peak_offset_ps
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("trace", TRACES)
def test_the_pools_are_the_same(trace, readings):
    ours, theirs, truth = readings(trace)
    assert set(ours) == set(theirs) == set(truth) == POOLS[trace]


def test_the_peak_of_the_window_is_the_same(pools):
    for ours, theirs, truth in pools:
        assert ours["peak_bytes"] == theirs.peak == max(event.in_use for event in truth.events)


def test_the_limit_is_the_same(pools):
    for ours, theirs, truth in pools:
        assert truth.limits == {ours["limit_bytes"]} == {theirs.capacity}


def test_every_event_is_counted(pools):
    for ours, theirs, truth in pools:
        assert (ours["allocs"], ours["frees"]) == (truth.allocs, truth.frees)
        assert theirs.timeline == min(len(truth.events), TIMELINE)


def test_the_peak_is_where_it_was_first_reached(pools):
    for ours, theirs, truth in pools:
        first = truth.events[truth.peak]
        assert ours["peak_at_ns"] == first.time_ps // 1000
        # xprof leaves out when the line began, and takes the last of several equal peaks.
        last = truth.events[their_peak(theirs, truth)]
        assert last.time_ps >= first.time_ps
        is_reached_once = sum(event.in_use == first.in_use for event in truth.events) == 1
        if is_reached_once:
            assert ours["peak_at_ns"] * 1000 - theirs.peak_offset_ps == first.line_begin_ns * 1000


def test_fragmentation_at_the_peak_is_the_same(pools):
    for ours, theirs, truth in pools:
        position = their_peak(theirs, truth)
        told = truth.events[truth.peak].stats["fragmentation"]
        # Ours is the nearest 32-bit number; xprof prints six digits.
        assert ours["fragmentation_at_peak"] == pytest.approx(told, rel=1e-7, abs=0)
        assert theirs.fragmentation == pytest.approx(truth.events[position].stats["fragmentation"], rel=1e-5, abs=0)
        if position == truth.peak:
            assert ours["fragmentation_at_peak"] == pytest.approx(theirs.fragmentation, rel=1e-5, abs=0)


def test_the_rows_are_the_live_blocks_of_the_file(pools):
    for ours, _, truth in pools:
        held = ours["at_peak"]
        live = truth.live_at(truth.peak)
        xplane_truth.assert_rows_are(held["rows"], live)
        assert held["slack_bytes"] == sum(block.event.chunk - block.requested for block in live)
        assert held["before_recording_bytes"] == truth.before_at(truth.peak)
        assert ours["before_recording"]["at_begin_bytes"] == truth.before()


def test_the_rows_hold_all_that_xprof_names(pools, vramline, fixtures, request):
    trace = request.node.callspec.params["pools"]
    for ours, theirs, truth in pools:
        # Where the peak is reached several times, ask for the moment that xprof took.
        moment = truth.events[their_peak(theirs, truth)].time_ps // 1000
        report = vramline(fixtures / trace, "--at", str(moment), "--pool", ours["name"])
        (pool,) = (pool for pool in report["pools"] if pool["name"] == ours["name"])
        rows = Counter()
        for row in pool["at"]["rows"]:
            rows[row["op"], row["shape"]] += row["bytes"]
        listed = Counter()
        for (op, shape, requested, _), count in theirs.active.items():
            listed[op, shape] += requested * count
        # Ours names the calls around some blocks that the events do not name.
        told = {block.op for block in truth.live_at(their_peak(theirs, truth))}
        rows["", ""] = sum(size for (op, _), size in rows.items() if op == "" or op not in told)
        short = {key: (rows[key], size) for key, size in listed.items() if rows[key] < size}
        assert listed and not short


def test_of_the_peaks_own_run_xprof_and_the_file_name_the_same(pools):
    for _, theirs, truth in pools:
        position = their_peak(theirs, truth)
        live = truth.live_at(position)
        run = truth.events[position].stats["id"]
        own = countable(block for block in live if block.event.stats["id"] == run)
        assert own and {key: theirs.active[key] for key in own} == dict(own)
        # It lists nothing that is not there.
        assert theirs.active <= countable(live)


def test_what_xprof_calls_unused_is_in_use(pools):
    for ours, theirs, truth in pools:
        position = their_peak(theirs, truth)
        unnamed = countable(truth.live_at(position)) - theirs.active
        held_before = truth.before_at(position)
        assert set(theirs.special) <= {UNUSED}
        assert theirs.special[UNUSED] == chunks(unnamed) + held_before
        assert chunks(theirs.active) + theirs.special[UNUSED] == ours["peak_bytes"]


def test_xprof_still_calls_most_of_the_mlp_unused(readings):
    """A fault of xprof: it names what the peak's own step allocated, and says of the rest that nobody uses it."""
    ours, theirs, _ = readings("tf221_cpu_mlp_window.xplane.pb")
    pool = ours["bfc_cpu_allocator_for_gpu"]
    assert theirs["bfc_cpu_allocator_for_gpu"].special == {UNUSED: 24_570_880}
    assert pool["peak_bytes"] == 30_214_400
    held = pool["at_peak"]
    assert held["before_recording_bytes"] == 14_801_408
    assert held["named_bytes"] + held["unnamed_bytes"] + held["slack_bytes"] == 15_412_992
    # The largest of what it drops: the training data, made before the first step.
    data = next(row for row in held["rows"] if row["op"] == "tf.constant")
    assert (data["bytes"], data["role"]) == (6_288_000, "inputs")


def test_xprof_still_takes_the_last_event_for_the_lifetime_peak(readings):
    """A fault of xprof: it takes the last event in the order of threads, and so reports less than the window's peak."""
    ours, theirs, truth = readings("tf221_cpu_cnn_from_start.xplane.pb")
    name = "bfc_cpu_allocator_for_gpu"
    assert theirs[name].lifetime_peak == 72_465_408
    assert theirs[name].peak == 72_718_080
    assert ours[name]["lifetime_peak_bytes"] == ours[name]["peak_bytes"] == 72_718_080
    assert max(event.stats["peak_bytes_in_use"] for event in truth[name].events) == 72_718_080


@pytest.mark.parametrize("trace", TRACES)
def test_the_lifetime_peak_is_the_allocators_highest(trace, readings):
    ours, theirs, truth = readings(trace)
    for name in POOLS[trace]:
        highest = max(event.stats["peak_bytes_in_use"] for event in truth[name].events)
        assert ours[name]["lifetime_peak_bytes"] == highest
        assert theirs[name].lifetime_peak <= highest


@pytest.mark.parametrize("trace", TRACES)
def test_a_memory_profile_of_xprofs_is_read(trace, fixtures, vramline, tmp_path):
    """What xprof made of a trace says the same as xprof, and the same peak as the trace."""
    document, _ = raw_to_tool_data.xspace_to_tool_data([str(fixtures / trace)], "memory_profile", {})
    path = tmp_path / "memory_profile.json.gz"
    path.write_bytes(gzip.compress(document if isinstance(document, bytes) else document.encode()))
    report = vramline(path)
    assert report["source"]["format"] == "memory-profile"
    profiles = json.loads(document)["memoryProfilePerAllocator"]
    of_trace = {pool["name"]: pool for pool in vramline(fixtures / trace)["pools"]}
    assert {pool["name"] for pool in report["pools"]} == set(profiles) == POOLS[trace]
    for pool in report["pools"]:
        theirs, ours = Xprof(profiles[pool["name"]]), of_trace[pool["name"]]
        assert (pool["moment"], pool["peak_bytes"], pool["device"]) == ("peak", theirs.peak, ours["device"])
        assert (pool["peak_bytes"], pool["limit_bytes"]) == (ours["peak_bytes"], ours["limit_bytes"])
        blocks = list(theirs.active.elements())
        named = sum(requested for op, _, requested, _ in blocks if op not in ("unknown", ""))
        held = pool["at_peak"]
        assert held["named_bytes"] == named
        assert held["slack_bytes"] == sum(chunk - min(requested, chunk) for _, _, requested, chunk in blocks)
        assert sum(row["count"] for row in held["rows"]) == len(blocks) + (sum(theirs.special.values()) > 0)
