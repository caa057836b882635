"""One rank's keeper: it runs the rank, notes how it ended, and leaves with the measurement.

    python -m dolb.profiling.ranks.supervise FOLDER        started by torchrun and horovodrun, for each rank

A launcher says that a job failed; who died first, and of what, is lost where the others die of that within
milliseconds. The keeper is the rank's parent, so it knows the exit code and when. It also holds the rank to the
hardware thread that is its own, where it has one, starts it by the command that its rank is to run within, such as
``ip netns exec NAME``, and kills it when the process that measures is gone, however that ended. It imports no torch: it
costs some milliseconds and megabytes.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT = "DOLB_MEASURED_BY"  # the process that measures


def rank() -> int:
    """Return the number of this rank, as either launcher says it."""
    return int(os.environ.get("RANK") or os.environ["HOROVOD_RANK"])


def write_whole(path: Path, text: str) -> None:
    """Write a small file that is there with all of its content or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(path)


def main(folder: Path) -> int:
    """Run one rank to its end and return its exit code."""
    me = rank()
    place = json.loads((folder / "place.json").read_text())
    within = place["within"][me] if place["within"] else []
    if place["threads"]:
        os.sched_setaffinity(0, {place["threads"][me]})  # the rank and every thread of it inherit this
    command = [*within, sys.executable, "-m", "dolb.profiling.ranks.rank", str(folder)]
    # horovodrun takes ranks that it starts on this machine to meet over the loopback interface; these may not.
    meet = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": place["address"], "HOROVOD_GLOO_IFACE": place["interface"]}
    if place["each"]:  # torchrun takes all ranks that it starts to be of this machine
        meet["LOCAL_RANK"] = str(me % place["each"])
    with open(folder / f"rank-{me}.log", "w") as log:
        trained = subprocess.Popen(command, env=os.environ | meet, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    signal.signal(signal.SIGTERM, lambda *_: trained.kill())
    write_whole(folder / f"rank-{me}.pid", str(trained.pid))
    ended = os.pidfd_open(trained.pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    try:
        poller.register(os.pidfd_open(int(os.environ[PARENT])), select.POLLIN)
        if ended not in dict(poller.poll()):
            trained.kill()
    except ProcessLookupError:  # the process that measures is gone already
        trained.kill()
    code = trained.wait()
    if folder.is_dir():  # the measurement removes its folder when it ends
        write_whole(folder / f"rank-{me}.exit", json.dumps({"rank": me, "code": code, "time": time.time()}))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
