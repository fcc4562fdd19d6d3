"""The command, and what it names where it needs more."""

from pathlib import Path

from refusals import command

assert "serve" in command("--help")
assert command("--version").startswith("sightline ")
command("positions", "--length", "8", "--d-model", "4", "--out", "positions.png")
assert Path("positions.png").read_bytes().startswith(b"\x89PNG")
command("data", "check", "dates", refused="train")
command("data", "check", "digits", refused="train")
command("train", "classify", "--data", "digits", "--out", "digits", refused="train")
command("serve", "run", refused="serve")
command("classify", "run", "positions.png")
command("check", "run", "--write")
print("sightline --help, --version, positions, check, classify; refuses the rest with a remedy")
