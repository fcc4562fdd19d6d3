"""Mutation testing: small mistakes are put into a room, one at a time, and its tests must notice.

    make mutants ROOM=attention N=200 SEED=0
    python -m tests.fuzz.mutation look --n 400 --seed 1 --json look.json

The second command, given once more, tries only what was not noticed, as long as the room is the same.

The tests are collected once. Each mistake gets a child of that process, which has it in memory and runs the
tests that pass the changed statement, the fastest first, until one fails; which those are is found by one run
of all tests, and kept in a file. The shape hook, under which these tests run in ``make test``, is left out:
it would notice more. Kernels are left out, which a GPU compiles; so are the statements that ``on_a_gpu.py``
lists, as long as no test passes them, and fields of dataclasses.
"""

import argparse
import collections
import contextlib
import hashlib
import importlib
import json
import os
import pkgutil
import random
import resource
import select
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.fuzz.mutants import Living, lines, shown, sites
from tests.fuzz.on_a_gpu import only_there

ROOT = Path(__file__).parents[2]
ROOMS = ("attention", "look", "decode", "train")
KILLED, SURVIVED, TIMEOUT, NOT_RUN = "killed", "survived", "timeout", "no test runs it"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--n", type=int, default=200, help="mistakes, a random sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--files", nargs="*", default=[""], help="only in files whose names contain one of these"
    )
    parser.add_argument(
        "--tests", nargs="*", default=[], help="these alone, instead of all of the room's own"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of tests for one mistake")
    parser.add_argument(
        "--again", type=Path, help="only what was not noticed in a run before, by the file that --json wrote"
    )
    parser.add_argument("--json", type=Path, help="where to write what came of each, and to go on from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    session = Session(options)
    words = options.tests or [f"tests/{options.room}", f"sightline/{options.room}", "--doctest-modules"]
    words += ["-q", "-s", "-p", "no:xdist", "--ignore-glob=*/kernels/*", "--no-header", "--no-summary"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # all is imported already
    with contextlib.chdir(ROOT):
        code = pytest.main(words, plugins=[session])
    sys.exit(session.code if code in {0, 5} else code)


class Session:
    """A plugin of pytest's that runs mistakes where pytest would run tests."""

    def __init__(self, options):
        self.options, self.code = options, 1

    def pytest_runtestloop(self, session):
        """Try every mistake, and say what came of it."""
        if session.testsfailed:
            return None
        sources = self._sources()
        living = Living(set(sources))
        coverage = Coverage(session.items, living, sources, self.options)
        chosen = self._chosen(sources, coverage)
        items = {item.nodeid: item for item in session.items}
        tests = coverage.some(self.options.seconds)
        control = tried([items[name] for name in tests], lambda: None, coverage.seconds(tests))
        assert control["end"] == SURVIVED, f"without a mistake there is {control}"
        noticed, results = self._noticed(sources), []
        for site in chosen:
            tests, all_of_them = coverage.of(site, self.options.seconds)
            result = noticed.get(_name(site)) or self._try(
                site, sources, living, [items[name] for name in tests], coverage.seconds(tests)
            )
            results.append(result | {"all tests": all_of_them})
            _print(results[-1])
            self._keep(sources, results)
        self.code = _report(self.options.room, results, self.options.seed)
        return True

    def _noticed(self, sources):
        """What a run before this one has seen to be noticed."""
        path = self.options.json
        kept = json.loads(path.read_text()) if path and path.exists() else {}
        results = kept["results"] if kept.get("room") == _digest_of(sources) else []
        return {tuple(x["site"][:3]): x for x in results if x["end"] in {KILLED, TIMEOUT}}

    def _keep(self, sources, results):
        if self.options.json:
            kept = {"room": _digest_of(sources), "seed": self.options.seed, "results": results}
            self.options.json.write_text(json.dumps(kept, indent=1) + "\n")

    def _try(self, site, sources, living, items, seconds):
        source = sources[site.path]
        before, after = shown(site, source)
        result = {
            "site": [*_name(site), *site[3:]],
            "before": before,
            "after": after,
        }
        if not items:
            return result | {"end": NOT_RUN, "by": ""}
        return result | tried(items, lambda: living.install(site, source), seconds)

    def _sources(self):
        """The files of a room, all of them imported."""
        package = importlib.import_module(f"sightline.{self.options.room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
        files = sorted((ROOT / "sightline" / self.options.room).glob("*.py"))
        return {str(path): path.read_text() for path in files}

    def _chosen(self, sources, coverage):
        there = [site for path, source in sources.items() for site in sites(path, source)]
        there = [site for site in there if any(name in Path(site.path).name for name in self.options.files)]
        out = {x for x in there if only_there(x, sources[x.path]) and not coverage.of(x, 1.0)[0]}
        there = [site for site in there if site not in out]
        sys.stdout.write(f"{len(there)} mistakes can be made; {len(out)} more only where a GPU runs them\n")
        if self.options.again:
            return _again(json.loads(self.options.again.read_text())["results"], there, sources)
        chance = random.Random(self.options.seed)  # noqa: S311 - a seed makes the same sample
        return chance.sample(there, min(self.options.n, len(there)))


def _again(results, there, sources):
    """The sites whose mistakes were not noticed before, by what they look like: lines may have moved."""
    left = [result for result in results if result["end"] in {SURVIVED, NOT_RUN}]
    looks = {(x["site"][0], x["site"][2], x["before"], x["after"]) for x in left}
    befores, texts = {look[:3] for look in looks}, {path: lines(source) for path, source in sources.items()}

    def may_be(site):
        path, _, kind = _name(site)
        return any((path, kind, line) in befores for line in texts[site.path].get(site.statement, ()))

    return [x for x in there if may_be(x) and (_name(x)[0], x.kind, *shown(x, sources[x.path])) in looks]


class Coverage:
    """Which test passes which statement, and how long it takes."""

    def __init__(self, items, living, sources, options):
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sightline-mutation"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{options.room}-{_digest_of(sources)}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        files = {str(item.path.relative_to(ROOT)): _digest(item.path) for item in items}
        new = [x for x in items if _digest(x.path) not in known.get(str(x.path.relative_to(ROOT)), {})]
        if new:
            pid = os.fork()
            if pid == 0:
                _measure(new, living, sources, known, kept)
            os.waitpid(pid, 0)
            known = json.loads(kept.read_text())
        self.times, self.passing = {}, collections.defaultdict(list)
        for path, now in files.items():
            for name, (seconds, statements) in known[path][now].items():
                self.times[name] = seconds
                for at in statements:
                    self.passing[tuple(at)].append(name)
        whole = sum(self.times.values())
        sys.stdout.write(f"{len(self.times)} of {len(items)} tests pass, in {whole:.0f} s\n")
        sys.stdout.flush()

    def of(self, site, seconds):
        """The tests that pass a statement, the fastest first, and whether those are all of them."""
        path = str(Path(site.path).relative_to(ROOT))
        names = self.passing.get((path, *site.statement), [])
        if site.function is None or site.kind == "default":  # whoever is in the file may see a table
            names = {x for (of, *_), some in self.passing.items() if of == path for x in some}
        return self._fastest(names, seconds)

    def some(self, seconds):
        """Tests of every file."""
        return self._fastest(random.sample(sorted(self.times), len(self.times)), seconds)[0]

    def seconds(self, names):
        """What they take."""
        return sum(self.times[name] for name in names)

    def _fastest(self, names, seconds):
        """The fastest; those of one file follow each other, since they share fixtures."""
        chosen, left = set(), seconds
        for name in sorted(names, key=self.times.__getitem__):
            left -= self.times[name]
            if left < 0 and chosen:
                break
            chosen.add(name)
        files = {}
        for name in sorted(chosen, key=self.times.__getitem__):
            files.setdefault(name.partition("::")[0], []).append(name)
        return [name for names in files.values() for name in names], len(chosen) == len(names)


def _name(site):
    """What a mistake is, whatever folder this is."""
    return str(Path(site.path).relative_to(ROOT)), site.index, site.kind


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _digest_of(sources):
    return hashlib.sha256("".join(sources.values()).encode()).hexdigest()[:16]


def _measure(items, living, sources, known, kept):
    """Run tests, each statement noting that it ran; in a child, which ends here."""
    _be_quiet()
    numbers, hits = {}, bytearray(1 << 20)
    for file, source in sources.items():
        living.instrument(file, source, numbers, hits)
    at = {number: (str(Path(where[0]).relative_to(ROOT)), *where[1:]) for where, number in numbers.items()}
    found, shared = {}, {}

    def ran():
        return {n for n in at if hits[n]}

    for item, following in zip(items, [*items[1:], None], strict=True):
        hits[:] = bytes(len(hits))
        outcomes, before = {}, time.process_time()

        def note(report, item=item, outcomes=outcomes):
            outcomes[report.when] = report.outcome
            if report.when == "setup":  # what a fixture of the file runs, all of its tests may depend on
                shared.setdefault(item.path, set()).update(ran())

        _run(item, following, note)
        if outcomes.get("call") == "passed" and "failed" not in outcomes.values():
            found[item] = time.process_time() - before, ran()
    for path in {item.path for item in items}:
        known[str(path.relative_to(ROOT))] = {
            _digest(path): {
                item.nodeid: (seconds, [at[n] for n in sorted(statements | shared.get(path, set()))])
                for item, (seconds, statements) in found.items()
                if item.path == path
            }
        }
    kept.write_text(json.dumps(known))
    os._exit(0)


def tried(items, install, seconds):
    """Run tests in a child until one fails.

    Args:
        items: The tests.
        install: Called in the child before.
        seconds: What they take without a mistake; they may take five times that, and some.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _child(items, install, writing, seconds)
    with contextlib.suppress(OSError):  # whoever of the two is first
        os.setpgid(pid, pid)
    os.close(writing)
    end = {"end": TIMEOUT, "by": ""}
    # Processor time is bounded in the child; this is for one that waits for ever.
    if select.select([reading], [], [], 600 + 200 * seconds)[0]:
        said = os.read(reading, 1 << 16)
        end = json.loads(said) if said else end
    os.killpg(pid, signal.SIGKILL)  # and what a test has started
    os.waitpid(pid, 0)
    os.close(reading)
    return end


def _child(items, install, writing, seconds):
    _be_quiet()
    limit = int(time.process_time() + 5 * seconds + 20)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    end = {"end": SURVIVED, "by": ""}
    try:
        install()
        reports = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            _run(item, following, reports.append)
            if any(report.failed for report in reports):
                end = {"end": KILLED, "by": item.nodeid}
                break
    except LookupError as problem:
        end = {"end": NOT_RUN, "by": str(problem)}
    except BaseException as problem:  # noqa: BLE001 - it broke the tests' own machinery
        end = {"end": KILLED, "by": f"{type(problem).__name__} {problem}"[:200]}
    os.write(writing, json.dumps(end).encode())
    os._exit(0)


def _run(item, following, note):
    """Run a test; ``note`` is given the reports of its set-up, call and tear-down."""

    class Listener:
        def pytest_runtest_logreport(self, report):
            note(report)

    listener = Listener()
    item.config.pluginmanager.register(listener)
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        item.config.pluginmanager.unregister(listener)


def _be_quiet():
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _print(result):
    path, _, kind, line, *_ = result["site"]
    by = result["by"] or f"{result['before']}  ->  {result['after']}"
    sys.stdout.write(f"{result['end']:>15}  {path}:{line} {kind}: {by}\n")
    sys.stdout.flush()


def _report(room, results, seed):
    ends = collections.Counter(result["end"] for result in results)
    noticed = ends[KILLED] + ends[TIMEOUT]
    counts = ", ".join(f"{name} {n}" for name, n in sorted(ends.items()))
    share = noticed / max(1, len(results))
    sys.stdout.write(f"{room}: {len(results)} mistakes, {share:.1%} noticed (seed {seed}; {counts})\n")
    for result in sorted(results, key=lambda result: result["site"][:2]):
        if result["end"] in {SURVIVED, NOT_RUN}:
            path, _, kind, line, *_ = result["site"]
            some = "" if result["all tests"] else ", not all of its tests were run"
            sys.stdout.write(f"  {path}:{line} {kind}, {result['end']}{some}\n")
            sys.stdout.write(f"    - {result['before']}\n    + {result['after']}\n")
    return int(noticed < 0.9 * len(results))


if __name__ == "__main__":
    main()
