"""Servers of a cluster: judges their answers, and repeats requests at one after the other. Sessions and locks are not known here."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import secrets
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Set, Union
from urllib.parse import quote

from ._http import Answer, Broken, Http, NotSent, Request, Stream
from .errors import GateClosed, LockgateError, NotAcquired, OutcomeUnknown, Refused, Unavailable

log = logging.getLogger("lockgate")

#: First and longest pause between two attempts. An election takes some hundred milliseconds; a longer pause would lengthen every failover.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25

#: Shortest time for an answer, however little of the total is left: a request that is dropped too early has an unknown outcome.
_SHORTEST_TRY = 0.5

#: Largest number of requests in a batch, as servers accept it.
_LARGEST_BATCH = 128

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


def _numbered(request: Dict[str, Any], number: int) -> Dict[str, Any]:
    """Returns a request of a batch; an acquire with the number of earlier attempts."""
    body = request.get("body", {})
    return {**request, "body": {**body, "retry": number}} if "retry" in body else request


def _of_batch(server: str, answer: Any) -> Any:
    """Returns the document of one result of a batch, or raises as `judge`."""
    if isinstance(answer, Exception):
        raise answer
    document = answer.get("problem", answer.get("body", {}))
    return judge(server, Answer(answer["status"], {}, json.dumps(document).encode()))


class Attempts:
    """Knowledge about a request after some attempts."""

    def __init__(self, method: str) -> None:
        self.changes = method != "GET"
        self.in_doubt = False
        self.why = ""

    def note(self, error: Exception) -> None:
        """Takes the failure of an attempt. Raises the error of the request if it is definite."""
        if isinstance(error, Refused):
            # The caller may have had the right when an earlier attempt was executed, and may have lost it since.
            if self.in_doubt and self.changes and error.concerns_caller:
                raise OutcomeUnknown(error.detail) from error
            raise error
        self.why, self.in_doubt = str(error), self.in_doubt or not isinstance(error, NotExecuted)

    def given_up(self) -> LockgateError:
        """Returns the error of a request that is not sent again."""
        return in_doubt_error(self.in_doubt and self.changes, self.why)


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


def operation_of(request: Request) -> str:
    """Returns the name of a call for logs and metrics, without names of locks and znodes, and without ids, which may be secret."""
    family, *rest = request.path.partition("?")[0].split("/")[2:]
    if family in ("locks", "sessions", "leases"):
        rest = rest[1:]
    elif family != "multilock":
        rest = []
    return f"{request.method} {'/'.join([family, *rest])}"


#: Requests that belong to no caller, and so to no trace.
_IN_BACKGROUND = ("POST sessions/heartbeat", "POST leases/renew")


class Span(Protocol):
    """Span of a request: the part of OpenTelemetry's `Span` that the client uses."""

    def get_span_context(self) -> Any:
        """Returns the ids of the trace and of the span, and the flags of the trace."""

    def set_attribute(self, key: str, value: Any) -> None:
        """Adds an attribute."""

    def end(self) -> None:
        """Ends the span."""


StartSpan = Callable[[str], Span]


def traceparent_of(span: Span) -> str:
    """Returns the trace context of a span, for the server."""
    of = span.get_span_context()
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


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
        start_span: Optional[StartSpan] = None,
    ) -> None:
        self.http = http
        self.patience = patience
        self.answer_within = min(5.0, patience)
        #: longest time of a long poll, whose answer has to arrive in the time of an attempt
        self.longest_poll = 0.8 * self.answer_within
        self.token = token
        self.traceparent = traceparent
        self.observer = observer
        self.start_span = start_span
        self.closed = False
        self.list = [Server(address) for address in addresses]
        # Clients with the same list begin at different servers.
        self.current = random.choice(self.list)
        self.tasks: Set["asyncio.Task[Any]"] = set()

    async def for_session(self) -> "Servers":
        """Returns the same servers for one session, with the token of this moment: no other token may use the session."""
        addresses = [server.address for server in self.list]
        token = await self._token()
        pinned = Servers(self.http, addresses, self.patience, token, self.traceparent, self.observer, self.start_span)
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
        began, outcome, operation = time.monotonic(), "ok", operation_of(request)
        span = None if self.start_span is None or operation in _IN_BACKGROUND else self.start_span(operation)
        try:
            headers = await self.headers(request)
            if span is not None:
                span.set_attribute("server.address", server.address)
                headers["traceparent"] = traceparent_of(span)
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
            self.observer(operation, outcome, time.monotonic() - began)
            if span is not None:
                if outcome != "ok":
                    span.set_attribute("error.type", outcome)
                span.end()

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
        deadline = time.monotonic() + (self.patience if total is None else total)
        attempts, within, pause = Attempts(request.method), self.answer_within, pauses()
        while True:
            server = self.current
            try:
                return await self._attempt(server, request, within)
            except (Refused, NotExecuted, Uncertain) as error:
                attempts.note(error)
            left = await self._next_attempt(server, pause, deadline)
            if left is None:
                raise attempts.given_up()
            log.debug("%s %s is sent again: %s", request.method, request.path, attempts.why)
            within = min(self.answer_within, left)

    async def _attempt(self, server: Server, request: Request, within: float) -> Any:
        if self.closed:
            raise GateClosed("the gate is closed")
        try:
            return await asyncio.wait_for(self.send(server, request), within)
        except asyncio.TimeoutError as error:
            raise Uncertain(f"{server.address}: no answer in {within:g} s") from error

    async def _next_attempt(self, server: Server, pause: Iterator[float], deadline: float) -> Optional[float]:
        """Waits before the next attempt, which goes to another server. Returns the seconds for it; `None` if none are left."""
        self.turn_away(server)
        wait = self.pause(next(pause))
        if time.monotonic() + wait >= deadline:
            return None
        await asyncio.sleep(wait)
        return max(deadline - time.monotonic(), _SHORTEST_TRY)

    async def batch(self, requests: List[Dict[str, Any]]) -> List[Any]:
        """Sends idempotent changes together until each has a definite answer: after each attempt those without one again, as if they were sent
        alone. Returns documents and errors in the order of the changes."""
        parts = [requests[at : at + _LARGEST_BATCH] for at in range(0, len(requests), _LARGEST_BATCH)]
        return [result for part in parts for result in await self._batch(part)]

    async def _batch(self, requests: List[Dict[str, Any]]) -> List[Any]:
        deadline, within, pause = time.monotonic() + self.patience, self.answer_within, pauses()
        attempts = [Attempts(request.get("method", "POST")) for request in requests]
        results: Dict[int, Any] = {}
        for number in itertools.count():
            pending = [at for at in range(len(requests)) if at not in results]
            server = self.current
            document = {"requests": [_numbered(requests[at], number) for at in pending]}
            try:
                answers = (await self._attempt(server, call("POST", "/v1/batch", document), within)).get("results", [])
            except (Refused, NotExecuted, Uncertain) as error:
                answers = [error] * len(pending)
            for at, answer in zip(pending, answers):
                try:
                    results[at] = _of_batch(server.address, answer)
                except (Refused, NotExecuted, Uncertain) as error:
                    try:
                        attempts[at].note(error)
                    except LockgateError as definite:
                        results[at] = definite
            left = None if len(results) == len(requests) else await self._next_attempt(server, pause, deadline)
            if left is None:
                break
            within = min(self.answer_within, left)
        return [results[at] if at in results else attempts[at].given_up() for at in range(len(requests))]

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
