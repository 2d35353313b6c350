"""The approval page: what a group is asked, with two buttons each, on this machine's own address.

A page for a lab, and a pattern for a real one: plain forms that work without JavaScript, every text escaped, an answer
that is a POST and ends in a redirect, so that going back or reloading does not answer again. It listens on 127.0.0.1
only, below a path that cannot be guessed, and takes answers from its own pages alone: the Host must be its own (a name
that an attacker points here is another one), and so must the Origin.

Who answers is what is typed into the field. A real page takes that from the sign-in, never from the form.
"""

from __future__ import annotations

import html
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from botocore.exceptions import BotoCoreError, ClientError

from labkit.control.approval_requests import as_text
from labkit.control.approvals import Approvals, Request
from labkit.errors import LabError
from labkit.loopback import HOST

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["ApprovalPage"]

_TROUBLES = (LabError, BotoCoreError, ClientError)
_MOST_FORM = 65_536  # bytes of an answer
_WITHIN = 5.0  # seconds for a slow client, and for the end
_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Content-Type": "text/html; charset=utf-8",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title><style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }
article { border: 1px solid color-mix(in srgb, currentColor 30%, transparent); border-radius: .5rem; padding: 1rem; }
article, .said { margin: 1rem 0; overflow-wrap: anywhere; }
.said { border-left: .3rem solid #0072b2; padding: .5rem 1rem; }
pre { white-space: pre-wrap; margin: .5rem 0; }
label { display: block; margin: .5rem 0; } input { font: inherit; width: 100%; box-sizing: border-box; }
button { font: inherit; padding: .4rem 1rem; margin-right: .5rem; }
:focus-visible { outline: 3px solid #e69f00; outline-offset: 2px; }
</style></head><body><h1>$title</h1>$said<main>$requests</main><p><a href="$path">Look again</a></p></body></html>
""")
_REQUEST = Template("""<article aria-labelledby="q$number"><h2 id="q$number">$id</h2><pre>$question</pre>
<p>Asked at $asked_at; to be answered until $answer_until.</p>
<form method="post" action="$path"><input type="hidden" name="id" value="$id">
<label>Your name <input name="by" required maxlength="128" autocomplete="name"></label>
<label>Note (optional) <input name="note" maxlength="1000"></label>
<button name="decision" value="approved">Approve</button>
<button name="decision" value="rejected">Reject</button></form></article>""")


class ApprovalPage:
    """Serve the requests of ``group`` until :meth:`stop`, or until ``lab`` closes. ``url`` is where.

    >>> page = ApprovalPage(approvals, "team", lab=lab)      # doctest: +SKIP
    >>> print(page.url)                                      # doctest: +SKIP
    """

    def __init__(self, approvals: Approvals, group: str, *, lab: Lab | None = None) -> None:
        self.approvals, self.group = approvals, group
        self.path = f"/{secrets.token_urlsafe(24)}/"
        self._server = _Server((HOST, 0), _Handler)
        self._server.page = self
        self.host = f"{HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="labkit-approval-page", daemon=True
        )
        self._thread.start()
        if lab is not None:
            lab.on_close("approval page", self.stop)

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"

    def stop(self) -> None:
        """End it, within some seconds. Stopping twice is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(_WITHIN)
        self._server.server_close()

    def shown(self, said: str = "") -> str:
        """The page as HTML."""
        requests = [self._request(number, each) for number, each in enumerate(self.approvals.pending(self.group))]
        return _PAGE.substitute(
            title=html.escape(f"Approvals for {self.group}"),
            said=f'<p class="said" role="status">{html.escape(said)}</p>' if said else "",
            requests="".join(requests) or "<p>Nothing waits for an answer.</p>",
            path=self.path,
        )

    def answer(self, form: dict[str, str]) -> str:
        """Take an answer; what to say to that."""
        try:
            taken = self.approvals.decide(
                form.get("id", ""),
                form.get("decision", ""),  # type: ignore[arg-type]
                form.get("by", "").strip(),
                form.get("note", ""),
            )
        except _TROUBLES as refused:
            return str(refused)
        return f"Request {taken.id} is {taken.state} by {taken.decided_by}."

    def _request(self, number: int, request: Request) -> str:
        fields = {"id": request.id, "question": as_text(request.question, indent=2)}
        fields |= {"asked_at": request.asked_at, "answer_until": request.answer_until}
        escaped = {key: html.escape(value) for key, value in fields.items()}
        return _REQUEST.substitute(escaped, number=number, path=self.path)

    def __enter__(self) -> ApprovalPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<ApprovalPage for {self.group}>"  # without its path, which is what opens it


class _Server(ThreadingHTTPServer):
    page: ApprovalPage
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _WITHIN
    # What the last answer came to, shown once: a redirect has no body. By a key that only that redirect knows.
    _said: dict[str, str] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        path, _, key = self.path.partition("?said=")
        if not self._ours(path):
            return
        try:
            self._send(200, self.server.page.shown(self._said.pop(key, "")))
        except _TROUBLES as error:
            self._send(503, f"The requests cannot be read: {html.escape(str(error))}")

    def do_POST(self) -> None:
        page = self.server.page
        if not self._ours(self.path):
            return
        if self.headers.get("Origin", f"http://{page.host}") != f"http://{page.host}":
            self._send(403, "Answers are taken from the page itself.")
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            size = -1
        if not 0 <= size <= _MOST_FORM:
            self._send(413, "An answer is a form of 64 KiB at most.")
            return
        try:
            form = parse_qs(self.rfile.read(size).decode(errors="replace"), keep_blank_values=True, max_num_fields=10)
        except ValueError:
            self._send(413, "An answer is a form of 10 fields at most.")
            return
        key = secrets.token_urlsafe(12)
        while len(self._said) > 100:
            self._said.pop(next(iter(list(self._said)), ""), None)
        self._said[key] = page.answer({name: values[0] for name, values in form.items()})
        self._send(303, "", Location=f"{page.path}?said={key}")

    def _ours(self, path: str) -> bool:
        page = self.server.page
        if self.headers.get("Host") == page.host and secrets.compare_digest(path.encode(), page.path.encode()):
            return True
        self._send(404, "Nothing here.")
        return False

    def _send(self, status: int, body: str, **headers: str) -> None:
        self.send_response(status)
        content = body.encode()
        for name, value in {**_SAFE, **headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the path in a log would be the key to the page."""
