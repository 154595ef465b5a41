"""A WebSocket server that sends back what it gets. Prints its port."""
import asyncio
from websockets.asyncio.server import serve


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
