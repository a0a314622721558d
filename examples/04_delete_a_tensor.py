"""Allocates a large tensor, deletes it, waits, and reads the memory each time, from inside and from outside.

    python 04_delete_a_tensor.py

Inside is TensorFlow's own count. Outside is the driver's figure for the whole GPU, from GPUtil or nvidia-smi.
"""

import gc
import shutil
import subprocess
import sys
import time

import tensorflow as tf

try:
    import GPUtil
except ImportError:
    GPUtil = None

DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def inside():
    try:
        info = tf.config.experimental.get_memory_info(DEVICE)
    except ValueError:
        return "not available"
    return f"current {info['current'] / 2**20:.0f} MiB, peak {info['peak'] / 2**20:.0f} MiB"


def outside():
    """MiB in use on the first GPU by all processes, or None if nothing can report it."""
    if GPUtil is not None:
        gpus = GPUtil.getGPUs()
        return int(gpus[0].memoryUsed) if gpus else None
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first = done.stdout.split("\n")[0].strip()
    return int(first) if done.returncode == 0 and first.isdigit() else None


def show(label):
    print(f"{label:12} {DEVICE}: {inside()}")
    used = outside()
    if used is None:
        print(f"{label:12} driver: not available (no GPU that GPUtil or nvidia-smi can read)")
    else:
        # Other processes change this figure, so it goes to standard error.
        print(f"{label:12} driver: {used} MiB", file=sys.stderr)


show("at start")
with tf.device(DEVICE):
    large = tf.ones((4096, 4096))
show("allocated")
del large
gc.collect()
show("deleted")
time.sleep(1)
show("a second on")
