"""A mail server: it speaks first. Usage: smtp_server.py HOST. Prints its port."""
import asyncio
import socket
import sys

from aiosmtpd.smtp import SMTP


class Sizes:
    """Takes every mail and tells its sender how long it was."""

    async def handle_DATA(self, server, session, envelope):
        return f"250 {len(envelope.content)} bytes from {envelope.mail_from}"


async def main():
    loop = asyncio.get_running_loop()
    make = lambda: SMTP(Sizes(), data_size_limit=None, enable_SMTPUTF8=True)
    both = ":" in sys.argv[1]
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server((sys.argv[1], 0), family=family, dualstack_ipv6=both)
    server = await loop.create_server(make, sock=listener)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
