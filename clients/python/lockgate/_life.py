"""Life of one session: its deadline, its holds, and who is notified of their loss. Sends no requests; usable from every thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

from .errors import Loss

log = logging.getLogger("lockgate")

#: Longest memory of lost holders whose grants may still be on their way.
_MAX_GONE = 256

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds on a clock that goes on while the machine is suspended. (`time.monotonic` does so too on macOS and Windows.)"""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


@dataclass(frozen=True)
class Margin:
    """Safety margin that is subtracted from the TTL. The TTL is counted from when a heartbeat was *sent*, so network delays are covered."""

    #: part by which the local clock may be slower than the cluster's
    rate: float = 0.01
    #: seconds between the reported loss and the end of the TTL, in which the program can stop its work
    notice: float = 0.1

    def valid_until(self, sent: float, ttl: float) -> float:
        """Returns the end of the time in which a session surely lives, after a confirmed heartbeat."""
        return sent + max(0.0, ttl - ttl * self.rate - self.notice)


@dataclass(frozen=True)
class ReleaseRequest:
    """Request of another caller that a holder release its lock."""

    by: str
    reason: str
    requested_at: str

    @classmethod
    def of(cls, news: Dict[str, Any]) -> "ReleaseRequest":
        return cls(str(news.get("by", "")), str(news.get("reason", "")), str(news.get("requested_at", "")))


class Hold:
    """One granted lock. Re-entered grants of one holder share it."""

    def __init__(self, life: "Life", grant: Dict[str, Any], owner: Optional[str]) -> None:
        self.life = life
        self.lock: str = grant["lock"]
        self.holder: str = grant["holder"]
        self.mode: str = grant.get("mode", "exclusive")
        self.token: int = grant["fencing_token"]
        self.owner = owner
        self.since = now()
        self.entries = 0
        self.request: Optional[ReleaseRequest] = None
        self._told: Optional[float] = None
        self._loss: Optional[Loss] = None
        self._on_lost: List[Callable[[Loss], object]] = []
        self._on_request: List[Callable[[ReleaseRequest], object]] = []

    def loss(self) -> Optional[Loss]:
        """Returns why the lock is lost, as of this moment. The clock decides, whether or not a heartbeat has noticed."""
        self.life.loss()
        return self._loss

    def on_lost(self, callback: Callable[[Loss], object]) -> None:
        """Calls back at the loss, from any thread; at once if it is lost already."""
        with self.life.lock:
            if self._loss is None:
                self._on_lost.append(callback)
                return
        callback(self._loss)

    def on_request(self, callback: Callable[[ReleaseRequest], object]) -> None:
        """Calls back at each release request; at once if there is one."""
        with self.life.lock:
            self._on_request.append(callback)
            request = self.request
        if request:
            callback(request)


_Calls = List[Callable[[], object]]


