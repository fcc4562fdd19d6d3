"""What commands answer to names, values and instants that nobody meant."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

import sightline as sl
from sightline.data.images import MOST_PIXELS, _PixelBudget
from sightline.data.sources import files_of, text_of
from sightline.data.tokens import Tokenizer
from sightline.messages import printable, quoted
from sightline.untrusted import DEEPEST, check_memory, parse_json, read_bytes, to_json
from tests.command import run

RUN = Path(__file__).parents[1] / "fixtures/written_by_0_1/classify/finished"

pytestmark = [pytest.mark.plain, pytest.mark.bad_input]


class Interrupted(ModuleType):
    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_ctrl_c_while_a_command_is_imported_says_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sightline.cli.app", Interrupted("sightline.cli.app"))
    assert run("evaluate", RUN) == (130, "", "")


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("module", ["shlex", "typer", "sightline.cli.app"])
def test_ctrl_c_before_the_command_has_begun_ends_it_in_silence(tmp_path, module):
    """As a process: the first modules are imported before anything of ours can catch an exception."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"sys.modules.pop({module!r}, None)\n"
        "sys.argv = ['sightline', '--version']\n"
        "from sightline.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_that_a_shell_ignores_is_ignored():
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from sightline.__main__ import main\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['sightline', '--version']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stdout) == (0, f"sightline {sl.__version__}\n"), ended.stderr


@pytest.mark.usefixtures("own_signals")
def test_ctrl_c_is_answered_again_once_a_command_begins(monkeypatch):
    at = []
    monkeypatch.setattr("sightline.cli.main", lambda: at.append(signal.getsignal(signal.SIGINT)))
    monkeypatch.delitem(sys.modules, "sightline.__main__", raising=False)
    entry = importlib.import_module("sightline.__main__")
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    entry.main()
    assert at == [signal.default_int_handler]


@pytest.mark.parametrize(
    "problem",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")],
)
def test_memory_that_ends_is_a_sentence(monkeypatch, problem):
    def broken(*_, **__):
        raise problem

    monkeypatch.setattr("sightline.cli.predict.open_run", broken)
    result = run("classify", RUN, RUN.parents[1] / "data/pictures/05.png")
    assert result.code == 2
    assert result.err.startswith("there was not enough memory; lower --batch-size")
    monkeypatch.setattr("sightline.cli.predict.open_run", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a fault of ours is no fault of the user's
        run("classify", RUN, RUN.parents[1] / "data/pictures/05.png")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", RUN, "--device", "meta"], "there is no device 'meta' here"),
        (["caption", RUN, "x.png", "--beam", "999999999999"], "beam may be at most 1000, got 999999999999"),
        (
            ["train", "classify", "--data", "digits", "--out", "x", "--d-ff", "1000000000"],
            "d_ff may be at most",
        ),
        (["data", "check", "/dev/zero"], "a regular file can be read, '/dev/zero' is a device"),
        (["evaluate", "x" * 300], "file name too long; try another"),
    ],
)
def test_absurd_values(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_names_reach_the_terminal_escaped(tmp_path):
    path = tmp_path / "a\x1b[2J\u202eb.png"
    Image.new("RGB", (9, 7)).save(path)
    plain = run("classify", RUN, path)
    assert plain.code == 0
    assert "a\\x1b[2J\\u202eb.png" in plain.out
    assert not {"\x1b", "\u202e"} & set(plain.out + plain.err)
    printed = run("classify", RUN, path, "--json")
    assert "\x1b" not in printed.out
    assert "\u202e" not in printed.out
    assert printed.json["classes"][0]["image"] == str(path)


def test_a_suggested_command_is_quoted():
    with pytest.raises(
        ValueError, match=r"iconv -f latin1 -t utf-8 'a; touch b' > new && mv new 'a; touch b'$"
    ):
        text_of(b"caf\xe9", "set/a; touch b")
    assert quoted("it's") == "'it'\"'\"'s'"


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(bytes(101))
    for name, what in (("pipe", "a pipe"), ("endless", "a device"), ("large", "may have 100 bytes")):
        with pytest.raises(OSError, match=what):
            read_bytes(tmp_path / name, at_most=100)
    for name in ("pipe", "endless"):
        with pytest.raises(OSError, match="a regular file can be read"):
            files_of(tmp_path / name)
    assert read_bytes(tmp_path / "large", at_most=101) == bytes(101)


def test_places_to_write_that_are_no_utf8(tmp_path):
    sight = sl.look(*torch.ones(3, 1, 1, 5, 2))
    for name in ("\udc80", "\ud800"):  # a byte that is no UTF-8, and half a letter that no system can write
        where = tmp_path / name
        for call in (
            lambda where=where: sl.tasks.train("classify", out=where, data="digits", steps=1, shown=False),
            lambda where=where: sight.save(where),
            lambda where=where: sl.open_run(RUN).model.save(where),
        ):
            with pytest.raises(ValueError, match="must be UTF-8") as found:
                call()
            str(found.value).encode("utf-8")
    with pytest.raises(ValueError, match="the path of a page must be UTF-8"):
        sl.show.page(sight).save(tmp_path / "\ud800.html")
    assert not list(tmp_path.iterdir())
    result = run("train", "classify", "--data", "digits", "--out", tmp_path / "\udc80", "--steps", "1")
    assert result.code == 2
    assert "the path of a run must be UTF-8" in result.err


def test_json_is_bounded_and_every_reader_takes_ours():
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert parse_json(deep, "x")
    with pytest.raises(ValueError, match="may be nested 100 deep, x is deeper"):
        parse_json(f"[{deep}]", "x")
    assert parse_json('"' + "[" * 1000 + '"', "x") == "[" * 1000
    with pytest.raises(ValueError, match="x is not JSON: Exceeds the limit"):
        parse_json("1" * 5000, "x")
    value = {"a": [float("nan"), float("inf"), 1.5], "b": ("\x9b", "\udc80", "\u202e")}
    text = to_json(value)
    text.encode("utf-8")
    assert "\x9b" not in text
    assert json.loads(text) == {"a": [None, None, 1.5], "b": ["\x9b", "\udc80", "\u202e"]}
    assert printable("a\tb\nc\x9b") == "a\tb\nc\\x9b"


def test_memory_is_asked_for_before_it_is_used(monkeypatch):
    check_memory(1000, "a thing")
    with pytest.raises(ValueError, match=r"a thing needs 1000000\.0 TB of memory, .* are free; split it"):
        check_memory(10**18, "a thing", "split it")


def test_threads_together_decode_as_many_pixels_as_one_image_has():
    import threading

    budget, now, most = _PixelBudget(100), [0], [0]
    lock = threading.Lock()

    def decode(count):
        with budget.share(count):
            with lock:
                now[0] += count
                most[0] = max(most[0], now[0])
            with lock:
                now[0] -= count

    threads = [threading.Thread(target=decode, args=(count,)) for count in (100, 60, 60, 40, 100, 1) * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 100 >= most[0] >= 60
    assert MOST_PIXELS == 1 << 26


def test_pieces_are_learned_from_an_endless_word_in_pieces():
    whole = "abcdefghij" * 3000
    tokens = Tokenizer.train([whole, "a b c"], kind="bpe", vocab_size=60)
    assert tokens.decode(tokens.encode(whole[:999])) == whole[:999]
    assert max(map(len, tokens.words(range(len(tokens))))) <= 1001
