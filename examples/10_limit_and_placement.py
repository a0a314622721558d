"""Uses one GPU only, limits its memory, and places tensors by hand.

    python 10_limit_and_placement.py

Without a GPU the CPU is split into two logical devices, which have no limit and share one allocator.
"""

import tensorflow as tf

LIMIT_MIB = 1024

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    # Both calls must come before TensorFlow starts the GPUs. Afterwards they raise.
    tf.config.set_visible_devices(gpus[0], "GPU")
    tf.config.set_logical_device_configuration(
        gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)]
    )
    devices = ["GPU:0", "CPU:0"]
    print(f"GPU:0 has a limit of {LIMIT_MIB} MiB")
else:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_visible_devices(cpu, "CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    devices = ["CPU:0", "CPU:1"]
    print("no GPU: two logical CPUs, without a limit")

for device in tf.config.list_logical_devices():
    print(f"logical device {device.name}")


def memory(device):
    try:
        info = tf.config.experimental.get_memory_info(device)
    except ValueError:
        return "not available"
    return f"current {info['current'] / 2**20:.0f} MiB"


held = []
for device in devices:
    with tf.device(device):
        held.append(tf.ones((2048, 1024)))
    print(f"8 MiB placed on {tf.DeviceSpec.from_string(held[-1].device).device_type}: {device} {memory(device)}")

# An op runs on the device of its scope. Inputs from other devices are copied there first.
with tf.device(devices[0]):
    product = tf.matmul(held[0], held[1], transpose_b=True)
print(f"product {product.shape} on {devices[0]}: {memory(devices[0])}, first element {float(product[0, 0]):.0f}")

physical = (gpus or tf.config.list_physical_devices("CPU"))[0]
try:
    tf.config.set_logical_device_configuration(physical, [tf.config.LogicalDeviceConfiguration()])
except RuntimeError as error:
    print(f"too late: {error}")