class Life:
    """Deadline and holds of one session."""

    def __init__(self, session: str, sent: float, ttl: float, margin: Margin) -> None:
        self.lock = threading.RLock()
        self.session = session
        self.ttl = ttl
        self.margin = margin
        self.confirmed = sent
        self.followed = False
        self.first_token: Optional[int] = None
        self.holds: Dict[str, Hold] = {}
        self._loss: Optional[Loss] = None
        self._gone: Deque[Tuple[str, Loss]] = deque(maxlen=_MAX_GONE)

    @property
    def valid_until(self) -> float:
        """End of the time in which the session surely lives."""
        return self.margin.valid_until(self.confirmed, self.ttl)

    def confirm(self, sent: float, ttl: float) -> None:
        """Records a confirmed heartbeat that was sent at this time. A lost session stays lost, because its loss was reported."""
        with self.lock:
            if self.loss() is None and sent >= self.confirmed:
                self.confirmed, self.ttl = sent, ttl

    def loss(self) -> Optional[Loss]:
        """Reads the clock. Returns why the session is lost."""
        if self._loss is None and now() >= self.valid_until:
            self.lose(Loss("no_heartbeat"))
        return self._loss

    def lose(self, loss: Loss) -> None:
        """Ends the session, unless it is lost already."""
        calls: _Calls = []
        with self.lock:
            if self._loss is not None:
                return
            self._loss = loss
            if loss.reason != "closed":
                log.warning("session %s is lost, with the locks %s: %s", self.session, self._names(), loss)
            for hold in self.holds.values():
                self._lose(hold, loss, calls)
            self.holds.clear()
        _run(calls)

    def forked(self) -> None:
        """Ends the session in the child of a fork, without a notice: the parent goes on with it."""
        self.lock = threading.RLock()
        self._loss = Loss("closed", detail="it belongs to the parent process")
        for hold in self.holds.values():
            hold._loss = self._loss
        self.holds.clear()

    def _names(self) -> List[str]:
        return [hold.lock for hold in self.holds.values()]

    def _lose(self, hold: Hold, loss: Loss, calls: _Calls) -> None:
        if hold._loss is None:
            hold._loss = loss
            calls += [lambda told=told: told(loss) for told in hold._on_lost]  # type: ignore[misc]
            hold._on_lost.clear()

    def enter(self, grant: Dict[str, Any], owner: Optional[str]) -> Hold:
        """Adds a grant. It may be lost already."""
        with self.lock:
            hold = self.holds.get(grant["holder"])
            if hold is None:
                hold = Hold(self, grant, owner)
                gone = [loss for holder, loss in self._gone if holder == hold.holder]
                hold._loss = self._loss or (gone[-1] if gone else None)
                if hold._loss is None:
                    self.holds[hold.holder] = hold
            hold.entries += 1
            if self.first_token is None:
                self.first_token = hold.token
            return hold

    def leave(self, hold: Hold) -> None:
        """Removes one entry of a hold that is released."""
        with self.lock:
            hold.entries -= 1
            if hold.entries <= 0:
                self.holds.pop(hold.holder, None)

    def lose_holder(self, holder: str, loss: Loss) -> None:
        """Records the loss of one lock, while the session lives."""
        calls: _Calls = []
        with self.lock:
            self._gone.append((holder, loss))
            hold = self.holds.pop(holder, None)
            if hold is not None:
                log.warning("lock %s is lost: %s", hold.lock, loss)
                self._lose(hold, loss, calls)
        _run(calls)

    def why_gone(self, holder: str) -> Optional[Loss]:
        """Returns why a holder has lost its lock, if it was told."""
        with self.lock:
            return next((loss for name, loss in self._gone if name == holder), None)

    def holds_at(self, zxid: int, holders: Iterable[str]) -> None:
        """Applies the state at a log position: the session had exactly these contenders."""
        known = set(holders)
        self._lose_missing(lambda hold: hold.token <= zxid and hold.holder not in known)

    def holds_only(self, asked: float, holders: Iterable[str]) -> None:
        """Applies the answer to a question of this time: the session held exactly these."""
        known = set(holders)
        self._lose_missing(lambda hold: hold.since < asked and hold.holder not in known)

    def _lose_missing(self, missing: Callable[[Hold], bool]) -> None:
        with self.lock:
            lost = [hold.holder for hold in self.holds.values() if missing(hold)]
        for holder in lost:
            self.lose_holder(holder, Loss("taken_away"))

    def note_requests(self, sent: float, requests: Iterable[Dict[str, Any]]) -> None:
        """Applies the release requests in the answer to a heartbeat that was sent at this time: these are unanswered, and no others."""
        by_holder = {str(request.get("holder")): request for request in requests}
        with self.lock:
            for hold in self.holds.values():
                # A request that arrived meanwhile is newer.
                if hold.holder not in by_holder and not (hold._told and hold._told >= sent):
                    hold.request = None
        for holder, request in by_holder.items():
            self.note_request(holder, request)

    def note_request(self, holder: str, news: Dict[str, Any]) -> None:
        """Records a release request, and hands it to the holder once."""
        request, calls = ReleaseRequest.of(news), []
        with self.lock:
            hold = self.holds.get(holder)
            if hold is not None:
                hold._told = now()
                if hold.request != request:
                    hold.request = request
                    calls = list(hold._on_request)
        for callback in calls:
            callback(request)


def _run(calls: _Calls) -> None:
    for notify in calls:
        try:
            notify()
        except Exception:
            log.exception("a callback for a lost lock has failed")
