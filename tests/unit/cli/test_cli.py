"""Goal: the command line follows its contract for streams, exit codes, messages and secrets.

Method: click's runner calls the real commands without a broker. `connect_nowhere` fails each attempt to connect.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from postdate.cli import main, postdate
from postdate.cli.commands import Commands
from postdate.cli.options import now_ms
from postdate.cli.requests.send import request_record_of
from postdate.cli.tools import dev
from postdate.kafka import errors as kafka_errors
from postdate.sidecar.cluster import connection
from postdate.sidecar.cluster.producing import accepted, partition_of
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.errors import ConfigError, Exit, Halted, HaltReason, PostdateError, ShardFenced, TransientError
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.process.limits import GC_THRESHOLDS
from postdate.tools.dev_broker.jars import quiet
from postdate.tools.dev_broker.local_broker import DevBroker
from postdate.wire import headers as names
from postdate.wire.errors import RequestRefused
from postdate.wire.reasons import Reason
from postdate.wire.values.instants import parse_time_ms
from postdate.wire.values.murmur2 import partition_for
from support.deployments.command import environment

NOTHING: dict[str, object] = {
    "retry": None,
    "topic": "orders",
    "key": None,
    "value": None,
    "headers": (),
    "at": None,
    "delay": None,
    "level": None,
    "request_id": None,
    "partition": None,
    "grace": None,
    "window": None,
    "spread": None,
}


@pytest.fixture(autouse=True)
def connect_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(settings: object) -> None:
        raise AssertionError("this test must not connect")

    monkeypatch.setattr(connection, "ConfluentKafka", refuse)


def call(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(postdate, list(arguments), env=environ)


def test_a_command_imports_its_modules_without_a_search_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = gc.get_threshold(), []
    monkeypatch.setattr("postdate.cli.postdate", lambda prog_name: during.append(gc.get_threshold()))
    monkeypatch.setattr("postdate.cli._exit", lambda code: None)
    try:
        main()
    finally:
        gc.set_threshold(*before)
    assert during == [GC_THRESHOLDS]


def test_the_program_ends_with_python_s_exit_functions_but_without_those_of_native_libraries() -> None:
    """OpenSSL's exit function would free state that a thread of librdkafka uses."""
    program = (
        "import atexit, ctypes; from postdate.cli import main; libc = ctypes.CDLL(None);"
        "libc.on_exit(libc.abort, None); atexit.register(print, 'last line'); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "version"], capture_output=True, text=True, check=False, env=environment()
    )
    assert done.returncode == Exit.OK
    assert done.stdout.endswith("last line\n")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_the_program_ends_as_usual_if_its_output_is_closed(closed: str) -> None:
    command = f"exec {sys.executable} -m postdate.cli version {closed}"
    assert subprocess.run(["/bin/sh", "-c", command], check=False, env=environment()).returncode == Exit.OK


def test_every_command_of_the_contract_exists() -> None:
    assert {"dev", "topics", "run", "send", "audit", "config", "version"} <= set(postdate.commands)
    assert {"cancel", "reschedule", "deliver"} <= set(postdate.commands)
    nouns = {"topics": {"create", "check", "acls"}, "config": {"show", "docs"}, "dead-letters": {"list", "requeue"}}
    for noun, verbs in nouns.items():
        group = postdate.commands[noun]
        assert isinstance(group, click.Group)
        assert set(group.commands) == verbs


def leaf_commands() -> list[list[str]]:
    found: list[list[str]] = []
    for name, command in postdate.commands.items():
        verbs = [[verb] for verb in command.commands] if isinstance(command, click.Group) else [[]]
        found += [[name, *verb] for verb in verbs]
    return found


def found_command(names: list[str]) -> click.Command:
    found: click.Command = postdate
    for name in names:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    return found


@pytest.mark.parametrize("command", leaf_commands(), ids=" ".join)
def test_every_option_has_a_description(command: list[str]) -> None:
    result = call(*command, "-h")
    assert result.exit_code == 0
    assert all(option.help for option in found_command(command).params if isinstance(option, click.Option))


@pytest.mark.parametrize("command", leaf_commands(), ids=" ".join)
def test_times_have_one_vocabulary_and_ranges_one_pair_of_names(command: list[str]) -> None:
    for option in found_command(command).params:
        if isinstance(option, click.Option) and option.metavar == "TIME":
            assert option.opts[0] in ("--from", "--until", "--at", "--start", "--end", "--after")
            texts = ("now", "-2h", "0s", "1970-01-01T00:00:01Z", "7")
            # Some commands keep the text, so that an error about the header quotes it.
            read = [parse_time_ms(str(option.type.convert(text, None, None)), now_ms()) for text in texts]
            assert read[3:] == [1_000, 7]
            assert read[0] - 7_200_000 <= read[1] < read[2]


