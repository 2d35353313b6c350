"""Handlers run as processes on the reader's machine: none of them may be left behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from .conftest import Aws
from .lambda_kit import configure, function, invoke, replace, until
from .rows import ours

SOURCE = """
import os, subprocess

child = subprocess.Popen(["sleep", "600"]).pid


def handler(event, context):
    return [os.getpid(), child, os.environ["LAMBDA_TASK_ROOT"]]
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@ours("AWS shows no processes")
@pytest.mark.parametrize("change", ["delete", "code", "configuration"])
def test_processes_end_with_their_function(aws: Aws, change: str) -> None:
    function(aws, "made", SOURCE)
    own, child, folder = invoke(aws, "made")[2]
    assert not gone(own)
    assert not gone(child)
    if change == "delete":
        aws.client("lambda").delete_function(FunctionName="made")
    elif change == "code":
        replace(aws, "made", SOURCE + "# changed")
    else:
        configure(aws, "made", Timeout=9)
    until(lambda: gone(own) and gone(child))
    until(lambda: not Path(folder).exists())


@ours("AWS shows no processes")
def test_an_update_ends_no_process_of_another_account(aws: Aws) -> None:
    other = Aws(aws.endpoint)
    function(other, "made", SOURCE)
    own = invoke(other, "made")[2][0]
    function(aws, "made", SOURCE)
    configure(aws, "made", Timeout=9)
    assert not gone(own)
    assert invoke(other, "made")[2][0] == own


@ours("AWS shows no processes")
def test_an_ended_process_leaves_no_child(aws: Aws) -> None:
    source = "import os, subprocess\ndef handler(event, context):\n    if event: os._exit(1)\n"
    function(aws, "ends", source + "    return subprocess.Popen(['sleep', '600']).pid")
    child = invoke(aws, "ends", False)[2]
    assert not gone(child)
    invoke(aws, "ends", True)
    until(lambda: gone(child))
