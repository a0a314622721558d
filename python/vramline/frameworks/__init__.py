"""What TensorFlow, JAX and PyTorch know of their memory: counters, and whose the tensors are. It never imports a framework."""
