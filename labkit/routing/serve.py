"""Serve: a scripted provider as a process of its own, for what cannot share a notebook's::

    python -m labkit.routing.serve script.json

The first line on stdout says where: ``{"openai_url": …, "bedrock_url": …}``. ``GET /lab/hits`` has the counts and the
log. It ends with SIGTERM, Ctrl-C, or when the process that started it has gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading

from labkit.errors import LabError
from labkit.routing.provider import Provider
from labkit.routing.script import Script

_LOOK = 0.5  # seconds between two looks whether the parent is there


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="labkit.routing.serve", description="Serve a scripted model on 127.0.0.1.")
    parser.add_argument("script", help="a JSON file: see labkit.routing.script.Script.of")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    options = parser.parse_args(arguments)
    ended, parent = threading.Event(), os.getppid()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    try:
        with Provider(Script.load(options.script), port=options.port) as provider:
            print(json.dumps({"openai_url": provider.openai_url, "bedrock_url": provider.bedrock_url}), flush=True)
            while not ended.wait(_LOOK) and os.getppid() == parent:
                pass
    except LabError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
