"""Calls an HTTPS service with requests as the environment (HTTPS_PROXY) says; usage: client_https.py URL CA."""
import sys

import requests

with requests.Session() as session:
    # For each call: what the environment says of authorities would win over the session's.
    trust = {"verify": sys.argv[2], "timeout": 20}
    for _ in range(5):
        answer = session.get(sys.argv[1] + "/hello", **trust)
        assert (answer.status_code, answer.text) == (200, "hello"), answer.text
    assert len(session.get(sys.argv[1] + "/big", **trust).content) == 1_000_000
print("ok")
