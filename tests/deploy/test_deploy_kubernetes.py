"""What kustomize makes of the files for Kubernetes: valid for several of its versions, hardened, and alive on loopback."""

import tomllib

import pytest

from gateway.config import load
from tests.deploy.tools import DEPLOY, kubectl, ops, run, yaml_documents

KUBERNETES = DEPLOY / "kubernetes"
VERSIONS = ("1.29", "1.33", "1.37")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds a kustomization: the text, and its objects by kind."""
    folder = tmp_path_factory.mktemp("kubectl")

    def make(place):
        text = run(kubectl(folder), "kustomize", place)
        objects = yaml_documents(text)
        return text, {each["kind"]: each for each in objects}

    return make


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(built, tmp_path, version):
    """The schemas of Kubernetes take each object, without an unknown field, from the first version with native sidecars on."""
    files = [tmp_path / "base.yaml", tmp_path / "example.yaml"]
    for file in files:
        file.write_text(built(KUBERNETES / file.stem)[0])
    said = run(ops("kubernetes-validate"), "--strict", "-k", version, *files)
    assert said.count(" passed ") == 6, said


def container(objects, name):
    """The pod's description, and the gateway's container in it."""
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (found,) = [each for each in pod.get("initContainers", []) + pod["containers"] if each["name"] == name]
    return pod, found


@pytest.mark.parametrize("name", ["base", "example"])
def test_the_gateway_is_hardened(built, name):
    """It cannot be root, write its root, gain rights or take all memory, and is what the restricted standard allows."""
    pod, upwire = container(built(KUBERNETES / name)[1], "upwire")
    security = pod.get("securityContext", {}) | upwire["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == 65532
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert upwire["resources"]["limits"]["memory"]
    assert upwire["resources"]["requests"]
    assert upwire["image"] == "upwire:0.1.0"
    assert pod["automountServiceAccountToken"] is False


def test_the_component_makes_a_native_sidecar_that_comes_first(built):
    """Before every other init container, restarted for ever, and probed by itself, since it listens on loopback only."""
    pod, upwire = container(built(KUBERNETES / "example")[1], "upwire")
    assert [each["name"] for each in pod["initContainers"]] == ["upwire", "migrate"]
    assert upwire["restartPolicy"] == "Always"
    assert {"UPWIRE_HOST", "UPWIRE_ALLOW_REMOTE"}.isdisjoint(entry["name"] for entry in upwire["env"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert upwire[probe]["exec"]["command"][:2] == ["/opt/upwire/bin/upwire", "health"]
    (agent,) = pod["containers"]
    assert {"name": "OPENAI_BASE_URL", "value": "http://127.0.0.1:7411/v1"} in agent["env"]


@pytest.mark.parametrize(
    ("kind", "label", "added"),
    [("Deployment", "sidecar", True), ("StatefulSet", "sidecar", True), ("Deployment", "no", False)],
)
def test_the_component_fits_existing_workloads_and_leaves_others(built, tmp_path, kind, label, added):
    """Of what it is put beside, it changes the workloads with the label and nothing in their own containers."""
    (tmp_path / "workload.yaml").write_text(f"""
apiVersion: apps/v1
kind: {kind}
metadata: {{name: other, labels: {{upwire: {label}}}}}
spec:
  serviceName: other
  selector: {{matchLabels: {{app: other}}}}
  template:
    metadata: {{labels: {{app: other}}}}
    spec:
      containers: [{{name: other, image: "example/other:1"}}]
""")
    (tmp_path / "sidecar").mkdir()
    for path in (KUBERNETES / "sidecar").iterdir():
        (tmp_path / "sidecar" / path.name).write_text(path.read_text())
    (tmp_path / "kustomization.yaml").write_text("resources: [workload.yaml]\ncomponents: [sidecar]\n")
    workload = built(tmp_path)[1][kind]
    spec = workload["spec"]["template"]["spec"]
    assert spec["containers"] == [{"name": "other", "image": "example/other:1"}]
    assert [each["name"] for each in spec.get("initContainers", [])] == (["upwire"] if added else [])
    assert workload["metadata"]["name"] == "other"


def test_the_base_is_configured_for_its_cluster(built, tmp_path):
    """Its settings are right, its files are mounted where they say, and the cluster waits longer than the drain takes."""
    objects = built(KUBERNETES / "base")[1]
    pod, upwire = container(objects, "upwire")
    text = objects["ConfigMap"]["data"]["config.toml"]
    (tmp_path / "config.toml").write_text(text)
    settings = load({}, {}, config=str(tmp_path / "config.toml")).settings
    assert pod["terminationGracePeriodSeconds"] >= settings.drain_grace + settings.drain_timeout + 10
    mounts = {mount["name"]: mount["mountPath"] for mount in upwire["volumeMounts"]}
    assert f"{mounts['config']}/config.toml" in upwire["args"]
    for key in ("token_file", "upstream_key_file"):
        assert tomllib.loads(text)[key].startswith(mounts["keys"])
    (config, keys) = pod["volumes"]
    assert config["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert keys["secret"]["defaultMode"] == 0o440
    assert upwire["ports"][0]["containerPort"] == settings.port


def test_the_network_policy_meets_its_pods(built):
    """It selects what the Deployment makes, lets in by the Service's port, and lets out to names and to HTTPS outside."""
    objects = built(KUBERNETES / "base")[1]
    policy, pod = objects["NetworkPolicy"]["spec"], objects["Deployment"]["spec"]["template"]
    chosen = policy["podSelector"]["matchLabels"].items()
    assert chosen <= pod["metadata"]["labels"].items()
    assert objects["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == ["http"]
    assert [sorted({port["port"] for port in rule["ports"]}) for rule in policy["egress"]] == [[53], [443]]
    excepted = [cidr for to in policy["egress"][1]["to"] for cidr in to["ipBlock"]["except"]]
    assert "169.254.0.0/16" in excepted
