"""House rules as pure functions: each takes a file's place and text, and yields violations of the rule.

A violation is one sentence that begins with the place. `tests/unit/repository/test_code_rules.py` applies every rule to
the repository, and to a text that breaks the rule.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

MODULE_LINES_MAX = 600
"""A longer module has more than one subject; most have 80 to 400 lines. Split by subject, not by length."""
FUNCTION_LINES_MAX = 70
"""A function fits on a screen, with a little slack for a docstring."""

FUNCTION_ARGUMENTS_MAX = 6
"""With more arguments, a call does not show which is which; combine related ones in a type."""

MANY_ARGUMENTS = {
    "encode_accepted": "one call for each request: an object to carry the fields would be made for each",
    "schedule": "the client's function: all but the first two are named options",
    "repeat": "the client's function: all but the first two are named options",
    "fixed_ranges": "all but the first three are named options with a default",
}
"""Functions that may take more arguments, and the reason. Remove a name once its function takes no more than six."""

FORBIDDEN_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "manager", "core", "misc", "wheel"})
"""Forbidden module names: names without meaning, and `wheel`, which could shadow PyPA's package."""

SIDECAR_LAYERS = (
    *("config", "index", "context", "operation", "transaction", "ingest", "takeover", "dispatch", "shard", "group"),
    *("cluster", "dead_letters", "http", "process"),
)
"""The packages of the sidecar: each may import those before it."""

SIDECAR_VOCABULARY = ("clock", "counts", "errors", "failpoints", "limits", "logs", "privacy", "states")
"""The flat modules of the sidecar, which every package may import, and which import no package."""

SPARK_SHARED = ("columns", "output", "session", "records", "job")
"""The packages that all Spark jobs share: each may import those before it."""

SPARK_AUDIT = ("rules", "judging", "state", "audit")
"""The packages of the audit: each may import those before it, and the shared ones."""

SPARK_OTHERS = {"bulk": (), "report": (), "repair": ("rules", "state", "bulk")}
"""The packages of the other Spark jobs, each with the packages that it may import besides the shared ones."""

SPARK_VOCABULARY = ("errors", "limits")
"""The flat modules of the Spark jobs that every package may import, and which import none. The others are programs."""

WHEEL_LAYERS = ("limits", "errors", "keys", "entry", "options", "timer_log", "timing_wheel", "index")
"""The modules and packages of the timer index: each may import those before it."""

WIRE_LAYERS = (
    *("limits", "reasons", "errors", "versions", "headers", "topics", "origins", "values", "schedules", "dialects"),
    *("dispatch_log", "requests", "delivered", "verdicts", "stored"),
)
"""The modules and packages of the formats: each may import those before it."""

KAFKA_LAYERS = (
    *("limits", "errors", "statistics", "interface", "classification", "secrets", "settings", "connection_fault"),
    *("admin", "consumer", "producer", "client"),
)
"""The modules and packages of the Kafka clients: each may import those before it."""

_BELOW_SIDECAR = ("postdate.kafka", "postdate.wire", "postdate.wheel")


