"""Gate for asyncio, with the names of [`lockgate`][lockgate]. Requests and heartbeats run on the engine's thread, so a task that blocks the
program's loop delays no heartbeat.

    from lockgate.aio import Gate

    async with Gate(["127.0.0.1:7401"]) as gate, gate.lock("orders/42", wait=10) as lock:
        print(lock.token)

At a loss the task in the block is cancelled, and the block ends with [`LockLost`][lockgate.LockLost]."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from ._core import Wanted
from ._engine import Call
from ._faces import GateBase, Grant, Json, Znode
from ._life import Hold, ReleaseRequest
from .errors import LockgateError, LockLost, Loss, NotAcquired

T = TypeVar("T")
log = logging.getLogger("lockgate")


async def _run(coroutine: Coroutine[Any, Any, T], undo: Optional[Callable[[T], Awaitable[None]]] = None) -> T:
    return await Call(coroutine, undo).wait()


def _in_loop(callback: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Callbacks run in the loop of the program."""
    loop = asyncio.get_running_loop()

    def notify(news: Any) -> None:
        try:
            loop.call_soon_threadsafe(callback, news)
        except RuntimeError:
            log.debug("the loop is closed: nobody hears of %s", news)

    return notify


class _Block:
    """Task in an `async with` block, which is cancelled when the lock is lost."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a block needs a task")
        self.task = task
        self.left = False
        self.interrupted = False

    def interrupt(self, _: Loss) -> None:
        # The task awaits something in its block, so the cancellation arrives there.
        if not self.left and not self.interrupted:
            self.interrupted = True
            self.task.cancel()

    def is_own_cancellation(self) -> bool:
        """Whether the task is cancelled because of the loss, and by nobody else."""
        if not self.interrupted:
            return False
        uncancel = getattr(self.task, "uncancel", None)
        return uncancel is None or uncancel() == 0


class Lock(Grant):
    """Lock of a [`Gate`][lockgate.aio.Gate], for `async with`, or with the methods of `asyncio.Lock`."""

    #: set when the latest grant is lost
    lost: asyncio.Event
    _blocks: List[_Block]

    async def acquire(self, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquires the lock. Returns `False` if it was not free in time. Without `timeout` the `wait` of the lock counts; -1 is for ever.
        Cancelled, it leaves the queue."""
        try:
            await self._acquire(self._time(blocking, timeout))
        except NotAcquired:
            return False
        return True

    async def _acquire(self, wait: Optional[float]) -> None:
        self._hold(await _run(self._granted(wait), self._core.release))

    def _granted(self, wait: Optional[float]) -> Coroutine[Any, Any, List[Hold]]:
        return self._core.acquire(self._wanted, wait)

    def _hold(self, holds: List[Hold]) -> None:
        lost = self.lost = asyncio.Event()
        self._entered(holds)
        for hold in holds:
            hold.on_lost(_in_loop(lambda _: lost.set()))
            for told in self._on_lost:
                hold.on_lost(_in_loop(told))
            for asked in self._on_request:
                hold.on_request(_in_loop(asked))

    async def release(self) -> None:
        """Releases the latest grant. Released twice, nothing happens; [`LockLost`][lockgate.LockLost] if it was lost before."""
        holds = self._take()
        if holds:
            # Cancelled, it is released all the same.
            await asyncio.shield(asyncio.ensure_future(_run(self._core.release(holds))))

    def on_lost(self, callback: Callable[[Loss], Any]) -> None:
        """Calls back, in this loop, when this grant or a later one is lost."""
        self._on_lost.append(callback)
        for hold in self._last:
            hold.on_lost(_in_loop(callback))

    def on_release_request(self, callback: Callable[[ReleaseRequest], Any]) -> None:
        """Calls back, in this loop, when another caller asks for the lock."""
        self._on_request.append(callback)
        for hold in self._last:
            hold.on_request(_in_loop(callback))

    async def locked(self) -> bool:
        """Whether anybody holds the lock. Asks the cluster."""
        found = [await _run(self._core.inspect(lock["name"])) for lock in self._wanted.locks]
        return any(each["holders"] for each in found)

    async def verify(self) -> bool:
        """Whether the cluster knows this grant as held at this moment."""
        return all([await _run(self._core.is_held(hold.lock, hold.token)) for hold in self._last])

    async def extend(self) -> None:
        """Renews the session now. It is renewed in the background anyway."""
        await _run(self._core.extend(self._current()))

    async def upgrade(self, wait: Optional[float] = None) -> int:
        """Makes an upgradeable lock exclusive, and returns its new fencing token."""
        await _run(self._core.upgrade(self._current(), wait))
        return self.token

    async def downgrade(self, mode: str = "shared") -> int:
        """Makes the lock `shared` or `upgradeable`, without a gap."""
        await _run(self._core.downgrade(self._current(), mode))
        return self.token

    async def reply_release(self, answer: str) -> None:
        """Answers a release request."""
        await _run(self._core.reply_release(self._current(), answer))

    async def __aenter__(self: "L") -> "L":
        block = _Block()
        await self._acquire(self._wait)
        self._blocks = [*getattr(self, "_blocks", []), block]
        for hold in self._last:
            hold.on_lost(_in_loop(block.interrupt))
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        block = self._blocks.pop()
        block.left = True
        by_loss = isinstance(error, asyncio.CancelledError) and block.is_own_cancellation()
        loss = self.loss
        try:
            await self.release()
        except LockgateError as failed:
            if error is None:
                raise
            log.warning("the lock %s, at the end of a block that failed: %s", self.name, failed)
        if by_loss and loss is not None:
            raise LockLost(loss) from None


