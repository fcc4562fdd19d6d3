"""The models: trained, scored, asked and looked into."""

import json
from pathlib import Path

from refusals import command

TINY = {
    "caption": "--preset default --data scenes --n-train 12 --n-val 3 --n-test 3 --steps 1 "
    "--image-size 8 --patch 4 --d-model 4 --n-heads 2 --n-layers 1 --d-ff 4 --metric loss --max-length 5",
    "translate": "--preset default --data dates --n-train 12 --n-val 3 --n-test 3 --steps 1 --vocabulary 90 "
    "--d-model 4 --n-layers 1 --metric loss --max-length 41",
    "classify": "--data digits --steps 1 --patch 4 --d-model 8 --n-heads 2 --n-layers 1 --d-ff 4",
}
for task, flags in TINY.items():
    command("train", task, *flags.split(), "--out", task)
    command("check", task)
    assert json.loads(command("evaluate", task, "--limit", "2", "--json"))
command("translate", "translate", "3 May 1999", "--unknown", "--out", "translate.png")
command("look", "classify", "translate.png", "--out", "look.png")
assert Path("look.png").is_file()
pretrained = [*TINY["caption"].split(), "--encoder", "efficientnet_lite0", "--out", "pretrained"]
command("train", "caption", *pretrained, refused="encoders")
print("train, check, evaluate, translate, look")
