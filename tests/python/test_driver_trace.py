"""The interposer of `vramline run --driver-trace`, under a driver and an NVML that are written for these tests (`driver_trace/`).

`VRAMLINE_SOAK_SECONDS` makes the soak longer. `VRAMLINE_TEST_PRELOADS` names allocators (jemalloc, tcmalloc) that are not installed where the
loader looks.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from driver_trace.read_calls import UNKNOWN, read

import vramline

SOURCES = pathlib.Path(__file__).parent / "driver_trace"
MIB = 1 << 20
OVERLAP, GUESSED, NO_BEFORE, SHARED = 1, 2, 4, 8
NOT_ASKED, NO_PYTHON = 1, 2
UUID = bytes(range(16))

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def preload():
    """The library that users install."""
    path = pathlib.Path(vramline.__file__).parent / "libvramline_driver.so"
    if not path.exists():
        path = SOURCES.parents[2] / "target" / "interposer" / path.name
    assert path.exists(), "make build"
    return path


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The folder with the driver, NVML and the programs that use them."""
    folder = tmp_path_factory.mktemp("stubs")

    def compile_c(target, source, *words):
        command = ["cc", "-g", "-O1", "-o", folder / target, SOURCES / source, *words, "-ldl", "-lpthread"]
        subprocess.run(command, check=True)

    shared = ("-shared", "-fPIC")
    compile_c("libcuda.so.1", "libcuda.c", *shared, "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", f"-Wl,--version-script,{SOURCES}/libcuda.map")
    compile_c("libnvidia-ml.so.1", "libnvidia-ml.c", *shared)
    compile_c("libcudart.so.12", "libcudart.c", *shared, "-Wl,-soname,libcudart.so.12")
    compile_c("libframework.so", "libframework.c", folder / "libcudart.so.12", *shared, "-Wl,-rpath,$ORIGIN")
    compile_c("libnccl.so.2", "libnccl.c", *shared, "-Wl,-soname,libnccl.so.2")
    compile_c("libtraining.so", "libtraining.c", folder / "libnccl.so.2", *shared, "-Wl,-rpath,$ORIGIN")
    compile_c("libtraining_dlsym.so", "libtraining.c", folder / "libnccl.so.2", *shared, "-DDLSYM", "-Wl,-rpath,$ORIGIN")
    compile_c("libtraining_inside.so", "libtraining.c", *shared, "-DINSIDE")
    # CUDA's runtime as a part of the library that uses it.
    compile_c("libstatic.so", "libframework.c", SOURCES / "libcudart.c", *shared)
    compile_c("counting.so", "counting.c", *shared)
    compile_c("caller", "caller.c")
    compile_c("linked", "caller.c", folder / "libcuda.so.1", "-DLINKED")
    return folder


@pytest.fixture
def traced(stubs, preload, tmp_path):
    """A function: runs a command with the interposer and gives its end and the files that it left."""

    def run(*command, preloads=(), on=True, **options):
        (tmp_path / "device").write_bytes(bytes(4096))
        recording = tmp_path / "recording"
        recording.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE_")}
        environment |= {"LD_LIBRARY_PATH": str(stubs), "STUB_DEVICE": str(tmp_path / "device")}
        if on:
            environment |= {"LD_PRELOAD": ":".join(map(str, [preload, *preloads])), "VRAMLINE_DRIVER_TRACE": str(recording)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False, **options)
        files = sorted(recording.glob("calls-*.bin"), key=lambda path: path.stat().st_mtime)
        return done, [read(path) for path in files]

    return run


def of(file, function):
    return [call for call in file.calls if call["function"] == function]


WAYS = [("caller", "dlsym"), ("caller", "v1"), ("caller", "v2"), ("linked", "linked")]


