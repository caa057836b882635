"""Filtering: from the features of a network to a mask of the examples worth training on."""

# The stages in their order: name, what does it, what goes in, what comes out. `pipeline` draws them.
STAGES = (
    ("extract", "dolb.filtering.features.extract", "images and a trained network", "features"),
    ("map", "dolb.filtering.embedding.TSNEMap", "features", "coordinates"),
    ("find noise", "dolb.filtering.noise.ClassDBSCAN", "coordinates, labels", "keep"),
    ("save", "dolb.filtering.masks.save_keep", "keep", "mask of these data"),
    ("take the subset", "dolb.data.ImageData.subset", "mask of these data", "training set of another network"),
)