def test_a_duration_needs_a_unit_in_every_command() -> None:
    """A header takes a number as milliseconds, but a user of `--delay 5` may mean seconds.

    --interval and --seconds take a number as seconds."""
    options = [
        option
        for command in leaf_commands()
        for option in found_command(command).params
        if isinstance(option, click.Option)
        and (option.metavar or "").startswith("DURATION")
        and option.opts[0] not in ("--interval", "--seconds")
    ]
    assert len(options) > 10
    for option in options:
        for text in ("5", "250"):
            with pytest.raises(click.BadParameter, match=f"has no unit: write {text}ms, {text}s or {text}m"):
                option.type.convert(text, option, None)
        assert option.type.convert("0", option, None) in (0, "0"), "nothing needs no unit"
        assert option.type.convert("1500ms", option, None) in (1_500, "1500ms")


@pytest.mark.parametrize("command", [["top", "--interval"], ["bench", "--seconds"], ["demo", "--seconds"]])
@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("4.5", 4.5), ("30s", 30), ("1m30s", 90), ("4500ms", 4.5)])
def test_an_option_in_seconds_also_takes_a_duration(command: list[str], text: str, seconds: float) -> None:
    name, option_name = command
    option = next(each for each in found_command([name]).params if each.opts == [option_name])
    assert option.type.convert(text, option, None) == seconds
    for refused, expected_text in (
        ("1x", "is not a duration"),
        ("2d", "is not between"),
        ("50ms", "is not between"),
        ("", "is"),
    ):
        with pytest.raises(click.BadParameter, match=expected_text):
            option.type.convert(refused, option, None)


@pytest.mark.parametrize("command", leaf_commands(), ids=" ".join)
def test_the_help_offers_only_times_that_the_option_takes(command: list[str]) -> None:
    for option in found_command(command).params:
        if isinstance(option, click.Option) and option.metavar == "TIME" and "10s (from now)" in (option.help or ""):
            assert int(parse_time_ms(str(option.type.convert("10s", option, None)), now_ms())) > now_ms()


@pytest.mark.parametrize("command", leaf_commands(), ids=" ".join)
def test_options_of_one_name_have_one_default(command: list[str]) -> None:
    """The default of --requests is the configured request topic; in a query, there is no filter by default."""
    for option in found_command(command).params:
        if isinstance(option, click.Option) and option.opts[0] == "--requests":
            assert str(option.help).endswith(("[postdate.requests]", ", or postdate.requests]", "[all]"))
        elif isinstance(option, click.Option) and option.opts[0] == "--data" and command != ["dev"]:
            assert str(option.help).endswith("[~/.local/state/postdate]")


@pytest.mark.parametrize(
    "command", [["top"], ["shard", "status"], ["shard", "resume"], ["shard", "rebuild"], ["drain"]], ids=" ".join
)
def test_a_command_without_kafka_hides_the_options_of_kafka(command: list[str], tmp_path: Path) -> None:
    assert not any(option in call(*command, "-h").stdout for option in ("-b,", "-X", "-F", "--group-id"))
    if command in (["top"], ["shard", "status"]):
        result = call(*command, "-b", "h:1", "-X", "client.rack=a", "--data", str(tmp_path))
        assert result.exit_code == 0, result.output


def test_the_help_names_the_object_of_each_command() -> None:
    assert "Process to drain." in call("drain", "-h").stdout
    for verb in ("pause", "resume", "trigger", "backfill", "cancel"):
        text = call("schedule", verb, "-h").stdout
        assert "Id of the schedule." in text
        assert f"postdate schedule {verb} -b" in text
        assert "postdate cancel -b" not in text
    assert "Id of the message." in call("cancel", "-h").stdout


@pytest.mark.parametrize(
    ("command", "former"), [(["audit"], "--to"), (["report"], "--since"), (["bulk", "rows.csv"], "--since")]
)
def test_a_former_name_of_an_option_is_valid_and_hidden(command: list[str], former: str) -> None:
    assert f"{former} " not in call(command[0], "-h").stdout
    assert "no broker given" in call(*command, former, "2026-01-01T00:00:00Z").stderr


