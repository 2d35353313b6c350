"""Simulated fleets, drawn: queue, steps in flight and pods over time, below each other, and a table of their figures.

``plot(run)`` or ``plot({"the guide's": one, "mended": other})`` for runs of :mod:`labkit.models.fleet`; ``explorer()``
turns the knobs of a ScaledObject on a load that comes from nothing, doubles, and goes away again. Whatever needs numpy
or numba is imported when it is called.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from labkit.models._input import limit
from labkit.models.hpa import Behavior, Policy, Rules
from labkit.models.keda import ScaledObject
from labkit.teach import plots, show, widgets
from labkit.teach.picture import Picture

if TYPE_CHECKING:
    from labkit.models.fleet import Run

__all__ = ["ahead", "explorer", "figures", "plot"]

# What may be drawn over time: the frame's column, its axis, and whether it holds between two changes.
PANELS = {
    "visible": ("waiting\n(messages)", False),
    "in_flight": ("in flight\n(messages)", False),
    "pods": ("replicas\n(pods)", True),
    "open": ("open\n(conversations)", False),
    "wait": ("mean wait\n(s)", False),
    "dead": ("dead letters\n(a minute)", False),
}
_HOURS = 4 * 3600  # a run that is longer is drawn in hours
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (5, 2, 1, 2)))


def ahead() -> threading.Thread:
    """Begin to load what this module imports late, and to compile the engines: seconds, the first time on a machine.

    Returns at once: who starts a lab meanwhile waits for a process, and this one has time. Who runs a simulation
    meanwhile waits for it. ``join()`` the thread to be sure that it is over.
    """

    def compiled() -> None:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "pandas"):
            import_module(name)

        from labkit.models.fleet import Arrivals, Fleet, StepTime, simulate

        tiny = Fleet(Arrivals.poisson(1.0), StepTime.fixed(2), replicas=1)
        for engine in ("ticks", "exact"):
            simulate(tiny, 60, engine=engine)

    thread = threading.Thread(target=compiled, name="labkit-fleet-compiled", daemon=True)
    thread.start()
    return thread


def plot(
    runs: Run | Mapping[str, Run], *, panels: Sequence[str] = ("visible", "in_flight", "pods"),
    title: str | None = None, says: str | None = None,
) -> Picture:  # fmt: skip
    """One panel for each of ``panels`` (names of :data:`PANELS`), one line for each run.

    Of a single run the slots of its ready pods are drawn beside what is in flight; a quota that all runs share is a red
    line there.
    """
    named = dict(runs) if isinstance(runs, Mapping) else {"": runs}
    if wrong := [panel for panel in panels if panel not in PANELS]:
        raise ValueError(f"panels must be some of {', '.join(PANELS)}; got {', '.join(wrong)}.")
    longest = max(run.seconds for run in named.values())
    unit, by = ("h", 3600) if longest > _HOURS else ("min", 60)
    sentences = [title.rstrip(".") + "."] if title else []
    with plots.style():
        figure, all_axes = _panels(len(panels))
        for panel, axes in zip(panels, all_axes, strict=True):
            label, steps = PANELS[panel]
            lines = {
                name: _per_minute(run, panel) if panel == "dead" else run.frame[panel] for name, run in named.items()
            }
            if panel == "in_flight" and len(named) == 1:
                [run] = named.values()
                lines = {"in flight": run.frame[panel], "slots of the ready pods": run.frame["ready"] * run.fleet.slots}
            words = []
            for place, (name, values) in enumerate(lines.items()):
                style = {"color": plots.CYCLE[place % len(plots.CYCLE)], "linestyle": _DASHES[place % 4]}
                at = values.index.to_numpy() / by
                axes.plot(at, values, label=name, drawstyle="steps-post" if steps else "default", **style)
                words.append(f"{f'{name} ' if name else ''}{_course(values, by, unit)}")
            axes.set(ylabel=label, xlim=(0, longest / by))
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter("{x:,.0f}")
            quotas = {run.fleet.quota for run in named.values()}
            if panel == "in_flight" and len(quotas) == 1 and (quota := quotas.pop()) is not None:
                axes.axhline(quota, color=plots.RED, linewidth=1.4, zorder=1)
                words.append(f"the line marks the model's quota, {plots.say(quota)}")
            if len(lines) > 1 and (panel == panels[0] or "slots of the ready pods" in lines):
                axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
            sentences.append(f"{' '.join(label.split()).capitalize()}: {'; '.join(words)}.")
        all_axes[-1].set_xlabel(f"time ({unit})")
        all_axes[-1].xaxis.set_major_locator(_clock())
        if title:
            figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
    return Picture.of(figure, says or " ".join(sentences))


def figures(runs: Mapping[str, Run], names: Mapping[str, str], *, first: str = "fleet") -> show.Table:
    """A row for each run, a column for each of ``names``: a figure's name, and what to call it.

    Three digits each, which is enough for a simulation and the same on each machine; what is counted is whole.
    """
    from labkit.models.fleet.tally import COUNTS

    def shown(name: str, value: float) -> int | float:
        rounded = float(f"{value:.3g}")
        return round(rounded) if name in COUNTS or rounded.is_integer() else rounded

    rows = [[run, *(shown(name, found.figures[name]) for name in names)] for run, found in runs.items()]
    return show.table(rows, [first, *names.values()])


def explorer() -> widgets.Explorer:
    """Every knob of a ScaledObject and of its behavior, and two of the pods, on four hours of a tenth of the fleet.

    Nothing comes for half an hour; then 50 conversations a minute for an hour and a half, in the middle of it twice as
    many for ten minutes; then nothing again. Left out: a fallback, which needs a queue that cannot be read, and delayed
    messages, of which this fleet has none.
    """
    default = ScaledObject()

    def four_hours(**chosen: Any) -> tuple[object, ...]:
        from labkit.models.fleet import Arrivals, Fleet, StepTime, simulate

        rate, start, grace = 50 / 60, int(chosen.pop("start")), int(chosen.pop("grace"))
        arrivals = Arrivals(0.0).burst(1800, 5400, rate).burst(3600, 600, rate)
        scaled, times = _scaled(**chosen), StepTime.lognormal(90)
        fleet = Fleet(arrivals, times, scaler=scaled, start=start, grace=grace, visibility=180)
        run = simulate(fleet, 4 * 3600, seed=13)
        wait, hours, killed = (run.figures[name] for name in ("wait_p95", "pod_hours", "killed"))
        started = sum(max(0, change.after - change.before) for change in run.changes)
        says = f"pod hours: {hours:.0f}; pods started: {started}; steps killed: {killed:.0f}."
        return f"95 % waited {wait:.0f} s at most; {says}", plot(run)  # the words first: in sight below so many knobs

    return widgets.explore(
        four_hours,
        minimum=widgets.slider("minReplicaCount", "", 0, 20, 0),
        maximum=widgets.slider("maxReplicaCount", "", 20, 400, 200, 10),
        queue_length=widgets.slider("queueLength", "", 1, 30, 9),
        activation=widgets.slider("activationQueueLength", "", 0, 100, default.activation),
        in_flight=widgets.switch("scaleOnInFlight", default.in_flight),
        polling=widgets.slider("pollingInterval", "s", 5, 300, default.polling, 5),
        cooldown=widgets.slider("cooldownPeriod", "s", 0, 1800, default.cooldown, 30),
        start=widgets.slider("a pod's start", "s", 0, 600, 60, 15),
        grace=widgets.slider("a pod's grace", "s", 0, 900, 600, 30),
        behaves=widgets.switch("behavior is set (else none of what follows counts)", True),
        up=widgets.slider("scaleUp: per cent in 15 s", "%", 10, 400, limit("hpa.scale_up.percent"), 10),
        up_window=widgets.slider("scaleUp: stabilization window", "s", 0, 600, 0, 15),
        down=widgets.slider("scaleDown: per cent in a period", "%", 1, 100, limit("hpa.scale_down.percent")),
        period=widgets.slider("scaleDown: its period", "s", 15, 600, 60, 15),
        window=widgets.slider(
            "scaleDown: stabilization window", "s", 0, 1800, limit("hpa.scale_down.stabilization"), 30
        ),
    )


def _scaled(
    *, behaves: bool, up: int, up_window: int, down: int, period: int, window: int, **rest: Any
) -> ScaledObject:  # fmt: skip
    usual = limit("hpa.policy.period.default")
    more = (Policy("Percent", up, usual), Policy("Pods", limit("hpa.scale_up.pods"), usual))
    behavior = Behavior(Rules(up_window, more), Rules(window, (Policy("Percent", down, period),)))
    return ScaledObject(**rest, behavior=behavior if behaves else None)


def _panels(many: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(7.2, 0.9 + 1.45 * many), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
    return figure, figure.subplots(many, sharex=True, squeeze=False)[:, 0]


def _clock() -> Any:
    """Marks at every third hour of a day, or every half hour: no fifths of a day."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(9, steps=[1, 2, 3, 6, 10])


def _per_minute(run: Run, count: str) -> Any:
    """What is counted from sample to sample, as a rate."""
    values = run.frame[count]
    return values * 60 / (values.index[1] - values.index[0])


def _course(values: Any, by: int, unit: str) -> str:
    """How one line goes, in words: to a tenth, because the tick engine leaves hundredths of a message behind."""
    at = values.idxmax() / by
    values = values.round(1)
    return (
        f"from {plots.say(values.iloc[0])} to {plots.say(values.iloc[-1])}, highest {plots.say(values.max())} "
        f"at {plots.say(at)} {unit}"
    )
