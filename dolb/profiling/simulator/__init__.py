"""A training step of many ranks, simulated: tensors, network, libraries, curves, and their fit to what was measured."""
