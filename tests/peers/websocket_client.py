"""Talks to websocket_server.py; usage: websocket_client.py URL."""
import asyncio
import sys
from websockets.asyncio.client import connect


async def main():
    async with connect(sys.argv[1], max_size=None, proxy=None) as socket:
        for size in (1, 125, 126, 70_000, 1_000_000):
            message = "x" * size
            await socket.send(message)
            assert await socket.recv() == message
        await socket.send(b"\x00\xff" * 1000)
        assert await socket.recv() == b"\x00\xff" * 1000
        await (await socket.ping())
    print("ok")


asyncio.run(main())
