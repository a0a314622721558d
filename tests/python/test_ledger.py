"""The ledger on the real thing: TensorFlow's pool on the CPU, in the process and from its recording."""

import json
import subprocess
import sys
import textwrap

from conftest import job_environment

import vramline

# Asks for more than the limit leaves, in the first steps: the pool is traced until then, and TensorFlow writes its picture of it.
FAILS = """
    import tensorflow as tf
    kept = []
    @tf.function
    def step(size):
        return tf.random.normal((size, 1024)) * 2.0
    try:
        for size in (100, 300, 900, 2700, 8100, 24300, 72900):
            kept.append(step(tf.constant(size)))
    except tf.errors.ResourceExhaustedError:
        print("failed as it should")
        raise SystemExit(3)
"""

LIVE = """
    import json, tensorflow as tf, vramline
    x = tf.random.normal((1024, 1024))
    info = vramline.memory_info("CPU:0")
    ledger = info.ledger()
    with vramline.watch("delete x") as watch:
        del x
    print(json.dumps({"lines": [tuple(line) for line in ledger], "adds_up": ledger.adds_up, "current": info.current,
                      "process": info.process, "watch": str(watch)}))
"""


def run(command, folder):
    environment = job_environment(TF_CPU_ALLOCATOR_USE_BFC="1")
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200)


def script(folder, text):
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, path]


def test_the_pool_is_the_sum_of_the_regions_in_a_dump_of_the_same_moment(tmp_path, binary):
    recording = tmp_path / "job.vram"
    command = [binary, "run", "--no-report", "--limit", "200MiB", "-o", recording, "--", *script(tmp_path, FAILS)]
    done = run(command, tmp_path)
    assert done.returncode == 3, done.stderr
    failures = json.loads(run([binary, "oom", "--json", recording], tmp_path).stdout)["failures"]
    assert len(failures) == 1
    of_dump = failures[0]["in_use_bytes"] + failures[0]["free_bytes"]
    recorded = vramline.load(recording)
    ended = recorded.marks.where(trace_state="stopped").time_ns
    assert len(ended) == 1, recorded.marks.label
    (ledger,) = recorded.ledgers(ended[0])
    assert ledger.adds_up
    assert ledger["pool"] == of_dump, ledger
    (pool,) = [line for line in ledger if line.line == "pool"]
    assert pool.source == "replay"


def test_a_process_asks_for_its_own(tmp_path):
    done = run(script(tmp_path, LIVE), tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    lines = {line[0]: line[2] for line in told["lines"]}
    assert told["adds_up"]
    assert lines["in use"] == told["current"] >= 4 << 20
    assert lines["this job"] == told["process"]
    assert lines["device total"] == lines["free"] + lines["processes"]
    # Nobody tells the size of TensorFlow's pool from inside: what the process holds is one line, of which the part in use is known.
    assert lines["pool and the program's own"] == lines["in use"] + lines["cached and the program's own"]
    assert {line[3] for line in told["lines"]} <= {"host", "framework", "derived"}
    assert "given back to the pool: 4,194,304 bytes" in told["watch"]
    assert "to give them back to the system: end the process" in told["watch"]
