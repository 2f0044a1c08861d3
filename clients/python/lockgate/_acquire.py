"""One acquire call, from the first attempt to its end: under one request id, at one server after the other. If it ends without a lock for
its caller, it withdraws from the queue, and gives a late grant back."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Awaitable, Callable, Dict, List, Optional, Set

from ._life import Life, now
from ._servers import NotExecuted, Servers, Uncertain, call, in_doubt_error, pauses, request_id, segment
from .errors import GateClosed, LockgateError, LockLost, Loss, OutcomeUnknown, Refused

#: Longest sleep of a waiting call before it reads the clock of the session.
_LOOK_EVERY = 1.0

#: Longest time to wait for the event that explains a loss which an answer has shown without its reason.
TOLD_WITHIN = 0.5

#: Time that a server gets for a lease without a limit of the wait, before the call continues at the next one.
_LEASE_WAIT = 30.0

Undo = Callable[[Any], Awaitable[None]]


class Acquire:
    """Call that may wait. `wait` is in seconds; 0 tries, `None` waits until the session ends. `undo` gives back what nobody wants.

    With `"wait": "queue"` in the body no connection is open while it waits: the place belongs to the session, and long polls ask for the grant.
    For a lease, the document of the place is returned in place of a grant."""

    def __init__(self, servers: Servers, life: Optional[Life], path: str, body: Dict[str, Any], wait: Optional[float], undo: Undo) -> None:
        self.servers = servers
        self.life = life
        self.path = path
        self.body = {**body, "request_id": request_id()}
        self.wait = wait
        self.undo = undo
        self._queued = self.body.pop("wait", None) == "queue" and not (life and wait == 0)
        #: contender in the queue
        self._place: Optional[str] = None
        began = time.monotonic()
        self._until = None if wait is None else began + wait
        self._give_up_at = None if wait is None else began + wait + servers.patience
        self._attempts = 0
        self._in_doubt = False
        # Attempts without an answer. Their connections stay open until the call is over: a server that sees a closed connection withdraws
        # the contender, perhaps before the next attempt has taken its place.
        self._unanswered: Set["asyncio.Task[Any]"] = set()

    async def run(self) -> Any:
        """Returns the document of the grant."""
        try:
            return await self._run()
        except BaseException:
            if self._in_doubt and not (self.life and self.life.loss()):
                self.servers.in_background("withdrawing a cancelled acquire", self._take_back())
            else:
                self._drop_attempts()
            raise

    async def _run(self) -> Any:
        pause = pauses()
        while True:
            self._check()
            try:
                granted = await self._attempt()
            except Refused as refusal:
                # The caller may have had the right when an earlier attempt was executed, and may have lost it since.
                if self._in_doubt and refusal.concerns_caller:
                    raise OutcomeUnknown(refusal.detail) from refusal
                self._in_doubt = False
                raise
            except (NotExecuted, Uncertain) as error:
                why = str(error)
            else:
                if self._queued and self.life and not granted.get("fencing_token"):
                    self._place, pause = granted.get("holder", self._place), pauses()
                    # The last request is a try, which leaves the queue.
                    self._queued = self._until is None or time.monotonic() < self._until
                    continue
                self._in_doubt = False
                # A session that is lost holds nothing, whatever the cluster granted.
                self._check()
                self._drop_attempts()
                return granted
            wait = self.servers.pause(next(pause))
            if self._give_up_at is not None and time.monotonic() + wait >= self._give_up_at:
                raise in_doubt_error(self._in_doubt, why)
            await asyncio.sleep(wait)

    def _check(self) -> None:
        loss = self.life.loss() if self.life else None
        if loss is not None:
            raise LockLost(loss)
        if self.servers.closed:
            raise GateClosed("the gate is closed")

    async def _attempt(self) -> Any:
        """Makes one attempt: until the server answers or is suspected, or the session is lost."""
        server, doubted_before = self.servers.current, self._in_doubt
        self._in_doubt = True
        task = asyncio.ensure_future(self.servers.send(server, self._next()))
        self._unanswered.add(task)
        server.waits += 1
        # Heartbeats go to every server at which a session waits, so a silent one is suspected however long the wait is.
        suspicion = asyncio.ensure_future(server.suspicion.wait())
        began = time.monotonic()
        try:
            while not task.done():
                await asyncio.wait({task, suspicion}, timeout=self._nap(began), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    break
                self._check()
                self._waits_on(server.address, suspicion, began)
            self._unanswered.discard(task)
            return task.result()
        except NotExecuted:
            self._in_doubt = doubted_before
            self.servers.turn_away(server)
            raise
        except Uncertain:
            self.servers.turn_away(server)
            raise
        except Refused:
            self._in_doubt = doubted_before
            raise
        finally:
            server.waits -= 1
            suspicion.cancel()

    def _nap(self, began: float) -> float:
        ends = [_LOOK_EVERY]
        if self.life:
            ends.append(self.life.valid_until - now())
        ends.append(self._silent_at(began) - time.monotonic())
        return max(0.001, min(ends))

    def _silent_at(self, began: float) -> float:
        """Returns the time after which another server is asked: a bounded call should have an answer by then. Of one without a limit, the
        heartbeats of the session find out whether the server lives; a lease has none."""
        if self._queued:
            return began + self.servers.answer_within
        if self._until is not None:
            return max(began, self._until) + self.servers.answer_within
        return math.inf if self.life else began + _LEASE_WAIT

    def _waits_on(self, address: str, suspicion: "asyncio.Task[Any]", began: float) -> None:
        """Returns if this attempt goes on, and raises if another server is to be asked."""
        if suspicion.done():
            raise Uncertain(f"{address}: the server is silent")
        if time.monotonic() >= self._silent_at(began):
            raise Uncertain(f"{address}: no answer in time")

    def _next(self) -> Any:
        """Returns the next copy of the request, with its number. It waits for the remaining time."""
        left = math.inf if self._until is None else max(0.0, self._until - time.monotonic())
        if self._queued and self._place:
            place = f"{self.path.rpartition('/')[0]}/holders/{segment(self._place)}"
            return call("GET", f"{place}?wait_ms={round(1000 * min(left, self.servers.longest_poll))}")
        wait = 0.0 if self.wait == 0 or self._place else left
        waits: Dict[str, Any] = {"wait": "queue"} if self._queued else {"wait_ms": None if wait == math.inf else round(1000 * wait)}
        body = {**self.body, **waits, "retry": self._attempts}
        self._attempts += 1
        return call("POST", self.path, body)

    async def _take_back(self) -> None:
        """Withdraws the call: the same request without a wait. The answer is the end of the wait, or a grant, which is given back."""
        self.wait, self._queued = 0, False
        pause, give_up_at = pauses(), time.monotonic() + self.servers.patience
        try:
            while not (self.life and self.life.loss()):
                server = self.servers.current
                try:
                    granted = await asyncio.wait_for(self.servers.send(server, self._next()), self.servers.answer_within)
                    await self.undo(granted)
                    return
                except Refused:
                    return
                except (NotExecuted, Uncertain, asyncio.TimeoutError):
                    self.servers.turn_away(server)
                    if self.life is None and time.monotonic() > give_up_at:
                        return
                await asyncio.sleep(self.servers.pause(next(pause)))
        finally:
            self._drop_attempts()

    def _drop_attempts(self) -> None:
        for task in self._unanswered:
            # Its result is of no use, and its exception was seen.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            task.cancel()
        self._unanswered.clear()


async def explained(life: Life, holder: str, error: LockgateError) -> LockgateError:
    """Returns the error for the caller of a request about a hold: the loss, if the hold is lost, with the reason that was told."""
    loss = life.loss()
    if loss is not None:
        return LockLost(loss)
    if not (isinstance(error, Refused) and error.code == "not_holder"):
        return error
    until = time.monotonic() + (TOLD_WITHIN if life.followed else 0)
    while life.why_gone(holder) is None and time.monotonic() < until:
        await asyncio.sleep(0.01)
    return LockLost(life.why_gone(holder) or Loss("taken_away"))


def grants_of(granted: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the grants of an answer, in the order of the request."""
    return list(granted["holders"]) if "holders" in granted else [granted]