def _before(layers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns package -> the packages before it, for each of these layers."""
    return {name: tuple(layers[:number]) for number, name in enumerate(layers)}


def _arrows(
    root: str, packages: Mapping[str, Sequence[str]], vocabulary: Sequence[str], below: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Returns package -> its permitted imports, for each of the `packages` of `root`: those that `packages` lists, the
    `vocabulary`, and `below`."""
    words = tuple(f"{root}.{name}" for name in vocabulary)
    named = {f"{root}.{name}": tuple(f"{root}.{other}" for other in others) for name, others in packages.items()}
    return {name: (*below, *words, *others) for name, others in {**dict.fromkeys(words, ()), **named}.items()}


_SPARK_PACKAGES = {
    **_before((*SPARK_SHARED, *SPARK_AUDIT)),
    **{name: (*SPARK_SHARED, *others) for name, others in SPARK_OTHERS.items()},
}

INNER = {
    "postdate.sidecar.dispatch": ("limits", "targets", "due"),
    "postdate.sidecar.http": (
        *("limits", "action_log", "process_state", "port", "access", "metrics", "queries", "api", "server"),
    ),
    "postdate.cli": ("limits", "commands", "options", "request_options", "tools", "spark", "operation", "requests"),
    "postdate.spark.rules": (
        *("times", "schedules", "verdicts", "request_histories", "mismatches", "endings", "lost_moves"),
        *("unread_causes", "claims", "survivors", "verdict_checks", "unanswered", "ordering"),
    ),
}
"""Packages whose modules are layered, with their layers in import order: each may import those listed before it."""

_OUTER: dict[str, tuple[str, ...]] = {
    **_arrows("postdate.sidecar", _before(SIDECAR_LAYERS), SIDECAR_VOCABULARY, _BELOW_SIDECAR),
    **_arrows("postdate.spark", _SPARK_PACKAGES, SPARK_VOCABULARY, ("postdate.wire",)),
    **_arrows("postdate.wheel", _before(WHEEL_LAYERS), (), ()),
    "postdate.wheel": (),
    "postdate.client": ("postdate.wire",),
    **_arrows("postdate.wire", _before(WIRE_LAYERS), (), ()),
    "postdate.wire": (),
    **_arrows("postdate.kafka", _before(KAFKA_LAYERS), (), ()),
    "postdate.kafka": (),
    "postdate.spark": ("postdate.wire",),
    "postdate.sidecar": _BELOW_SIDECAR,
    "postdate.tools.bench.baselines": (),
    "postdate.tools": ("postdate.kafka", "postdate.wire", "postdate.wheel", "postdate.sidecar"),
    "postdate.cli": ("postdate.kafka", "postdate.wire", "postdate.wheel", "postdate.sidecar", "postdate.tools"),
    "postdate.testing": ("postdate.client", "postdate.kafka", "postdate.wire", "postdate.sidecar", "postdate.tools"),
}

ARROWS = {
    **{
        f"{outer}.{name}": (*_OUTER[outer], *(f"{outer}.{other}" for other in others))
        for outer, names in INNER.items()
        for name, others in _before(names).items()
    },
    **_OUTER,
}
"""The packages of Postdate that each package may import, besides itself. Inner packages precede their outer one."""

LAZY_ARROWS: dict[str, tuple[str, ...]] = {"postdate.cli.spark": ("postdate.spark",)}
"""Package -> packages that it may import only inside functions, so that only commands that need Spark load it."""

OWNERS: dict[str, tuple[str, ...]] = {
    "cronsim": ("postdate.wire.schedules",),
    "confluent_kafka": ("postdate.kafka", "postdate.tools.dev_broker.readiness", "postdate.tools.bench.baselines"),
    "opentelemetry": ("postdate.sidecar.process.span_exporter",),
    "pyspark": ("postdate.spark",),
    "rocksdict": ("postdate.wheel",),
}
"""The modules that may import a library: the package that hides its errors and quirks, the module that probes a new
broker, and the programs with which the benchmark compares Postdate."""

JUDGES = (
    "tests/support/oracles/expected_records.py",
    "tests/support/oracles/exactly_once.py",
    "tests/support/oracles/order.py",
    "tests/support/faults/judgement.py",
    "tests/support/simulation/oracles/invariants.py",
    "tests/support/simulation/oracles/controls.py",
    "tests/support/simulation/oracles/ids.py",
    "tests/support/simulation/oracles/order.py",
    "tests/support/simulation/oracles/outcomes.py",
    "tests/support/simulation/oracles/interpretations.py",
    "tests/support/simulation/runtime/settings.py",
    "tests/support/simulation/oracles/stored_entries.py",
    "tests/support/simulation/faults/target_faults.py",
)
"""The judges' files, by prefix: their code computes expected results without the product."""

JUDGES_MAY_IMPORT = frozenset(
    {
        # Types of records, and the simulated cluster from which they are read.
        "postdate.kafka.interface.Headers",
        "postdate.kafka.interface.Isolation",
        "postdate.kafka.interface.Partition",
        "postdate.kafka.interface.Record",
        "support.kafka_simulator.SimBroker",
        "support.kafka_simulator.SimTime",
        "support.kafka_simulator.log.PartitionLog",
        # Decoders of records that Postdate writes, and the names that they use.
        "postdate.wire.dispatch_log.ChosenFate",
        "postdate.wire.dispatch_log.BulkCancelled",
        "postdate.wire.dispatch_log.BulkProgress",
        "postdate.wire.dispatch_log.SeriesFate",
        "postdate.wire.dispatch_log.SurvivorFate",
        "postdate.wire.dispatch_log.DispatchRecord",
        "postdate.wire.dispatch_log.Fate",
        "postdate.wire.dispatch_log.Moved",
        "postdate.wire.dispatch_log.decode_record",
        "postdate.wire.errors.FormatError",
        "postdate.wire.topics.OwnTopics",
        "postdate.wire.verdicts.Verdict",
        "postdate.wire.verdicts.decode_verdict",
        "postdate.sidecar.states.State",
        # The timer index, for judges of the index itself.
        "postdate.wheel.entry.Entry",
        "postdate.wheel.entry.PENDING",
        "postdate.wheel.entry.decode_entry",
        "postdate.wheel.index.TimerIndex",
        "postdate.wheel.keys.entry_key",
        "postdate.wheel.keys.split_key",
    }
)
"""The names of the product that a judge may import: types, names, and decoders. None computes an expected result."""


def module_name(place: str) -> str:
    """Returns the dotted name of the module at ``<source root>/postdate/…/x.py``."""
    parts = PurePosixPath(place).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, int, bool]]:
    """Yields each imported module: dotted name, line, and whether the import runs when the module is loaded."""
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno, id(node) not in lazy


