"""The parent of mortal processes: it imports once, forks for each run, and says how the child ended.

Run as a program of its own (``python -m labkit.teach.mortal_host FD OWNER FOLDER MODULE …``). It ends when the other
end of its link is gone, with its child.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

from labkit.state.session_host import receive, send

KILL = b"kill"  # a frame: end what runs


def main(descriptor: int, owner: int, folder: str, preload: list[str]) -> None:
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a notebook is meant for the notebook
    try:
        for name in preload:
            importlib.import_module(name)
        with socket.socket(fileno=descriptor) as link:
            while (frame := receive(link)) is not None:
                if frame == KILL:
                    continue  # it came too late: what it was meant for has ended
                said = Path(folder) / "said"
                said.unlink(missing_ok=True)
                pid = os.fork()
                if pid == 0:
                    link.close()
                    _child(json.loads(frame), said)
                send(link, json.dumps({"pid": pid}).encode())
                send(link, json.dumps(_end(pid, said, owner, link)).encode())
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # whoever owned it may have been killed


def _end(pid: int, said: Path, owner: int, link: socket.socket) -> dict[str, Any]:
    """How the child ended. Until this has asked for it, its number is nobody else's: from here it may be killed."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        gone = os.getppid() != owner
        if select.select([link], [], [], 0.005)[0]:
            frame = receive(link)
            gone = gone or frame is None
            if frame == KILL:
                os.kill(pid, signal.SIGKILL)
        if gone:  # the owner was killed, and can end nothing itself
            shutil.rmtree(said.parent, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"killed": True} if number == signal.SIGKILL else {"error": f"signal {number} ended it"}
    if not said.exists():
        return {"error": f"it ended with code {os.WEXITSTATUS(status)} and said nothing"}
    found: dict[str, Any] = json.loads(said.read_text(encoding="utf-8"))
    return found


def _child(asked: dict[str, Any], said: Path) -> NoReturn:
    module = sys.modules["mortal"] = types.ModuleType("mortal")  # where its annotations and its classes are looked for
    try:
        exec(compile(asked["source"], "mortal.py", "exec", dont_inherit=True), module.__dict__)
        answer = {"returned": module.__dict__["main"](**asked["given"])}
        text = json.dumps(answer, allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - whoever started it hears of it
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    said.write_text(text, encoding="utf-8")
    os._exit(0)  # and nothing of what the parent would do at its end


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
