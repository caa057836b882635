"""Files that are written whole or not at all, and that show when their bytes are no longer those written.

HDF5 cannot promise the second: it keeps no checksum of text, so a flipped byte there reads as a result, and on some
damaged files it never returns. So the hash of a file stands at its end, where HDF5 does not look, and is compared
before HDF5 opens the file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_MARK = b"\ndolb sha256 "
_LENGTH = len(_MARK) + hashlib.sha256().digest_size * 2


def write(path: Path, fill: Callable[[str], object]) -> None:
    """Have ``fill`` write a temporary file, seal it, and move it to ``path``, which holds all of it or is untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        os.close(descriptor)
        fill(temporary)
        with open(temporary, "rb+") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            handle.write(_MARK + digest.encode())
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check(path: Path) -> None:
    """Raise a ``ValueError`` if a sealed file has changed since it was written; one without a seal is let through."""
    content = path.read_bytes()
    body, seal = content[:-_LENGTH], content[-_LENGTH:]
    if seal.startswith(_MARK) and seal[len(_MARK) :] != hashlib.sha256(body).hexdigest().encode():
        raise ValueError(f"the content of {path.name} is not what was written: it does not match the hash at its end")
