"""Which signal sees which failure: the rows of the taxonomy beside the signals, as a field of marks."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable

from labkit.ops.taxonomy import SIGNALS, Finding
from labkit.teach import plots
from labkit.teach.picture import Picture

__all__ = ["ahead", "matrix"]

_COLOURS = {  # of who counts: AWS for everybody, SQS for whoever asks, the fleet for itself
    "AWS/Events": (plots.BLUE, "CloudWatch metric"),
    "AWS/SQS": (plots.BLUE, "CloudWatch metric"),
    "AWS/Lambda": (plots.BLUE, "CloudWatch metric"),
    "SQS": (plots.GREEN, "depth of a dead-letter queue"),
    "history": (plots.PURPLE, "Step Functions"),
    "Step Functions": (plots.PURPLE, "Step Functions"),
    "worker": (plots.ORANGE, "what workers and provider count"),
    "provider": (plots.ORANGE, "what workers and provider count"),
    "ledger": (plots.RED, "sent compared with done"),
}


def ahead() -> threading.Thread:
    """Import in a thread what :func:`matrix` draws with: a second or more, at a moment when the reader waits anyway."""
    thread = threading.Thread(
        target=importlib.import_module, args=["matplotlib.backends.backend_agg"], name="labkit-import", daemon=True
    )
    thread.start()
    return thread


def matrix(findings: Iterable[Finding], *, title: str | None = None) -> Picture:
    """A line for each finding, a column for each signal that moved in any of them, a mark where it did.

    Names of silent rows are red: no error is raised and no dead-letter queue has the work. Raises ``ValueError`` when
    there is nothing to show.
    """
    found = list(findings)
    names = [name for name in SIGNALS if any(name in each.signals for each in found)]
    if not names:
        raise ValueError("matrix needs at least one finding with a signal that moved.")
    with plots.style():
        figure, axes = plots.frame(title, "", "", height=2.9 + 0.25 * len(found))
        seen: dict[str, str] = {}
        for x, name in enumerate(names):
            colour, word = _COLOURS[SIGNALS[name].where]
            seen[word] = colour
            marks = [y for y, each in enumerate(found) if name in each.signals]
            axes.plot([x] * len(marks), marks, ls="", marker="o", ms=8, color=colour, mec=plots.CARD)
        axes.set_xticks(range(len(names)), names, rotation=55, ha="right", rotation_mode="anchor", fontsize=9)
        axes.set_yticks(range(len(found)), [each.row.key for each in found])
        for label, each in zip(axes.get_yticklabels(), found, strict=True):
            label.set_color(plots.RED if each.row.silent else plots.INK)
        axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(len(found) - 0.5, -0.5))
        axes.tick_params(length=0)
        for word, colour in seen.items():
            axes.plot([], [], ls="", marker="o", ms=8, color=colour, label=word)
        figure.legend(loc="outside lower left", ncols=2, fontsize=9, handlelength=1.2)
    said = "; ".join(
        f"{each.row.key}{' (silent)' if each.row.silent else ''}: "
        f"{', '.join(name for name in names if name in each.signals) or 'nothing'}"
        for each in found
    )
    return Picture.of(figure, f"{f'{title}. ' if title else ''}Which signals moved. {said}.")
