"""The table of the reported faults B26 to B70 says what is there."""

import ast
from pathlib import Path

from tests.faults.fault_map_b import SHOWN_BY

REPORTED = [
    *(26, 27, 29, 32, 34, 35, 37, 39, 40, 41, 46, 47),
    *(49, 51, 54, 55, 57, 58, 59, 61, 62, 63, 64, 70),
]
"""The numbers as reported, with their gaps."""


def test_every_reported_fault_of_this_range_has_its_tests():
    """Each number is shown by at least one test, and no number is listed that was not reported."""
    assert sorted(SHOWN_BY) == [f"B{number}" for number in REPORTED]
    assert all(SHOWN_BY.values())


def test_this_table_names_exactly_the_tests_that_exist():
    """Every test named is there once, under its own number, and no test of the range is left out."""
    here = Path(__file__).parent
    existing = [
        node.name
        for path in [*sorted(here.glob("test_faults_b*.py")), here.parent / "admin" / "test_metrics.py"]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    ]
    of_range = [name for name in existing if name[:8] in {f"test_b{number}" for number in REPORTED}]
    named = [name for names in SHOWN_BY.values() for name in names]
    assert sorted(named) == sorted(of_range)
    assert len(set(named)) == len(named)
    for number, names in SHOWN_BY.items():
        assert all(name.startswith(f"test_{number.lower()}_") for name in names)
