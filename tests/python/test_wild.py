"""Files of strangers, as people left them: snapshots, traces and profiles in `../shared/wild`, whose README tells their true story.

They are not part of the project: without the folder these tests are skipped, and `strangers.rs` and `test_torch_snapshot.py` show the same in
small files of our own. Sums are worked out here a second time, from the files themselves.
"""

import gzip
import json
import pickle
import subprocess
from collections import Counter

import pytest
from conftest import REPOSITORY

WILD = REPOSITORY.parent / "shared" / "wild"

pytestmark = pytest.mark.skipif(not WILD.is_dir(), reason="the files of strangers are not here")

SNAPSHOTS = WILD / "snap"


class Plain(pickle.Unpickler):
    """Reads plain data only: nothing of a stranger's file is called."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def unpickled(name):
    with open(SNAPSHOTS / f"{name}.pickle", "rb") as file:
        return Plain(file).load()


def blocks(snapshot, device, state="active_allocated"):
    mine = (segment for segment in snapshot["segments"] if segment["device"] == device)
    return [block for segment in mine for block in segment["blocks"] if block["state"] == state]


def total(snapshot, device):
    return sum(segment["total_size"] for segment in snapshot["segments"] if segment["device"] == device)


def sums_of_entries(snapshot, device):
    """The peak and the end of a device's allocated bytes, by its own entries; requests are rounded up to 512 bytes."""
    live, level, highest = {}, 0, 0
    for entry in snapshot["device_traces"][device]:
        rounded = max(512, -(-entry["size"] // 512) * 512)
        if entry["action"] == "alloc":
            live[entry["addr"]] = rounded
            level += rounded
        elif entry["action"] == "free_requested":
            level -= live.pop(entry["addr"], rounded)
        highest = max(highest, level)
    end = sum(block["size"] for block in blocks(snapshot, device))
    return end - level + highest, end


def pool_of(report, name):
    return next(pool for pool in report["pools"] if pool["name"] == name)


def codes(report):
    return [warning["code"] for warning in report["warnings"]]


@pytest.mark.parametrize(
    ("name", "device", "held", "entries"),
    [
        ("yiyi_oom", 0, 11_840_159_744, 1),
        ("yiyi_1.3b_b", 0, 3_872_498_688, 1),
        ("diffusion_tiny", 0, 14_503_424, 1),
        ("layoutediting_a", 1, 10_715_782_144, 1),
        ("select_n_small", 1, 545_266_688, 0),
    ],
)
def test_a_state_without_a_history(name, device, held, entries, vramline):
    snapshot = unpickled(name)
    assert len(snapshot["device_traces"][device]) == entries
    report = vramline(SNAPSHOTS / f"{name}.pickle", "--by", "op")
    (pool,) = report["pools"]
    assert (pool["name"], pool["moment"], pool["peak_bytes"]) == (f"cuda:{device}", "dump", held)
    assert "at the moment of the dump" in report["headline"] and "peak" not in report["headline"]
    assert codes(report) == ["no-history"] and "max_entries" in report["warnings"][0]["hint"]
    # Every block, what was asked for, and what the allocator took beyond that.
    mine = blocks(snapshot, device)
    at = pool["at_peak"]
    assert at["in_use_bytes"] == sum(block["size"] for block in mine) == held
    assert sum(row["count"] for row in at["rows"]) == len(mine)
    asked = sum(block.get("requested_size", block["size"]) for block in mine)
    assert at["named_bytes"] + at["unnamed_bytes"] == asked
    with_frames = (block for block in mine if block.get("frames") or block.get("history"))
    assert at["named_bytes"] == sum(block.get("requested_size", block["size"]) for block in with_frames)
    (moment,) = pool["caching"]["moments"]
    assert (moment["when"], moment["reserved_bytes"]) == ("end", total(snapshot, device))
    free = sum(block["size"] for block in blocks(snapshot, device, "inactive"))
    assert moment["whole_segments_bytes"] + moment["split_remainders_bytes"] == free


def test_the_blocks_of_a_state_add_up_to_the_readmes(vramline):
    """460 blocks in use and three that are free: 463, in 11,840,159,744 bytes and the little that is cached."""
    report = vramline(SNAPSHOTS / "yiyi_oom.pickle")
    assert "in 460 blocks" in report["headline"]
    assert any("was cached in 3 free blocks" in sentence for sentence in report["explanation"]), report["explanation"]
    select = pool_of(vramline(SNAPSHOTS / "select_n_small.pickle"), "cuda:1")
    assert select["caching"]["reserved_peak_bytes"] == 5_559_549_952


@pytest.mark.parametrize("name", ["hitsbe_empty", "sunny_empty"])
def test_an_empty_snapshot_says_so(name, vramline):
    report = vramline(SNAPSHOTS / f"{name}.pickle")
    assert not report["pools"] and report["verdict"]["word"] == "unknown"
    assert report["headline"].startswith("The snapshot is empty")
    assert codes(report) == ["empty-snapshot"] and "_dump_snapshot" in report["warnings"][0]["hint"]


@pytest.mark.parametrize(
    ("name", "device"),
    [("octree_cuda_single", 0), ("silmont_mem", 0), ("hanmin_forward_fp32", 0), ("magma_snapshot", 0)]
    + [("codelocation", device) for device in range(3)],
)
def test_peak_and_end_are_the_sums_of_the_entries(name, device, vramline):
    snapshot = unpickled(name)
    pool = pool_of(vramline(SNAPSHOTS / f"{name}.pickle"), f"cuda:{device}")
    peak, end = sums_of_entries(snapshot, device)
    assert (pool["moment"], pool["peak_bytes"]) == ("peak", peak)
    last = pool["caching"]["moments"][-1]
    assert (last["allocated_bytes"], last["reserved_bytes"]) == (end, total(snapshot, device))


def test_a_real_failure_on_three_gpus_replays_exactly(vramline, binary):
    path = SNAPSHOTS / "codelocation.pickle"
    report = vramline(path)
    assert {pool["name"]: pool["peak_bytes"] for pool in report["pools"]} == {
        "cuda:0": 8_456_489_984,
        "cuda:1": 84_063_358_976,
        "cuda:2": 21_564_660_224,
    }
    assert all(pool["from_start"] and pool["replay"]["exact"] for pool in report["pools"])
    (failure,) = pool_of(report, "cuda:1")["caching"]["failures"]
    assert (failure["asked_bytes"], failure["device_free_bytes"]) == (5_308_694_528, 95_682_560)
    done = subprocess.run([binary, "replay", path, "--json"], capture_output=True, text=True, check=True)
    pools = json.loads(done.stdout)["pools"]
    assert [(pool["allocs"], pool["address_matches"]) for pool in pools] == [(199, 199), (392, 392), (2434, 2434)]


def test_a_pair_for_diff(vramline, binary):
    paths = [SNAPSHOTS / f"hanmin_forward_{kind}.pickle" for kind in ("fp32", "mixed")]
    peaks = [pool_of(vramline(path), "cuda:0")["peak_bytes"] for path in paths]
    assert peaks == [45_148_871_168, 44_634_833_408]
    done = subprocess.run([binary, "diff", *paths, "--json"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document["headline"].startswith("hanmin_forward_mixed.pickle uses 490 MiB (1.1 %) less than hanmin_forward_fp32.pickle at the peak")


def test_frames_of_windows_have_roles(vramline):
    report = vramline(SNAPSHOTS / "magma_snapshot.pickle")
    at = pool_of(report, "cuda:0")["at_peak"]
    assert at["by_role"]["activations"] == 11_894_554_624
    assert at["rows"][0]["op"] == "einops/_backends.py:291 einsum"
    assert not any("\\" in row["op"] for row in at["rows"])


def test_a_step_that_the_trace_cuts(vramline):
    """Eight GPUs, of which three do something in the window, in the middle of a forward pass."""
    report = vramline(WILD / "xplane" / "bert8gpu.xplane.pb")
    peaks = {pool["name"]: pool["peak_bytes"] for pool in report["pools"]}
    assert (peaks["GPU_4_bfc"], peaks["GPU_6_bfc"]) == (6_208_853_760, 6_210_111_488)
    for name in ("GPU_4_bfc", "GPU_6_bfc"):
        pool = pool_of(report, name)
        # The count after the first event, whose chunk is 256 bytes, is 4,013,337,344.
        assert pool["before_recording"]["at_begin_bytes"] + 256 == 4_013_337_344
        at = pool["at_peak"]
        assert at["before_recording_bytes"] == 4_013_337_088
        assert at["by_role"]["parameters"] == 0 and at["by_role"]["activations"] == 2_186_326_026
        largest = at["rows"][0]
        assert (largest["role"], largest["bytes"]) == ("activations", 62_509_056)
        assert "in the middle of its step" in largest["evidence"]
    assert pool_of(report, "GPU_1_bfc")["allocs"] == 19
    assert not report["findings"]
    assert codes(report) == ["cut-step", "began-late"]


def test_an_amd_gpu_is_named(vramline):
    report = vramline(WILD / "xplane" / "mi300_jax08_attention.xplane.pb")
    assert report["source"]["framework"] == "jax"
    pool = pool_of(report, "GPU_0_bfc")
    assert (pool["device"], pool["peak_bytes"], pool["lifetime_peak_bytes"]) == ("GPU:0", 452_985_344, 595_591_680)
    assert pool["hardware"] == {"vendor": "AMD", "architecture": "gfx9.4", "memory_bytes": 206_141_652_992}


def test_four_tpus(vramline):
    report = vramline(WILD / "xplane" / "tpu_inference2.xplane.pb")
    assert {pool["device"]: pool["peak_bytes"] for pool in report["pools"]} == {
        "TPU:0": 16_106_341_504,
        "TPU:1": 10_737_555_584,
        "TPU:2": 10_737_555_584,
        "TPU:3": 10_737_555_584,
    }
    # They did the same, and one needs more; three hold one large block, which is said once.
    rules = Counter(finding["rule"] for finding in report["findings"])
    assert rules == {"imbalance": 1, "one-tensor": 1}


def fields(message):
    """The fields of a protocol buffer, without a schema."""

    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        tag, at = varint(at)
        if tag & 7 == 0:
            value, at = varint(at)
        else:
            assert tag & 7 == 2
            length, at = varint(at)
            value, at = message[at : at + length], at + length
        yield tag >> 3, value


def packed(value):
    return [number for _, number in fields(b"".join(b"\x08" + part for part in varints(value)))]


def varints(data):
    begin = 0
    for at, byte in enumerate(data):
        if byte < 0x80:
            yield data[begin : at + 1]
            begin = at + 1


def sums_by_device(path):
    """Bytes by the label `device` of a profile of JAX's, and of executables; those of unknown size are -1."""
    profile = list(fields(gzip.decompress(path.read_bytes())))
    texts = [value.decode() for field, value in profile if field == 6]
    sums = Counter()
    for _, sample in (pair for pair in profile if pair[0] == 2):
        values, labels = [], {}
        for field, value in fields(sample):
            if field == 2:
                values += [value] if isinstance(value, int) else packed(value)
            elif field == 3:
                label = dict(fields(value))
                labels[texts[label[1]]] = texts[label.get(2, 0)]
        size = values[1]
        if size < 1 << 63:
            sums[labels.get("device", "executables")] += size
    return {name: size for name, size in sums.items() if size}


@pytest.mark.parametrize("name", ["gpueval_vit", "jaxdips_3037", "scaling_mp"])
def test_totals_of_a_profile_are_its_own_sums(name, vramline):
    path = WILD / "prof" / f"{name}.prof"
    report = vramline(path)
    expected = sums_by_device(path)
    assert len(expected) >= 2
    assert {pool["name"]: pool["peak_bytes"] for pool in report["pools"]} == expected
    assert {pool["moment"] for pool in report["pools"]} == {"dump"}
    assert "imbalance" not in {finding["rule"] for finding in report["findings"]}
    if name == "scaling_mp":
        assert {pool["device"] for pool in report["pools"]} == {f"TPU:{number}" for number in range(8)}
        assert codes(report) == ["executables-without-size"]
