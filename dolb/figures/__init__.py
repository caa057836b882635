"""Figures: a table in, an altair chart out; no computing, no reading.

Each experiment's figures are a module here; what they share is in ``style``.
"""
