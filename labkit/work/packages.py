"""Packages: what a Lambda function is made of, as a zip with the same bytes on every run and every machine.

Lambda names a function's code by the SHA-256 of its zip (``CodeSha256``). So a package whose bytes depend on nothing
but its contents makes deployment idempotent: equal sum, nothing to do. Time stamps and permissions are therefore
constants, names are sorted, caches stay out, and nothing is compressed, because each zlib compresses differently.

A function is a folder with a ``handler.py``, whatever else it needs, and a ``function.toml``::

    handler = "handler.handler"             # module.function; this is the default
    timeout = 10                            # seconds
    memory = 256                            # MB
    labkit = ["work/batch"]                 # modules of labkit to take along
    libraries = ["aws-lambda-powertools"]   # libraries to take along, with what they require

Modules of labkit are listed, not guessed; whatever these import when they are imported must be listed too, and a
missing one is an error here, not in the cloud. Libraries come from the environment that this runs in
(:mod:`labkit.work.libraries`).
"""

from __future__ import annotations

import ast
import base64
import difflib
import hashlib
import io
import re
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from labkit.facts import facts
from labkit.work import libraries
from labkit.work.libraries import PackageError

__all__ = [
    "Package",
    "PackageError",
    "Settings",
    "from_folder",
    "from_source",
]

_LABKIT = Path(__file__).resolve().parent.parent
_ALWAYS = ("errors", "facts")  # what `import labkit` itself imports
_DATA = {"facts": ("labkit/_data/facts.csv", "facts.csv")}  # module → where its data lies in a package, and its file
_IN_THE_RUNTIME = {"boto3", "botocore"}  # AWS documentation: Python runtimes include the SDK
_NEVER = {"__pycache__", "function.toml"}


@dataclass(frozen=True)
class Settings:
    """What ``function.toml`` says. ``compiled`` lets in libraries that run on this machine's platform only."""

    handler: str = "handler.handler"
    timeout: int = field(default_factory=lambda: int(facts("lambda.timeout.default")))  # seconds
    memory: int = field(default_factory=lambda: int(facts("lambda.memory.default")))  # MB
    labkit: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    compiled: bool = False

    @classmethod
    def read(cls, file: Path) -> Settings:
        """The settings in a ``function.toml``; the defaults where there is none. Raises :class:`PackageError`."""
        if not file.is_file():
            return cls()
        try:
            said = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PackageError(f"{file} cannot be read: {error}.") from error
        defaults = cls()
        for name, value in said.items():
            if name not in {one.name for one in fields(cls)}:
                raise PackageError(f"{file}: there is no setting {name!r}; there are {', '.join(vars(defaults))}.")
            wanted = type(getattr(defaults, name))
            if wanted is tuple:
                if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                    raise PackageError(f"{file}: {name} is {value!r}; it is a list of texts.")
                said[name] = tuple(value)
            elif type(value) is not wanted:
                raise PackageError(f"{file}: {name} is {value!r}; it is of type {wanted.__name__}.")
        return cls(**said)


@dataclass(frozen=True)
class Package:
    """A zip, ready to upload. ``libraries``: name → version of each one in it."""

    content: bytes = field(repr=False)
    settings: Settings
    files: tuple[str, ...]
    libraries: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """The sum of the zip as Lambda writes it (``CodeSha256``)."""
        return base64.b64encode(hashlib.sha256(self.content).digest()).decode()


def from_folder(folder: Path) -> Package:
    """Package a function's folder. Raises :class:`PackageError`."""
    if not folder.is_dir():
        raise PackageError(f"there is no folder {folder} to make a function of.")
    own = {
        name.as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not _NEVER & set((name := path.relative_to(folder)).parts)
        and not any(part.startswith(".") for part in name.parts)
        and name.suffix != ".pyc"
    }
    return _package(own, Settings.read(folder / "function.toml"), str(folder))


def from_source(source: str, settings: Settings) -> Package:
    """Package a ``handler.py`` with this source, as it stands in a notebook's cell. Raises :class:`PackageError`."""
    return _package({"handler.py": textwrap.dedent(source).encode()}, settings, "the source")


