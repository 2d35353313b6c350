"""Start LocalStack without Docker: ``python -m hostmode --port 4566 --home DIR``.

One process, on 127.0.0.1 only. Everything it writes goes below ``--home``. It ends by SIGTERM or SIGINT, and every
Lambda process with it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

HOST = "127.0.0.1"


def environment(port: int, home: Path) -> dict[str, str]:
    """What LocalStack reads from its environment when it is imported."""
    for folder in ("tmp", "cache"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    address = f"{HOST}:{port}"
    return {
        "GATEWAY_LISTEN": address,
        "GATEWAY_SERVER": "loopback",
        "LOCALSTACK_HOST": address,
        "SQS_ENDPOINT_STRATEGY": "path",  # queue URLs would name a public host
        "FILESYSTEM_ROOT": str(home / "fs"),
        "TMPDIR": str(home / "tmp"),
        "XDG_CACHE_HOME": str(home / "cache"),  # the entry points that were found
        "OVERRIDE_IN_DOCKER": "0",  # inside any container, LocalStack would ignore FILESYSTEM_ROOT
        "DOCKER_HOST": f"unix://{home / 'no-docker.sock'}",  # an engine on this machine must not be touched
        "DNS_ADDRESS": "0",  # no name server
        "DISABLE_EVENTS": "1",  # nothing is reported to anybody
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "LAMBDA_RUNTIME_EXECUTOR": "process",
        **{
            f"PROVIDER_OVERRIDE_{name}": "lab"
            for name in ("CLOUDWATCH", "DYNAMODB", "EVENTS", "LAMBDA", "S3", "SQS", "STEPFUNCTIONS")
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostmode", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True, help="folder for everything that LocalStack writes")
    arguments = parser.parse_args()

    os.environ.update(environment(arguments.port, arguments.home.resolve()))
    tempfile.tempdir = None  # read TMPDIR again

    from hostmode import PinError, check_pin

    try:
        check_pin()
    except PinError as error:
        print(error, file=sys.stderr)
        return 3

    from localstack.runtime.main import main as run

    try:
        run()
    except SystemExit as end:
        # Threads and tables are left to the system: taking half a gigabyte apart, object by object, takes seconds.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