def test_the_list_of_commands_truncates_no_sentence() -> None:
    for arguments in (["--help"], ["topics", "--help"], ["config", "--help"], ["dead-letters", "--help"]):
        _, commands = call(*arguments).stdout.split("Commands:")
        assert "..." not in commands


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        (["nonsense"], "No such command"),
        (["--nonsense"], "No such option"),
        (["send", "--topic", "t"], "exactly one of --at, --delay, --level, --retry"),
        (["send", "--topic", "t", "--at", "1", "--delay", "1s"], "exactly one of --at, --delay, --level, --retry"),
        (["send", "--topic", "t", "--delay", "5x"], "bad-time"),
        (["send", "--topic", "t", "--delay", "5"], "'5' has no unit: write 5ms, 5s or 5m"),
        (["reschedule", "--target", "t", "--by", "-30"], "'-30' has no unit: write 30ms, 30s or 30m"),
        (["schedule", "create", "--topic", "t", "--every", "15m/5"], "'15m/5' has no unit: write 5ms"),
        (["send", "--topic", "__offsets", "--delay", "5s"], "forbidden-target"),
        (["send", "--topic", "postdate.requests", "--delay", "5s"], "forbidden-target"),
        (["send", "--topic", "t", "--delay", "5s", "-H", "postdate-dely=6s"], "unknown-header"),
        (["send", "--topic", "t", "--delay", "5s", "-H", "=x"], "has no name"),
        (["send", "--topic", "t", "--delay", "5s"], "no broker given"),
        (["run"], "no broker given"),
        (["run", "--workers", "0"], "workers must be at least 1"),
        (["topics", "check"], "no broker given"),
        (["topics", "create", "--partitions", "0"], "topics.partitions must be at least 1"),
        (["topics", "create", "--requests", "a b"], "not a name that Kafka accepts"),
        (["pending", "get", "garbage"], "is not an origin"),
        (["audit"], "no broker given"),
        (["audit", "--from", "yesterday"], "yesterday"),
        (["config", "show", "-X", "nonsense"], "not name=value"),
        (["config", "show", "-X", "transactional.id=x"], "it names the shard"),
        (["config", "show", "--config", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
        (["dev", "--docker", "--data", "/x"], "--data is for a broker on this machine"),
        (["dev", "--image", "x"], "--image is for --docker"),
    ],
)
def test_a_usage_error_is_on_stderr_with_exit_code_2(arguments: list[str], expected_text: str) -> None:
    result = call(*arguments)
    assert result.exit_code == Exit.USAGE
    assert expected_text in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: "), "one style of prefix"
    assert result.stdout == ""


class _EndingBroker(DevBroker):
    """A broker whose process, a shell command, ends at once."""

    def __init__(self, directory: Path, command: str) -> None:
        super().__init__(0, quiet)
        self.log_file = directory / "broker.log"
        self.log_file.write_text("a line of the log\n")
        self._command = command

    def start(self, timeout_s: float = 0) -> None:
        with open(os.devnull, "wb") as log:
            self._spawn_process(["sh", "-c", self._command], log)
        assert self._process is not None
        self._process.wait()

    def stop(self, timeout_s: float = 0) -> None:
        pass


@pytest.mark.parametrize(
    ("command", "expected_text"),
    [
        ("kill -9 $$", "error: signal 9 has ended the broker\n"),
        ("exit 3", "error: the broker ended with exit status 3; the end of its log:\nerror: a line of the log\n"),
    ],
)
def test_the_end_of_a_development_broker_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, expected_text: str
) -> None:
    monkeypatch.setattr(dev, "_local_broker", lambda *_: _EndingBroker(tmp_path, command))
    result = call("dev", "--data", str(tmp_path))
    assert (result.exit_code, result.stderr.endswith(expected_text)) == (1, True), result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PostdateError("x"), 1),
        (TransientError("x"), 1),
        (ConfigError("x"), 2),
        (ShardFenced("x"), 3),
        (Halted(HaltReason.SEQ_BROKEN, "x"), 1),
        (kafka_errors.Unreachable("x"), 1),
        (kafka_errors.SettingRefused("x"), 2),
        (kafka_errors.NotAuthorized("x"), 2),
        (kafka_errors.Fenced("x"), 3),
        (kafka_errors.RecordRejected("x"), 1),
        (kafka_errors.UnknownOutcome("x"), 1),
        (kafka_errors.OffsetOutOfRange("x"), 1),
    ],
)
def test_an_error_is_printed_as_a_sentence_and_has_its_exit_code(error: Exception, code: int) -> None:
    group = Commands("postdate")

    @group.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == code
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


