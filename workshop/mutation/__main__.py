"""Mutation testing: small mistakes are put into a room, one at a time, and its tests must notice.

    python -m workshop.mutation attention
    python -m workshop.mutation look --net --n 100
    python -m workshop.mutation look --n 400 --seed 1 --json look.json

The second runs only tests through public names, as ``make test`` has them, see ``net.py``. The third, given
once more, tries only what was not noticed, as long as the room is the same.

The tests are collected once. Each mistake gets a child of that process, which has it in memory and runs the
tests that pass the changed statement, the fastest case of each first, until one fails; which those are is
found by one run of all tests, and kept in a file. The shape hook, under which these tests run in
``make test``, is left out: it would notice more. Kernels are left out, which a GPU compiles; so are the
statements that ``on_a_gpu.py`` lists, as long as no test passes them, the sizes of tiles that it lists, and
fields of dataclasses.
"""

import argparse
import collections
import contextlib
import functools
import importlib
import json
import pkgutil
import random
import sys
import time
from pathlib import Path

import pytest
import torch

from workshop.mutation import net
from workshop.mutation.coverage import ROOT, Coverage, digest_of
from workshop.mutation.mutants import Living, lines, shown, sites
from workshop.mutation.on_a_gpu import is_size, only_there
from workshop.mutation.trials import KILLED, NOT_RUN, SURVIVED, TIMEOUT, begin, together

ROOMS = ("attention", "look", "watch", "edit", "decode", "train", "data")


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
    parser.add_argument(
        "--net", action="store_true", help="only tests through public names, in the files of net.toml"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mistakes that are tried at the same time")
    parser.add_argument("--minutes", type=float, help="after which no further mistake is tried")
    parser.add_argument("--seconds", type=float, default=10.0, help="of tests for one mistake")
    parser.add_argument(
        "--again", type=Path, help="only what was not noticed in a run before, by the file that --json wrote"
    )
    parser.add_argument("--json", type=Path, help="where to write what came of each, and to go on from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    session = Session(options)
    words = [*options.tests, *(net.files_of(options.room) if options.net else [])]
    words = words or [f"tests/{options.room}", f"sightline/{options.room}", "--doctest-modules"]
    words += ["-q", "-s", "-p", "no:xdist", "--ignore-glob=*/kernels/*", "--no-header", "--no-summary"]
    words += ["-m", "not long"] if options.net else []
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # all is imported already
    with contextlib.chdir(ROOT):
        code = pytest.main(words, plugins=[session])
    sys.exit(session.code if code in {0, 5} else code)


class Session:
    """A plugin of pytest's that runs mistakes where pytest would run tests."""

    def __init__(self, options):
        self.options, self.code = options, 1

    def pytest_collection_modifyitems(self, config, items):
        """Leave out what is not of the net, where that alone is asked for."""
        if self.options.net:
            out = [item for item in items if not net.is_of_the_net(item)]
            config.hook.pytest_deselected(items=out)
            items[:] = [item for item in items if item not in out]

    def pytest_runtestloop(self, session):
        """Try every mistake, and say what came of it."""
        if session.testsfailed:
            return None
        sources = self._sources()
        living = Living(set(sources))
        coverage = Coverage(session.items, living, sources, self.options)
        chosen = self._chosen(sources, coverage)
        items = {item.nodeid: item for item in session.items}
        self._control(coverage, items)
        results = {}
        for site, result in self._results(chosen, sources, living, coverage, items):
            results[site] = result
            _print(result)
            self._keep(sources, [results[site] for site in chosen if site in results])
        self.code = _report(self.options.room, [*results.values()], len(chosen), self.options.seed)
        return True

    def _control(self, coverage, items):
        """Run tests without a mistake; one that fails all the same, in this company, is left out."""
        for _ in range(20):
            tests = coverage.some(self.options.seconds)
            some, seconds = [items[name] for name in tests], coverage.seconds(tests)
            ((_, control),) = together([functools.partial(begin, some, lambda: None, seconds)])
            if control["end"] == SURVIVED:
                return
            sys.stdout.write(f"left out, since it fails without a mistake: {control['by']}\n")
            coverage.leave_out(control["by"])
        raise AssertionError(f"without a mistake there is {control}")

    def _results(self, chosen, sources, living, coverage, items):
        """What comes of each mistake, as it comes, until time is up."""
        noticed, left = self._noticed(sources), []
        for site in chosen:
            before, after = shown(site, sources[site.path])
            tests, all_of_them = coverage.of(site, self.options.seconds)
            known = {"site": [*_name(site), *site[3:]], "before": before, "after": after}
            known |= {"all tests": all_of_them}
            if _name(site) in noticed:
                yield site, noticed[_name(site)]
            elif not tests:
                yield site, known | {"end": NOT_RUN, "by": ""}
            else:
                install = functools.partial(living.install, site, sources[site.path])
                some, seconds = [items[name] for name in tests], coverage.seconds(tests)
                left.append((site, known, functools.partial(begin, some, install, seconds)))
        last = None if self.options.minutes is None else time.monotonic() + 60 * self.options.minutes
        for number, result in together([start for *_, start in left], self.options.jobs, last):
            site, known, _ = left[number]
            yield site, known | result

    def _noticed(self, sources):
        """What a run before this one has seen to be noticed."""
        path = self.options.json
        kept = json.loads(path.read_text()) if path and path.exists() else {}
        results = kept["results"] if kept.get("room") == digest_of(sources) else []
        return {tuple(x["site"][:3]): x for x in results if x["end"] in {KILLED, TIMEOUT}}

    def _keep(self, sources, results):
        if self.options.json:
            kept = {"room": digest_of(sources), "seed": self.options.seed, "results": results}
            self.options.json.write_text(json.dumps(kept, indent=1) + "\n")

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
        sizes = {x for x in there if is_size(x, sources[x.path])}
        there = [site for site in there if site not in out | sizes]
        sys.stdout.write(f"{len(there)} mistakes can be made; {len(out)} more only where a GPU runs them, ")
        sys.stdout.write(f"{len(sizes)} in sizes of tiles, which change no result\n")
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


def _name(site):
    """What a mistake is, whatever folder this is."""
    return str(Path(site.path).relative_to(ROOT)), site.index, site.kind


def _print(result):
    path, _, kind, line, *_ = result["site"]
    by = result["by"] or f"{result['before']}  ->  {result['after']}"
    sys.stdout.write(f"{result['end']:>15}  {path}:{line} {kind}: {by}\n")
    sys.stdout.flush()


def _report(room, results, n_chosen, seed):
    ends = collections.Counter(result["end"] for result in results)
    noticed = ends[KILLED] + ends[TIMEOUT]
    counts = ", ".join(f"{name} {n}" for name, n in sorted(ends.items()))
    share = noticed / max(1, len(results))
    of = "" if len(results) == n_chosen else f" of {n_chosen}, for time was up"
    sys.stdout.write(f"{room}: {len(results)} mistakes{of}, {share:.1%} noticed (seed {seed}; {counts})\n")
    for result in sorted(results, key=lambda result: result["site"][:2]):
        if result["end"] in {SURVIVED, NOT_RUN}:
            path, _, kind, line, *_ = result["site"]
            some = "" if result["all tests"] else ", not all of its tests were run"
            sys.stdout.write(f"  {path}:{line} {kind}, {result['end']}{some}\n")
            sys.stdout.write(f"    - {result['before']}\n    + {result['after']}\n")
    return int(noticed < 0.9 * len(results))


if __name__ == "__main__":
    main()