def _inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def import_complaints(place: str, text: str) -> Iterator[str]:
    """Yields imports that the map does not permit, and imports of guarded libraries outside their owners."""
    module = module_name(place)
    package = module if place.endswith("__init__.py") else module.rpartition(".")[0]
    home = next((name for name in ARROWS if _inside(module, name)), module)
    for name, line, at_load in _imports(ast.parse(text), package):
        if _inside(name, "postdate"):
            allowed = (home, *ARROWS.get(home, ()), *(() if at_load else LAZY_ARROWS.get(home, ())))
            if not any(_inside(name, other) for other in allowed):
                yield f"{place}:{line}: {home} may not import {name}{' at load' if at_load else ''}"
        library = name.partition(".")[0]
        if library in OWNERS and not any(_inside(module, owner) for owner in OWNERS[library]):
            yield f"{place}:{line}: only {OWNERS[library][0]} may import {library}"


def import_cycle(texts: Mapping[str, str]) -> list[str]:
    """Returns the modules of an import cycle, with the first repeated at the end; empty if there is none.

    `texts` are the modules by their places. Imports inside functions and for type checkers count like all others.
    """
    modules = {module_name(place): place for place in texts}
    imported: dict[str, set[str]] = {}
    for module, place in modules.items():
        package = module if place.endswith("__init__.py") else module.rpartition(".")[0]
        imported[module] = set()
        for name, _, _ in _imports(ast.parse(texts[place]), package):
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != module:
                imported[module].add(found)
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def judge_complaints(place: str, text: str) -> Iterator[str]:
    """Yields the forbidden imports of a judge: code of the product that is not in the list of permitted names."""
    if place.startswith(JUDGES):
        for name, line, _ in _imports(ast.parse(text), "support"):
            if _inside(name, "postdate") and name not in JUDGES_MAY_IMPORT:
                yield f"{place}:{line}: a judge may not import {name}"


def size_complaints(place: str, text: str) -> Iterator[str]:
    """Yields modules and functions that are too long: a module has one subject, a function fits on a screen."""
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{place}: {lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{place}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def argument_complaints(place: str, text: str) -> Iterator[str]:
    """Yields functions with too many arguments. The parameters of a command are its options, and do not count."""
    for name, line, count in _argument_counts(text):
        if count > FUNCTION_ARGUMENTS_MAX and name not in MANY_ARGUMENTS:
            yield f"{place}:{line}: {name} takes {count} arguments"


def many_arguments(text: str) -> set[str]:
    """Returns the functions of a module that take more than FUNCTION_ARGUMENTS_MAX arguments."""
    return {name for name, _, count in _argument_counts(text) if count > FUNCTION_ARGUMENTS_MAX}


def _argument_counts(text: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(map(_is_command, node.decorator_list)):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield node.name, node.lineno, sum(each.arg not in ("self", "cls") for each in given)


def _is_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr == "command"


def name_complaints(place: str, _text: str) -> Iterator[str]:
    """Yields forbidden module names; folders in the map of the code are exempt."""
    if PurePosixPath(place).stem in FORBIDDEN_NAMES:
        yield f"{place}: no module may be called {PurePosixPath(place).stem}"


def class_complaints(texts: Mapping[str, str]) -> list[str]:
    """Returns the class names that are defined more than once. Private names and test classes are exempt."""
    places: dict[str, list[str]] = {}
    for place, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith(("_", "Test")):
                places.setdefault(node.name, []).append(f"{place}:{node.lineno}")
    return [
        f"{name} has {len(where)} meanings: {', '.join(where)}"
        for name, where in sorted(places.items())
        if len(where) > 1
    ]


_UNFINISHED = re.compile(
    r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|NotImplemented" + r"Error)\b"
    r"|pytest\.(mark\.)?(sk" + r"ip|xf" + r"ail|importor" + r"skip)"
)


def unfinished_complaints(place: str, text: str) -> Iterator[str]:
    """Yields unfinished work, and skips of tests. Only `programs.py` may skip a test, if a program is missing."""
    if place == "tests/support/deployments/programs.py":
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = _UNFINISHED.search(line)
        if found:
            yield f"{place}:{number}: {found.group()}"


def except_complaints(place: str, text: str) -> Iterator[str]:
    """Yields handlers that catch `Exception` and neither raise nor use the error."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
        used = any(
            isinstance(inner, ast.Raise) or (isinstance(inner, ast.Name) and inner.id == node.name)
            for statement in node.body
            for inner in ast.walk(statement)
        )
        if node.type is None or (broad and not used):
            yield f"{place}:{node.lineno}: an error is swallowed"


_FOREIGN = re.compile(
    r"/(work|farm|root|home|Users|opt)/\w|pypi\.org|pythonhosted\.org|registry\.npmjs|(repo1?|central)\.maven"
)


def machine_complaints(place: str, text: str) -> Iterator[str]:
    """Yields paths of one machine and addresses of package registries."""
    for number, line in enumerate(text.splitlines(), 1):
        found = _FOREIGN.search(line)
        if found and place != "tests/support/tidiness/code_rules.py":
            yield f"{place}:{number}: {found.group()}"
