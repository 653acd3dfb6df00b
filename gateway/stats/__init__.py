"""What is counted about turns: the numbers behind ``/stats``, ``/metrics`` and the dashboard.

Everything counted has a fixed set of names, so that no client can make it grow.
"""

from gateway.stats.fields import FIELDS, TURN_FIELDS, Field, path_of
from gateway.stats.histogram import Histogram
from gateway.stats.members import Members, Now
from gateway.stats.models import MODELS, OTHER, field_label, model_label
from gateway.stats.reasons import CLOSED_TEXTS, REASON_TEXTS, REASONS, RECOVERIES, RECOVERY_TEXTS, Explained
from gateway.stats.turns import (
    MODES,
    OUTCOMES,
    SAMPLES,
    Mode,
    Outcome,
    Stats,
    TurnRecord,
    percentiles_ms,
)

__all__ = [
    "CLOSED_TEXTS",
    "FIELDS",
    "MODELS",
    "MODES",
    "OTHER",
    "OUTCOMES",
    "REASONS",
    "REASON_TEXTS",
    "RECOVERIES",
    "RECOVERY_TEXTS",
    "SAMPLES",
    "TURN_FIELDS",
    "Explained",
    "Field",
    "Histogram",
    "Members",
    "Mode",
    "Now",
    "Outcome",
    "Stats",
    "TurnRecord",
    "field_label",
    "model_label",
    "path_of",
    "percentiles_ms",
]