@pytest.mark.parametrize(("program", "way"), WAYS)
def test_every_call_is_passed_on_and_recorded(traced, stubs, program, way):
    done, (file,) = traced(stubs / program, way)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert (file.torn, file.dropped, len(file.starts)) == (0, 0, 1)
    assert file.devices == {0: UUID}
    grew = {name: sum(call["grew"] for call in of(file, name)) for name in {call["function"] for call in file.calls}}
    assert grew["cuInit"] == 2 * MIB
    assert grew["cuDevicePrimaryCtxRetain"] == 500 * MIB
    assert grew["cuCtxSetLimit"] == 4 * MIB
    assert grew["cuLaunchKernel"] == 92 * MIB
    assert grew["cuStreamCreate"] == 2 * MIB
    assert grew["cuMemAllocAsync"] == 64 * MIB
    assert grew["cuIpcOpenMemHandle"] == 2 * MIB
    # Only the first launch that took memory has a record, and events only as far as their number is bounded.
    assert len(of(file, "cuLaunchKernel")) == 1
    assert len(of(file, "cuEventCreate")) == 512
    allocated, refused = of(file, "cuMemAlloc")
    assert (allocated["bytes"], allocated["result"], allocated["grew"]) == (3 * MIB, 0, 4 * MIB)
    assert (refused["bytes"], refused["result"], refused["handle"]) == (65 << 30, 2, UNKNOWN)
    (freed,) = of(file, "cuMemFree")
    assert freed["handle"] == allocated["handle"]
    assert of(file, "cuMemAllocPitch")[0]["bytes"] == 1024 * 4096
    (mapped,) = of(file, "cuMemMap")
    assert mapped["other"] == of(file, "cuMemCreate")[0]["handle"]
    assert [call["pool_reserved"] for call in of(file, "cuMemAllocAsync")] == [32 * MIB, 64 * MIB]
    assert of(file, "cuArrayCreate")[0]["bytes"] == 512 * 256 * 4 * 4
    assert {call["flags"] & ~NO_BEFORE for call in file.calls} == {0}
    assert {pathlib.Path(call["library"]).name for call in file.calls} == {program}
    for call in file.calls:
        assert call["begin"] <= call["end"] and call["after"] != UNKNOWN
        is_wanted = call["grew"] != 0 or MIB <= call["bytes"] < UNKNOWN
        assert call["reason"] == (NO_PYTHON if is_wanted else NOT_ASKED)
        assert (call["depth"] > 0) == is_wanted
    total = sum(call["gap"] + call["grew"] for call in file.calls)
    assert total == file.calls[-1]["after"] - file.calls[0]["before"]


@pytest.mark.parametrize("shift", [0, 1000])
def test_a_neighbour_is_told_apart(traced, stubs, shift):
    """Memory of another process that came before, between calls and inside a call. With a shift, NVML numbers processes as outside a container."""
    done, (file,) = traced(stubs / "caller", "v2", "neighbour", str(shift))
    assert done.returncode == 0, done.stderr
    _, context, first, freed, second, third = file.calls
    came_first = 0 if shift else 50 * MIB
    assert [call["others"] for call in (context, first, freed, second, third)] == [came_first, came_first, came_first + 30 * MIB, came_first + 40 * MIB, 0]
    assert [call["neighbours"] for call in (first, freed, second)] == [0, 30 * MIB, 10 * MIB]
    assert third["neighbours"] == -(came_first + 40 * MIB)
    # What is left of the device's change is the process's own, call by call.
    for before, call in zip(file.calls[1:], file.calls[2:], strict=False):
        assert call["gap"] + call["grew"] - call["neighbours"] == call["own"] - before["own"]
    assert [call["flags"] & SHARED != 0 for call in file.calls] == [not shift, not shift, not shift, True, True, False]


def test_nothing_is_wrapped_without_the_folder(traced, stubs, preload):
    done, files = traced("env", "-u", "VRAMLINE_DRIVER_TRACE", str(stubs / "caller"), "v2")
    assert (done.returncode, done.stdout, done.stderr, files) == (0, "done\n", "", [])
    # A folder that is not there costs the records, not the job.
    done, files = traced("env", "VRAMLINE_DRIVER_TRACE=/nowhere/at/all", str(stubs / "caller"), "v2")
    assert (done.returncode, done.stdout, done.stderr, files) == (0, "done\n", "", [])


