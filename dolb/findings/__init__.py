"""Findings: Datasets in, numbers and tables out. ``runs`` and ``intervals`` are shared; each page has a file."""
