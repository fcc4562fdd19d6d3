"""Draw the pictures of docs/pictures.

    python -m workshop.figures          # from small models and the numbers kept here: minutes of one core
    python -m workshop.figures --slow   # of trained runs and of pages in a Chromium: hours of one core

The kept numbers are measured again by `python -m workshop.figures.beam_search train` and its like. Those of
benchmarks/results, of `vit_or_cnn train` and of `time_over_length measure` need a GPU, as does the picture
million_tokens.png (examples/10_a_long_document.py).
"""

import os
import subprocess
import sys

from workshop import ROOT

QUICK = """
pictures
pictures_course
pictures_do
pictures_heads
pictures_mechanism
pictures_watch
layer_costs
beam_search draw
copying draw
small_runs draw
time_over_length draw
training_curves draw
vit_or_cnn draw
many_processes --draw
"""
SLOW = """
sightline demo --out runs/demo --resume
sightline train translate --data dates --out runs/figures/dates --resume
sightline train translate --data dates --model recurrent --out runs/figures/recurrent --resume
sightline train classify --data digits --out runs/figures/digits --resume
pictures_captioning runs/demo
pictures_beam --caption runs/demo --translate runs/figures/dates
pictures_translation runs/figures/recurrent runs/figures/dates
pictures_classification runs/figures/digits
caption_boxes runs/demo --out docs/pictures/howto_boxes.png
copying_heads runs/figures/dates --out docs/pictures/howto_copying.png
heads_removed runs/figures/dates --out docs/pictures/howto_removed_dates.png
heads_removed runs/demo --out docs/pictures/howto_removed_scenes.png
pictures_questions runs/figures/questions
translation_scores
pictures_explorer --run runs/demo
recording_explorer
pictures_serve runs/demo
"""


def main() -> None:
    """Run the scripts one after the other, and stop at the first that fails."""
    for line in (SLOW if "--slow" in sys.argv[1:] else QUICK).split("\n")[1:-1]:
        name, *words = line.split()
        module = "sightline" if name == "sightline" else f"workshop.figures.{name}"
        subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=True,
        )


if __name__ == "__main__":
    main()
