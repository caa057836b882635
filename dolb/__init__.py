"""Data optimization for large-batch training: a reproducible research compendium."""

import sys

__version__ = "0.1.0"

# altair and nbformat import jsonschema, which would build 38 grammars at every start, in three seconds, for a format of
# addresses that nothing here checks. Where the package is missing it does without.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
