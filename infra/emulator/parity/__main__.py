"""Start the stand-in for AWS: ``python -m parity --port 4566 --home DIR``.

One process, on 127.0.0.1 only. Everything it writes goes below ``--home``. It ends by SIGTERM or SIGINT. With
``--beside http://127.0.0.1:PORT`` it is the companion of another emulator there, which has not all services: the pipes
of this one read the queues of that one, and call its functions (see :mod:`parity.neighbour`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

HOST = "127.0.0.1"
POLLS_END = 1.5  # seconds


def environment(port: int, home: Path) -> dict[str, str]:
    """What MiniStack reads from its environment when it is imported: loopback, no Docker, nothing outside ``home``."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    return {
        "BIND_HOST": HOST,  # MiniStack listens on 0.0.0.0 unless told otherwise
        "GATEWAY_PORT": str(port),
        "LAMBDA_EXECUTOR": "local",
        # A Docker engine on the machine must not be touched: MiniStack would remove containers of its own from earlier
        # runs, and would run functions in images that a reader has not got.
        "DOCKER_HOST": f"unix://{home / 'no-docker.sock'}",
        "SFTP_ENABLED": "0",  # these two open listeners that nothing in the course needs
        "IOT_MTLS_ENABLED": "0",
        "S3_DATA_DIR": str(home / "s3"),
        "TMPDIR": str(home / "tmp"),
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
    }


async def serve(port: int) -> None:
    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config
    from ministack.app import app

    from parity.guard import guarded

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    config = Config()
    config.bind = [f"{HOST}:{port}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 0.5  # an open long poll must not hold the end up for 20 s
    config.shutdown_timeout = 2.0
    config.loglevel = "WARNING"
    await hypercorn_serve(guarded(app), config, shutdown_trigger=stopping.wait)


def main() -> int:
    parser = argparse.ArgumentParser(prog="parity", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--beside", metavar="URL", help="another emulator, in which what a pipe touches is")
    parser.add_argument("--home", type=Path, required=True, help="folder for everything that the stand-in writes")
    arguments = parser.parse_args()

    os.environ.update(environment(arguments.port, arguments.home.resolve()))
    tempfile.tempdir = None  # read TMPDIR again

    import parity
    from parity import neighbour

    if arguments.beside:
        try:
            neighbour.use(arguments.beside)
        except ValueError as error:
            parser.error(f"--beside: {error}")
    try:
        parity.install()
    except parity.PinError as error:
        print(error, file=sys.stderr)
        return 3
    asyncio.run(serve(arguments.port))
    if arguments.beside:
        from parity.pipes_pollers import pollers

        pollers().end(POLLS_END)  # what a poll that is cut off has received would stay invisible in the neighbour
    # Worker threads of MiniStack are not daemons; there is nothing left for them to do.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
