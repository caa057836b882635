"""One host's part in measuring links: a small message around a ring of hosts, then bytes, all hosts at once.

    python -m dolb.profiling.ranks.transfer NUMBER ADDRESS,ADDRESS,... SECONDS       started by `links`, for each host

Every host listens, and connects to the next host of the ring as soon as that one does. A message of some bytes goes
around, host by host, many times; then every host sends as fast as TCP lets it, as in a ring all-reduce. It prints the
latency of a hop and the rate at which it received. It imports no torch: it costs some milliseconds.
"""

import contextlib
import fcntl
import json
import math
import socket
import statistics
import struct
import sys
import termios
import threading
import time

PORT = 29400
ROUNDS, TOKEN = 50, b"a token"
CHUNK_BYTES = 1 << 18
SETTLE = 0.2  # share of the time in which TCP finds the rate; what comes by then is not counted
TIMEOUT = 60.0  # for another host


def main(me: int, addresses: list[str], seconds: float) -> dict[str, float]:
    """Take part in the ring and return ``latency_seconds`` and ``bytes_per_second``."""
    with socket.create_server((addresses[me], PORT)) as server:
        following = _connect(addresses[(me + 1) % len(addresses)])
        server.settimeout(TIMEOUT)
        before, _ = server.accept()
    with following:
        with before:
            for connection in (following, before):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(TIMEOUT)
            latency = _around(me == 0, before, following) / len(addresses)
            # A daemon: when receiving fails, nobody waits for it.
            sender = threading.Thread(target=_send, args=(following,), daemon=True)
            sender.start()
            rate = _receive(before, seconds)
        sender.join()
    return {"latency_seconds": latency, "bytes_per_second": rate}


def _connect(address: str) -> socket.socket:
    """Connect to the next host, which may not listen yet."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            return socket.create_connection((address, PORT), TIMEOUT)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _around(first: bool, before: socket.socket, following: socket.socket) -> float:
    """Pass a small message around the ring and return the median seconds of a round."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        if first:
            following.sendall(TOKEN)
        if before.recv(len(TOKEN), socket.MSG_WAITALL) != TOKEN:
            raise _gone(before)
        if not first:
            following.sendall(TOKEN)
        rounds.append(time.perf_counter() - start)
    return statistics.median(rounds)


def _send(following: socket.socket) -> None:
    """Send until the other side, which knows when it has enough, closes the connection."""
    chunk = bytes(CHUNK_BYTES)
    with contextlib.suppress(ConnectionError):
        while True:
            following.sendall(chunk)


def _receive(before: socket.socket, seconds: float) -> float:
    """Return bytes per second from when TCP has settled on.

    On a busy machine this process may come late: bytes that wait by then are not counted, and the time that is counted
    is never shorter than meant.
    """
    buffer = bytearray(CHUNK_BYTES)
    start = time.perf_counter()
    settled, counted, end = 0.0, 0, math.inf
    while True:
        got = before.recv_into(buffer)
        if not got:  # who sends stops last, when we have closed
            raise _gone(before)
        now = time.perf_counter()
        counted += got
        if now >= end and counted > 0:
            return counted / (now - settled)
        if not settled and now >= start + SETTLE * seconds:
            settled, end, counted = now, now + (1 - SETTLE) * seconds, -_waiting(before)


def _waiting(connection: socket.socket) -> int:
    """Return how many bytes have come and not been read."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0]


def _gone(before: socket.socket) -> ConnectionError:
    return ConnectionError(f"the host before in the ring, {before.getpeername()[0]}, closed its link too early")


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3]))), flush=True)
