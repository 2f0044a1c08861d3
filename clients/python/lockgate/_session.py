"""One session: opening and closing it, its heartbeats, and its event stream."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import random
from typing import Any, Dict, List, Optional, Tuple

from . import _names as names
from ._http import Answer, Broken, NotSent, Request
from ._life import Hold, Life, Margin, now
from ._servers import NotExecuted, Server, Servers, Uncertain, call, judge, pauses, request_id
from .errors import LockgateError, Loss, Refused

log = logging.getLogger("lockgate")

#: Heartbeats per TTL, and the part of the TTL after which a server without an answer to one is suspected.
_BEATS_PER_TTL, _SILENT_AFTER = 3, 6

#: Longest silence of a stream. A server writes at least every 15 s and every third of the TTL.
_LONGEST_SILENCE = 45.0

#: Pause before the next attempt if no server gives a stream. Heartbeats continue, and ask which locks are held.
_NO_STREAM_PAUSE = 10.0


class Session:
    """Session of a gate. Lives in the engine's loop, but for its `life`."""

    def __init__(self, servers: Servers, life: Life, at_leader: bool) -> None:
        self.servers = servers
        self.life = life
        self.at_leader = at_leader
        self._wake = asyncio.Event()
        self._granted = asyncio.Event()
        self._last = ""
        self._unanswered: Dict[Server, float] = {}
        self._suspected: List[Server] = []
        self._next_beat = 0.0
        self._pauses = pauses()
        self._asking = False
        self._beats = {asyncio.ensure_future(self._keep_alive()), asyncio.ensure_future(self._follow())}

    @classmethod
    async def open(cls, servers: Servers, ttl: float, name: Optional[str], margin: Margin, at_leader: bool) -> "Session":
        """Opens a session. The time of its TTL is counted from before the first attempt that may have opened it."""
        body: Dict[str, Any] = {"ttl_ms": round(ttl * 1000), "request_id": request_id()}
        if name:
            body["name"] = name
        pinned = await servers.for_session()
        sent = now()
        opened = await pinned.ask(call("POST", "/v1/sessions", body))
        if now() - sent > opened["ttl_ms"] / 3000:
            # The first attempt may have opened it long ago.
            sent = now()
            await pinned.ask(call("POST", f"/v1/sessions/{opened['session']}/heartbeat", {}))
        log.debug("session %s is open for %s ms", opened["session"], opened["ttl_ms"])
        life = Life(opened["session"], sent, opened["ttl_ms"] / 1000, margin)
        # Its tasks do not belong to the trace of the call that happens to open it.
        return contextvars.Context().run(cls, pinned, life, at_leader)

    @property
    def id(self) -> str:
        return self.life.session

    async def close(self) -> None:
        """Ends the session, so that nobody waits for its TTL."""
        loss = self.life.loss()
        self.life.lose(Loss("closed"))
        for task in list(self._beats):
            task.cancel()
        if loss is not None and loss.reason == "expired":
            return
        end = call("DELETE", f"/v1/sessions/{self.id}?request_id={request_id()}")
        try:
            await self.servers.ask(end, 1.0 if loss else min(self.life.ttl, self.servers.patience))
        except Refused as refusal:
            if not refusal.ends_session:
                raise

    def enter(self, grant: Dict[str, Any], owner: Optional[str]) -> Hold:
        """Adds a grant. From the first one on the event stream is followed."""
        hold = self.life.enter(grant, owner)
        self._granted.set()
        return hold

    def ended(self, refusal: Refused) -> None:
        """Ends the session here if this refusal says that the cluster has ended it."""
        if refusal.ends_session:
            self.life.lose(Loss("expired"))

    async def beat(self) -> None:
        """Renews the session now."""
        sent = now()
        self._renewed(None, sent, await self.servers.ask(self._heartbeat()))

    def _heartbeat(self) -> Request:
        return call("POST", f"/v1/sessions/{self.id}/heartbeat" + ("?leader=true" if self.at_leader else ""), {})

    def _renewed(self, server: Optional[Server], sent: float, answer: Dict[str, Any]) -> None:
        self.life.confirm(sent, answer["ttl_ms"] / 1000)
        self.life.note_requests(sent, names.release_requests(answer))
        if self.at_leader and server is not None and answer.get("leads"):
            self.servers.current = server

    async def _keep_alive(self) -> None:
        """Renews the session until it is lost: every third of the TTL, and at another server when one is silent for a sixth."""
        life = self.life
        self._next_beat = life.confirmed + (0 if self.at_leader else self._interval())
        while life.loss() is None:
            silent_after = life.ttl / _SILENT_AFTER
            for server, sent in self._unanswered.items():
                if now() >= sent + silent_after and server not in self._suspected:
                    self._suspected.append(server)
                    self.servers.suspect(server)
                    self._next_beat = now()
            if now() >= self._next_beat:
                self._next_beat = now() + self._interval()
                waited_at = [server for server in self.servers.list if server.waits]
                for server in {*waited_at, self.servers.current}:
                    self._start(server)
                # While no server can be reached, heartbeats follow each other faster than questions end.
                if not life.followed and life.holds and not self._asking:
                    self._asking = True
                    self._spawn(self._ask_holdings())
            silences = [sent + silent_after for server, sent in self._unanswered.items() if server not in self._suspected]
            wake_at = min([self._next_beat, life.valid_until, *silences])
            # The loop's clock may stop during a suspend, so it wakes at least once a second and reads the other one.
            await self._sleep(min(max(wake_at - now(), 0.001), 1.0))
        log.debug("session %s is not renewed any more: %s", self.id, life.loss())

    def _interval(self) -> float:
        """Time to the next heartbeat: a third of the TTL, or at random up to a tenth less, so that clients do not beat in step."""
        return self.life.ttl / _BEATS_PER_TTL * random.uniform(0.9, 1.0)

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)

    def _start(self, server: Server) -> None:
        if server not in self._unanswered:
            self._unanswered[server] = now()
            self._spawn(self._beat_at(server))

    async def _beat_at(self, server: Server) -> None:
        sent = now()
        try:
            answer = await asyncio.wait_for(self.servers.send(server, self._heartbeat()), self.life.ttl)
            self._renewed(server, sent, answer)
            self._pauses = pauses()
            if self.at_leader and not answer.get("leads") and server is self.servers.current:
                for other in self.servers.list:
                    self._start(other)
        except Refused as refusal:
            self.ended(refusal)
            # Every server would refuse. The session lives on until its TTL is over.
            log.warning("a heartbeat of session %s is refused: %s", self.id, refusal)
        except (NotExecuted, Uncertain, LockgateError, asyncio.TimeoutError) as error:
            log.debug("a heartbeat of session %s has failed: %s", self.id, error)
            self.servers.suspect(server)
            self._next_beat = min(self._next_beat, now() + self.servers.pause(next(self._pauses)))
        finally:
            self._unanswered.pop(server, None)
            if server in self._suspected:
                self._suspected.remove(server)
            self._wake.set()

    async def _ask_holdings(self) -> None:
        """Reads which locks the session holds: without an event stream this finds a broken lock."""
        asked = now()
        try:
            path = f"/v1/sessions/{self.id}?linearizable=true"
            held = await self.servers.ask(call("GET", path), self.life.ttl / _BEATS_PER_TTL)
        except Refused as refusal:
            self.ended(refusal)
        except LockgateError as error:
            log.debug("the locks of session %s are not known: %s", self.id, error)
        else:
            if held.get("complete", True):
                self.life.holds_only(asked, [entry["holder"] for entry in held["held"]])
        finally:
            self._asking = False

    async def _follow(self) -> None:
        """Follows the event stream: at one server after the other, from the last event on. Fencing tokens are log positions."""
        await self._granted.wait()
        last, server, pause = str(self.life.first_token), self.servers.current, pauses()
        while self.life.loss() is None:
            before = last
            try:
                last, again_after = await self._listen(server, last)
            except (Broken, NotSent, Uncertain, NotExecuted, LockgateError, asyncio.TimeoutError) as error:
                log.debug("the events of session %s are followed elsewhere: %s", self.id, error)
                last, again_after = self._last, None
            finally:
                self.life.followed = False
            if last != before:
                pause = pauses()
            if again_after is None:
                server = self.servers.list[(self.servers.list.index(server) + 1) % len(self.servers.list)]
                again_after = next(pause)
            await asyncio.sleep(again_after)

    async def _listen(self, server: Server, last: str) -> Tuple[str, Optional[float]]:
        """Returns the last event, and the pause before the stream is opened again here (`None`: elsewhere)."""
        self._last = last
        silence = min(self.life.ttl, _LONGEST_SILENCE)
        request = call("GET", f"/v1/sessions/{self.id}/events?heartbeat=false")
        request.headers["last-event-id"] = last
        stream = await asyncio.wait_for(self.servers.stream(server, request), silence)
        try:
            if stream.status != 200:
                return self._refused_stream(server, stream.status, await stream.body())
            self.life.followed = True
            suspicion = asyncio.ensure_future(server.suspicion.wait())
            news: "asyncio.Future[Any]" = suspicion
            try:
                while True:
                    news = asyncio.ensure_future(stream.next())
                    news.add_done_callback(lambda done: done.cancelled() or done.exception())
                    done, _ = await asyncio.wait({news, suspicion}, timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                    if news not in done:
                        raise Broken("the server is silent")
                    block = news.result()
                    if block is None:
                        raise Broken("the stream has ended")
                    ended = self._handle(block)
                    # Only now: the next server repeats an event that was not understood.
                    self._last = block.get("id", self._last)
                    if ended is not None:
                        return self._last, ended
            finally:
                suspicion.cancel()
                news.cancel()
        finally:
            stream.close()

    def _refused_stream(self, server: Server, status: int, body: bytes) -> Tuple[str, Optional[float]]:
        try:
            judge(server.address, Answer(status, {}, body))
        except Refused as refusal:
            self.ended(refusal)
        return self._last, _NO_STREAM_PAUSE

    def _handle(self, block: Dict[str, str]) -> Optional[float]:
        """Applies an event. Returns the pause before the next stream if this one ends with it."""
        event = names.event(block.get("event", ""))
        if not event:
            return None
        try:
            return self._apply(event, json.loads(block.get("data") or "{}"))
        except (ValueError, KeyError, TypeError) as error:
            raise Broken(f"an event that makes no sense: {error!r}") from error

    def _apply(self, event: str, news: Dict[str, Any]) -> Optional[float]:
        if event == "state":
            contenders = news["held"] + news["awaited"]
            self.life.holds_at(news["zxid"], [contender["holder"] for contender in contenders])
            for request in names.release_requests(news):
                self.life.note_request(request["holder"], request)
        elif event == "lost":
            # Of the end of the session the next event tells.
            if news["ended"] not in ("session_closed", "session_expired"):
                self.life.lose_holder(news["holder"], names.loss(news))
        elif event == "release_requested":
            self.life.note_request(news["holder"], news)
        elif event == "session_ended":
            self.life.lose(Loss("expired"))
        elif event == "stream_ended":
            if news["reason"] in ("renew", "too_slow", "state_replaced"):
                return 0.0
            if news["reason"] == "access_lost":
                return _NO_STREAM_PAUSE
            raise Broken(f"the stream has ended: {news['reason']}")
        return None