L = TypeVar("L", bound=Lock)


class Leadership(Lock):
    """Candidate of an election: `async with` waits until it leads, and resigns at the end."""

    def __init__(self, election: "Election", candidate: str, wait: Optional[float]) -> None:
        super().__init__(election._gate._core, Wanted.one(election.name, note=candidate), wait)
        self.candidate = candidate

    def _granted(self, wait: Optional[float]) -> Coroutine[Any, Any, List[Hold]]:
        return self._core.campaign(self.name, self.candidate, wait)

    campaign = Lock.acquire
    resign = Lock.release

    async def hand_over(self, to: str) -> None:
        """Resigns in favour of a waiting candidate, who leads next. `ValueError` if nobody of that name waits."""
        await _run(self._core.hand_over(self.name, self._current(), to))
        self._take()


class Election:
    """Election among the candidates that name the same lock."""

    def __init__(self, gate: "Gate", name: str) -> None:
        self._gate = gate
        self.name = name

    def candidate(self, candidate: str, wait: Optional[float] = None) -> Leadership:
        """Returns a candidate, which takes part by `async with` or `campaign()`."""
        return Leadership(self, candidate, wait)

    async def leader(self) -> Optional[str]:
        """Returns the candidate that leads."""
        return await _run(self._gate._core.leader(self.name))

    async def observe(self) -> AsyncIterator[Optional[str]]:
        """Yields the leader, and every later one."""
        leads, known = None, False
        while True:
            leads, known = await _run(self._gate._core.next_leader(self.name, leads, known)), True
            yield leads


