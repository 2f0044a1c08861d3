"""What the two faces, for threads and for asyncio, have in common: everything that sends no request."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._core import Core, Options, Wanted
from ._life import Hold, ReleaseRequest
from ._servers import StartSpan, Token
from .errors import LockLost, Loss

Json = Dict[str, Any]


@dataclass(frozen=True)
class Znode:
    """Znode as it was read. `data` is `None` for null data."""

    path: str
    data: Optional[bytes]
    version: int
    #: position of the last change, for `watch(since=…)`
    zxid: int
    stat: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The data as text."""
        return (self.data or b"").decode()

    @classmethod
    def of(cls, path: str, found: Json) -> "Znode":
        data = found.get("data")
        raw = base64.b64decode(found["data_base64"]) if data is None and found.get("data_base64") else None
        stat = found["stat"]
        return cls(path, raw if data is None else str(data).encode(), stat["version"], stat["mzxid"], stat)


class Grant:
    """Lock of either face: its grants, and what can be said about them without asking the cluster."""

    def __init__(self, core: Core, wanted: Wanted, wait: Optional[float]) -> None:
        self._core = core
        self._wanted = wanted
        self._wait = wait
        #: grants that were not released, the latest last; each has a hold per lock
        self._held: List[List[Hold]] = []
        self._last: List[Hold] = []
        self._on_lost: List[Callable[[Loss], Any]] = []
        self._on_request: List[Callable[[ReleaseRequest], Any]] = []

    @property
    def name(self) -> str:
        """Name of the lock; of several, joined by a comma."""
        return ",".join(lock["name"] for lock in self._wanted.locks)

    @property
    def token(self) -> int:
        """Fencing token of the latest grant: storage should refuse a write with a smaller one than it has seen."""
        return self.tokens[0]

    @property
    def tokens(self) -> Tuple[int, ...]:
        """Fencing tokens of the latest grant, one for each lock."""
        if not self._last:
            raise RuntimeError(f"the lock {self.name} was never acquired")
        return tuple(hold.token for hold in self._last)

    @property
    def holds(self) -> Tuple[Hold, ...]:
        """Holds of the latest grant, with `holder` and `mode`."""
        return tuple(self._last)

    @property
    def loss(self) -> Optional[Loss]:
        """Why the latest grant is lost, as of this moment, by the clock."""
        return next((loss for loss in (hold.loss() for hold in self._last) if loss is not None), None)

    def owned(self) -> bool:
        """Whether this object surely holds the lock at this moment. Asks nobody."""
        return bool(self._held) and self.loss is None

    def check(self) -> int:
        """Returns the fencing token if the lock is surely held at this moment; raises [`LockLost`][lockgate.LockLost] otherwise. Asks
        nobody, so call it before every step that needs the lock."""
        loss = self.loss
        if loss is not None:
            raise LockLost(loss)
        if not self._held:
            raise RuntimeError(f"the lock {self.name} is not held")
        return self.token

    def _current(self) -> Hold:
        """Returns the hold for a call that needs the lock."""
        self.check()
        return self._last[0]

    @property
    def release_requested(self) -> Optional[ReleaseRequest]:
        """Unanswered request of another caller that this lock be released."""
        return next((hold.request for hold in self._last if hold.request is not None), None)

    def _entered(self, holds: List[Hold]) -> None:
        self._held.append(holds)
        self._last = holds

    def _take(self) -> List[Hold]:
        """Returns the holds to release: none if they were released before."""
        if not self._last:
            raise RuntimeError(f"the lock {self.name} was never acquired")
        return self._held.pop() if self._held else []

    def _time(self, blocking: bool, timeout: Optional[float]) -> Optional[float]:
        if not blocking:
            return 0.0
        if timeout is None:
            return self._wait
        return None if timeout < 0 else timeout

    def __repr__(self) -> str:
        state = "held" if self.owned() else "lost" if self._held else "not held"
        return f"<{type(self).__name__} {self.name!r} {state}>"


L = TypeVar("L", bound=Grant)


