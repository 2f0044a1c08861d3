"""What every program here shares: its servers, its results, and its requests to whoever runs it. Knows no recipe.

A program's only argument is the list of servers. What it prints are its results: the same ones in every run, whatever
the servers are. A line that begins with `!` is no result but a request, which is answered on standard input.
"""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

# Longer than any failover takes, so that no session ends that was not meant to; in seconds.
SESSION_TIMEOUT_S = 15.0

# No condition takes longer to come true, on however busy a machine; in seconds.
PATIENCE_S = 60.0

# Long enough to show that somebody waits, and that a wait ends; in seconds.
SHORT_S = 0.3

# How often a condition is looked at; in seconds.
LOOK_EVERY_S = 0.01

# How a call is made again whose server was lost: until it is answered.
RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}

SERVERS = sys.argv[1]

logging.basicConfig(level=logging.WARNING)


def say(line):
    """A result."""
    print(line, flush=True)


def check(holds, what):
    """What must hold for the results to mean anything."""
    if not holds:
        raise AssertionError(f"it does not hold that {what}")


def wait_for(what, condition):
    """Waits until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        check(time.monotonic() < deadline, f"at last, {what}")
        time.sleep(LOOK_EVERY_S)


def connect(**options):
    """A client that is connected."""
    client = KazooClient(
        hosts=SERVERS, timeout=SESSION_TIMEOUT_S, connection_retry=RETRY, command_retry=RETRY, **options
    )
    client.start(timeout=PATIENCE_S)
    return client


def connect_all(count):
    """As many clients."""
    return [connect() for _ in range(count)]


def server_of(client):
    """Which server a client is connected to, as `host:port`; it is waited for."""
    found = []

    def look():
        # kazoo has no call for this.
        socket = client._connection._socket
        try:
            found[:] = ["%s:%d" % socket.getpeername()[:2]]
        except (AttributeError, OSError):
            return False
        return client.connected

    wait_for("a client is connected", look)
    return found[0]


def kill_server_of(client):
    """Kills the server that a client is connected to, with SIGKILL. Says which one it was."""
    server = server_of(client)
    request("kill " + server)
    return server


def request(what):
    """Asks whoever runs this program for something, and waits until it is done."""
    say("!" + what)
    answer = sys.stdin.readline()
    check(answer == "done\n", f"{what} is done ({answer!r})")


def reconnected(clients):
    """Makes sure that the clients have lived through a failover: each has been answered."""
    for client in clients:
        client.retry(client.exists, "/")


def up_to_date(client):
    """Makes sure that a client sees what was answered to others until now.

    A server that has carried out a client's write has all that was before it. (A `sync` at ZooKeeper's leader waits for
    nothing.)
    """
    client.retry(client.ensure_path, "/up-to-date")
    client.retry(client.set, "/up-to-date", b"")


def child_count(client, path):
    """How many children a znode has by now; none if it is not there."""
    up_to_date(client)
    try:
        return len(client.retry(client.get_children, path))
    except NoNodeError:
        return 0


class Threads:
    """Threads whose failures are not lost."""

    def __init__(self):
        self._threads = []
        self._failures = []

    def start(self, function, *arguments):
        """Runs a function in a thread of its own."""

        def run():
            try:
                function(*arguments)
            except BaseException as failure:
                self._failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self):
        """Waits for the ends of all."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
            check(self._failures or not thread.is_alive(), "a thread ends")
        for failure in self._failures:
            raise failure


def contend(victim, turns, everybody):
    """Has all compete at once, each in a thread of its own, and kills the server of `victim` in the middle.

    Everybody has taken so many turns before, and takes as many after.
    """
    warm = [threading.Event() for _ in everybody]
    killed = threading.Event()

    def compete(take, is_warm):
        try:
            for _ in range(turns):
                take()
        finally:
            is_warm.set()
        # The kill comes while everybody competes, not in a pause.
        while not killed.is_set():
            take()
        for _ in range(turns):
            take()

    threads = Threads()
    for take, is_warm in zip(everybody, warm):
        threads.start(compete, take, is_warm)
    for is_warm in warm:
        check(is_warm.wait(PATIENCE_S), "all have had their first turns")
    kill_server_of(victim)
    killed.set()
    threads.join()


class LimitedResource:
    """Something that only so many may use at once. Notices if more do."""

    # A use takes so long, for another to come in if it could; in seconds.
    USE_S = 0.002

    # A writer weighs as much as all readers that there may be.
    ALONE = 1000

    def __init__(self, limit):
        self.limit = limit
        self.most = 0
        self._users = 0
        self._lock = threading.Lock()

    def use(self, weight=1):
        """One of those that share it."""
        with self._lock:
            self._users += weight
            self.most = max(self.most, self._users)
            check(self._users <= self.limit, f"no more use the resource than may ({self._users} of {self.limit})")
        time.sleep(self.USE_S)
        with self._lock:
            self._users -= weight

    def use_alone(self):
        """One that must be alone."""
        self.use(self.limit)
