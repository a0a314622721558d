"""PyTorch's memory snapshots: our reading against CPython's unpickler, field by field. No PyTorch is needed.

Snapshots of the documented schema are made here, at every protocol and in many layouts; the real ones are in fixtures/torch.
"""

import gzip
import io
import json
import os
import pickle
import pickletools
import random
import subprocess

import pytest

MIB = 1 << 20


@pytest.fixture(scope="session")
def unpickle(binary):
    """A function: what the tool reads of a snapshot, as Python's values."""

    def read(path):
        done = subprocess.run([binary, "unpickle", path], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    return read


def plain(snapshot):
    """A snapshot as JSON has it. PyTorch writes an unknown line of a frame as -1 without a sign; the tool says 0."""

    def known(values):
        return values | {"line": 0} if isinstance(values.get("line"), int) and values["line"] >> 32 else values

    return json.loads(json.dumps(snapshot), object_hook=known)


FRAMES = [
    {"name": f"forward_{number}", "filename": f"/home/user/model_{number % 5}.py", "line": number * 7}
    for number in range(60)
]


class Device:
    """A small allocator whose every step lands in a trace: enough to be consistent, no more."""

    def __init__(self, chance, number, is_shared=True, streams=(0,)):
        self.chance, self.number, self.is_shared, self.streams = chance, number, is_shared, streams
        self.trace, self.segments, self.live = [], [], {}
        self.clock = 1_700_000_000_000_000
        self.allocated = self.peak = 0

    def frames(self):
        chosen = [self.chance.choice(FRAMES) for _ in range(self.chance.randrange(12))]
        return chosen if self.is_shared else [dict(frame) for frame in chosen]

    def entry(self, action, address, size, stream, **more):
        self.clock += self.chance.randrange(3)
        self.trace.append(
            {"action": action, "addr": address, "size": size, "stream": stream, "time_us": self.clock, **more}
            | {"compile_context": "N/A", "user_metadata": "", "frames": self.frames()}
        )

    def grow(self):
        stream = self.chance.choice(self.streams)
        address = (0x7F00 + len(self.segments)) << 32 | self.number << 28
        self.segments.append([address, 0, stream])
        self.entry("segment_alloc", address, 20 * MIB, stream)

    def step(self):
        if not self.segments or self.chance.random() < 0.05:
            self.grow()
        if self.live and self.chance.random() < 0.45:
            address = self.chance.choice(sorted(self.live))
            size, taken, stream, _ = self.live.pop(address)
            self.entry("free_requested", address, size, stream)
            self.entry("free_completed", address, size, stream)
            self.allocated -= taken
            return
        segment = self.segments[-1]
        asked = self.chance.randrange(1, 600_000)
        taken = max(512, -(-asked // 512) * 512)
        if segment[1] + taken + 2 * MIB > 20 * MIB:
            self.grow()
            segment = self.segments[-1]
        address = segment[0] + segment[1]
        segment[1] += taken
        # A small block in a large segment keeps what is behind it only up to 1 MiB; nothing else is that near.
        self.entry("alloc", address, asked, segment[2])
        self.live[address] = (asked, taken, segment[2], self.trace[-1]["frames"])
        self.allocated += taken
        self.peak = max(self.peak, self.allocated)

    def final(self):
        for begin, _, stream in self.segments:
            blocks, at = [], begin
            for address in sorted(address for address in self.live if begin <= address < begin + 20 * MIB):
                asked, taken, _, frames = self.live[address]
                if address > at:
                    blocks.append(self.block(at, address - at, 0, "inactive", []))
                blocks.append(self.block(address, taken, asked, "active_allocated", frames))
                at = address + taken
            blocks.append(self.block(at, begin + 20 * MIB - at, 0, "inactive", []))
            live = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
            yield {
                "device": self.number,
                "address": begin,
                "total_size": 20 * MIB,
                "allocated_size": live,
                "active_size": live,
                "requested_size": sum(block["requested_size"] for block in blocks),
                "stream": stream,
                # Blocks of small requests: a "small" segment, whatever its size.
                "segment_type": "small",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": blocks,
            }

    @staticmethod
    def block(address, size, requested, state, frames):
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def made(seed=1, devices=1, steps=300, **options):
    """A snapshot and the true peak of each device."""
    chance = random.Random(seed)
    made = [Device(chance, number, **options) for number in range(devices)]
    for device in made:
        for _ in range(steps):
            device.step()
    return {
        "segments": [segment for device in made for segment in device.final()],
        "device_traces": [device.trace for device in made],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.25,
            "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
        },
        "external_annotations": [
            {"stage": stage, "name": "Optimizer.step#Adam.step", "device": 0, "time_us": 1_700_000_000_000_100 + at}
            for at, stage in enumerate(["START", "END"] * 3)
        ],
    }, {f"cuda:{device.number}": device.peak for device in made}


def write(path, snapshot, protocol=4, python_pickler=False):
    with open(path, "wb") as file:
        (pickle._Pickler if python_pickler else pickle.Pickler)(file, protocol).dump(snapshot)
    return path


def assert_read(path, snapshot, peaks, unpickle, vramline):
    assert unpickle(path) == plain(snapshot)
    report = vramline(path)
    assert {pool["name"]: pool["peak_bytes"] for pool in report["pools"]} == peaks
    assert not report["warnings"], report["warnings"]
    return report


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("is_shared", [True, False])
def test_every_protocol(protocol, is_shared, tmp_path, unpickle, vramline):
    snapshot, peaks = made(seed=protocol, is_shared=is_shared)
    path = write(tmp_path / "snapshot.pickle", snapshot, protocol)
    report = assert_read(path, snapshot, peaks, unpickle, vramline)
    assert report["source"]["format"] == "torch-snapshot" and len(report["steps"]) == 3


@pytest.mark.parametrize("protocol", range(6))
def test_other_writers_of_pickles(protocol, tmp_path, unpickle, vramline):
    """Python's slow pickler frames differently; an optimised pickle stores only what is used again."""
    snapshot, peaks = made(seed=10 + protocol)
    assert_read(write(tmp_path / "slow.pickle", snapshot, protocol, True), snapshot, peaks, unpickle, vramline)
    path = tmp_path / "optimised.pickle"
    path.write_bytes(pickletools.optimize(pickle.dumps(snapshot, protocol)))
    assert_read(path, snapshot, peaks, unpickle, vramline)


def test_a_pickler_without_a_memo(tmp_path, unpickle, vramline):
    """Everything is written out wherever it is: equal frames are one all the same."""
    snapshot, peaks = made(seed=3, steps=100)
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 4)
    pickler.fast = True
    pickler.dump(snapshot)
    path = tmp_path / "fast.pickle"
    path.write_bytes(file.getvalue())
    assert_read(path, snapshot, peaks, unpickle, vramline)


def test_gzip(tmp_path, unpickle, vramline):
    snapshot, peaks = made(seed=20)
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(snapshot)))
    assert_read(path, snapshot, peaks, unpickle, vramline)


