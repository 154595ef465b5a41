"""Calls the paths of the services in this folder over HTTP/2 with httpx; usage: client_httpx.py URL."""
import asyncio
import sys

import httpx


async def many():
    # Not by threads: those of httpx send streams out of order now and then, which RFC 9113 5.1.1 forbids.
    async with httpx.AsyncClient(http1=False, http2=True, base_url=sys.argv[1], trust_env=False, timeout=20) as client:
        answers = await asyncio.gather(*(client.get("/hello") for _ in range(200)))
        assert {answer.text for answer in answers} == {"hello"}


with httpx.Client(http1=False, http2=True, base_url=sys.argv[1], trust_env=False, timeout=20) as client:
    for _ in range(20):
        answer = client.get("/hello")
        assert (answer.http_version, answer.status_code, answer.text) == ("HTTP/2", 200, "hello"), answer
    body = bytes(range(256)) * 4000
    assert client.post("/echo", content=body).content == body
    assert client.post("/echo", content=iter([b"one", b"two", b"three"])).content == b"onetwothree"
    assert client.get("/chunked").text == "0123456789" * 100
    with client.stream("GET", "/big") as answer:
        assert sum(len(part) for part in answer.iter_bytes(1000)) == 1_000_000
    assert client.head("/hello").status_code == 200
    assert client.get("/nowhere").status_code == 404
asyncio.run(many())
print("ok")