def _package(own: Mapping[str, bytes], settings: Settings, what: str) -> Package:
    ours = dict(_modules(settings.labkit))
    theirs, versions = libraries.collect(settings.libraries, compiled=settings.compiled)
    _check_own(own, ours, settings.handler, what)
    _check_ours(ours, theirs)
    files: dict[str, bytes] = {}
    for part in (own, ours, theirs):
        twice = sorted(set(files) & set(part))
        if twice:
            raise PackageError(f"{what}: {twice[0]} would be in the package twice.")
        files.update(part)
    content, unzipped = _zip(files), sum(map(len, files.values()))
    for size, kind in ((len(content), "zipped"), (unzipped, "unzipped")):
        limit = int(facts(f"lambda.package.{kind}_bytes"))
        if size >= limit:
            raise PackageError(f"{what}: the package has {size:,} bytes {kind}; Lambda takes less than {limit:,}.")
    return Package(content, settings, tuple(sorted(files)), versions)


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the first moment that a zip can hold
            entry.create_system = 3  # Unix, wherever this runs: the permissions below are then read
            entry.external_attr = 0o100644 << 16  # Lambda runs as another user, who must be able to read it
            archive.writestr(entry, files[name], zipfile.ZIP_STORED)
    return buffer.getvalue()


def _modules(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The files of labkit's own modules, with the ``__init__`` above each and the data that some need."""
    taken = {"__init__.py"}
    for name in (*_ALWAYS, *names):
        if not re.fullmatch(r"\w+(/\w+)*", name) or not (_LABKIT / f"{name}.py").is_file():
            known = [path.relative_to(_LABKIT).with_suffix("").as_posix() for path in _LABKIT.rglob("*.py")]
            near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.3)) or "work/batch"
            raise PackageError(f'labkit has no module "{name}"; a module is named as in {near}.')
        above = Path(name).parents
        taken |= {f"{name}.py", *((folder / "__init__.py").as_posix() for folder in above)}
        if name in _DATA:
            inside, file = _DATA[name]
            yield inside, _data(file)
    for path in sorted(taken):
        yield f"labkit/{path}", (_LABKIT / path).read_bytes()


def _data(name: str) -> bytes:
    packed = _LABKIT / "_data" / name  # as in labkit.facts: a wheel carries a copy, a checkout has the file itself
    return (packed if packed.is_file() else _LABKIT.parent / "data" / name).read_bytes()


def _check_own(own: Mapping[str, bytes], ours: Mapping[str, bytes], handler: str, what: str) -> None:
    """The handler is there, and what is imported of labkit is in the package."""
    module, _, function = handler.rpartition(".")
    file = f"{module.replace('.', '/')}.py"
    if file not in own:
        raise PackageError(f"{what}: the handler is {handler!r}, module.function, and there is no {file}.")
    for name, content in own.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError) as error:
            raise PackageError(f"{what}: {name} is not Python: {error}.") from error
        if name == file and function not in _names(tree):
            raise PackageError(f"{what}: {name} defines no {function}, which the handler {handler} names.")
        for imported in _imports(tree):
            _demand(imported, ours, f"{what}: {name}")


def _check_ours(ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> None:
    """What the packaged modules of labkit import when they are imported is packaged too."""
    found = {name.split("/")[0].removesuffix(".py") for name in theirs}
    there = found | _IN_THE_RUNTIME | sys.stdlib_module_names | {"labkit"}
    for name, content in ours.items():
        for imported in _imports(ast.parse(content)) if name.endswith(".py") else ():
            _demand(imported, ours, name)
            if imported.split(".")[0] not in there:
                raise PackageError(f"{name} imports {imported.split('.')[0]}: name its library in libraries.")


def _demand(imported: str, ours: Mapping[str, bytes], who: str) -> None:
    """That a name of labkit which is imported is in the package: ``labkit.work.batch.process`` is in work/batch."""
    parts = imported.split(".")
    if parts[0] != "labkit":
        return
    for length in range(len(parts), 1, -1):
        module = "/".join(parts[1:length])
        if (_LABKIT / f"{module}.py").is_file():
            if f"labkit/{module}.py" not in ours:
                raise PackageError(f'{who} imports labkit.{module.replace("/", ".")}: name "{module}" in labkit.')
            return


def _imports(tree: ast.Module) -> Iterator[str]:
    """The dotted names that are imported when the module is: not in functions, not for type checkers alone."""
    for node in _at_import(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _at_import(node.orelse)
            continue
        yield node
        yield from _at_import(ast.iter_child_nodes(node))


def _names(tree: ast.Module) -> set[str]:
    """What a module defines at its top, however: def, assignment, import."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        else:
            found |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found
