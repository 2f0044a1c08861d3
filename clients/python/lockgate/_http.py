"""HTTP/1.1 over asyncio streams: a pool of connections per server, and streams of server-sent events. Knows no locks, and repeats nothing."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import AsyncIterator, Dict, List, Mapping, Optional, Tuple

#: Longest head of a response.
_MAX_HEAD_BYTES = 64 * 1024

#: Idle connections kept per server. A waiting acquire occupies one, so there may be many more for a while.
_MAX_IDLE = 8


class NotSent(Exception):
    """The request did not leave: nothing was executed."""


class Broken(Exception):
    """The connection failed after the request had been sent, at least partly: it may have been executed."""


@dataclass
class Request:
    """Request to a server."""

    method: str
    path: str
    body: bytes = b""
    headers: Dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    """Response of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def close(self) -> None:
        self.writer.transport.abort()

    async def write(self, host: str, request: Request) -> None:
        lines = [f"{request.method} {request.path} HTTP/1.1", f"host: {host}", f"content-length: {len(request.body)}"]
        if request.body:
            lines.append("content-type: application/json")
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body)
        await self.writer.drain()

    async def read_head(self) -> Tuple[int, Dict[str, str]]:
        while True:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(head[0].split(" ", 2)[1])
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            if status >= 200:
                return status, headers

    async def chunks(self, status: int, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yields the body piece by piece."""
        if status in (204, 304):
            return
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int((await self.reader.readline()).split(b";")[0], 16)
                if size == 0:
                    while (await self.reader.readline()).strip():
                        pass
                    return
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            if length:
                yield await self.reader.readexactly(length)
        else:
            while True:
                piece = await self.reader.read(65536)
                if not piece:
                    return
                yield piece


#: What a connection may fail with. `ValueError`: an answer that is not HTTP, or a head without an end.
_FAILURES = (OSError, EOFError, ValueError, IndexError, ssl.SSLError, asyncio.LimitOverrunError)


class Http:
    """Connections to the servers of one cluster, given as `host:port`."""

    def __init__(self, connect_timeout: float, tls: Optional[ssl.SSLContext]) -> None:
        self.connect_timeout = connect_timeout
        self.tls = tls
        self._idle: Dict[str, List[_Connection]] = {}
        self._closed = False

    async def _connect(self, server: str) -> _Connection:
        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        opening = asyncio.open_connection(host, int(port), ssl=self.tls, server_hostname=host if self.tls else None, limit=_MAX_HEAD_BYTES)
        try:
            return _Connection(*await asyncio.wait_for(opening, self.connect_timeout))
        except asyncio.TimeoutError:
            raise NotSent(f"{server}: no connection in {self.connect_timeout:g} s") from None
        except (OSError, ssl.SSLError, ValueError) as error:
            raise NotSent(f"{server}: {error}") from error

    async def send(self, server: str, request: Request) -> Answer:
        """Sends one request. Cancelling it closes its connection."""
        connection = None
        idle = self._idle.get(server, [])
        while idle and connection is None:
            connection = idle.pop()
            if connection.reader.at_eof() or connection.writer.is_closing():
                connection.close()
                connection = None
        if connection is None:
            connection = await self._connect(server)
        reusable = False
        try:
            await connection.write(server, request)
            status, headers = await connection.read_head()
            body = b"".join([piece async for piece in connection.chunks(status, headers)])
            framed = "content-length" in headers or "transfer-encoding" in headers or status == 204
            reusable = framed and headers.get("connection", "").lower() != "close" and not self._closed
            return Answer(status, headers, body)
        except _FAILURES as error:
            raise Broken(f"{server}: {error or 'the connection was closed'}") from error
        finally:
            pool = self._idle.setdefault(server, [])
            if reusable and len(pool) < _MAX_IDLE:
                pool.append(connection)
            else:
                connection.close()

    async def stream(self, server: str, request: Request) -> "Stream":
        """Opens a stream. Its status may be an error."""
        connection = await self._connect(server)
        try:
            await connection.write(server, request)
            status, headers = await connection.read_head()
            return Stream(connection, status, headers)
        except _FAILURES as error:
            connection.close()
            raise Broken(f"{server}: {error}") from error
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Closes the idle connections. Later requests use connections of their own."""
        self._closed = True
        for pool in self._idle.values():
            while pool:
                pool.pop().close()


class Stream:
    """Open response of server-sent events."""

    def __init__(self, connection: _Connection, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self._connection = connection
        self._chunks = connection.chunks(status, headers)
        self._rest = b""

    def close(self) -> None:
        self._connection.close()

    async def body(self) -> bytes:
        """Returns the whole body, of an error."""
        return b"".join([piece async for piece in self._chunks])

    async def next(self) -> Optional[Dict[str, str]]:
        """Returns the next block (`id`, `event`, `data`; empty for a comment), or `None` at the end of the stream."""
        while b"\n\n" not in self._rest:
            try:
                self._rest += (await self._chunks.__anext__()).replace(b"\r\n", b"\n")
            except StopAsyncIteration:
                return None
            except _FAILURES as error:
                raise Broken(str(error)) from error
        block, _, self._rest = self._rest.partition(b"\n\n")
        fields: Dict[str, str] = {}
        for line in block.decode("utf-8").split("\n"):
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name:
                fields[name] = fields[name] + "\n" + value if name == "data" and name in fields else value
        return fields
