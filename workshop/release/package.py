"""The package as somebody gets it who has no repository: built, installed into an empty place, tried there.

    python -m workshop.release.package smoke      # wheel and sdist, then every extra in a clean environment
    python -m workshop.release.package smoke cli  # these extras alone
    python -m workshop.release.package startup    # processor seconds of an import and of `sightline --help`

An environment is a virtual one with the wheel in it and links to exactly the packages that the wheel's
metadata asks for, extra by extra, out of those installed where this script runs: torch is not copied, and
what an extra forgot to name is not there.
"""

import argparse
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from workshop import ROOT

WALKS = Path(__file__).with_name("walks")
RUN = ROOT / "tests/fixtures/written_by_0_1/classify/finished"  # one to open where none can be trained
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}  # the date of every file in an archive
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
RUNS = 7
IMPORT = """
import time, torch
before = time.process_time()
import sightline as sl
sl.attention, sl.look, sl.watch, sl.nn.Transformer
print(time.process_time() - before)
"""


def build(source: Path, kind: str, place: Path) -> Path:
    """Build ``wheel`` or ``sdist`` of a folder, without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(place)]
    subprocess.run(command, cwd=source, env=os.environ | EPOCH, check=True, stdout=subprocess.DEVNULL)
    (built,) = place.iterdir()
    return built


def check_archives(place: Path) -> Path:
    """Build both; the sdist must give the same wheel, and both hold what git holds. Gives the wheel."""
    wheel = build(ROOT, "wheel", place / "wheel")
    sdist = build(ROOT, "sdist", place / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    again = build(unpacked, "wheel", place / "again")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)]
    if digests[0] != digests[1]:
        raise SystemExit(f"the sdist gives another wheel than the repository: {digests}")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    lost = [name for name in tracked("sightline") if name not in packed]
    beside = tracked("tests", "docs", "examples", "course", "benchmarks", "workshop")
    lost += [name for name in beside if not (unpacked / name).is_file()]
    if lost or "sightline/py.typed" not in packed:
        raise SystemExit(f"left out of an archive: {lost or 'sightline/py.typed'}")
    print(f"{wheel.name}: {wheel.stat().st_size >> 10} kB, the same from {sdist.name}, sha256 {digests[0]}")
    return wheel


def tracked(*folders: str) -> list[str]:
    """The files that git keeps in some folders; none where there is no repository."""
    command = ["git", "-C", str(ROOT), "ls-files", *folders]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """The installed packages that some requirements ask for, and those these ask for."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    done = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:
            raise SystemExit(f"{requirement} is not installed here; make installs it") from None
        if requirement.specifier and not requirement.specifier.contains(package.version, prereleases=True):
            raise SystemExit(f"{requirement} is asked for, {package.version} is installed; make installs it")
        found[requirement.name.lower()] = package
        for extra in {"", *requirement.extras}:
            if (requirement.name, extra) not in done:
                done.add((requirement.name, extra))
                waiting += [(Requirement(text), extra) for text in package.requires or []]
    return found


def environment(place: Path, wheel: Path, extra: str) -> Path:
    """A virtual environment with the wheel and links to what an extra of it asks for; gives its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin/python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        str(wheel),
    ]
    subprocess.run(install, check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    own = Distribution.at(next(site.glob("sightline-*.dist-info")))
    asked = [text for text in own.requires or [] if _asks(text, extra)]
    while nested := [text for text in asked if Requirement(text).name == "sightline"]:
        asked = [text for text in asked if text not in nested]
        for text in nested:
            for inner in Requirement(text).extras:
                asked += [more for more in own.requires or [] if _asks(more, inner) and more not in asked]
    for package in closure([text.partition(";")[0] for text in asked]).values():
        for top in {Path(str(file)).parts[0] for file in package.files or []}:
            target = Path(str(package.locate_file(top)))
            if top not in {"..", "__pycache__"} and target.exists() and not (site / top).exists():
                (site / top).symlink_to(target)
    return python


def _asks(text: str, extra: str) -> bool:
    marker = Requirement(text).marker
    return marker is None or marker.evaluate({"extra": extra})


def smoke(only: list[str]) -> int:
    """Every extra alone: what it promises works, what it does not promise is refused with the remedy."""
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        wheel = check_archives(place / "built")
        for walk in sorted(WALKS.glob("with_*.py")):
            name = walk.stem.removeprefix("with_")
            if only and name not in only:
                continue
            extra = "" if name == "nothing" else name
            python = environment(place / walk.stem, wheel, extra)
            shutil.copytree(RUN, (work := place / f"work_{name}") / "run")
            env = BARE | {"PATH": f"{python.parent}:{BARE['PATH']}"}
            command = [str(python), "-W", "error", str(walk)]
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
            bad += done.returncode != 0
            print(
                f"sightline[{extra}]".ljust(22),
                f"{'works' if done.returncode == 0 else 'FAILS'}  {done.stdout.strip()}",
            )
            if done.returncode:
                print(done.stderr)
    return int(bad > 0)


def startup() -> int:
    """Processor seconds, the median of a few: the import beyond torch's, and the help of the command."""
    imports, helps = [], []
    command = [str(Path(sys.executable).with_name("sightline")), "--help"]
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(RUNS + 1):
            said = subprocess.run(
                [sys.executable, "-c", IMPORT], env=env, capture_output=True, text=True, check=True
            )
            imports.append(float(said.stdout))
            before = _children()
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
            helps.append(_children() - before)
    # the first of each wrote the bytecode, as an installation does
    seconds = {"import sightline, beyond torch": (imports, 0.15), "sightline --help": (helps, 0.4)}
    over = 0
    for what, (values, most) in seconds.items():
        median = sorted(values[1:])[RUNS // 2]
        over += median > most
        print(f"{what}: {median:.3f} s of a processor, at most {most} s")
    return int(over > 0)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["smoke", "startup"])
    parser.add_argument("only", nargs="*", help="smoke: these extras alone, 'nothing' for none")
    arguments = parser.parse_args()
    sys.exit(startup() if arguments.what == "startup" else smoke(arguments.only))