def test_growth_is_charged_once_with_many_threads(traced, stubs):
    done, (file,) = traced(stubs / "caller", "v2", "threads")
    assert done.returncode == 0, done.stderr
    assert len(of(file, "cuMemAlloc")) == 402 and len(of(file, "cuMemFree")) == 401
    assert len({call["thread"] for call in file.calls}) == 9
    total = sum(call["gap"] + call["grew"] for call in sorted(file.calls, key=lambda call: call["end"]))
    assert total == file.calls[-1]["after"] - file.calls[0]["before"]


def test_a_forked_child_has_its_own_file(traced, stubs):
    done, files = traced(stubs / "caller", "dlsym", "fork")
    assert done.returncode == 0, done.stderr
    parent, child = sorted(files, key=lambda file: len(file.calls))
    assert [call["function"] for call in parent.calls] == ["cuInit"]
    assert parent.starts[0][0] != child.starts[0][0]
    # Locks of NVML may be locked for ever in a forked child, so it does not use the NVML of its parent.
    assert child.notes[0] == (1, 2**32 - 2)
    assert {call["after"] for call in child.calls} == {UNKNOWN}
    assert of(child, "cuMemAlloc")[0]["bytes"] == 3 * MIB
    assert {pathlib.Path(call["library"]).name for call in child.calls} == {"caller"}


@pytest.mark.parametrize("ending", [("exit", 0), ("exit", 3), ("signal", signal.SIGTERM), ("signal", signal.SIGKILL), ("signal", signal.SIGSEGV)])
def test_the_end_of_the_job_stays_its_own(traced, stubs, ending):
    what, number = ending
    done, (file,) = traced(stubs / "caller", "v2", what, str(int(number)))
    assert done.returncode == (number if what == "exit" else -number)
    # Whatever had returned before the end is there.
    assert file.torn == 0 and of(file, "cuGraphInstantiateWithFlags")
    # Calls while libraries end are passed on, but not measured.
    assert len(of(file, "cuMemAlloc")) == 2


def test_other_preloaded_libraries_work_as_before(traced, stubs):
    for preloads in [(stubs / "counting.so",), (stubs / "counting.so", "libm.so.6")]:
        done, files = traced(stubs / "caller", "v1", preloads=preloads)
        assert (done.returncode, done.stdout, done.stderr) == (0, "counted calls\ndone\n", "")
        assert of(files[-1], "cuStreamCreate")


ALLOCATORS = ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"]
ALLOCATORS += filter(None, os.environ.get("VRAMLINE_TEST_PRELOADS", "").split(":"))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("what", ["threads", "fork", "soak"])
def test_preloaded_allocators_work_as_before(traced, stubs, allocator, what):
    if not pathlib.Path(allocator).exists():
        pytest.skip(f"needs {pathlib.Path(allocator).name}")
    done, files = traced(stubs / "caller", "v2", what, "1", preloads=[allocator])
    assert (done.returncode, done.stderr) == (0, "")
    assert files and all(file.torn == 0 and file.calls for file in files)


TREE = """
import ctypes, multiprocessing, os, subprocess, sys
def use():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        use()
        sys.exit(3)
    # A launcher's worker, a worker of a compiler in a fresh interpreter, a forked one, and one behind a sandbox.
    child = [sys.executable, __file__, "child"]
    assert subprocess.run(["sh", "-c", '"$@"', "sh", *child]).returncode == 3
    spawned = multiprocessing.get_context("spawn").Process(target=use)
    forked = multiprocessing.get_context("fork").Process(target=use)
    for process in (spawned, forked):
        process.start(), process.join()
        assert process.exitcode == 0
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "STUB_DEVICE")}
    assert subprocess.run(child, env=kept).returncode == 3
    print("done")
"""


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="needs musl-gcc")
def test_a_program_with_another_c_library_runs_as_before(traced, tmp_path):
    """It inherits LD_PRELOAD from the job that starts it. Its loader knows nothing of glibc's symbols."""
    source = b'#include <dlfcn.h>\nint main() { return dlsym(RTLD_DEFAULT, "puts") ? 5 : 1; }'
    subprocess.run(["musl-gcc", "-x", "c", "-o", tmp_path / "other", "-"], input=source, check=True)
    done, files = traced("sh", "-c", f"{tmp_path / 'other'}")
    assert (done.returncode, done.stdout, done.stderr, files) == (5, "", "", [])


