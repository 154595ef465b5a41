"""Sends mail with Python's own client; usage: smtp_client.py HOST PORT."""
import smtplib
import sys

for size in (720, 2_000_000):
    with smtplib.SMTP(sys.argv[1], int(sys.argv[2]), timeout=20) as client:
        assert client.ehlo()[0] == 250
        assert client.noop()[0] == 250
        client.mail("a@test.internal")
        client.rcpt("b@test.internal")
        code, said = client.data(("x" * 70 + "\r\n") * (size // 72))
        assert code == 250 and int(said.split()[0]) >= size // 72 * 70, (code, said)
print("ok")
