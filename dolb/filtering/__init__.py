"""Filtering: from the features of a network to a mask of the examples worth training on."""

# The stages in their order: name, what does it, what goes in, what comes out. `pipeline` draws them.
STAGES = (
    ("extract", "dolb.filtering.features.extract", "images and a trained network", "features"),
    ("reduce", "dolb.filtering.embedding.principal_components", "features", "components"),
    ("map", "dolb.filtering.embedding.TSNEMap", "components", "coordinates"),
    ("take a radius", "dolb.filtering.noise.share_radius", "coordinates, labels, share", "radius"),
    ("find noise", "dolb.filtering.noise.ClassDBSCAN", "coordinates, labels, radius", "keep"),
    ("tie to the data", "dolb.filtering.masks.keep_dataset", "keep", "mask of these data"),
    ("take the subset", "dolb.data.ImageData.subset", "mask of these data", "training set of another network"),
)
