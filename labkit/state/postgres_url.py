"""The URL of a lab's database, which says everything: what a URL leaves open, libpq looks up elsewhere.

PostgreSQL's clients read variables such as ``PGHOSTADDR``, ``PGOPTIONS`` and ``PGCLIENTENCODING``. Whoever works with
another PostgreSQL has them set, and they are about that one, perhaps on another machine. They hold wherever the URL is
silent: with the socket's folder alone in it, a lab's states would go to the address in ``PGHOSTADDR``.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

_SAID = {
    "hostaddr": "",  # none beside the socket
    "options": "",
    "client_encoding": "utf8",
    "target_session_attrs": "any",
    "gssencmode": "disable",
    "channel_binding": "disable",
    "connect_timeout": "5",  # seconds; whoever connects to a server that is stopped would wait for ever
}


def url(database: str, sockets: Path) -> str:
    """``database`` of the PostgreSQL that listens in the folder ``sockets``."""
    where = {"host": str(sockets), "port": "5432", **_SAID}
    return f"postgresql://postgres@/{quote(database, safe='')}?{urlencode(where, quote_via=quote)}"
