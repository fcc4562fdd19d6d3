"""Hostile uploads to the app of a real run."""

import tempfile

from sightline.serve.limits import Limits
from sightline.serve.model import open_model
from workshop import ROOT
from workshop.fuzz import uploads

RUN = ROOT / "tests" / "fixtures" / "written_by_0_1" / "caption" / "finished"


def test_fifty_hostile_uploads(open_client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = open_model(RUN)
    object.__setattr__(model, "go", type("Open", (), {"set": staticmethod(lambda: None)}))
    client = open_client(model, limits=Limits())
    counts, faults = uploads.attack(client, 50, seed=1, scratch=tmp_path)
    assert not faults
    assert set(counts) == {200, 400, 422}
    counts, faults = uploads.question(client, 50, seed=1)
    assert not faults
    assert set(counts) == {200, 422}


def test_a_fault_is_found(open_client):
    client = open_client()
    client.model.problem = RuntimeError("broken")
    _, faults = uploads.attack(client, 20)
    assert any("status 500" in fault for fault in faults)