def test_a_bug_keeps_its_traceback() -> None:
    group = Commands("postdate")

    @group.command()
    def fail() -> None:
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, ZeroDivisionError)


def test_config_show_prints_toml_or_one_json_object() -> None:
    environ = {"POSTDATE_KAFKA_COMMON_SASL_PASSWORD": "swordfish", "POSTDATE_WORKERS": "2"}
    text = call("config", "show", environ=environ)
    assert tomllib.loads(text.stdout)["workers"] == 2
    as_json = call("config", "show", "--output", "json", environ=environ)
    assert json.loads(as_json.stdout)["kafka"]["common"]["sasl.password"] == "***"
    assert "swordfish" not in text.output + as_json.output


def test_flags_reach_the_configuration(tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text("security.protocol=SSL\n")
    result = call("config", "show", "-b", "h:1", "-F", str(client), "-X", "client.rack=a", "--output", "json")
    kafka = json.loads(result.stdout)["kafka"]
    assert kafka["bootstrap_servers"] == "h:1"
    assert kafka["common"] == {"security.protocol": "SSL", "client.rack": "a"}


def test_the_version_option_prints_the_version() -> None:
    assert call("--version").stdout == call("version").stdout.splitlines()[0] + "\n"


def test_version_names_the_libraries() -> None:
    assert call("version").stdout.startswith("postdate ")
    assert "confluent-kafka" in json.loads(call("version", "--output", "json").stdout)


def test_send_produces_the_same_record_as_any_client() -> None:
    draft = request_record_of(
        {**NOTHING, "key": "k", "value": "v", "delay": "5s", "headers": (("a", b"1"), ("a", None)), "partition": "3"}
    )
    assert (draft.key, draft.value) == (b"k", b"v")
    assert draft.headers[:2] == [("a", b"1"), ("a", None)]
    assert sorted(draft.headers[2:]) == [
        (names.DELAY, b"5s"),
        (names.PARTITION, b"3"),
        (names.TOPIC, b"orders"),
    ]


@pytest.mark.parametrize("key", ["k", None])
def test_an_id_becomes_the_record_key_so_that_a_cancel_finds_the_partition(key: str | None) -> None:
    draft = request_record_of({**NOTHING, "key": key, "level": "1", "request_id": "order-9"})
    request = accepted(rules_of(Config(), "postdate.requests"), draft, 0, 1_000)
    assert draft.key == b"order-9"
    assert (request.id, request.key) == (b"order-9", None if key is None else b"k")
    assert partition_of(draft.key, 7) == partition_for(b"order-9", 7)


def test_a_return_has_a_policy_instead_of_a_time() -> None:
    draft = request_record_of({**NOTHING, "retry": "base=1s"})
    assert ("postdate-retry", b"base=1s") in draft.headers
    with pytest.raises(click.UsageError, match="--retry"):
        request_record_of({**NOTHING, "retry": "base=1s", "delay": "5s"})


def test_a_null_key_may_land_on_any_partition() -> None:
    assert {partition_of(None, 3) for _ in range(200)} == {0, 1, 2}


def test_arguments_that_are_not_utf8_are_sent_as_the_same_bytes() -> None:
    assert request_record_of({**NOTHING, "value": "\udcff", "level": "1"}).value == b"\xff"


def test_without_a_store_the_horizon_is_at_most_half_of_the_retention() -> None:
    stores = Config(request_topics=(RequestTopicConfig("r", horizon_ms=10_000),))
    assert rules_of(stores, "r", 8_000).horizon_ms == 10_000
    config = Config(request_topics=(RequestTopicConfig("r", horizon_ms=10_000, store_after_ms=0),))
    assert [rules_of(config, "r", kept_ms).horizon_ms for kept_ms in (-1, 8_000, 50_000)] == [10_000, 4_000, 10_000]
    draft = request_record_of({**NOTHING, "delay": "5s"})
    with pytest.raises(ConfigError, match="beyond-horizon") as caught:
        accepted(rules_of(config, "r", 8_000), draft, 0, 0)
    assert isinstance(caught.value.__cause__, RequestRefused)
    assert caught.value.__cause__.reason is Reason.BEYOND_HORIZON


def test_topics_of_every_request_topic_are_forbidden_targets() -> None:
    config = Config(request_topics=(RequestTopicConfig("a"), RequestTopicConfig("b")))
    draft = request_record_of({**NOTHING, "topic": "b.store", "level": "1"})
    with pytest.raises(ConfigError, match="forbidden-target"):
        accepted(rules_of(config, "a"), draft, 0, 0)
