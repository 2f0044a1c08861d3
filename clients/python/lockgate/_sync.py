"""Gate for programs with threads."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Any, Awaitable, Callable, Coroutine, Iterable, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from ._core import Wanted
from ._engine import Call
from ._faces import GateBase, Grant, Json, Znode
from ._life import Hold, ReleaseRequest
from .errors import LockgateError, Loss, NotAcquired

T = TypeVar("T")
log = logging.getLogger("lockgate")


def _run(coroutine: Coroutine[Any, Any, T], undo: Optional[Callable[[T], Awaitable[None]]] = None) -> T:
    return Call(coroutine, undo).result()


def _on_thread(callback: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Callbacks of the program run on threads of their own: a slow one must not hold up the heartbeats."""
    return lambda news: threading.Thread(target=callback, args=(news,), name="lockgate-callback", daemon=True).start()


class Lock(Grant):
    """Lock of a [`Gate`][lockgate.Gate], for `with`, or with the methods of `threading.Lock`.

    At the end of a `with` block [`LockLost`][lockgate.LockLost] is raised if the lock was lost meanwhile, unless the block raises another
    error. Long blocks call `check()` before each step, or wait for `lost`."""

    #: set when the latest grant is lost
    lost: threading.Event

    def acquire(self, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquires the lock. Returns `False` if it was not free in time. Without `timeout` the `wait` of the lock counts; -1 is for ever."""
        try:
            self._acquire(self._time(blocking, timeout))
        except NotAcquired:
            return False
        return True

    def _acquire(self, wait: Optional[float]) -> None:
        self._hold(_run(self._granted(wait), self._core.release))

    def _granted(self, wait: Optional[float]) -> Coroutine[Any, Any, List[Hold]]:
        return self._core.acquire(self._wanted, wait)

    def _hold(self, holds: List[Hold]) -> None:
        lost = self.lost = threading.Event()
        self._entered(holds)
        for hold in holds:
            hold.on_lost(lambda _: lost.set())
            for told in self._on_lost:
                hold.on_lost(_on_thread(told))
            for asked in self._on_request:
                hold.on_request(_on_thread(asked))

    def release(self) -> None:
        """Releases the latest grant. Released twice, nothing happens; [`LockLost`][lockgate.LockLost] if it was lost before."""
        holds = self._take()
        if holds:
            _run(self._core.release(holds))

    def on_lost(self, callback: Callable[[Loss], Any]) -> None:
        """Calls back, on a thread of its own, when this grant or a later one is lost."""
        self._on_lost.append(callback)
        for hold in self._last:
            hold.on_lost(_on_thread(callback))

    def on_release_request(self, callback: Callable[[ReleaseRequest], Any]) -> None:
        """Calls back, on a thread of its own, when another caller asks for the lock."""
        self._on_request.append(callback)
        for hold in self._last:
            hold.on_request(_on_thread(callback))

    def locked(self) -> bool:
        """Whether anybody holds the lock. Asks the cluster."""
        return any(_run(self._core.inspect(lock["name"]))["holders"] for lock in self._wanted.locks)

    def verify(self) -> bool:
        """Whether the cluster knows this grant as held at this moment."""
        return all(_run(self._core.is_held(hold.lock, hold.token)) for hold in self._last)

    def extend(self) -> None:
        """Renews the session now. It is renewed in the background anyway."""
        _run(self._core.extend(self._current()))

    def upgrade(self, wait: Optional[float] = None) -> int:
        """Makes an upgradeable lock exclusive, and returns its new fencing token."""
        _run(self._core.upgrade(self._current(), wait))
        return self.token

    def downgrade(self, mode: str = "shared") -> int:
        """Makes the lock `shared` or `upgradeable`, without a gap."""
        _run(self._core.downgrade(self._current(), mode))
        return self.token

    def reply_release(self, answer: str) -> None:
        """Answers a release request."""
        _run(self._core.reply_release(self._current(), answer))

    def __enter__(self: "L") -> "L":
        self._acquire(self._wait)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except LockgateError as failed:
            if error is None:
                raise
            log.warning("the lock %s, at the end of a block that failed: %s", self.name, failed)


L = TypeVar("L", bound=Lock)


class Leadership(Lock):
    """Candidate of an election: `with` waits until it leads, and resigns at the end."""

    def __init__(self, election: "Election", candidate: str, wait: Optional[float]) -> None:
        super().__init__(election._gate._core, Wanted.one(election.name, note=candidate), wait)
        self.candidate = candidate

    def _granted(self, wait: Optional[float]) -> Coroutine[Any, Any, List[Hold]]:
        return self._core.campaign(self.name, self.candidate, wait)

    campaign = Lock.acquire
    resign = Lock.release

    def hand_over(self, to: str) -> None:
        """Resigns in favour of a waiting candidate, who leads next. `ValueError` if nobody of that name waits."""
        _run(self._core.hand_over(self.name, self._current(), to))
        self._take()


class Election:
    """Election among the candidates that name the same lock."""

    def __init__(self, gate: "Gate", name: str) -> None:
        self._gate = gate
        self.name = name

    def candidate(self, candidate: str, wait: Optional[float] = None) -> Leadership:
        """Returns a candidate, which takes part by `with` or `campaign()`."""
        return Leadership(self, candidate, wait)

    def leader(self) -> Optional[str]:
        """Returns the candidate that leads."""
        return _run(self._gate._core.leader(self.name))

    def observe(self) -> Iterator[Optional[str]]:
        """Yields the leader, and every later one."""
        leads, known = None, False
        while True:
            leads, known = _run(self._gate._core.next_leader(self.name, leads, known)), True
            yield leads


class Lease:
    """Lock with a time to live of its own, which any process can renew and release by `text`. Whoever knows the text may do so."""

    def __init__(self, gate: "Gate", text: str, token: Optional[int] = None, expires_in: Optional[float] = None) -> None:
        self._core = gate._core
        self.text = text
        self.token = token
        self.expires_in = expires_in

    def renew(self, ttl: Optional[float] = None) -> float:
        """Renews it for `ttl` seconds, or for the time of before. Returns the seconds that are left."""
        return self._renewed(_run(self._core.lease_renew(self.text, ttl)))

    def _renewed(self, state: Json) -> float:
        self.token, self.expires_in = state["fencing_token"], state["expires_in_ms"] / 1000
        return self.expires_in

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits in the queue until the lease has its lock, and renews it meanwhile. Returns `False` when the time is over: the place in the queue
        stays until the lease is released or ends."""
        self._renewed(_run(self._core.lease_wait(self.text, timeout)))
        return self.token is not None

    def release(self) -> None:
        """Releases the lock. May be repeated."""
        _run(self._core.lease_release(self.text))

    def inspect(self) -> Json:
        """Returns lock, holder, state (`holds`, `waits`), fencing token, time that is left, and note."""
        return _run(self._core.lease_get(self.text))

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Gate(GateBase[Lock]):
    """Access to the locks of a cluster, given by some of its servers (`HOST:PORT`). Opens no connection before it is used; all its locks are
    held by one session, which is renewed in the background. Times are in seconds."""

    def _lock(self, wanted: Wanted, wait: Optional[float]) -> Lock:
        return Lock(self._core, wanted, wait)

    def election(self, name: str) -> Election:
        """Returns an election."""
        return Election(self, name)

    def lease(
        self,
        name: str,
        ttl: float,
        wait: Optional[float] = 0,
        *,
        note: Optional[str] = None,
        min_hold: Optional[float] = None,
        max_hold: Optional[float] = None,
        queue: bool = False,
    ) -> Lease:
        """Acquires a lock for `ttl` seconds, without a session. Nothing renews it but `Lease.renew`. With `queue` it returns at once, if need be
        with a place in the queue (`token` is `None`), for which `Lease.wait` waits."""
        core, wanted = self._core, Wanted.one(name, note=note, min_hold=min_hold, max_hold=max_hold, poll=queue)
        granted = _run(core.lease_acquire(wanted, ttl, 0 if queue else wait), lambda late: core.lease_release(late["lease"]))
        return Lease(self, granted["lease"], granted.get("fencing_token"), granted["expires_in_ms"] / 1000)

    def leases(self, names: Iterable[str], ttl: float, *, note: Optional[str] = None) -> List[Union[Lease, LockgateError]]:
        """Acquires many locks for `ttl` seconds each, by one request for each 128, without waiting. Returns a lease or an error for each."""
        core = self._core

        async def give_back(late: List[Any]) -> None:
            await core.leases_release([grant["lease"] for grant in late if isinstance(grant, dict)])

        grants = _run(core.leases_acquire(list(names), ttl, note), give_back)
        return [
            Lease(self, grant["lease"], grant["fencing_token"], grant["expires_in_ms"] / 1000) if isinstance(grant, dict) else grant
            for grant in grants
        ]

    def renew_leases(self, leases: Iterable[Lease], ttl: Optional[float] = None) -> List[Union[float, LockgateError]]:
        """Renews many leases, by one request for each 128. Returns for each the seconds that are left, or an error."""
        leases = list(leases)
        states = _run(self._core.leases_renew([lease.text for lease in leases], ttl))
        return [lease._renewed(state) if isinstance(state, dict) else state for lease, state in zip(leases, states)]

    def release_leases(self, leases: Iterable[Lease]) -> List[Optional[LockgateError]]:
        """Releases many leases, by one request for each 128. Returns `None` or an error for each."""
        released = _run(self._core.leases_release([lease.text for lease in leases]))
        return [None if isinstance(each, dict) else each for each in released]

    def resume_lease(self, text: str) -> Lease:
        """Returns the lease that another process has written down."""
        return Lease(self, text)

    def inspect(self, lock: str) -> Json:
        """Returns who holds a lock, and who waits for it."""
        return _run(self._core.inspect(lock))

    def request_release(self, lock: str, reason: str) -> None:
        """Asks the holders of a lock to release it."""
        _run(self._core.request_release(lock, reason))

    def break_lock(self, lock: str, reason: str, holder: Optional[str] = None) -> None:
        """Takes a lock from its holders by force. They learn of it, but may be in the middle of a step."""
        _run(self._core.break_lock(lock, reason, holder))

    def create(self, path: str, data: Union[str, bytes] = b"", mode: str = "persistent", ttl: Optional[float] = None, parents: bool = False) -> str:
        """Creates a znode, and returns its path. Ephemeral ones live as long as the session of this gate."""
        return _run(self._core.create(path, data, mode, ttl, parents))

    def get(self, path: str) -> Znode:
        """Reads a znode."""
        return Znode.of(path, _run(self._core.get(path)))

    def set(self, path: str, data: Union[str, bytes], version: Optional[int] = None) -> int:
        """Replaces the data, if it has this version, and returns the new one."""
        return int(_run(self._core.set(path, data, version))["version"])

    def delete(self, path: str, version: Optional[int] = None, recursive: bool = False) -> None:
        """Deletes a znode."""
        _run(self._core.delete(path, version, recursive))

    def children(self, path: str) -> List[str]:
        """Returns the names of the children."""
        return _run(self._core.children(path))

    def watch(self, path: str, kind: str = "data", timeout: Optional[float] = None, since: Optional[int] = None) -> Optional[Json]:
        """Waits for one change: of `data`, `children`, or whether it `exists`. `since` is the `zxid` of an earlier read, after which no change
        is missed. Returns `None` when the time is over."""
        return _run(self._core.watch(path, kind, timeout, since))

    def transaction(self, operations: Iterable[Mapping[str, Any]], while_held: Sequence[Lock] = ()) -> List[Json]:
        """Applies all operations (as in the HTTP API) or none; with `while_held`, only while these locks are held."""
        holds = [hold for lock in while_held for hold in lock.holds]
        return _run(self._core.transaction([dict(operation) for operation in operations], holds))

    def close(self) -> None:
        """Closes the session: its locks are free at once. Done at the end of the program too."""
        _run(self._core.close())

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
