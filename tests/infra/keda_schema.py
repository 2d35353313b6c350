"""What the API server accepts of the manifests in infra/keda: names, types and bounds, as facts; no words of KEDA's.

Read from KEDA's CRDs, kedacore/keda config/crd/bases at 8b4f083 (2026-08-20, between 2.20.2 and 2.21), and from the
types of the Python client of Kubernetes 37.0.2. Of a TriggerAuthentication only ``podIdentity``, of a Deployment only
what the manifest may want: a field that is not here is refused, as ``kubectl apply`` refuses one that it does not know.

``python -m tests.infra.keda_schema DIRECTORY`` compares KEDA's half with the CRDs there, and says what differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
SWITCH: dict[str, Any] = {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def whole(minimum: int | None = None) -> dict[str, Any]:
    return {"type": "integer"} if minimum is None else {"type": "integer", "minimum": minimum}


def one_of(*values: str) -> dict[str, Any]:
    return {**TEXT, "enum": list(values)}


def some(text: dict[str, Any]) -> dict[str, Any]:
    return {**text, "minLength": 1}


def many(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def fields(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": sorted(required)} if required else found


def resource(api: str, kind: str, **more: dict[str, Any]) -> dict[str, Any]:
    named = fields("name", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
    required = ("apiVersion", "kind", "metadata", *more)
    return fields(*required, apiVersion=one_of(api), kind=one_of(kind), metadata=named, **more)


POLICY = fields("periodSeconds", "type", "value", periodSeconds=whole(), type=TEXT, value=whole())
RULES = fields(
    policies=many(POLICY),
    selectPolicy=TEXT,
    stabilizationWindowSeconds=whole(),
    tolerance={"anyOf": [{"type": "integer"}, TEXT]},
)
SCALED_OBJECT = fields(
    "scaleTargetRef",
    "triggers",
    advanced=fields(
        horizontalPodAutoscalerConfig=fields(behavior=fields(scaleDown=RULES, scaleUp=RULES), name=TEXT),
        restoreToOriginalReplicaCount=SWITCH,
        scalingModifiers=fields(
            activationTarget=TEXT, formula=TEXT, metricType=one_of("AverageValue", "Value"), target=TEXT
        ),
    ),
    cooldownPeriod=whole(0),
    fallback=fields(
        "failureThreshold",
        "replicas",
        behavior=one_of(
            *("static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower", "scalingModifiers")
        ),
        failureThreshold=whole(0),
        replicas=whole(0),
    ),
    idleReplicaCount=whole(0),
    initialCooldownPeriod=whole(0),
    maxReplicaCount=whole(1),
    minReplicaCount=whole(0),
    pollingInterval=whole(1),
    scaleTargetRef=fields("name", apiVersion=TEXT, envSourceContainerName=TEXT, kind=TEXT, name=some(TEXT)),
    triggers=many(
        fields(
            "metadata",
            "type",
            authenticationRef=fields(
                "name", kind=one_of("TriggerAuthentication", "ClusterTriggerAuthentication"), name=TEXT
            ),
            metadata=TEXTS,
            metricType=TEXT,
            name=TEXT,
            type=some(TEXT),
            useCachedMetrics=SWITCH,
        ),
        least=1,
    ),
)
POD_IDENTITY = fields(
    "provider",
    externalID=TEXT,
    identityAuthorityHost=TEXT,
    identityId=TEXT,
    identityOwner=one_of("keda", "workload"),
    identityTenantId=TEXT,
    provider=one_of("azure-workload", "gcp", "aws", "aws-eks", "none"),
    roleArn=TEXT,
)

CONTAINER = fields(
    "name",
    args=many(TEXT),
    command=many(TEXT),
    env=many(fields("name", "value", name=TEXT, value=TEXT)),
    image=TEXT,
    name=TEXT,
    resources=fields(limits=TEXTS, requests=TEXTS),
    securityContext=fields(allowPrivilegeEscalation=SWITCH, readOnlyRootFilesystem=SWITCH, runAsNonRoot=SWITCH),
)
POD = fields(
    "containers", containers=many(CONTAINER, 1), serviceAccountName=TEXT, terminationGracePeriodSeconds=whole(0)
)
DEPLOYMENT = fields(
    "selector",
    "template",
    replicas=whole(0),
    selector=fields(matchLabels=TEXTS),
    template=fields(metadata=fields(labels=TEXTS), spec=POD),
)

SCHEMAS = {
    "ScaledObject": resource("keda.sh/v1alpha1", "ScaledObject", spec=SCALED_OBJECT),
    "TriggerAuthentication": resource(
        "keda.sh/v1alpha1", "TriggerAuthentication", spec=fields(podIdentity=POD_IDENTITY)
    ),
    "Deployment": resource("apps/v1", "Deployment", spec=DEPLOYMENT),
    "ServiceAccount": resource("v1", "ServiceAccount"),
}

_COMPARED = ("type", "enum", "minimum", "minLength", "minItems", "required")


def differences(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> list[str]:
    """Where the two say different things about what is accepted."""
    found = [
        f"{where}: {word} is {theirs.get(word)!r} there, {ours.get(word)!r} here"
        for word in _COMPARED
        if _sorted(ours.get(word)) != _sorted(theirs.get(word))
    ]
    here, there = ours.get("properties", {}), theirs.get("properties", {})
    found += [
        f"{where}.{name}: only {'here' if name in here else 'there'}" for name in sorted(here.keys() ^ there.keys())
    ]
    for name in sorted(here.keys() & there.keys()):
        found += differences(here[name], there[name], f"{where}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(ours.get(word), dict) or isinstance(theirs.get(word), dict):
            found += differences(ours.get(word) or {}, theirs.get(word) or {}, f"{where}.{word}")
    return found


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def compare(folder: Path) -> list[str]:
    """Our half of KEDA's CRDs against the files of that directory; what is theirs to fill in (status) is left out."""
    import yaml

    def spec(name: str) -> Any:
        [version] = yaml.safe_load((folder / f"keda.sh_{name}.yaml").read_text())["spec"]["versions"]
        return version["schema"]["openAPIV3Schema"]["properties"]["spec"]

    identity = spec("triggerauthentications")["properties"]["podIdentity"]
    return [
        *differences(SCALED_OBJECT, spec("scaledobjects"), "ScaledObject.spec"),
        *differences(POD_IDENTITY, identity, "TriggerAuthentication.spec.podIdentity"),
    ]


if __name__ == "__main__":
    said = compare(Path(sys.argv[1]))
    print("\n".join(said) or "the same")
    sys.exit(bool(said))
