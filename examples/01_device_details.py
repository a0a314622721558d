"""Lists the devices that TensorFlow sees, their details, and the memory in use on each.

    python 01_device_details.py

Without a GPU it does the same for the CPU.
"""

import tensorflow as tf

KIND = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def describe(device):
    """Prints the name and details of a physical device. A CPU has no details, and a driver may not report all of them."""
    details = tf.config.experimental.get_device_details(device)
    print(f"{device.device_type}: {details.get('device_name', 'no name given')}")
    capability = details.get("compute_capability")
    if capability:
        print(f"  compute capability {capability[0]}.{capability[1]}")


def print_memory(name):
    """Prints what TensorFlow has in use on a device now, and the peak since the start."""
    try:
        info = tf.config.experimental.get_memory_info(name)
    except ValueError:
        print(f"  {name}: memory figures are not available")
        return
    print(f"  {name}: current {info['current']:,} bytes, peak {info['peak']:,} bytes")


devices = tf.config.list_physical_devices(KIND)
print(f"{KIND}s: {len(devices)}")
for device in devices:
    describe(device)

# The figures below belong to logical devices, which exist only after TensorFlow has started the physical ones.
names = [f"{KIND}:{index}" for index in range(len(tf.config.list_logical_devices(KIND)))]

print("before any tensor")
for name in names:
    print_memory(name)

held = []
for name in names:
    with tf.device(name):
        held.append(tf.zeros((1024, 1024)))

print("with a tensor of 4 MiB on each")
for name in names:
    print_memory(name)
