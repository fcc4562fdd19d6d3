"""Runs whose settings a test has changed by hand."""

import json

from sightline.models.manifest import drop_manifest


def drop_records(run):
    """Remove what says how a run was trained: its manifest, and the record in each checkpoint."""
    drop_manifest(run)
    for path in run.glob("checkpoints/*/*/state.json"):
        state = json.loads(path.read_text(encoding="utf-8"))
        for name in ("record", "state_sha256"):
            state.pop(name, None)
        path.write_text(json.dumps(state), encoding="utf-8")
