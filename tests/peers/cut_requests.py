"""Prints `cut` when the answer at URL is seen to be cut, else what looked whole."""
import sys
import requests

try:
    answer = requests.get(sys.argv[1], timeout=20)
    print("whole", answer.status_code, len(answer.content))
except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError) as error:
    print("cut", error)
