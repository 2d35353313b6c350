"""Notes and refuses each look-up and each connection outside loopback, in every Python process with this in its path.

Python's audit events are raised below every library, and nothing can be looked up through ``socket`` around them. The
process sees what a machine without a network shows; what it makes of that does not matter: the file has the note.
"""

import errno
import ipaddress
import os
import socket
import sys

NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
ADDRESSES = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getnameinfo": 0,
}  # which argument
SEEN = os.environ.get("LAB_LOOKUPS", "")
LOCAL = {"", "localhost", "0.0.0.0", "::", os.uname().nodename.lower() if hasattr(os, "uname") else ""}


def outside(host):
    """Whether a name or an address is of another machine."""
    if isinstance(host, (bytes, bytearray)):
        host = host.decode(errors="replace")
    if not isinstance(host, str) or host.lower().rstrip(".") in LOCAL or host.lower().endswith(".localhost"):
        return False
    try:
        return not ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return True


def note(event, arguments):
    if event in NAMES:
        host = arguments[0]
    elif event in ADDRESSES and isinstance(arguments[ADDRESSES[event]], tuple):
        host = arguments[ADDRESSES[event]][0]
    else:
        return
    if outside(host):
        with open(SEEN, "a") as seen:
            seen.write(f"{event} {host!r} by {' '.join(sys.argv)[:120]!r}\n")
        if event in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


if SEEN:
    sys.addaudithook(note)
