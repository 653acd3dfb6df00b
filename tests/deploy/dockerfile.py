"""Reading a Dockerfile and doing what it says in bare root folders, where no container engine runs.

What is not known here is an error, never left out: a step that is not done is not tested.
"""

import dataclasses
import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclasses.dataclass
class Stage:
    """One FROM and what follows it."""

    base: str
    name: str
    steps: list = dataclasses.field(default_factory=list)


def read(path, **arguments):
    """The stages of the Dockerfile at ``path``, with build arguments put in."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE))
    stages, known = [], {}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "ARG":
            name, has_default, default = rest.partition("=")
            assert stages == [] or not has_default
            known.setdefault(name, arguments.get(name, default))
            continue
        rest = (
            re.sub(r"\$\{(\w+)\}", lambda found: known[found[1]], rest) if word in ("FROM", "COPY") else rest
        )
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            stages[-1].steps.append((word, rest))
    return stages


def build(stage, root, context, built, environment):
    """Do the steps of ``stage`` in the folder ``root``, which holds its base; gives what it says about running it.

    ``context`` is the folder that COPY takes from, ``built`` the roots of earlier stages by name; ``environment`` is
    what the builder's machine adds to that of RUN.
    """
    workdir, says = "/", {}
    for word, rest in stage.steps:
        if word == "RUN":
            command = ["chroot", str(root), "/bin/sh", "-c", f"cd {workdir} && {rest}"]
            done = subprocess.run(
                command, env=ENVIRONMENT | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"RUN {rest}\n{done.stdout[-4000:]}"
        elif word == "COPY":
            _copy(rest.split(), root, workdir, context, built)
        elif word == "WORKDIR":
            workdir = rest
            (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word in ("USER", "STOPSIGNAL", "LABEL"):
            says[word] = rest
        elif word in ("ENTRYPOINT", "CMD"):
            says[word] = json.loads(rest)
        elif word == "HEALTHCHECK":
            says[word] = json.loads(rest.partition(" CMD ")[2])
        else:
            raise AssertionError(f"this instruction is not known here: {word}")
    return says


def allowed(context, ignore, path):
    """Whether the file of ignored names lets ``path`` into the context; the last line that fits decides."""
    verdict = True
    for line in filter(lambda each: each and not each.startswith("#"), ignore.read_text().splitlines()):
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = path.relative_to(context)
        inside = [str(each) for each in (parts, *parts.parents)] + list(parts.parts)
        if any(fnmatch(each, pattern) for each in inside):
            verdict = line.startswith("!")
    return verdict


def _copy(words, root, workdir, context, built):
    source_root = context
    if words[0].startswith("--from="):
        source_root = built[words.pop(0).removeprefix("--from=")]
    *sources, target = words
    into = root / (Path(workdir) / target).relative_to("/")
    for source in sources:
        found = source_root / source.lstrip("/")
        assert found.exists(), f"COPY {source}: it is not in the context"
        if found.is_dir():
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
        elif target.endswith("/") or len(sources) > 1:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, into)
        else:
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, into)
