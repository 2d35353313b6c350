"""What a handler finds in its environment: AWS's variables, its own, and nothing of the reader's.

**On AWS** the environment holds what the function's ``Environment`` says, reserved variables that it cannot set
(``AWS_REGION``, ``AWS_LAMBDA_FUNCTION_NAME``, ``_HANDLER``, credentials of the execution role …) and some that it can
override (``PATH``, ``LANG``, ``TZ`` …). Beside the code there are boto3 and what it needs, nothing else (Lambda
Developer Guide, "Working with Lambda environment variables"; recorded on AWS: the whole environment of Python 3.12 and
3.14).

**MiniStack** hands its own environment on: the reader's home, with the real credentials in it, virtual environment,
API keys, proxies.

**Here** the environment is made anew. Four variables are not AWS's: ``AWS_ENDPOINT_URL`` brings the SDK's calls back to
the stand-in, and ``AWS_DISABLE_HOST_PREFIX_INJECTION`` lets them arrive; ``HOME`` and ``TMPDIR`` are folders of the
execution environment, where AWS has none of the two and ``/tmp``. A handler that writes to ``/tmp/…`` by that name
writes to this machine's. The account's number is the access key, as everywhere on the stand-in.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "lambda-environment-"  # of the folders that are made here

# Where the system's loader looks for shared libraries.
LOADER = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"

# Names that CreateFunction refuses in Environment.
RESERVED = frozenset(
    {
        "_HANDLER",
        "_X_AMZN_TRACE_ID",
        "AWS_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_DEFAULT_REGION",
        "AWS_EXECUTION_ENV",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_LAMBDA_FUNCTION_VERSION",
        "AWS_LAMBDA_INITIALIZATION_TYPE",
        "AWS_LAMBDA_LOG_GROUP_NAME",
        "AWS_LAMBDA_LOG_STREAM_NAME",
        "AWS_LAMBDA_RUNTIME_API",
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "LAMBDA_RUNTIME_DIR",
        "LAMBDA_TASK_ROOT",
    }
)


@dataclass(frozen=True)
class Places:
    """The folders of one execution environment: ``/var/task``, ``/opt``, ``/tmp`` and ``/var/runtime`` on AWS."""

    task: Path
    layers: Path
    temporary: Path
    runtime: Path


def variables(
    config: Mapping[str, Any],
    *,
    region: str,
    credentials: Mapping[str, str],
    endpoint: str,
    places: Places,
    log_group: str,
    log_stream: str,
) -> dict[str, str]:
    """The environment of a function's process."""
    own = (config.get("Environment") or {}).get("Variables") or {}
    overridable = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR",
        "HOME": str(places.temporary),
        "LANG": "en_US.UTF-8",
        "LC_CTYPE": "C.UTF-8",
        LOADER: f"{places.task}/lib:{places.layers}/lib",
        "PATH": f"/usr/local/bin:/usr/bin/:/bin:{places.layers}/bin",
        "PWD": str(places.task),
        "TMPDIR": str(places.temporary),
        "TZ": ":UTC",
    }
    reserved = {
        "AWS_DEFAULT_REGION": region,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{config['Runtime']}",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(config["MemorySize"]),
        "AWS_LAMBDA_FUNCTION_NAME": config["FunctionName"],
        "AWS_LAMBDA_FUNCTION_VERSION": config["Version"],
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": log_group,
        "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
        "AWS_REGION": region,
        "LAMBDA_RUNTIME_DIR": str(places.runtime),
        "LAMBDA_TASK_ROOT": str(places.task),
        "_HANDLER": config["Handler"],
        **credentials,
    }
    return {**overridable, **own, **reserved}


def credentials(account: str) -> dict[str, str]:
    """Credentials of a function: the account's number selects the account, the rest is as good as any."""
    return {"AWS_ACCESS_KEY_ID": account, "AWS_SECRET_ACCESS_KEY": "lambda", "AWS_SESSION_TOKEN": "lambda"}


def search_path(layers: Path) -> list[str]:
    """Where Python looks for modules in layers: the folders that AWS documents, as far as they are there."""
    python = layers / "python"
    packages = sorted(python.glob("lib/python3*/site-packages"))
    return [str(folder) for folder in (*packages, python) if folder.is_dir()]


def runtime_packages(distribution: str = "boto3") -> set[Path]:
    """What belongs to ``distribution`` and to all that it requires: packages, modules and their metadata."""
    wanted, paths = [distribution], {}
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in paths:
            continue
        found = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        paths[name] = {Path(str(found.locate_file(top))) for top in tops}
        required = [text for text in found.requires or () if "extra ==" not in text]
        wanted += [match[0] for text in required if (match := re.match(r"[A-Za-z0-9._-]+", text))]
    return set().union(*paths.values())


def runtime_folder() -> Path:
    """A folder with AWS's packages and nothing else: links to where they are installed. One for this process."""
    with _making:  # two first cold starts at once
        return _runtime_folder()


_making = threading.Lock()


@functools.cache
def _runtime_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}runtime-"))
    for path in runtime_packages():
        os.symlink(path, folder / path.name)
    return folder


def new_places() -> Places:
    """The folders of an environment, empty."""
    # The real path: macOS's temporary folder is a link, and a handler's frames would have another name.
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX)))
    places = Places(folder / "task", folder / "opt", folder / "tmp", runtime_folder())
    for place in (places.task, places.layers, places.temporary):
        place.mkdir()
    return places


def make_places(code: bytes, layers: Sequence[bytes], extract: Callable[[zipfile.ZipFile, str], object]) -> Places:
    """Make the folders of an environment. A later layer overwrites an earlier one's files, as on AWS."""
    places = new_places()
    for data, target in ((code, places.task), *((layer, places.layers) for layer in layers)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            extract(archive, str(target))
    return places


def remove_left_over() -> None:
    """Remove the folders of a stand-in that was killed. Its home, and with it its temporary folder, is ours now."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