def test_many_devices_and_streams(tmp_path, unpickle, vramline):
    snapshot, peaks = made(seed=21, devices=9, steps=60, streams=(0, 94_000_000_000_000))
    path = write(tmp_path / "snapshot.pickle", snapshot)
    report = assert_read(path, snapshot, peaks, unpickle, vramline)
    assert {pool["device"] for pool in report["pools"]} == {f"GPU:{number}" for number in range(9)}


def test_a_long_trace(tmp_path, unpickle, vramline):
    """Longer than a batch of the pickler's, than a window of the reader's and than a piece of its columns."""
    snapshot, peaks = made(seed=22, steps=50_000)
    path = write(tmp_path / "snapshot.pickle", snapshot)
    assert len(snapshot["device_traces"][0]) > 1 << 16
    assert_read(path, snapshot, peaks, unpickle, vramline)


def test_a_stack_longer_than_a_batch(tmp_path, unpickle, vramline):
    snapshot, peaks = made(seed=23, steps=20)
    snapshot["device_traces"][0][3]["frames"] = [FRAMES[number % 60] for number in range(2500)]
    assert_read(write(tmp_path / "snapshot.pickle", snapshot), snapshot, peaks, unpickle, vramline)


def test_other_orders_of_keys(tmp_path, unpickle, vramline):
    snapshot, peaks = made(seed=24)
    chance = random.Random(24)

    def shuffled(value):
        if isinstance(value, dict):
            pairs = [(key, shuffled(item)) for key, item in value.items()]
            chance.shuffle(pairs)
            return dict(pairs)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    assert_read(write(tmp_path / "snapshot.pickle", shuffled(snapshot)), snapshot, peaks, unpickle, vramline)


