"""`postdate version`: the versions for a bug report; `postdate --version` prints its first line."""

from __future__ import annotations

import json
import platform

import click

from postdate.cli.options import output_option

_LIBRARIES = ("confluent-kafka", "rocksdict", "msgspec", "numpy", "pyspark")


def _version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version(package)
    except PackageNotFoundError:
        return "not installed"


def _postdate_version() -> str:
    """Returns the installed version, or a note if Postdate is not installed."""
    text = _version_of("postdate")
    return "from source, not installed" if text == "not installed" else text


def _print_version(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set:
        click.echo(f"postdate {_postdate_version()}")
        context.exit()


#: The global option `--version`.
OPTION = click.Option(
    ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)


@click.command(short_help="Print the version of Postdate.")
@output_option
def version(output: str) -> None:
    """Print the versions of Postdate, Python and the main libraries."""
    libraries = {name: _version_of(name) for name in _LIBRARIES}
    if output == "json":
        click.echo(json.dumps({"postdate": _postdate_version(), "python": platform.python_version(), **libraries}))
        return
    click.echo(f"postdate {_postdate_version()}")
    for name, text in {"python": platform.python_version(), **libraries}.items():
        click.echo(f"  {name} {text}")
