"""Hostile data: bombs, slips, files that lie about themselves, names and captions that mean harm.

Each case is a small sound set with one hostile thing in it, and is checked, trained on for a step, or given
to a run: answered or refused in a sentence, within seconds and a few gigabytes, and nothing in it runs.
"""

import os
import shutil
from pathlib import Path

from tests.sandbox import command
from workshop.fuzz.data_files import FILE_MAKERS
from workshop.fuzz.data_images import IMAGE_MAKERS
from workshop.fuzz.data_texts import SET_MAKERS
from workshop.fuzz.report import Report, about, ended
from workshop.fuzz.runs import NO_ROOM
from workshop.fuzz.shards import SHARD_MAKERS


def fuzz(cases, place):
    """Build a hostile set for each case and have it read: every kind once, then any."""
    report = Report(cases.name, cases.seed)
    makers = [*IMAGE_MAKERS, *FILE_MAKERS, *SET_MAKERS, *SHARD_MAKERS]
    for number, chance in cases:
        folder = place / str(number)
        folder.mkdir()
        maker = makers[number] if number < len(makers) else chance.choice(makers)
        try:
            words = maker(chance, folder)
            outcome = command(*words, megabytes=4000, seconds=120)  # words of a megabyte take their time
        finally:
            shutil.rmtree(os.fsencode(folder), ignore_errors=True)  # names in bytes
        faults = outcome.faults() + (["memory"] if NO_ROOM in outcome.err else [])
        faults += ["something ran"] if Path("owned").exists() else []
        report.add(f"{maker.__name__}: {about(outcome)}", f"{words[0]} {ended(outcome)}", faults)
    return report
