"""The examples for load balancers are read by the balancers themselves, and Envoy's by its own published schema."""

import json

import pytest

from tests.deploy.tools import DEPLOY, debian, ops, run, yaml_documents

BALANCING = DEPLOY / "balancing"
_READ = """
import importlib, json, sys
from google.protobuf import json_format
from envoy.config.bootstrap.v3 import bootstrap_pb2
for name in (
    "envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2",
    "envoy.extensions.filters.http.router.v3.router_pb2",
    "envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2",
):
    importlib.import_module(name)
read = json_format.ParseDict(json.load(sys.stdin), bootstrap_pb2.Bootstrap())
print(json_format.MessageToJson(read, preserving_proto_field_name=True))
"""
NAMES = ("authorization", "x-api-key", "api-key", "session_id", "session-id", "thread-id", "x-session-id")


@pytest.mark.system
def test_haproxy_reads_its_example():
    """Haproxy -c finds nothing wrong, not even a warning."""
    assert "valid" in run(debian("haproxy", "haproxy"), "-c", "-dW", "-f", BALANCING / "haproxy.cfg")


@pytest.mark.system
def test_nginx_reads_its_example(tmp_path):
    """Nginx -t finds nothing wrong."""
    printed = run(
        debian("nginx", "nginx"), "-t", "-c", BALANCING / "nginx.conf", "-p", tmp_path,
        "-e", tmp_path / "error.log", "-g", f"pid {tmp_path}/pid;",
    )  # fmt: skip
    assert "successful" in printed


@pytest.mark.system
def test_envoy_would_read_its_example():
    """Every field of it is one of Envoy's, of the right type, and nothing is lost in reading."""
    (document,) = yaml_documents((BALANCING / "envoy.yaml").read_text())
    read = json.loads(run(ops("python"), "-W", "ignore", "-c", _READ, input=json.dumps(document)))
    resources = read["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
    assert tuple(policy["header"]["header_name"] for policy in route["hash_policy"]) == NAMES
    assert route["timeout"] == "0s"
    assert route["retry_policy"]["retry_on"] == "connect-failure"
    assert resources["clusters"][0]["lb_policy"] == "RING_HASH"
    document["static_resources"]["clusters"][0]["lb_polcy"] = "MAGLEV"
    with pytest.raises(pytest.fail.Exception, match="lb_polcy"):
        run(ops("python"), "-W", "ignore", "-c", _READ, input=json.dumps(document))


@pytest.mark.parametrize("file", ["haproxy.cfg", "envoy.yaml", "nginx.conf"])
def test_all_go_by_the_same_headers(file):
    """Who and which conversation are read from the same headers everywhere."""
    text = (BALANCING / file).read_text().lower()
    if file == "nginx.conf":
        # Its variables have underscores for dashes, so two of them are one.
        assert "underscores_in_headers on" in text
        assert {"$http_" + name.replace("-", "_") for name in NAMES} <= set(
            text.replace('"', " ").replace("$", " $").replace(";", " ").split()
        )
    else:
        assert all(name in text for name in NAMES)
