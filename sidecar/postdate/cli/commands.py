"""The click group of the command line: order of commands, error messages, exit codes."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from postdate.kafka.errors import KafkaFault
from postdate.sidecar.errors import Exit, PostdateError, consequence_of


class Imported(UserDict[str, Any]):
    """Commands by name, each imported when it is first needed. The argument maps each name to a module."""

    def __getitem__(self, name: str) -> click.Command:
        """Returns the command; raises KeyError if no command has this name."""
        command: click.Command = getattr(import_module(f"postdate.cli.{self.data[name]}"), name.replace("-", "_"))
        return command


class Commands(click.Group):
    """A group that lists commands in the order in which they were added, and prints each expected error on stderr.

    The exception of a bug is not caught: the process ends with a traceback and exit code 1.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order in which a new user needs them."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments as click does, and prints errors like all other errors."""
        with _one_style():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. An error of the sidecar or of Kafka is printed, and determines the exit code."""
        try:
            with _one_style():
                return super().invoke(ctx)
        except PostdateError as error:
            fail(str(error), error.exit_code)
        except KafkaFault as fault:
            error_here = consequence_of(fault)
            fail(str(error_here), error_here.exit_code)
        except KeyboardInterrupt:
            print_note("stopped")
            sys.exit(Exit.FAILED)


@contextmanager
def _one_style() -> Iterator[None]:
    """Prints the errors of click like all other errors; click would begin them with `Error:`."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            print_note(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.")
        fail(error.format_message(), Exit(error.exit_code))


def print_note(text: str) -> None:
    """Prints a line on stderr; stdout is for results."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Prints a warning about a possible mistake on stderr."""
    click.echo(click.style("warning: ", fg="yellow") + text, err=True)


def fail(text: str, code: Exit = Exit.FAILED) -> None:
    """Prints each line of `text` as an error, and ends the process with `code`."""
    for line in text.splitlines() or [""]:
        click.echo(click.style("error: ", fg="red") + line, err=True)
    sys.exit(code)


def listed(names: Sequence[str]) -> str:
    """Returns the names, separated by commas."""
    return ", ".join(names)
