"""Locks of Lockgate over HTTP, for the programs that share a queue with HTTP callers. Independent of ZooKeeper."""

import itertools
import json
import os
import time
import urllib.error
import urllib.request
import uuid

from harness import PATIENCE_S, check

# HTTP addresses of the nodes: `host:port,host:port`.
SERVERS = os.environ["LOCKGATE_HTTP"].split(",")

# Session TTL, longer than any of these programs runs, since they send no heartbeats; in milliseconds.
TTL_MS = 120_000

# Pause before a call is repeated whose node was lost; in seconds.
PAUSE_S = 0.05


class Refused(Exception):
    """The call was rejected."""

    def __init__(self, document):
        super().__init__(document.get("code"))
        self.code = document.get("code")


def call(method, path, body=None):
    """Sends a request, and repeats it at the next node until there is an answer; the request id makes it idempotent."""
    if body is not None and method == "POST":
        body = {**body, "request_id": uuid.uuid4().hex}
    deadline = time.monotonic() + PAUSE_S + PATIENCE_S
    for server in itertools.cycle(SERVERS):
        check(time.monotonic() < deadline, f"{method} {path} is answered")
        request = urllib.request.Request(
            f"http://{server}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            document = json.loads(error.read())
            if error.code not in (500, 502, 503, 504):
                raise Refused(document) from error
        except (OSError, json.JSONDecodeError):
            # The node was lost, before or during its answer.
            pass
        time.sleep(PAUSE_S)


class HttpLock:
    """A lock, with a session of its own."""

    def __init__(self, name, **wish):
        self.name = name
        self.wish = wish
        self.session = call("POST", "/v1/sessions", {"ttl_ms": TTL_MS})["session"]
        self.holder = None

    def acquire(self, wait_ms=None):
        """Acquires the lock; returns whether that succeeded in time."""
        body = {"session": self.session, "wait_ms": wait_ms, **self.wish}
        try:
            self.holder = call("POST", f"/v1/locks/{self.name}/acquire", body)["holder"]
        except Refused as refused:
            check(refused.code in ("lock_timeout", "lock_busy"), f"it is not had in time ({refused.code})")
            return False
        return True

    def release(self):
        """Releases the lock."""
        call("POST", f"/v1/locks/{self.name}/release", {"session": self.session, "holder": self.holder})

    def __enter__(self):
        check(self.acquire(), "it is granted")

    def __exit__(self, *_):
        self.release()


def queue_of(name):
    """Returns the numbers of holders and waiters of a lock."""
    try:
        lock = call("GET", f"/v1/locks/{name}?linearizable=true")
    except Refused as refused:
        check(refused.code == "no_lock", f"there is no lock ({refused.code})")
        return 0, 0
    return len(lock["holders"]), len(lock["queue"])
