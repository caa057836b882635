"""Data optimization for large-batch training: a reproducible research compendium."""

__version__ = "0.1.0"
