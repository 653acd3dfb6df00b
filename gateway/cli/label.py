"""``upwire label``: how a key is named in the file of a team, without naming the key."""

from __future__ import annotations

import sys

import click

from gateway.upstream.team import check_label, digest_of


@click.command("label")
@click.argument("label")
def command(label: str) -> None:
    """Print the table for a key of LABEL, to be added to the file that the setting team_file names.

    The key, or the token of token_file, is read from standard input, never from the command line, where others could see it;
    only its SHA-256 digest is printed: upwire label alice < key.txt
    """
    if wrong := check_label(label):
        raise click.UsageError(wrong)
    given = click.prompt("key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read()
    key = given.strip()
    if key.lower().startswith("bearer "):
        key = key[len("bearer ") :].strip()
    if not key or not key.isprintable() or " " in key:
        raise click.ClickException("standard input must hold one word, the key")
    click.echo(f'[{label}]\nkeys = ["{digest_of(key)}"]')
