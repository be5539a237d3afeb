"""A plain HTTP proxy that passes CONNECT through and nothing else, as hospitals have one on their way out."""

from __future__ import annotations

import asyncio
import contextlib
import sys

_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_REFUSED = b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"
_PIECE = 65536


async def serve(port: int) -> None:
    """Serve on all interfaces until the process ends."""
    server = await asyncio.start_server(_answer, "0.0.0.0", port)  # noqa: S104 - within its container
    async with server:
        await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split()
    if request[0] != "CONNECT":
        writer.write(_REFUSED)
        writer.close()
        return
    host, _, port = request[1].rpartition(":")
    beyond, out = await asyncio.open_connection(host, int(port))
    writer.write(_CONNECTED)
    await asyncio.gather(_pass_on(reader, out), _pass_on(beyond, writer))


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
    target.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
