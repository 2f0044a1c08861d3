"""Errors of the client. Refused, unavailable and unknown never share a class, because a caller reacts to each in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional


class LockgateError(Exception):
    """Base class of all errors of this package."""


class Refused(LockgateError):
    """The cluster decided against the request and changed nothing. `code` is the word that programs switch on."""

    def __init__(self, code: str, detail: str, status: int = 0, facts: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(detail or code)
        self.code = code
        self.detail = detail
        self.status = status
        self.facts = facts or {}

    @property
    def ends_session(self) -> bool:
        """Whether the refusal says that the session has ended."""
        return self.code in ("session_expired", "no_session") or self.facts.get("ended") in ("session_expired", "session_closed")

    @property
    def concerns_caller(self) -> bool:
        """Whether the refusal is about the caller's identity or role."""
        return self.code in ("unauthenticated", "forbidden")


class NotAcquired(Refused):
    """The lock was not free, at once (`lock_busy`) or in time (`lock_timeout`). The caller is no longer in the queue."""


class Unavailable(LockgateError):
    """Nothing was done within the patience of the client. The same call may succeed later."""


class OutcomeUnknown(LockgateError):
    """The request may have been executed, or may still be. Check before repeating it."""


class GateClosed(LockgateError):
    """This program has closed the gate."""


@dataclass(frozen=True)
class Loss:
    """Reason why a lock is lost, or may be."""

    #: `no_heartbeat` (not confirmed in time), `expired`, `closed`, `broken`, `deleted`, `released`, `taken_away` or `max_hold`
    reason: str
    #: proven identity of the caller that took the lock, such as `ip:10.0.0.7`
    by: Optional[str] = None
    #: text that this caller gave
    detail: Optional[str] = None

    def __str__(self) -> str:
        text = f"{self.reason}: {_TEXTS[self.reason]}" if self.reason in _TEXTS else self.reason
        return text + (f" by {self.by}" if self.by else "") + (f": {self.detail}" if self.detail else "")


_TEXTS = {
    "no_heartbeat": "no heartbeat of the session was confirmed in time",
    "expired": "the cluster has ended the session",
    "closed": "the session was closed",
    "broken": "the lock was broken",
    "deleted": "the lock's znode was deleted",
    "released": "the lock was released elsewhere",
    "taken_away": "the lock was broken, deleted, released elsewhere, or held for its maximum time",
    "max_hold": "the hold has ended after its maximum time",
}


class LockLost(LockgateError):
    """The lock is lost, or its whole session is. `loss` says why."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(str(loss))
        self.loss = loss
