"""The names by which the rules of Step Functions know the interpreter of the Amazon States Language.

**Embedded**, definitions are evaluated by moto's interpreter, which is a port of LocalStack's: the same modules, under
other names. **LocalStack** has the original.

**Here** LocalStack's modules answer to moto's names, so that what :mod:`parity` changes in the interpreter is written
once, and changed in whichever of the two is in this process. LocalStack itself does not use moto's interpreter.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

PORT = "moto.stepfunctions.parser"
ORIGINAL = "localstack.services.stepfunctions"
STATES = f"{ORIGINAL}.asl.component.state"
ELSEWHERE: Mapping[str, str] = {
    "api": "localstack.aws.api.stepfunctions",
    "utils": "localstack.utils.strings",
}
FOLDERS: Mapping[str, str] = {
    "choice": "state_choice",
    "exec": "state_execution",
    "fail": "state_fail",
    "wait": "state_wait",
}


def original(name: str) -> str | None:
    """What LocalStack calls a module of moto's interpreter; None for any other module, and for the package itself."""
    if not name.startswith(f"{PORT}."):
        return None
    inside = name.removeprefix(f"{PORT}.")
    if inside in ELSEWHERE:
        return ELSEWHERE[inside]
    found = f"{ORIGINAL}.{inside}"
    if found.startswith(f"{STATES}."):
        folder, dot, rest = found.removeprefix(f"{STATES}.").partition(".")
        found = f"{STATES}.{FOLDERS.get(folder, folder)}{dot}{rest}"
    return found


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds LocalStack's module where moto's is asked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != PORT and original(name) is None:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None  # an empty one, which is exchanged at once

    def exec_module(self, module: ModuleType) -> None:
        found = original(module.__name__)
        if found is not None:
            sys.modules[module.__name__] = importlib.import_module(found)


def install() -> None:
    """Answer to moto's names from now on."""
    for name in [name for name in sys.modules if name == PORT or name.startswith(f"{PORT}.")]:
        del sys.modules[name]  # who has imported it keeps it
    sys.meta_path.insert(0, Alias())