def test_missing_keys(tmp_path, unpickle, vramline):
    """Older versions write neither times, nor settings, nor a block's address."""
    snapshot, peaks = made(seed=25)
    del snapshot["allocator_settings"], snapshot["external_annotations"]
    for segment in snapshot["segments"]:
        del segment["requested_size"], segment["segment_pool_id"], segment["is_expandable"], segment["frames"]
        for block in segment["blocks"]:
            del block["address"]
    for entry in snapshot["device_traces"][0]:
        del entry["time_us"], entry["compile_context"], entry["user_metadata"]
        if entry["action"] == "segment_alloc":
            del entry["frames"]
    path = write(tmp_path / "snapshot.pickle", snapshot)
    assert unpickle(path) == plain(snapshot)
    report = vramline(path)
    assert report["pools"][0]["peak_bytes"] == peaks["cuda:0"]
    assert [warning["code"] for warning in report["warnings"]] == ["no-times"]


def test_more_keys(tmp_path, unpickle, vramline):
    """Newer versions write more; what is not read is named."""
    snapshot, peaks = made(seed=26)
    expected = plain(snapshot)
    for entry, known in zip(snapshot["device_traces"][0], expected["device_traces"][0]):
        entry |= {"pool_id": (0, 3), "forward_frames": entry["frames"][:2], "novelty": {"deep": [1, (2, 3)]}}
        known |= {"pool_id": [0, 3], "forward_frames": known["frames"][:2]}
    snapshot["segments"][0]["novelty"] = 1
    snapshot["more"] = {"of": b"bytes", "and": {1, 2}, "none": None, "yes": True, "pi": 3.14}
    path = write(tmp_path / "snapshot.pickle", snapshot)
    assert unpickle(path) == expected
    report = vramline(path)
    assert report["pools"][0]["peak_bytes"] == peaks["cuda:0"]
    assert [warning["code"] for warning in report["warnings"]] == ["unknown-keys"]
    assert "novelty" in report["warnings"][0]["text"]


@pytest.mark.parametrize("protocol", range(6))
def test_integers_of_any_size(protocol, tmp_path, unpickle):
    snapshot, _ = made(seed=27, steps=20)
    numbers = [0, -1, 2**31, -(2**31) - 1, 2**59, -(2**59), 2**60, 2**62, 2**63, 2**64 - 1, -(2**63)]
    snapshot["allocator_settings"]["numbers"] = numbers
    snapshot["allocator_settings"]["beyond"] = [2**2000, -(2**2000)]
    snapshot["device_traces"][0][1] |= {"addr": 2**63 + 4096, "size": 2**62}
    expected = plain(snapshot)
    expected["allocator_settings"]["beyond"] = [None, None]
    assert unpickle(write(tmp_path / "snapshot.pickle", snapshot, protocol)) == expected