class Lease:
    """Lock with a time to live of its own, which any process can renew and release by `text`. Whoever knows the text may do so."""

    def __init__(self, gate: "Gate", text: str, token: Optional[int] = None, expires_in: Optional[float] = None) -> None:
        self._core = gate._core
        self.text = text
        self.token = token
        self.expires_in = expires_in

    async def renew(self, ttl: Optional[float] = None) -> float:
        """Renews it for `ttl` seconds, or for the time of before. Returns the seconds that are left."""
        return self._renewed(await _run(self._core.lease_renew(self.text, ttl)))

    def _renewed(self, state: Json) -> float:
        self.token, self.expires_in = state["fencing_token"], state["expires_in_ms"] / 1000
        return self.expires_in

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits in the queue until the lease has its lock, and renews it meanwhile. Returns `False` when the time is over: the place in the queue
        stays until the lease is released or ends."""
        self._renewed(await _run(self._core.lease_wait(self.text, timeout)))
        return self.token is not None

    async def release(self) -> None:
        """Releases the lock. May be repeated."""
        await _run(self._core.lease_release(self.text))

    async def inspect(self) -> Json:
        """Returns lock, holder, state (`holds`, `waits`), fencing token, time that is left, and note."""
        return await _run(self._core.lease_get(self.text))

    async def __aenter__(self) -> "Lease":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


class Gate(GateBase[Lock]):
    """Access to the locks of a cluster, as [`lockgate.Gate`][lockgate.Gate]. It may be made before the loop runs."""

    def _lock(self, wanted: Wanted, wait: Optional[float]) -> Lock:
        return Lock(self._core, wanted, wait)

    def election(self, name: str) -> Election:
        """Returns an election."""
        return Election(self, name)

    async def lease(
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
        granted = await _run(core.lease_acquire(wanted, ttl, 0 if queue else wait), lambda late: core.lease_release(late["lease"]))
        return Lease(self, granted["lease"], granted.get("fencing_token"), granted["expires_in_ms"] / 1000)

    async def leases(self, names: Iterable[str], ttl: float, *, note: Optional[str] = None) -> List[Union[Lease, LockgateError]]:
        """Acquires many locks for `ttl` seconds each, by one request for each 128, without waiting. Returns a lease or an error for each."""
        core = self._core

        async def give_back(late: List[Any]) -> None:
            await core.leases_release([grant["lease"] for grant in late if isinstance(grant, dict)])

        grants = await _run(core.leases_acquire(list(names), ttl, note), give_back)
        return [
            Lease(self, grant["lease"], grant["fencing_token"], grant["expires_in_ms"] / 1000) if isinstance(grant, dict) else grant
            for grant in grants
        ]

    async def renew_leases(self, leases: Iterable[Lease], ttl: Optional[float] = None) -> List[Union[float, LockgateError]]:
        """Renews many leases, by one request for each 128. Returns for each the seconds that are left, or an error."""
        leases = list(leases)
        states = await _run(self._core.leases_renew([lease.text for lease in leases], ttl))
        return [lease._renewed(state) if isinstance(state, dict) else state for lease, state in zip(leases, states)]

    async def release_leases(self, leases: Iterable[Lease]) -> List[Optional[LockgateError]]:
        """Releases many leases, by one request for each 128. Returns `None` or an error for each."""
        released = await _run(self._core.leases_release([lease.text for lease in leases]))
        return [None if isinstance(each, dict) else each for each in released]

    def resume_lease(self, text: str) -> Lease:
        """Returns the lease that another process has written down."""
        return Lease(self, text)

    async def inspect(self, lock: str) -> Json:
        """Returns who holds a lock, and who waits for it."""
        return await _run(self._core.inspect(lock))

    async def request_release(self, lock: str, reason: str) -> None:
        """Asks the holders of a lock to release it."""
        await _run(self._core.request_release(lock, reason))

    async def break_lock(self, lock: str, reason: str, holder: Optional[str] = None) -> None:
        """Takes a lock from its holders by force. They learn of it, but may be in the middle of a step."""
        await _run(self._core.break_lock(lock, reason, holder))

    async def create(
        self, path: str, data: Union[str, bytes] = b"", mode: str = "persistent", ttl: Optional[float] = None, parents: bool = False
    ) -> str:
        """Creates a znode, and returns its path. Ephemeral ones live as long as the session of this gate."""
        return await _run(self._core.create(path, data, mode, ttl, parents))

    async def get(self, path: str) -> Znode:
        """Reads a znode."""
        return Znode.of(path, await _run(self._core.get(path)))

    async def set(self, path: str, data: Union[str, bytes], version: Optional[int] = None) -> int:
        """Replaces the data, if it has this version, and returns the new one."""
        return int((await _run(self._core.set(path, data, version)))["version"])

    async def delete(self, path: str, version: Optional[int] = None, recursive: bool = False) -> None:
        """Deletes a znode."""
        await _run(self._core.delete(path, version, recursive))

    async def children(self, path: str) -> List[str]:
        """Returns the names of the children."""
        return await _run(self._core.children(path))

    async def watch(self, path: str, kind: str = "data", timeout: Optional[float] = None, since: Optional[int] = None) -> Optional[Json]:
        """Waits for one change: of `data`, `children`, or whether it `exists`. `since` is the `zxid` of an earlier read, after which no change
        is missed. Returns `None` when the time is over."""
        return await _run(self._core.watch(path, kind, timeout, since))

    async def transaction(self, operations: Iterable[Mapping[str, Any]], while_held: Sequence[Lock] = ()) -> List[Json]:
        """Applies all operations (as in the HTTP API) or none; with `while_held`, only while these locks are held."""
        holds = [hold for lock in while_held for hold in lock.holds]
        return await _run(self._core.transaction([dict(operation) for operation in operations], holds))

    async def close(self) -> None:
        """Closes the session: its locks are free at once. Done at the end of the program too."""
        await _run(self._core.close())

    async def __aenter__(self) -> "Gate":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
