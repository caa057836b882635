"""The fused training step: Triton kernels, and the network that is run by them."""
