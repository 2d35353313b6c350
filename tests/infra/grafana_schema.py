"""What a Grafana dashboard is made of: names and types, as facts; no words of Grafana's.

Read from grafana/grafana kinds/dashboard/dashboard_kind.cue at 00139e8 (schema version 36), and narrowed to the kinds
of panel, variable and query that the dashboard uses. A field that is not here is refused.
"""

from __future__ import annotations

from typing import Any

from tests.infra.keda_schema import SWITCH, TEXT, fields, many, one_of, some, whole

NUMBER: dict[str, Any] = {"type": "number"}
OPEN: dict[str, Any] = {"type": "object"}  # a plugin's own affair
SOURCE = fields("type", "uid", type=one_of("prometheus"), uid=one_of("${datasource}"))
PLACE = fields(
    *("h", "w", "x", "y"),
    h={**whole(1)},
    w={**whole(1), "maximum": 24},
    x={**whole(0), "maximum": 23},
    y=whole(0),
)
STEP = fields(
    "color", color=some(TEXT), value={"type": ["number", "null"]}
)  # null: minus infinity, as Grafana saves it
DEFAULTS = fields(
    unit=some(TEXT),
    min=NUMBER,
    max=NUMBER,
    color=fields("mode", mode=one_of("thresholds", "palette-classic", "palette-saturated", "fixed")),
    thresholds=fields("mode", "steps", mode=one_of("absolute", "percentage"), steps=many(STEP, 1)),
    custom=OPEN,
)
QUERY = fields(
    *("datasource", "expr", "refId"),
    datasource=SOURCE,
    expr=some(TEXT),
    refId=some(TEXT),
    legendFormat=TEXT,
    range=SWITCH,
    instant=SWITCH,
)
PANEL = fields(
    *("type", "id", "title", "gridPos", "targets", "datasource", "options", "fieldConfig", "transformations"),
    type=one_of("timeseries", "stat", "gauge", "table"),
    id=whole(1),
    title=some(TEXT),
    description=some(TEXT),
    transparent=SWITCH,
    datasource=SOURCE,
    gridPos=PLACE,
    repeatDirection=one_of("h", "v"),
    transformations=many(OPEN),
    options=OPEN,
    fieldConfig=fields("defaults", "overrides", defaults=DEFAULTS, overrides=many(OPEN)),
    targets=many(QUERY, 1),
)
ROW = fields(
    *("type", "id", "title", "gridPos", "collapsed", "panels"),
    type=one_of("row"),
    id=whole(1),
    title=some(TEXT),
    gridPos=PLACE,
    collapsed=SWITCH,
    panels=many(PANEL),
)
VARIABLE: dict[str, Any] = {
    **OPEN,
    "required": ["name", "type", "query", "hide"],
    "properties": {
        "name": one_of("datasource"),
        "type": one_of("datasource"),
        "query": one_of("prometheus"),
        "hide": {"enum": [0, 1, 2]},
    },
}
DASHBOARD = fields(
    *("uid", "title", "schemaVersion", "panels", "templating", "time", "editable", "style", "graphTooltip"),
    uid={**TEXT, "minLength": 8, "maxLength": 40},
    title=some(TEXT),
    description=TEXT,
    tags=many(TEXT),
    style=one_of("light", "dark"),
    timezone=TEXT,
    editable=SWITCH,
    graphTooltip={"enum": [0, 1, 2]},
    schemaVersion={"const": 36},
    time=fields("from", "to", **{"from": some(TEXT), "to": some(TEXT)}),
    refresh=some(TEXT),
    panels=many({"anyOf": [PANEL, ROW]}, 1),
    templating=fields("list", list=many(VARIABLE)),
    annotations=fields(list=many(OPEN)),
    links=many(OPEN),
)
