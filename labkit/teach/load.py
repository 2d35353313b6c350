"""What a provider went through: how many calls it was at work on over time, and when it refused one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from labkit.routing.hits import RUNNING, Hit
from labkit.teach import plots
from labkit.teach.picture import Picture

__all__ = ["at_once", "load"]


def at_once(hits: Iterable[Hit]) -> list[tuple[float, int]]:
    """``(second, calls)``: how many calls ran from that moment on, counted from the first arrival.

    Calls that still run are left out. Who goes counts before who comes at the same moment.
    """
    ended = [hit for hit in hits if hit.outcome != RUNNING]
    first = min((hit.arrived for hit in ended), default=0.0)
    moves = [(hit.arrived - first, 1) for hit in ended] + [(hit.arrived + hit.seconds - first, -1) for hit in ended]
    found, running = [(0.0, 0)], 0
    for moment, move in sorted(moves):
        running += move
        found.append((moment, running))
    return found


def load(
    runs: Mapping[str, Sequence[Hit]], cap: int, *, title: str | None = None, says: str | None = None,
    refused: str = "concurrency",
) -> Picture:  # fmt: skip
    """One strip for each run, on one clock: calls at work as an area, the cap as a line, refusals as marks above.

    ``runs``: the hits of one model, as :attr:`labkit.routing.hits.Hits.log` has them. ``refused`` is the outcome that
    is marked.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    words = []
    with plots.style():
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
        figure = Figure(figsize=(7.2, 0.7 + 1.35 * len(runs)), layout=layout)
        strips = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name, hits) in zip(strips, runs.items(), strict=True):
            served = [hit for hit in hits if hit.outcome not in (refused, RUNNING)]
            turned = [hit for hit in hits if hit.outcome == refused]
            first = min((hit.arrived for hit in hits), default=0.0)
            shift = min((hit.arrived for hit in served), default=first) - first
            moments = at_once(served)
            peak = max(count for _, count in moments)
            axes.fill_between(
                [moment + shift for moment, _ in moments], [count for _, count in moments], step="post",
                color=plots.BLUE, alpha=0.75, linewidth=0, label="at work",
            )  # fmt: skip
            axes.axhline(cap, color=plots.RED, linewidth=1.4)
            axes.plot(
                [hit.arrived - first for hit in turned], [cap * 1.35] * len(turned), linestyle="none", marker="x",
                color=plots.RED, markersize=5,
            )  # fmt: skip
            counted = f"{len(served)} served, {len(turned)} refused"
            axes.set_title(f"{name}: {counted}", fontsize=9.5, pad=4)
            axes.set(ylim=(0, cap * 1.7), ylabel="calls at once")
            axes.locator_params(axis="y", integer=True, nbins=3)
            words.append(f"{name}: {counted}, at most {peak} at once")
        strips[-1].set_xlabel("seconds (× a call that is refused; the line is the cap)")
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    spoken = f"Calls at work over time, beside a cap of {cap}. {'; '.join(words)}."
    return Picture.of(figure, says or f"{f'{title}. ' if title else ''}{spoken}")
