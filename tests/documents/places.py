"""Where the documents are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
INSIDE = ROOT / "gateway" / "README.md"
WRITTEN = (README, INSIDE, *sorted((ROOT / "deploy").glob("**/*.md")))
"""What people write, beside the parts between markers."""
