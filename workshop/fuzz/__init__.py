"""Fuzzers: hostile command lines, runs, data and machines by the thousand, seeded, bounded, with counts.

make fuzz MINUTES=30 SEED=1        # all of them
python -m workshop.fuzz runs --cases 2000 --seed 1
"""

from workshop.fuzz import api, data, faults, lines, pages, runs

FUZZERS = {
    "api": api.fuzz,
    "lines": lines.fuzz,
    "runs": runs.fuzz,
    "data": data.fuzz,
    "pages": pages.fuzz,
    "faults": faults.fuzz,
}
