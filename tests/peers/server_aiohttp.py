"""A small service on aiohttp. Prints its port. The same few paths as its siblings in this folder."""
import asyncio
from aiohttp import web

app = web.Application(client_max_size=64 << 20)
routes = web.RouteTableDef()


@routes.get("/hello")
async def hello(request):
    return web.Response(text="hello")


@routes.post("/echo")
async def echo(request):
    return web.Response(body=await request.read())


@routes.get("/big")
async def big(request):
    return web.Response(body=b"x" * 1_000_000)


@routes.get("/chunked")
async def chunked(request):
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b"0123456789")
    return response


async def main():
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("port", runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
