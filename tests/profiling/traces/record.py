"""Record the traces of this folder again: two ranks, three steps of a small network, under both libraries.

    python tests/profiling/traces/record.py

Buckets are small, so that DDP has several collectives in a step. What was recorded stays as it is, but for the name of
the folder that torch writes into its file.
"""

import gzip
import json
import tempfile
from pathlib import Path

from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks.launch import measure

HERE = Path(__file__).resolve().parent
CONFIG = {"ranks": 2, "arch": "smallnet-8", "batch_size_per_rank": 16, "steps": 1, "trace_steps": 3, "bucket_mb": 0.02}

if __name__ == "__main__":
    for library in ("ddp", "horovod"):
        with tempfile.TemporaryDirectory() as folder:
            measure(ScalingConfig(library=library, **CONFIG), folder=folder, oversubscribe=True)
            (HERE / library).mkdir(exist_ok=True)
            for path in Path(folder).glob("*-?.json"):
                if not path.name.startswith("rank"):
                    text = path.read_text().replace(folder, "")
                    json.loads(text)
                    (HERE / library / f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
