"""`postdate config show|docs`: the effective configuration, and the reference of every option."""

from __future__ import annotations

import json

import click

from postdate.cli import config_docs
from postdate.cli.options import Loader, configured, output_option


@click.group()
def config() -> None:
    """Show the settings and their reference."""


@config.command(short_help="Print the effective settings.")
@configured
@click.option("--bounds", is_flag=True, help="Print the bounds too, which cannot be set.")
@output_option
def show(loader: Loader, bounds: bool, output: str) -> None:
    """Print every effective setting and the source of its value. Secrets print as ***."""
    loaded = loader({})
    if output == "json":
        click.echo(json.dumps(config_docs.as_json_tree(loaded.config, with_bounds=bounds)))
    else:
        click.echo(config_docs.as_toml(loaded, with_bounds=bounds), nl=False)


@config.command(short_help="Print the reference of every setting.")
def docs() -> None:
    """Print the reference of every setting as Markdown."""
    click.echo(config_docs.as_markdown(), nl=False)