def test_text_of_any_sort(tmp_path, unpickle):
    snapshot, _ = made(seed=28, steps=20)
    texts = ["", "é", "日本語", "\n\\u0041\t'\"", "\U0001f600", "x" * 70_000]
    snapshot["allocator_settings"]["texts"] = texts
    for number, text in enumerate(texts):
        frames = [{"name": text, "filename": text * 2, "line": 0}]
        snapshot["device_traces"][0][number] |= {"frames": frames, "user_metadata": text}
    for protocol in range(6):
        path = write(tmp_path / f"{protocol}.pickle", snapshot, protocol)
        assert unpickle(path) == plain(snapshot), protocol


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_not_run(protocol, binary, tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    alone, beside = tmp_path / "alone.pickle", tmp_path / "beside.pickle"
    write(alone, Harm(), protocol)
    snapshot, _ = made(seed=29, steps=20)
    snapshot["allocator_settings"]["harm"] = Harm()
    write(beside, snapshot, protocol)
    done = subprocess.run([binary, "report", alone], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "mkdir" in done.stderr and "hint:" in done.stderr
    done = subprocess.run([binary, "report", beside], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "mkdir" in done.stdout
    assert not (tmp_path / "harm").exists()


def test_real_snapshots(fixtures, unpickle):
    paths = sorted(fixtures.glob("torch/*.pickle.gz")) + sorted(fixtures.glob("*.snapshot.pickle.gz"))
    assert len(paths) >= 16
    for path in paths:
        with gzip.open(path) as file:
            assert unpickle(path) == plain(pickle.load(file)), path.name


def held(snapshot, device, state="active_allocated"):
    segments = (segment for segment in snapshot["segments"] if segment["device"] == device)
    return [block for segment in segments for block in segment["blocks"] if block["state"] == state]


def assert_state(pool, snapshot, device):
    """A pool is the blocks that the segments of a device hold."""
    blocks = held(snapshot, device)
    assert (pool["name"], pool["moment"], pool["allocs"]) == (f"cuda:{device}", "dump", None)
    assert pool["peak_bytes"] == sum(block["size"] for block in blocks)
    at = pool["at_peak"]
    assert sum(row["count"] for row in at["rows"]) == len(blocks)
    assert at["named_bytes"] + at["unnamed_bytes"] == sum(block["requested_size"] for block in blocks)
    assert at["named_bytes"] == sum(block["requested_size"] for block in blocks if block["frames"])
    (moment,) = pool["caching"]["moments"]
    assert moment["reserved_bytes"] == 20 * MIB * sum(segment["device"] == device for segment in snapshot["segments"])
    free = sum(block["size"] for block in held(snapshot, device, "inactive"))
    assert moment["whole_segments_bytes"] + moment["split_remainders_bytes"] == free


ENTRIES = {
    "nothing": [],
    "its own": [{"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 1, "frames": []}],
    "the end of a free": [{"action": "free_completed", "addr": 0x7F00 << 32, "size": 512, "stream": 0, "time_us": 1, "frames": []}],
}


@pytest.mark.parametrize("entries", ENTRIES.values(), ids=ENTRIES)
def test_a_history_of_one_entry(entries, tmp_path, vramline):
    """What a ring of one entry leaves: PyTorch's default once was that."""
    snapshot, _ = made(seed=40)
    snapshot["device_traces"] = [entries]
    report = vramline(write(tmp_path / "snapshot.pickle", snapshot))
    (pool,) = report["pools"]
    assert_state(pool, snapshot, 0)
    assert "at the moment of the dump" in report["headline"] and report["source"]["clock"].startswith("none")
    assert [warning["code"] for warning in report["warnings"]] == ["no-history"]


def test_few_entries_beside_many_blocks(tmp_path, vramline):
    """The last entries of a ring: a few small blocks of all that is held. With more of them the history knows."""
    snapshot, peaks = made(seed=41, steps=6000)
    whole = snapshot["device_traces"][0]
    count, in_use = len(held(snapshot, 0)), sum(block["size"] for block in held(snapshot, 0))
    for kept, is_state in ((1, True), (4, True), (len(whole) - 1, False)):
        snapshot["device_traces"] = [whole[len(whole) - kept :]]
        moved = [entry for entry in whole[len(whole) - kept :] if entry["action"] in ("alloc", "free_requested")]
        assert (len(moved) < count and sum(entry["size"] + 512 for entry in moved) * 20 < in_use) == is_state
        (pool,) = vramline(write(tmp_path / f"{kept}.pickle", snapshot))["pools"]
        if is_state:
            assert_state(pool, snapshot, 0)
        else:
            assert (pool["moment"], pool["peak_bytes"]) == ("peak", peaks["cuda:0"])


def test_a_device_without_a_history_beside_one_with(tmp_path, vramline):
    snapshot, peaks = made(seed=42, devices=2)
    snapshot["device_traces"] = snapshot["device_traces"][:1]
    report = vramline(write(tmp_path / "snapshot.pickle", snapshot))
    by_name = {pool["name"]: pool for pool in report["pools"]}
    assert (by_name["cuda:0"]["moment"], by_name["cuda:0"]["peak_bytes"]) == ("peak", peaks["cuda:0"])
    assert_state(by_name["cuda:1"], snapshot, 1)
    assert [warning["code"] for warning in report["warnings"]] == ["no-history"]
    assert "cuda:1" in report["warnings"][0]["text"]


def test_a_failure_that_is_the_only_entry(tmp_path, vramline, binary):
    """A ring of one entry that is dumped when memory ran out holds the failure alone."""
    snapshot, _ = made(seed=43)
    oom = {"action": "oom", "addr": 7 * MIB, "size": 60 * MIB, "stream": 0, "time_us": 1_700_000_000_000_000, "frames": FRAMES[:2]}
    snapshot["device_traces"] = [[oom]]
    path = write(tmp_path / "snapshot.pickle", snapshot)
    (pool,) = vramline(path)["pools"]
    assert_state(pool, snapshot, 0)
    (failure,) = pool["caching"]["failures"]
    assert (failure["asked_bytes"], failure["device_free_bytes"]) == (60 * MIB, 7 * MIB)
    assert failure["allocated_bytes"] == pool["peak_bytes"]
    done = subprocess.run([binary, "oom", path, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(json.loads(done.stdout)["failures"]) == 1


def test_nothing_at_all(tmp_path, vramline):
    report = vramline(write(tmp_path / "snapshot.pickle", {"segments": [], "device_traces": [[], []]}))
    assert not report["pools"] and report["headline"].startswith("The snapshot is empty")
    assert [warning["code"] for warning in report["warnings"]] == ["empty-snapshot"]


@pytest.mark.parametrize("slash", ["/", "\\"])
def test_roles_of_a_state_and_of_windows(slash, tmp_path, vramline):
    """The frames tell the role, whichever system wrote their paths."""
    lib = "C:/py/Lib/site-packages/torch"
    stacks = {
        "parameters": [("convert", f"{lib}/nn/modules/module.py"), ("main", "D:/me/run/train.py")],
        "optimizer": [("step", f"{lib}/optim/adamw.py"), ("main", "D:/me/run/train.py")],
        "activations": [("forward", "D:/me/run/model.py"), ("_call_impl", f"{lib}/nn/modules/module.py")],
        "unknown": [("main", "D:/me/run/train.py")],
    }
    blocks = []
    for number, stack in enumerate(stacks.values()):
        frames = [{"name": name, "filename": file.replace("/", slash), "line": 7} for name, file in stack]
        blocks.append(Device.block(4096 + number * MIB, MIB, MIB - 100 - number, "active_allocated", frames))
    segment = {"device": 0, "address": 4096, "total_size": 4 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks}
    (pool,) = vramline(write(tmp_path / "snapshot.pickle", {"segments": [segment], "device_traces": [[]]}))["pools"]
    roles = pool["at_peak"]["by_role"]
    assert {role: size for role, size in roles.items() if size} == {role: MIB - 100 - at for at, role in enumerate(stacks)}
    assert {row["op"] for row in pool["at_peak"]["rows"]} == {"run/train.py:7 main", "run/model.py:7 forward"}
