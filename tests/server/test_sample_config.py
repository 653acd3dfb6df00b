"""The sample configuration file in the repository is what the command prints where nothing is configured."""

from pathlib import Path

from gateway.cli.config import as_toml
from gateway.config import load
from gateway.settings import Settings

SAMPLE = Path(__file__).parents[2] / "config" / "upwire.toml"


def test_the_sample_is_what_the_command_prints():
    """After a change of settings: ``make docs``."""
    assert SAMPLE.read_text() == as_toml(load({}, {}))


def test_the_sample_is_valid_with_and_without_its_defaults(tmp_path):
    """As it is the file changes nothing; with every comment sign before a setting taken away it gives the defaults."""
    assert load({}, {}, config=str(SAMPLE)).settings == Settings()
    names = set(load({}, {}).sources)
    lines = [
        line[2:] if line.startswith("# ") and line[2:].partition(" = ")[0] in names else line
        for line in SAMPLE.read_text().splitlines()
    ]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(lines))
    loaded = load({}, {}, config=str(path))
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {f"file {path}"}
