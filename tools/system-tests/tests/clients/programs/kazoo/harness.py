"""Common code of all programs here: servers, results, and requests to the test runner. Independent of the recipes.

A program's only argument is the list of servers. Its output are its results: the same in every run,
for all kinds of servers. A line that begins with `!` is a request instead, answered on standard input.
"""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

# Longer than any failover takes, so that no session expires unintentionally; in seconds.
SESSION_TIMEOUT_S = 15.0

# Time limit of every condition, on a busy machine; in seconds.
PATIENCE_S = 60.0

# Long enough to show that a client waits, and that a wait ends; in seconds.
SHORT_S = 0.3

# Interval between two checks of a condition; in seconds.
LOOK_EVERY_S = 0.01

# Retry of a call whose server was lost: until there is an answer.
RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}

SERVERS = sys.argv[1]

logging.basicConfig(level=logging.WARNING)


def say(line):
    """Prints a result."""
    print(line, flush=True)


def check(holds, what):
    """Checks a condition without which the results mean nothing."""
    if not holds:
        raise AssertionError(f"it does not hold that {what}")


def wait_for(what, condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        check(time.monotonic() < deadline, f"{what}, in time")
        time.sleep(LOOK_EVERY_S)


def connect(**options):
    """Returns a connected client."""
    client = KazooClient(
        hosts=SERVERS, timeout=SESSION_TIMEOUT_S, connection_retry=RETRY, command_retry=RETRY, **options
    )
    client.start(timeout=PATIENCE_S)
    return client


def connect_all(count):
    """Returns connected clients."""
    return [connect() for _ in range(count)]


def server_of(client):
    """Returns the server that a client is connected to, as `host:port`; waits for the connection."""
    found = []

    def look():
        # kazoo has no public call for this.
        socket = client._connection._socket
        try:
            found[:] = ["%s:%d" % socket.getpeername()[:2]]
        except (AttributeError, OSError):
            return False
        return client.connected

    wait_for("a client is connected", look)
    return found[0]


def kill_server_of(client):
    """Kills the server that a client is connected to, with SIGKILL. Returns the server."""
    server = server_of(client)
    request("kill " + server)
    return server


def request(what):
    """Sends a request to the test runner, and waits until it is done."""
    say("!" + what)
    answer = sys.stdin.readline()
    check(answer == "done\n", f"{what} is done ({answer!r})")


def reconnected(clients):
    """Waits until each client has an answer after a failover."""
    for client in clients:
        client.retry(client.exists, "/")


def up_to_date(client):
    """Waits until a client sees everything that was acknowledged to others so far.

    A server that has applied a client's write has applied everything before it. (A `sync` at ZooKeeper's leader waits for
    nothing.)
    """
    client.retry(client.ensure_path, "/up-to-date")
    client.retry(client.set, "/up-to-date", b"")


def child_count(client, path):
    """Returns the current number of children of a znode; 0 if it does not exist."""
    up_to_date(client)
    try:
        return len(client.retry(client.get_children, path))
    except NoNodeError:
        return 0


class Threads:
    """Threads whose failures are reported."""

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
        """Waits until all have ended."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
            check(self._failures or not thread.is_alive(), "a thread ends")
        for failure in self._failures:
            raise failure


def contend(victim, turns, everybody):
    """Makes all compete at once, each in a thread of its own, and kills the server of `victim` in between.

    Each takes `turns` turns before, and as many after.
    """
    warm = [threading.Event() for _ in everybody]
    killed = threading.Event()

    def compete(take, is_warm):
        try:
            for _ in range(turns):
                take()
        finally:
            is_warm.set()
        # The kill happens during the competition, not in a pause.
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
    """Resource with a limited number of simultaneous users. Fails if there are more."""

    # Duration of a use, in which another user could enter; in seconds.
    USE_S = 0.002

    # A writer weighs as much as all possible readers.
    ALONE = 1000

    def __init__(self, limit):
        self.limit = limit
        self.most = 0
        self._users = 0
        self._lock = threading.Lock()

    def use(self, weight=1):
        """Uses it together with others."""
        with self._lock:
            self._users += weight
            self.most = max(self.most, self._users)
            check(self._users <= self.limit, f"the limit of users holds ({self._users} of {self.limit})")
        time.sleep(self.USE_S)
        with self._lock:
            self._users -= weight

    def use_alone(self):
        """Uses it exclusively."""
        self.use(self.limit)
