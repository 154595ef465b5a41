"""Calls the paths of the services in this folder with requests; usage: client_requests.py URL [PROXY]."""
import sys
import requests

base = sys.argv[1]
session = requests.Session()
session.trust_env = False
if len(sys.argv) > 2:
    session.proxies = {"http": sys.argv[2]}

for _ in range(20):
    answer = session.get(base + "/hello", timeout=20)
    assert (answer.status_code, answer.text) == (200, "hello"), answer.text
body = bytes(range(256)) * 4000
assert session.post(base + "/echo", data=body, timeout=20).content == body
assert session.post(base + "/echo", data=iter([b"one", b"two", b"three"]), timeout=20).content == b"onetwothree"
assert session.get(base + "/chunked", timeout=20).text == "0123456789" * 100
with session.get(base + "/big", stream=True, timeout=20) as answer:
    assert sum(len(part) for part in answer.iter_content(1000)) == 1_000_000
assert session.head(base + "/hello", timeout=20).status_code == 200
assert session.get(base + "/nowhere", timeout=20).status_code == 404
print("ok")
