"""Function errors that the handler does not report itself: time-out, end of the process, an answer that is too large.

**On AWS** the answer of Invoke is 200 with ``X-Amz-Function-Error: Unhandled``, and the payload has the two members
errorType and errorMessage: ``Sandbox.Timedout``, ``Runtime.ExitError`` with the exit status or the signal, or
``Function.ResponseSizeTooLarge`` above 6,291,556 bytes. The log names the same, and the REPORT line ends with a status.
(Recorded on AWS: the payloads of a time-out, of ``sys.exit(0)`` and of an answer of 7 MB. From public logs: the lines,
the exit statuses and signals.)

**MiniStack** answers a time-out with an older text, an exit with "Worker process died", and any size.

**Here** these are plain functions. Not done: the end of a process that exceeds the function's memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

MAX_RESPONSE = 6_291_556  # bytes: 6 MiB and 100

# Signals as AWS's runtime manager, a program in Go, writes them.
SIGNALS = {
    1: "hangup",
    2: "interrupt",
    3: "quit",
    4: "illegal instruction",
    6: "aborted",
    7: "bus error",
    8: "floating point exception",
    9: "killed",
    11: "segmentation fault",
    13: "broken pipe",
    14: "alarm clock",
    15: "terminated",
}


@dataclass(frozen=True)
class Failure:
    """A function error of the platform. ``text`` is its line in the log, ``status`` what the REPORT line ends with."""

    kind: str
    message: str
    text: str
    status: str

    @property
    def payload(self) -> bytes:
        return json.dumps({"errorType": self.kind, "errorMessage": self.message}, separators=(",", ":")).encode()


def timed_out(request_id: str, seconds: float, moment: str) -> Failure:
    """The function's timeout has passed. ``moment`` is the time as the log shows it."""
    text = f"Task timed out after {seconds:.2f} seconds"
    message = f"RequestId: {request_id} Error: {text}"
    return Failure("Sandbox.Timedout", message, f"{moment} {request_id} {text}\n\n", "Status: timeout")


def exited(request_id: str, status: int) -> Failure:
    """The process has ended; ``status`` is its exit status, or the negative number of a signal."""
    reason = "Runtime exited without providing a reason"
    if status:
        how = f"exit status {status}" if status > 0 else f"signal: {SIGNALS.get(-status, f'signal {-status}')}"
        reason = f"Runtime exited with error: {how}"
    kind, message = "Runtime.ExitError", f"RequestId: {request_id} Error: {reason}"
    return Failure(kind, message, f"{message}\n{kind}\n", f"Status: error\tError Type: {kind}")


def too_large(payload: bytes) -> Failure | None:
    """The failure that AWS makes of an answer above the limit, or None."""
    if len(payload) <= MAX_RESPONSE:
        return None
    message = f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE} bytes)."
    kind = "Function.ResponseSizeTooLarge"
    return Failure(kind, message, "", f"Status: error\tError Type: {kind}")
