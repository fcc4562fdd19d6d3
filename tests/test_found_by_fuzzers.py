"""What the fuzzers of workshop/fuzz found, each once: refused in a sentence of our own, or answered."""

import json
import mmap
import re
import resource
from pathlib import Path

import pytest
import torch

import sightline as sl
from sightline.data.captions_parsers import parse_json
from sightline.untrusted import free_memory
from tests.sandbox import run

pytestmark = pytest.mark.plain


def sight(n=2):
    torch.manual_seed(3)
    return sl.look(*torch.randn(3, n, 3, 5, 4))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda: sl.masks.padding([3, 10**30]),
            TypeError,
            r"lengths must be integers of 64 bits, .*got \[3, 1000",
        ),
        (
            lambda: sl.textbook.create_mask(torch.tensor(5)),
            TypeError,
            r"seq_len must be a whole number, got a Tensor",
        ),
        (
            lambda: sight().columns(torch.eye(3).to_sparse()),
            TypeError,
            r"must be a dense tensor, got torch.sparse_coo",
        ),
        (
            lambda: sl.textbook.add_positional_encoding(
                torch.zeros(2, 5, 4).to(torch.float8_e4m3fn), torch.zeros(5, 4)
            ),
            TypeError,
            r"word_embeddings must be floats of 16 bits or more, got torch.float8_e4m3fn",
        ),
        (
            lambda: sl.edit(torch.nn.MultiheadAttention(4, 2), heads=torch.tensor(1.5), ablate="zero"),
            TypeError,
            r"heads must be whole numbers, got tensor\(1\.5",
        ),
        (
            lambda: sl.align(sight(), beams=torch.zeros(2, 5, dtype=torch.long, device="meta")),
            ValueError,
            r"beams must hold numbers, got a tensor on the meta device",
        ),
    ],
)
def test_refused_in_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize(
    ("content", "kind"),
    [(None, "null"), (True, "a boolean"), (1.5, "a number"), ("x", "a text"), ([], "a list")],
)
def test_json_that_is_no_captions_is_called_by_its_kind(content, kind):
    with pytest.raises(ValueError, match=f"'captions.json' holds {kind}$"):
        parse_json(json.dumps(content), "captions.json")


@pytest.mark.parametrize("method", ["dtw", "peak"])
def test_no_beams_have_no_places(method):
    none = torch.zeros(0, 5, dtype=torch.long)
    found = sl.align(sight(), beams=none, method=method)
    assert (tuple(found.shape), found.dtype) == ((0, 5), torch.long)


def test_a_difference_asks_both_for_the_same_rows():
    a, b = sight(), sl.look(*torch.randn(3, 2, 3, 5, 4))
    assert torch.equal((a - b).rows(iter([0, 3])), a.rows([0, 3]) - b.rows([0, 3]))


def test_what_a_limit_leaves_is_less_what_is_used():
    """A limit of all data that a process may have says nothing about what it may still have."""

    def limited():
        used = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
        held = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # new, whatever is free
        resource.setrlimit(resource.RLIMIT_DATA, (used + (4 << 30), used + (4 << 30)))
        print(free_memory(), len(held))  # noqa: T201

    left = int(run(limited, megabytes=16000).out.split()[0])
    assert (1 << 30) < left <= (4 << 30) - (200 << 20)
