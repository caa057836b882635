"""Profiling: where the time of training goes, measured and simulated."""
