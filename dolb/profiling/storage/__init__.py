"""The same images in several forms on a disk: packed, read, timed, and fed to a trainer.

``pack(folder, format)`` writes a container, and ``load(container)`` returns its map-style ``Dataset``, for any loader.
"""

from dolb.profiling.storage.formats import FORMATS, Dataset, StorageError, load, pack

__all__ = ["FORMATS", "Dataset", "StorageError", "load", "pack"]
