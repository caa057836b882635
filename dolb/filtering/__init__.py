"""Filtering: from the features of a network to a mask of the examples worth training on."""