def test_every_process_of_a_job_has_its_file(traced, tmp_path):
    script = tmp_path / "tree.py"
    script.write_text(TREE)
    done, files = traced(sys.executable, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    # Three used the driver with the library; the sandboxed one without it.
    assert len(files) == 3
    assert [sum(call["grew"] for call in of(file, "cuDevicePrimaryCtxRetain")) for file in files] == [500 * MIB] * 3


def test_a_program_that_closes_all_files_keeps_its_own(traced, stubs):
    done, (file,) = traced(stubs / "caller", "v2", "closes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert len(of(file, "cuGraphInstantiateWithFlags")) == 1


def test_a_small_limit_of_file_sizes_is_kept(traced, stubs):
    done, (file,) = traced("bash", "-c", f"ulimit -f 16; exec {stubs / 'caller'} v2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert file.torn == 0 and file.dropped >= 256


PYTHON = """
import ctypes, sys, threading
ctypes.CDLL("libgcc_s.so.1")
framework = ctypes.PyDLL(sys.argv[1])
def allocate_some():
    assert framework.framework_allocate(3 << 20) == 0
allocate_some()
free = ctypes.CDLL(sys.argv[1])
assert free.framework_allocate(5 << 20) == 0
try:
    raise ValueError
except ValueError:
    assert framework.framework_allocate(7 << 20) == 0
cuda = ctypes.CDLL("libcuda.so.1")
stream = ctypes.c_void_p()
assert cuda.cuStreamCreate(ctypes.byref(stream), 0) == 0 and stream.value == 0x57
"""


def test_the_library_and_the_line_that_asked(traced, stubs, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(PYTHON)
    done, (file,) = traced(sys.executable, script, stubs / "libframework.so")
    assert done.returncode == 0, done.stderr
    first, second, third = of(file, "cuMemAlloc")
    # The runtime is skipped: the library that used it asked.
    for call in (first, second, third):
        names = [pathlib.Path(library).name for library in call["stack"] if library]
        assert names[:2] == ["libcudart.so.12", "libframework.so"], names
        assert pathlib.Path(call["library"]).name == "libframework.so"
    assert (first["reason"], first["file"], first["line"], first["name"]) == (0, str(script), 6, "allocate_some")
    # ctypes.CDLL releases the interpreter lock, and nobody waits for it.
    assert (second["reason"], second["line"], second["bytes"]) == (3, 0, 5 * MIB)
    assert (third["reason"], third["line"], third["name"]) == (0, 13, "<module>")
    (stream,) = of(file, "cuStreamCreate")
    assert pathlib.Path(stream["library"]).name.startswith("_ctypes")


NCCL = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
for name in sys.argv[1:]:
    result = ctypes.CDLL(name).training_step(9)
    assert result == 0, (name, result)
print("done")
"""


@pytest.mark.parametrize("ways", [["libtraining"], ["libtraining_dlsym"], ["libtraining_inside"], ["libtraining", "libtraining_inside", "libtraining_dlsym"]])
def test_nccl_tells_its_memory(traced, stubs, ways):
    """Each NCCL of a process gets its own calls, and is asked before some of them, by the thread that makes them."""
    done, (file,) = traced(sys.executable, "-c", NCCL, *(stubs / f"{way}.so" for way in ways))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    names = {"libtraining": "libnccl.so.2", "libtraining_dlsym": "libnccl.so.2", "libtraining_inside": "libtraining_inside.so"}
    created = of(file, "cuMemCreate")
    assert [pathlib.Path(call["library"]).name for call in created] == [names[way] for way in ways]
    assert {call["grew"] for call in created} == {6 * MIB}
    # Before the calls 1, 2 and 8 and the last one. The fourth came while an operation was in progress.
    found = [(pathlib.Path(one["library"]).name, one["total"], one["persistent"], one["suspendable"]) for one in file.communicators]
    expected = [(0, 0, 0), *[(6 * MIB, 2 * MIB, 4 * MIB)] * 3]
    assert found == [(names[way], *figures) for way in ways for figures in expected]
    assert {(one["device"], one["suspended"]) for one in file.communicators} == {(0, 0)}


def test_an_nccl_that_tells_nothing_is_left_alone(traced, stubs, tmp_path):
    job = [sys.executable, "-c", NCCL, str(stubs / "libtraining.so")]
    old = ["cc", "-shared", "-fPIC", "-DOLD", "-Wl,-soname,libnccl.so.2", "-o", tmp_path / "libnccl.so.2", SOURCES / "libnccl.c", "-ldl"]
    subprocess.run(old, check=True)
    for variables, preloads in [(["STUB_NCCL_REFUSES=1"], []), (["NCCL_DISABLE_MEM_MANAGER=1"], []), ([], [tmp_path / "libnccl.so.2"])]:
        done, files = traced("env", *variables, *job, preloads=preloads)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
        assert of(files[-1], "cuMemCreate") and not files[-1].communicators


def test_a_runtime_inside_a_library_is_that_library(traced, stubs):
    script = f"import ctypes; assert ctypes.CDLL('{stubs / 'libstatic.so'}').framework_allocate(3 << 20) == 0"
    done, (file,) = traced(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert pathlib.Path(of(file, "cuMemAlloc")[0]["library"]).name == "libstatic.so"


def test_random_calls_of_threads_and_forks(traced, stubs):
    seconds = os.environ.get("VRAMLINE_SOAK_SECONDS", "3")
    for way in ("dlsym", "v2"):
        done, files = traced(stubs / "caller", way, "soak", seconds)
        assert done.returncode == 0, done.stderr
    assert len(files) > 20
    for file in files:
        assert file.torn == 0 and file.starts and file.calls


def test_what_calls_cost_is_measured(stubs, preload, tmp_path):
    """The script for a real GPU: it calls each function with and without a wrapper, and counts calls. Times are not judged."""
    (tmp_path / "device").write_bytes(bytes(4096))
    environment = os.environ | {"LD_LIBRARY_PATH": str(stubs), "STUB_DEVICE": str(tmp_path / "device")}
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## What a recording costs\n\nOld.\n\n## Rest\n\nStays.\n")
    script = SOURCES.parents[1] / "gpu" / "driver_cost.py"
    command = [sys.executable, script, tmp_path / "out", "--quick", "--library", preload, "--write", page]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "FAILED" not in done.stdout and not done.stderr, done
    result = json.loads((tmp_path / "out" / "cost.json").read_text())
    calls = result["calls"]["calls"]
    assert calls["cuLaunchKernel"]["is_wrapped"] and not calls["cuStreamIsCapturing"]["is_wrapped"] and calls["cuStreamQuery"] == {"missing": True}
    assert all(row["warm"]["failed"] == 0 for row in calls.values() if row.get("is_wrapped"))
    assert result["count"]["blocks"]["gpt"]["calls"] == {"cuLaunchKernel": 5} and result["calls"]["wrapped"] == {"cuLaunchKernel": True}
    # The recording child of the first pair has written its calls, and none of the second pair.
    assert [pair["is_null"] for pair in result["forks"]] == [False, True]
    assert [len(of(read(path), "cuInit")) for path in (tmp_path / "out" / "forks").iterdir()] == [1]
    # A call that is measured takes longer than one that is not: the two pointers are not the same function.
    assert calls["cuMemAlloc and cuMemFree (measured)"]["warm"]["added"]["low"] > 0
    text = page.read_text()
    assert text.startswith("# Page\n\n## What a recording costs\n\nWritten by") and text.endswith("\n## Rest\n\nStays.\n") and "Old." not in text


def test_the_library_needs_the_c_library_only(preload):
    dynamic = subprocess.run(["readelf", "-d", preload], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].split("]")[0] for line in dynamic.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libdl.so.2"}
    symbols = subprocess.run(["nm", "-D", preload], capture_output=True, text=True, check=True).stdout
    # The name that code which can panic would need.
    assert "must_not_panic" not in symbols
    exported = {line.split()[-1] for line in symbols.splitlines() if " T " in line}
    assert "dlsym" in exported and all(name == "dlsym" or name.startswith(("cu", "nccl")) for name in exported)


def test_run_preloads_the_library(stubs, preload, tmp_path):
    """`vramline run` puts the library before those of the user, says where it cannot work, and the job runs in any case."""
    binary = os.environ.get("VRAMLINE_BIN", "vramline")
    (tmp_path / "device").write_bytes(bytes(4096))
    variables = {"LD_LIBRARY_PATH": str(stubs), "STUB_DEVICE": str(tmp_path / "device"), "VRAMLINE_DRIVER_TRACE": "/of/an/outer/run"}

    def run(name, *words, **more):
        command = [binary, "run", "--no-report", "--no-stand-in", "-o", tmp_path / name, *words]
        done = subprocess.run(command, env=os.environ | variables | more, capture_output=True, text=True, timeout=120, check=False)
        manifest = json.loads((tmp_path / name / "run.json").read_text())
        return done, manifest["settings"]["driver_trace"], [read(path) for path in (tmp_path / name).glob("calls-*.bin")]

    caller = ["--", stubs / "caller", "v2", "exit", "5"]
    done, setting, (file,) = run("on.vram", "--driver-trace", "on", *caller, LD_PRELOAD=str(stubs / "counting.so"))
    assert (done.returncode, setting) == (5, "on")
    assert of(file, "cuStreamCreate")
    shown = ["--", "sh", "-c", 'echo "$LD_PRELOAD $VRAMLINE_DRIVER_TRACE"']
    for words in ([], ["--driver-trace", "auto"], ["--driver-trace", "off"]):
        done, setting, files = run(f"off{len(words)}{words[-1:]}.vram", *words, *shown)
        assert (done.returncode, setting, files) == (0, "off", [])
        assert done.stdout == " \n"
    done, _, _ = run("first.vram", "--driver-trace", "on", *shown, LD_PRELOAD=str(stubs / "counting.so"))
    assert done.stdout.split(" ")[0].endswith(f"libvramline_driver.so:{stubs / 'counting.so'}")
    # A static program cannot be helped.
    subprocess.run(["cc", "-static", "-x", "c", "-o", tmp_path / "static", "-"], input=b"int main() { return 6; }", check=True)
    done, setting, files = run("static.vram", "--driver-trace", "on", "--", tmp_path / "static")
    assert (done.returncode, setting, files) == (6, "impossible", [])
    assert "cannot record calls of the driver: " in done.stderr and "statically" in done.stderr


def test_a_launcher_that_clears_the_environment_is_noticed(tmp_path):
    """The job uses a GPU, as the driver lists it, but the library did not reach it."""
    binary = os.environ.get("VRAMLINE_BIN", "vramline")
    device = {"name": "NVIDIA H200", "total": 140 << 30, "processes": [{"pid": "job", "used": 1 << 30}]}
    (tmp_path / "driver.json").write_text(json.dumps({"devices": [device]}))
    environment = os.environ | {"VRAMLINE_FAKE_DRIVER": str(tmp_path / "driver.json")}

    def codes(name, *job):
        command = [binary, "run", "--driver-trace", "on", "--no-report", "-o", tmp_path / name, "--", *job]
        subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
        told = subprocess.run([binary, "report", "--json", tmp_path / name], env=environment, capture_output=True, text=True, check=False)
        return [warning["code"] for warning in json.loads(told.stdout)["warnings"]]

    assert "no-driver-calls" in codes("cleared.vram", "env", "-i", "sleep", "1")
