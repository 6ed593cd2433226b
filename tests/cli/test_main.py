from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from relaygen import cli
from relaygen._errors import (
    EngineStartError,
    MissingExtraError,
    ModelNotFoundError,
    ProfileError,
    RelayGenError,
)
from relaygen._version import __version__


def group(body: Callable[[], object]) -> cli.LazyGroup:
    made = cli.LazyGroup("test", lazy={"absent": ("relaygen.cli.absent_module:x", "Not there.")})
    made.add_command(click.Command("go", callback=body, short_help="Go."))
    return made


def go(body: Callable[[], object]) -> Result:
    return CliRunner().invoke(group(body), ["go"])


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RelayGenError("broken"), 1),
        (ProfileError("broken"), 2),
        (MissingExtraError("broken", extra="llama"), 3),
        (ModelNotFoundError("broken"), 4),
        (EngineStartError("broken"), 5),
    ],
)
def test_our_errors_are_one_line_and_their_status(error: RelayGenError, status: int) -> None:
    result = go(raising(error))
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].startswith("error: broken")
    assert len(result.stderr.splitlines()) == (2 if error.hint else 1)


def test_the_hint_is_a_second_line_and_neither_has_more() -> None:
    result = go(raising(RelayGenError("one\n  two", hint="three\nfour")))
    assert result.stderr == "error: one two\nhint: three four\n"


def test_a_terminal_does_not_obey_an_error() -> None:
    result = go(raising(RelayGenError("a\x1b[31mb", hint="c\x07d")))
    assert result.stderr == "error: a\ufffd[31mb\nhint: c\ufffdd\n"


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYGEN_DEBUG", "1")
    result = go(raising(ModelNotFoundError("broken")))
    assert result.exit_code == 4
    assert "Traceback" in result.stderr
    assert "in body" in result.stderr
    monkeypatch.setenv("RELAYGEN_DEBUG", "0")
    assert "Traceback" not in go(raising(ModelNotFoundError("broken"))).stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_quiet(error: BaseException) -> None:
    result = go(raising(error))
    assert (result.exit_code, result.output) == (130, "")


def test_other_errors_are_ours_to_see() -> None:
    result = go(raising(ZeroDivisionError()))
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_real_ctrl_c_in_a_command() -> None:
    code = (
        "import click, os, signal, time\nfrom relaygen import cli\n"
        "@click.command()\ndef go():\n"
        f"    os.kill(os.getpid(), {int(signal.SIGINT)}); time.sleep(30)\n"
        "cli.main.add_command(go)\ncli.main(['go'])\n"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_closed_pipe_is_quiet(lines: int) -> None:
    code = (
        "import click, sys\nfrom relaygen import cli\n"
        "@click.command()\ndef go():\n"
        f"    sys.stdin.read()\n    for k in range({lines}): print(k)\n"
        "cli.main.add_command(go)\ncli.main(['go'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "--large-ms", "40", "--small-ms", "8", "--utilization", "0.7"),
        ("models", "list"),
        ("profile", "list"),
        ("profile", "show", "embedded"),
    ],
)
def test_a_closed_pipe_under_a_table_is_quiet(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        command = [sys.executable, "-m", "relaygen", *arguments]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_streams_that_are_closed_from_the_start() -> None:
    code = "import os, sys; [os.close(n) for n in (0, 1)]; os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "relaygen"]
    for arguments, status in ((["profile", "list"], 0), (["run"], 2)):
        result = subprocess.run(
            [sys.executable, "-c", code, *command, *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (result.returncode, "Traceback" in result.stderr) == (status, False)


def test_a_command_that_this_installation_lacks() -> None:
    runner = CliRunner()
    made = group(lambda: None)
    assert "absent  Not there." in runner.invoke(made, ["--help"]).output
    result = runner.invoke(made, ["absent"])
    assert result.exit_code == 2
    assert "no command 'absent'" in result.stderr
    assert runner.invoke(made, ["go"]).exit_code == 0


def test_a_command_whose_own_import_fails_is_not_called_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    with open(os.path.join(tmp_path, "broken_command.py"), "w") as file:
        file.write("import no_such_package_at_all")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = cli.LazyGroup("test", lazy={"broken": ("broken_command:x", "")})
    result = CliRunner().invoke(made, ["broken"])
    assert isinstance(result.exception, ModuleNotFoundError)
    assert result.exception.name == "no_such_package_at_all"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli.main, ["nonsense"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no such command 'nonsense'")


@pytest.mark.parametrize(
    ("args", "said", "where"),
    [
        (["--nope"], "error: no such option '--nope'", "relaygen"),
        (["run", "--polic", "large", "q"], "'--policy'", "relaygen run"),
        (
            ["run", "--max-tokens", "0", "q"],
            "error: invalid value for '--max-tokens'",
            "relaygen run",
        ),
        (["run", "--seed"], "requires an argument", "relaygen run"),
        (["engines"], "error: missing option '--pair'", "relaygen engines"),
        (["models", "pull", "x"], "is not one of", "relaygen models pull"),
        (["profile", "nope"], "error: no such command 'nope'", "relaygen profile"),
        (["plan", "--trace", "no\nfile"], "does not exist", "relaygen plan"),
    ],
)
def test_what_click_refuses_is_told_as_our_own_errors(
    args: list[str], said: str, where: str
) -> None:
    result = CliRunner().invoke(cli.main, args, prog_name="relaygen")
    error, hint = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert error.startswith("error: ")
    assert said in error
    assert hint == f"hint: {where} --help says what there is"


@pytest.mark.parametrize("args", [[], ["models"], ["profile"]])
def test_a_group_alone_shows_its_help(args: list[str]) -> None:
    result = CliRunner().invoke(cli.main, args, prog_name="relaygen")
    assert result.output.startswith(f"Usage: {' '.join(['relaygen', *args])} ")
    assert "error:" not in result.output


def test_help_lists_commands_and_statuses() -> None:
    result = CliRunner().invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines() if line.startswith("  ")]
    for name in cli.COMMANDS:
        assert name in names
    for error in (ProfileError, MissingExtraError, ModelNotFoundError, EngineStartError):
        assert str(error.exit_code) in names
    assert "130" in names


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys\nfrom relaygen.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted(sys.modules), file=sys.stderr)\n"
    )
    done = python(code)
    assert "Commands:" in done.stdout
    loaded = set(ast_list(done.stderr))
    assert "relaygen.cli" in loaded
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"rich", "httpx", "pydantic", "anyio", "huggingface_hub", "filelock"}
    assert not {name for name in loaded if name.startswith("relaygen.cli.")}
    assert "relaygen.models" not in loaded


def ast_list(text: str) -> list[str]:
    import ast

    value = ast.literal_eval(text)
    assert isinstance(value, list)
    return value


def test_completion_needs_no_import() -> None:
    made = group(lambda: None)
    words = ShellComplete(made, {}, "test", "_TEST_COMPLETE").get_completions([], "ab")
    assert [(word.value, word.help) for word in words] == [("absent", "Not there.")]


def test_version_also_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relaygen", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"relaygen, version {__version__}\n"
