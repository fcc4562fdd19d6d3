"""The two parts of the COCO evaluation that are Java programs: its tokenizer, and METEOR.

Neither is needed: :mod:`sightline.evaluate.captions` scores without them. They lie as archives in
``pycocoevalcap``, which is installed by whoever wants them, and run where ``java`` is on the path.
"""

import contextlib
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PTB", "meteor", "missing", "ptb"]

PTB = "stanford-corenlp-3.4.1"
_TOKENIZER, _METEOR = f"tokenizer/{PTB}.jar", "meteor/meteor-1.5.jar"
# What the COCO evaluation takes away after tokenising. Brackets, written -lrb- by then, stay there too.
_PUNCTUATION = frozenset(("''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"))


def missing() -> str | None:
    """What is not there of Java and its archives, or None if all is."""
    if shutil.which("java") is None:
        return "java, which is not on the path"
    lacking = [name for name in (_TOKENIZER, _METEOR) if _jar(name) is None]
    return f"{lacking[0]}, which is not in pycocoevalcap" if lacking else None


def ptb(texts: Sequence[str]) -> list[str]:
    """Texts as the COCO evaluation tokenises them: Penn Treebank tokens, lower-cased, without punctuation."""
    java, jar = _needed(_TOKENIZER, "the tokenizer of the COCO evaluation")
    command = [java, "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    lines = "\n".join(" ".join(text.split()) for text in texts) + "\n"
    done = subprocess.run(  # noqa: S603  Java from the path, an archive of an installed package
        [*command, "-encoding", "utf-8"], input=lines, capture_output=True, encoding="utf-8", check=False
    )
    parted = done.stdout.split("\n")[:-1]
    if done.returncode or len(parted) != len(texts):
        raise ValueError(
            f"the tokenizer of the COCO evaluation gave {len(parted)} lines for {len(texts)} texts, with "
            f"exit code {done.returncode}; leave it out"
        )
    return [" ".join(word for word in line.split() if word not in _PUNCTUATION) for line in parted]


def meteor(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, list[float]]:
    """METEOR 1.5 of tokenised texts, of all and of each: first each one's statistics, then their scores."""
    java, jar = _needed(_METEOR, "METEOR")
    command = [java, "-Xmx2G", "-Dfile.encoding=UTF-8", "-jar", str(jar), "-", "-"]
    command += ["-stdio", "-l", "en", "-norm"]
    with subprocess.Popen(  # noqa: S603  Java from the path, an archive of an installed package
        command,
        cwd=jar.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        sent, heard = process.stdin, process.stdout
        assert sent is not None and heard is not None  # noqa: PT018, S101  both are pipes

        def ask(line: str) -> str:
            sent.write(line + "\n")
            sent.flush()
            return heard.readline().strip()

        try:
            pairs = zip(candidates, references, strict=True)
            statistics = [ask(" ||| ".join(["SCORE", *texts, text])) for text, texts in pairs]
            each = [float(ask(" ||| ".join(["EVAL", *statistics])))]
            each += [float(heard.readline()) for _ in statistics]  # the last is of all together
        except (OSError, ValueError):
            process.kill()
            with contextlib.suppress(OSError):  # what was not sent yet has nowhere to go
                sent.close()
            raise ValueError(f"METEOR ended before it had scored {len(candidates)} captions") from None
        sent.close()
    return each[-1], each[:-1]


def _needed(archive: str, what: str) -> tuple[str, Path]:
    java, jar = shutil.which("java"), _jar(archive)
    if java is None or jar is None:
        raise ValueError(f"{what} needs {missing()}; leave it out, or install it")
    return java, jar


def _jar(name: str) -> Path | None:
    package = importlib.util.find_spec("pycocoevalcap")
    folders = package.submodule_search_locations if package else None
    jars = [Path(folder) / name for folder in folders or []]
    return next((jar for jar in jars if jar.is_file()), None)
