"""Attention that is spread over two and three processes: every statistic, message and sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.plain  # other processes, which the shape hook does not reach

SCRIPT = Path(__file__).parent / "on_ranks.py"
EXACT = ("peak_at", "top_at", "output, bit for bit")


def on_ranks(path, *words):
    """What the ranks found."""
    root = SCRIPT.parents[3]
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(SCRIPT), str(path), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return on_ranks(tmp_path_factory.mktemp("ranks") / "found.json", "float64", "two")


@pytest.fixture(scope="module")
def ranks(found):
    return found["two"]


def rows(ranks):
    return [tuple(row) for rank in ranks for row in rank["cases"]]


def rows_of_three(found):
    return [tuple(row) for rank in found["three"] for row in rank]


def near(rows):
    for case, statistic, error in rows:
        limit = 0.0 if statistic in EXACT else 1e-13 if "float64" in case else 2e-6  # as of one process
        if "hundreds" in case and statistic != "rows sum to one" and limit:
            limit = 3e-5  # a score of 600 in float32 has no more digits
        assert error <= limit, (case, statistic, error)


def test_every_statistic_is_that_of_one_process(found):
    near(rows(found["two"]) + rows_of_three(found))


@pytest.mark.long
def test_three_processes_in_float32(tmp_path):
    near(rows_of_three(on_ranks(tmp_path / "found.json", "float32")))


@pytest.mark.parametrize(
    ("case", "statistics"),
    [
        ("DDP", 16),
        ("FSDP2", 16),
        ("TP, local tensors", 16),
        ("TP, DTensor", 16),
        ("context_parallel, causal, balanced", 16),
        ("context_parallel, full", 16),
        ("ring, causal, padding, uneven", 16),
        ("ring, padding, uneven, float64", 16),
        ("look at DTensors by tokens, causal", 9),
        ("watched DTensors by tokens, causal", 9),
        ("pipeline", 9),
    ],
)
def test_no_case_left_out_a_statistic(ranks, case, statistics):
    found = {statistic for name, statistic, _ in rows(ranks) if name == case}
    assert len(found) == statistics, found


def test_the_messages_are_those_of_the_cost_model(ranks):
    for rank in ranks:
        assert len(rank["messages"]) == 9
        for name, (counted, expected) in rank["messages"].items():
            assert counted == expected, name
    counted, _ = ranks[0]["messages"]["sl.watch, context_parallel"]
    assert counted["reduce_scatter"][0] == counted["all_reduce"][0] == 1  # for two layers
    assert ranks[0]["messages"]["sl.watch, tensor parallel"][0] == {}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("gradients", "carries no gradients"),
        ("three", "(4, 10, 5)"),
        ("no group", "group must be a process group, got str"),
        ("both", "DTensors know their groups themselves"),
        ("unlike", "q is spread over processes as (S(2)) and k as (R)"),
        ("one", "DTensor, Tensor, Tensor"),
        ("width", "S(3), not by batch, heads or tokens"),
        ("rows of the mask", "got (7, 20) for T=10 here and S=20 in all"),
        ("rows", "queries in 0..9, got 10"),
        ("forgotten", "keep=True"),
        ("frame", "JSON needs the whole sequence, and this rank has queries"),
        ("save", "a file needs the whole sequence"),
        ("copied", "gather before indexing, saving or sending"),
        ("indexed", "gather before indexing"),
        ("averaged", "gather before mean_heads()"),
        ("different", "rank 0 saw 1 calls ('layers.0.self_attn') and rank 1 1 calls ('layers.1.self_attn')"),
        ("nothing", "[]"),
        ("nothing here", "rank 0 saw 1 calls ('') and rank 1 0 calls ()"),
        ("lengths", "T, S = (5, 5) on rank 0 and (6, 6) on rank 1; pad the batches"),
        ("no items", "has none, its leading dimensions are ()"),
        ("masked on one rank", "True, key_padding_mask"),
        ("table", "gather() gives"),
        ("unknown", "none of them says which heads these are: q_proj.weight"),
    ],
)
def test_what_a_rank_cannot_do_it_says(ranks, what, words):
    for rank in ranks:
        assert words in rank["sentences"][what], rank["sentences"][what]


def test_a_rank_says_what_it_has(ranks):
    for rank, heads in zip(ranks, ([0, 1, 2, 3], [4, 5, 6, 7]), strict=True):
        said = rank["sentences"]
        assert f"this rank has heads {heads[0]}-{heads[-1]} of 8" in said["repr"]
        assert said["heads"] == heads
        assert said["chosen"] == heads[1:3]
    assert "queries 5-9 of 10, keys 5-9 of 10" in ranks[1]["sentences"]["repr of tokens"]


def test_context_parallel_calls_are_put_together_at_the_end_of_the_block(ranks):
    names = [f"layers.{i}.self_attn" for i in range(2)]
    for rank in ranks:
        found = rank["block"]
        assert found["inside"][0] == []
        assert all("when the block ends" in found["inside"][1][name] for name in names)
        assert found["after"] == [names, {}]
        message, unseen = found["error"]
        assert message == "no"
        assert all("ended in an error" in reason for reason in unseen.values())
        assert len(unseen) == 2
        assert all("lengths=" in reason for reason in found["lengths"].values())
        assert len(found["lengths"]) == 2
        assert found["every"] == [1, 1]
        assert len(found["apart"]) == 2
        assert all("connection closed by peer" in reason for reason in found["apart"].values())


def test_a_nan_query_is_nan_and_one_without_keys_is_zeros_as_in_one_process(ranks):
    assert [rank["nan"] for rank in ranks] == [[], []]