class GateBase(Generic[L]):
    """What a gate is made of."""

    def __init__(
        self,
        servers: Union[str, Sequence[str]],
        *,
        ttl: float = 10.0,
        name: Optional[str] = None,
        patience: float = 10.0,
        at_leader: bool = False,
        token: Token = None,
        ca_file: Optional[str] = None,
        cert_file: Optional[str] = None,
        key_file: Optional[str] = None,
        traceparent: Union[str, Callable[[], Optional[str]], None] = None,
        on_request: Optional[Callable[[str, str, float], None]] = None,
        start_span: Optional[StartSpan] = None,
        transport: Optional[Any] = None,
    ) -> None:
        options = Options(
            servers=servers,
            ttl=ttl,
            name=name,
            patience=patience,
            at_leader=at_leader,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            traceparent=traceparent,
            on_request=on_request,
            start_span=start_span,
        )
        self._core = Core(options, transport)

    def _lock(self, wanted: Wanted, wait: Optional[float]) -> L:
        """Returns a lock of this face."""
        raise NotImplementedError

    def lock(
        self,
        name: str,
        wait: Optional[float] = None,
        *,
        owner: Optional[str] = None,
        note: Optional[str] = None,
        lock_delay: Optional[float] = None,
        min_hold: Optional[float] = None,
        max_hold: Optional[float] = None,
        mode: str = "exclusive",
        poll: bool = False,
    ) -> L:
        """Returns an exclusive lock. `wait`: `None` for ever, 0 to try. With an `owner`, the same owner may acquire it again. `note` is text
        for people, of at most 1,024 bytes. With `poll` a wait keeps no connection open, but asks by long polls: for proxies that cut idle
        connections."""
        wanted = Wanted.one(name, mode, None, None, owner, note, lock_delay, min_hold, max_hold, poll)
        return self._lock(wanted, wait)

    def shared(self, name: str, wait: Optional[float] = None, **options: Any) -> L:
        """Returns a shared lock: any number of holders, none of them exclusive."""
        return self.lock(name, wait, mode="shared", **options)

    def upgradeable(self, name: str, wait: Optional[float] = None, **options: Any) -> L:
        """Returns a lock for reading now and possibly writing later (`upgrade()`)."""
        return self.lock(name, wait, mode="upgradeable", **options)

    def semaphore(self, name: str, limit: Optional[int] = None, permits: int = 1, wait: Optional[float] = None, note: Optional[str] = None) -> L:
        """Returns a semaphore with `limit` permits in all (`None`: as it is set), of which it takes `permits`."""
        return self._lock(Wanted.one(name, "semaphore", limit, permits, note=note), wait)

    def locks(self, *names: Union[str, Wanted], wait: Optional[float] = None, owner: Optional[str] = None, note: Optional[str] = None) -> L:
        """Returns several locks, all or none. Callers that want some of the same cannot deadlock."""
        return self._lock(many(names, owner, note), wait)

    @property
    def session_id(self) -> Optional[str]:
        """Session that holds the locks of this gate; `None` before the first one, and after a loss."""
        session = self._core.session
        return session.id if session is not None and session.life.loss() is None else None

    @property
    def session_ttl(self) -> Optional[float]:
        """Time to live that the cluster has granted to the session."""
        session = self._core.session
        return session.life.ttl if session is not None else None

    def metrics(self) -> Dict[str, int]:
        """Returns counts: `requests`, `requests_ok`, `requests_CODE`, `sessions_opened`, `acquired`, `lost`."""
        return dict(self._core.counts)


def many(names: Sequence[Union[str, Wanted]], owner: Optional[str], note: Optional[str]) -> Wanted:
    """Returns the request for several locks: names, or what `lockgate.want` returns."""
    wanted = [name if isinstance(name, Wanted) else Wanted.one(name) for name in names]
    if not wanted:
        raise ValueError("at least one lock is needed")
    locks = tuple(lock for each in wanted for lock in each.locks)
    return Wanted(locks, owner, {} if note is None else {"note": note})
