"""Calls an HTTPS service with requests as the environment (HTTPS_PROXY) says; usage: client_https.py URL CA."""
import sys

import requests

with requests.Session() as session:
    session.verify = sys.argv[2]
    for _ in range(5):
        answer = session.get(sys.argv[1] + "/hello", timeout=20)
        assert (answer.status_code, answer.text) == (200, "hello"), answer.text
    assert len(session.get(sys.argv[1] + "/big", timeout=20).content) == 1_000_000
print("ok")
