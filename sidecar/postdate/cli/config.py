"""`postdate config show|docs`: the configuration in force, and the reference of every option."""

from __future__ import annotations

import json

import click

from postdate.cli import config_docs
from postdate.cli.options import Loader, configured, output_option


@click.group()
def config() -> None:
    """Show what is configured, and what can be."""


@config.command(short_help="Print every option in force, and the bounds.")
@configured
@output_option
def show(loader: Loader, output: str) -> None:
    """Print every option in force and where its value came from, and the bounds; secrets show as ***."""
    loaded = loader({})
    if output == "json":
        click.echo(json.dumps(config_docs.as_json_tree(loaded.config)))
    else:
        click.echo(config_docs.as_toml(loaded), nl=False)


@config.command(short_help="Print the reference of every option.")
def docs() -> None:
    """Print the reference of every option as Markdown."""
    click.echo(config_docs.as_markdown(), nl=False)
