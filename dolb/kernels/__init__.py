"""The fused training step: Triton kernels, and the network that is run by them.

The constants of its optimizers are those of ``training.optim``, which has them from here.
"""

SECOND_MOMENTUM = 0.999  # LAMB: of the squared gradients
LARS_EPS, LAMB_EPS = 1e-8, 1e-6
