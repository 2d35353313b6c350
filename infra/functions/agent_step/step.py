"""What stands in for an agent: the same answer for the same work, and the failures that a payload asks for.

A payload can hold, beside the work itself:

- ``"fail": "ValueError"``: raise this error, each time; with ``"until": 3``, only in the deliveries before the third;
- ``"fail": "exit"``: end the process, as running out of memory does: the whole batch goes with it;
- ``"seconds": 1.5``: take so long first.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
import os
import time
from typing import Any


def envelope(body: Any) -> dict[str, Any]:
    """The envelope in a message: the body itself, or the ``detail`` of an event that a rule sent."""
    found = body.get("detail", body) if isinstance(body, dict) else body
    if not isinstance(found, dict):
        raise TypeError(f"an envelope is a JSON object; this is {type(found).__name__}")
    for name in ("trace_id", "payload"):
        if not found.get(name):
            raise KeyError(f"the envelope has no {name}")
    return found


def run(found: dict[str, Any], receives: int) -> str:
    """Do the step of an envelope, in its ``receives``-th delivery; returns the answer."""
    payload = found["payload"]
    if not isinstance(payload, dict):
        raise TypeError(f"a payload is a JSON object; this is {type(payload).__name__}")
    time.sleep(payload.get("seconds", 0))
    fail = payload.get("fail")
    if fail and receives < payload.get("until", math.inf):
        if fail == "exit":
            os._exit(1)
        error = getattr(builtins, fail, None)
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise LookupError(f"payload asks for {fail!r}, which is no error that Python has")
        raise error(f"{found['trace_id']} was told to fail")
    work = {name: value for name, value in payload.items() if name not in ("fail", "until", "seconds")}
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:12]
