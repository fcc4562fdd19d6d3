"""Which test passes which statement: found by one run of all tests, and kept in a file."""

import collections
import hashlib
import json
import mmap
import os
import random
import sys
import time
from pathlib import Path

from workshop import ROOT
from workshop.fuzz.cases import Cases, in_processes
from workshop.mutation.trials import be_quiet, run_test


class Coverage:
    """Which test passes which statement, and how long it takes."""

    def __init__(self, items, living, sources, options):
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sightline-mutation"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{options.room}-{digest_of(sources)}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        files = collections.defaultdict(list)
        for item in items:
            files[item.path].append(item)
        now = {str(path.relative_to(ROOT)): _digest(path, some) for path, some in files.items()}
        new = {x: y for x, y in files.items() if _digest(x, y) not in known.get(str(x.relative_to(ROOT)), {})}
        if new:
            known |= _measured(new, living, sources, options.jobs)
            kept.write_text(json.dumps(known))
        self.times, self.passing = {}, collections.defaultdict(list)
        for path, digest in now.items():
            for name, (seconds, statements) in known[path][digest].items():
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

    def leave_out(self, name):
        """Forget a test."""
        del self.times[name]
        for names in self.passing.values():
            if name in names:
                names.remove(name)

    def seconds(self, names):
        """What they take."""
        return sum(self.times[name] for name in names)

    def _fastest(self, names, seconds):
        """The fastest case of each test, then the second of each; those of one file follow each other."""
        by_time, cases, turn = sorted(names, key=self.times.__getitem__), collections.Counter(), {}
        for name in by_time:
            test = name.partition("[")[0]
            turn[name] = cases[test]
            cases[test] += 1
        chosen, left = set(), seconds
        for name in sorted(by_time, key=turn.__getitem__):
            left -= self.times[name]
            if left < 0 and chosen:
                break
            chosen.add(name)
        files = {}
        for name in by_time:
            if name in chosen:
                files.setdefault(name.partition("::")[0], []).append(name)
        return [name for names in files.values() for name in names], len(chosen) == len(names)


def _digest(path, items):
    """Of the text of a file, and of which of its tests were collected."""
    names = "".join(item.nodeid for item in items)
    return hashlib.sha256(path.read_bytes() + names.encode()).hexdigest()[:16]


def digest_of(sources):
    """Of the text of a room."""
    return hashlib.sha256("".join(sources.values()).encode()).hexdigest()[:16]


def _measured(files, living, sources, jobs):
    """Run tests, each statement noting that it ran; children share the files. By file and its digest."""
    ordered = sorted(files.values(), key=len, reverse=True)
    cases = Cases("files", 0, count=len(ordered))

    def some(_):
        be_quiet()
        numbers, hits = {}, mmap.mmap(-1, 1 << 20)  # what a test forks notes it too
        for file, source in sources.items():
            living.instrument(file, source, numbers, hits)
        at = {n: (str(Path(where[0]).relative_to(ROOT)), *where[1:]) for where, n in numbers.items()}
        return {
            str(ordered[n][0].path.relative_to(ROOT)): {
                _digest(ordered[n][0].path, ordered[n]): _measured_file(ordered[n], at, hits)
            }
            for n, _ in cases
        }

    known = {}
    for part in in_processes(some, min(jobs, len(ordered))):
        if isinstance(part, Exception):
            raise part
        known |= part
    return known


def _measured_file(items, at, hits):
    """The seconds and statements of each test of a file that passes."""
    found, shared = {}, set()

    def ran():
        return {n for n in at if hits[n]}

    for item, following in zip(items, [*items[1:], None], strict=True):
        hits[:] = bytes(len(hits))
        outcomes, before = {}, time.process_time()

        def note(report, outcomes=outcomes):
            outcomes[report.when] = report.outcome
            if report.when == "setup":  # what a fixture of the file runs, all of its tests may depend on
                shared.update(ran())

        run_test(item, following, note)
        if outcomes.get("call") == "passed" and "failed" not in outcomes.values():
            found[item.nodeid] = time.process_time() - before, ran()
    return {name: (took, [at[n] for n in sorted(passed | shared)]) for name, (took, passed) in found.items()}
