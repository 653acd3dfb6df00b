"""The sample configuration file in the repository."""

from dataclasses import fields
from pathlib import Path

from gateway.config import load
from gateway.settings import PER_REQUEST_HEADERS, Settings

SAMPLE = Path(__file__).parents[2] / "config" / "upwire.toml"


def toml(value):
    """A default as it is written in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{part}"' for part in value) + "]"
    return str(value)


def lines_of(setting):
    """What the sample says about one setting: its meaning, its choices, and its default, which is commented out."""
    choices = setting.metadata["choices"]
    return [
        f"# {setting.metadata['help']}" + (f" ({', '.join(choices)})" if choices else ""),
        f"# {setting.name} = {toml(setting.default)}",
    ]


def test_the_sample_names_every_setting_with_its_default():
    """A new or changed setting must be put into the sample: the lines that are missing are shown by this failure."""
    there = SAMPLE.read_text().splitlines()
    wanted = [line for setting in fields(Settings) for line in lines_of(setting)]
    assert [line for line in wanted if line not in there] == []
    known = {setting.name for setting in fields(Settings)}
    named = [line[2:].partition(" = ")[0] for line in there if line.startswith("# ") and " = " in line]
    assert sorted(named) == sorted(known)


def test_the_sample_is_valid_with_and_without_its_defaults(tmp_path):
    """As it is the file changes nothing; with every comment sign before a setting taken away it gives the defaults."""
    assert load({}, {}, config=str(SAMPLE)).settings == Settings()
    lines = [
        line[2:] if line.startswith("# ") and " = " in line else line
        for line in SAMPLE.read_text().splitlines()
    ]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(lines))
    loaded = load({}, {}, config=str(path))
    assert loaded.settings == Settings(per_request_headers=PER_REQUEST_HEADERS)
    assert set(loaded.sources.values()) == {f"file {path}"}
