"""Client of the Lockgate lock server, for threads (`lockgate.Gate`) and for asyncio (`lockgate.aio.Gate`).

    from lockgate import Gate

    gate = Gate(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"])
    with gate.lock("orders/42", wait=10) as lock:
        print(lock.token)

Read the modules in this order: `errors`, `_life` (until when a lock is held), `_servers` (what an answer means), `_session` (heartbeats and
events), `_acquire` (a call that waits), `_core` (all operations), `_engine` (the thread), `_sync` and `aio` (the two faces), `fake`.
"""

from ._core import Wanted
from ._faces import Znode
from ._life import ReleaseRequest
from ._sync import Election, Gate, Leadership, Lease, Lock
from ._version import VERSION
from .errors import GateClosed, LockgateError, LockLost, Loss, NotAcquired, OutcomeUnknown, Refused, Unavailable

__version__ = VERSION

#: One of several locks, for `Gate.locks`: `want("a", mode="shared")`.
want = Wanted.one

__all__ = [
    "Election",
    "Gate",
    "GateClosed",
    "Leadership",
    "Lease",
    "Lock",
    "LockLost",
    "LockgateError",
    "Loss",
    "NotAcquired",
    "OutcomeUnknown",
    "Refused",
    "ReleaseRequest",
    "Unavailable",
    "Wanted",
    "Znode",
    "want",
]
