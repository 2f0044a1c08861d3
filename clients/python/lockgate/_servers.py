"""Servers of a cluster: judges their answers, and repeats requests at one after the other. Sessions and locks are not known here."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Union
from urllib.parse import quote

from ._http import Answer, Broken, Http, NotSent, Request, Stream
from .errors import GateClosed, LockgateError, NotAcquired, OutcomeUnknown, Refused, Unavailable

log = logging.getLogger("lockgate")

#: First and longest pause between two attempts. An election takes some hundred milliseconds; a longer pause would lengthen every failover.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25

#: Shortest time for an answer, however little of the total is left: a request that is dropped too early has an unknown outcome.
_SHORTEST_TRY = 0.5

#: Codes of refusals after which the same request may succeed at another server or later. Nothing was done.
_TRY_AGAIN = ("unavailable", "read_only", "request_timeout", "too_many_requests")

#: Called after each request with the operation, the code of the outcome (`ok`, `refused`…), and the seconds it took.
Observer = Callable[[str, str, float], None]
Token = Union[str, Callable[[], str], None]


class NotExecuted(Exception):
    """This attempt executed nothing. `retry_after` is the time that the server named, in seconds."""

    def __init__(self, why: str, retry_after: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Uncertain(Exception):
    """This attempt may have executed the request."""


def request_id() -> str:
    """Returns a new id of a request."""
    return secrets.token_hex(16)


def segment(name: str) -> str:
    """Encodes a name as one segment of a path."""
    return quote(name, safe="")


def call(method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Request:
    """Returns a request with a document."""
    return Request(method, path, b"" if body is None else json.dumps(body).encode())


def pauses() -> Iterator[float]:
    """Growing pauses with jitter: clients that lost the same server should not return at the same moment."""
    pause = _FIRST_PAUSE
    while True:
        yield random.uniform(pause / 2, pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def judge(server: str, answer: Answer) -> Any:
    """Returns the document of a success. Raises [`Refused`][lockgate.Refused], `NotExecuted` or `Uncertain` otherwise, by the code alone."""
    text = answer.body.decode("utf-8", "replace")
    try:
        document = json.loads(text) if text.strip() else {}
    except ValueError:
        document = None
    if 200 <= answer.status < 300 and document is not None:
        return document
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        # Not from a server of the cluster: a proxy's page, for example.
        raise Uncertain(f"{server}: {answer.status} {text[:80]}")
    code, detail = document["code"], str(document.get("detail", ""))
    if code in _TRY_AGAIN:
        raise NotExecuted(f"{server}: {detail or code}", _seconds(answer.headers.get("retry-after", "")))
    if code == "outcome_unknown" or not 400 <= answer.status < 500:
        raise Uncertain(f"{server}: {detail or code}")
    facts = {k: v for k, v in document.items() if k not in ("type", "title", "status", "detail", "code")}
    kind = NotAcquired if code in ("lock_busy", "lock_timeout") else Refused
    raise kind(code, detail, answer.status, facts)


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


class Server:
    """One server."""

    def __init__(self, address: str) -> None:
        self.address = address
        #: time before which the server wants no more requests (`Retry-After`), on the monotonic clock
        self.not_before = 0.0
        #: set, and replaced, when the server leaves a heartbeat without an answer
        self.suspicion = asyncio.Event()
        #: number of calls of a session that wait here
        self.waits = 0

    def suspect(self) -> None:
        """Notifies the calls that wait here."""
        suspicion, self.suspicion = self.suspicion, asyncio.Event()
        suspicion.set()


class Servers:
    """All servers, with the one that gets the next request. Lives in the engine's loop."""

    def __init__(
        self,
        http: Http,
        addresses: List[str],
        patience: float,
        token: Token,
        traceparent: Callable[[], Optional[str]],
        observer: Observer,
    ) -> None:
        self.http = http
        self.patience = patience
        self.answer_within = min(5.0, patience)
        #: longest time of a long poll, whose answer has to arrive in the time of an attempt
        self.longest_poll = 0.8 * self.answer_within
        self.token = token
        self.traceparent = traceparent
        self.observer = observer
        self.closed = False
        self.list = [Server(address) for address in addresses]
        # Clients with the same list begin at different servers.
        self.current = random.choice(self.list)
        self.tasks: Set["asyncio.Task[Any]"] = set()

    async def for_session(self) -> "Servers":
        """Returns the same servers for one session, with the token of this moment: no other token may use the session."""
        addresses = [server.address for server in self.list]
        token = await self._token()
        pinned = Servers(self.http, addresses, self.patience, token, self.traceparent, self.observer)
        pinned.current = pinned.list[self.list.index(self.current)]
        return pinned

    async def _token(self) -> Optional[str]:
        if not callable(self.token):
            return self.token
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self.token)
        except Exception as error:
            raise Unavailable(f"the provider of tokens has failed: {error}") from error

    def turn_away(self, server: Server) -> None:
        """Makes the next server the current one, unless another call has done so. Servers that named a time come last."""
        if server is self.current:
            at = self.list.index(server)
            others = self.list[at + 1 :] + self.list[: at + 1]
            self.current = min(others, key=lambda other: max(other.not_before, time.monotonic()))

    def suspect(self, server: Server) -> None:
        """Notifies the calls that wait at this server, and changes to another one."""
        server.suspect()
        self.turn_away(server)

    def pause(self, pause: float) -> float:
        """Returns the time until the next attempt: this pause, or longer if the next server has named a time."""
        return max(pause, self.current.not_before - time.monotonic())

    async def send(self, server: Server, request: Request) -> Any:
        """Makes one attempt at one server."""
        began, outcome = time.monotonic(), "ok"
        try:
            headers = await self.headers(request)
            answer = await self.http.send(server.address, Request(request.method, request.path, request.body, headers))
            return judge(server.address, answer)
        except (NotExecuted, NotSent) as error:
            outcome = "unavailable"
            if isinstance(error, NotExecuted):
                server.not_before = time.monotonic() + error.retry_after
                raise
            raise NotExecuted(str(error)) from error
        except (Uncertain, Broken) as error:
            outcome = "unknown"
            raise Uncertain(str(error)) from error
        except Refused as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            operation = request.path.partition("?")[0].rsplit("/", 1)[-1]
            self.observer(f"{request.method} {operation}", outcome, time.monotonic() - began)

    async def headers(self, request: Request) -> Dict[str, str]:
        headers = dict(request.headers)
        token, traceparent = await self._token(), self.traceparent()
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        if traceparent:
            headers["traceparent"] = traceparent
        return headers

    async def stream(self, server: Server, request: Request) -> Stream:
        """Opens a stream at one server."""
        headers = await self.headers(request)
        return await self.http.stream(server.address, Request(request.method, request.path, request.body, headers))

    async def ask(self, request: Request, total: Optional[float] = None) -> Any:
        """Sends an idempotent request until a server gives a definite answer."""
        total = self.patience if total is None else total
        deadline = time.monotonic() + total
        changes, in_doubt, within, pause = request.method != "GET", False, self.answer_within, pauses()
        while True:
            if self.closed:
                raise GateClosed("the gate is closed")
            server = self.current
            try:
                return await asyncio.wait_for(self.send(server, request), within)
            except Refused as refusal:
                # The caller may have had the right when an earlier attempt was executed, and may have lost it since.
                if in_doubt and changes and refusal.concerns_caller:
                    raise OutcomeUnknown(refusal.detail) from refusal
                raise
            except NotExecuted as error:
                why = str(error)
            except Uncertain as error:
                why, in_doubt = str(error), True
            except asyncio.TimeoutError:
                why, in_doubt = f"{server.address}: no answer in {within:g} s", True
            self.turn_away(server)
            wait = self.pause(next(pause))
            if time.monotonic() + wait >= deadline:
                raise in_doubt_error(in_doubt and changes, why)
            log.debug("%s %s is sent again: %s", request.method, request.path, why)
            await asyncio.sleep(wait)
            within = min(self.answer_within, max(deadline - time.monotonic(), _SHORTEST_TRY))

    async def poll(self, path: str, seconds: float) -> Any:
        """Sends a long poll, whose `path` ends with the parameter of its time. It waits for these seconds, or for less, and its retries have the
        whole patience."""
        seconds = max(0.0, min(seconds, self.longest_poll))
        return await self.ask(call("GET", f"{path}={round(seconds * 1000)}"), seconds + self.patience)

    def in_background(self, what: str, coroutine: Any) -> None:
        """Runs the last request of a call that was cancelled."""

        async def run() -> None:
            try:
                await coroutine
            except LockgateError as error:
                log.warning("%s has failed: %s", what, error)

        task = asyncio.get_running_loop().create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def in_doubt_error(in_doubt: bool, why: str) -> LockgateError:
    """Returns the error of a call that has found no definite answer in time."""
    return OutcomeUnknown(f"the outcome is unknown: {why}") if in_doubt else Unavailable(why)
