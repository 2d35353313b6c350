#!/bin/sh
# Find a Python that can run the course, then let it make the environments.
set -eu
unset CDPATH # it would lead the next line elsewhere
cd "$(dirname "$0")/.."

fits() { # a name on the PATH proves nothing: version managers put up names that run nothing
    "$1" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] < (3, 14)))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ] && ! fits "$PYTHON"; then
    echo "$PYTHON is no Python 3.11, 3.12 or 3.13 that runs." >&2
    exit 1
fi
# The one that the environment was made with, so that naming it once is enough.
made=""
if [ -f .venv/pyvenv.cfg ]; then
    folder=$(sed -n 's/^home = //p' .venv/pyvenv.cfg)
    release=$(sed -En 's/^version(_info)? = ([0-9]+\.[0-9]+).*/\2/p' .venv/pyvenv.cfg)
    made="$folder/python$release"
fi
for python in "${PYTHON:-}" "$made" python3.12 python3.13 python3.11 python3 python; do
    if [ -n "$python" ] && fits "$python"; then
        exec "$python" infra/bootstrap.py "$@"
    fi
done
echo "No Python 3.11, 3.12 or 3.13 was found. Install one (Debian, Ubuntu: apt install python3 python3-venv;" >&2
echo "macOS: brew install python@3.12), or name it: make PYTHON=/path/to/python3.12" >&2
exit 1
