"""The description of the machine: everything on which the figures depend, and no date."""

import os
import pathlib
import platform
import socket
import statistics
import time

# Number of syncs of the disk, of which the median counts.
SYNCS = 2000
# Bytes that are appended before each sync, and sent to a peer and back: as many as a log entry with a lock
# has.
BYTES = 512
# Number of measured round trips.
ROUND_TRIPS = 5000
# Timeout of a message on the loopback: longer than any takes.
TIMEOUT_SECONDS = 10


def describe(directory):
    """Returns the machine as a dictionary."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "file_system": file_system(directory),
        "fdatasync_us": fdatasync(directory),
        "round_trip_us": round_trip(),
    }


def sentence(machine):
    """Describes the machine in a sentence."""
    trip = machine.get("round_trip_us")
    also = f", and a round trip of as much between two processes {microseconds(trip)}" if trip else ""
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"{machine['file_system']}; appending {BYTES} bytes and `fdatasync` take {microseconds(machine['fdatasync_us'])}{also} in the median."
    )


def microseconds(measured):
    """Formats one figure, or the minimum and maximum of several."""
    some = measured if isinstance(measured, list) else [measured]
    return f"{min(some)} µs" if min(some) == max(some) else f"{min(some)} to {max(some)} µs"


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def file_system(directory):
    """Returns the type of the file system, that of the longest matching mount point."""
    best = ("", "an unknown file system")
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        below = str(directory).startswith(point.rstrip("/") + "/")
        if below and len(point) > len(best[0]):
            best = (point, kind)
    return best[1]


def fdatasync(directory):
    """Returns the median time of an append with its sync in microseconds."""
    times = []
    path = directory / "fdatasync"
    with open(path, "wb", buffering=0) as file:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            file.write(b"x" * BYTES)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    path.unlink()
    return round(statistics.median(times) * 1e6)


def round_trip():
    """Returns the median time of a message to another process and back over the loopback, in microseconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_SECONDS)
        child = os.fork()
        if child == 0:
            echo(server.getsockname())
        try:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(TIMEOUT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return round(statistics.median(trips(connection)) * 1e6)
        finally:
            # The child ends when its connection is closed.
            os.waitpid(child, 0)


def trips(connection):
    message = b"x" * BYTES
    for _ in range(ROUND_TRIPS):
        begin = time.perf_counter()
        connection.sendall(message)
        left = BYTES
        while left:
            got = len(connection.recv(left))
            if not got:
                raise SystemExit("the other process of the round trips ended")
            left -= got
        yield time.perf_counter() - begin


def echo(address):
    """Runs the child, and never returns."""
    code = 1
    try:
        with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while received := connection.recv(BYTES):
                connection.sendall(received)
        code = 0
    finally:
        os._exit(code)
