"""The simulated upstream: strict, scripted, its answers a pure function of the context it holds."""

from gateway.simulator.context import Digests, digest_of
from gateway.simulator.faults import Fault, FaultPlan, Moment
from gateway.simulator.journal import Entry, Journal
from gateway.simulator.options import Options
from gateway.simulator.profiles import PLAYED
from gateway.simulator.script import Ask, FunctionScript, Reply, Script, TraceScript
from gateway.simulator.server import Simulator

__all__ = [
    "PLAYED",
    "Ask",
    "Digests",
    "Entry",
    "Fault",
    "FaultPlan",
    "FunctionScript",
    "Journal",
    "Moment",
    "Options",
    "Reply",
    "Script",
    "Simulator",
    "TraceScript",
    "digest_of",
]  # fmt: skip
