"""Saved pages to open in a browser, each written when a test first asks for it."""

import functools

import torch

import sightline as sl
from sightline import show
from sightline.show.explorer import Step
from tests.show.explorer.browser import Opened
from tests.show.predictions import caption
from tests.show.sights import seen

T = 23
TEXT = (
    "the keeper walked down to the harbour before dawn because the lamp had gone out and nobody ever knew how"
)
WORDS = [*TEXT.split(), "it", "was", "done"]
SHORTER = "the keeper walked because the lamp had really gone out".split()  # noqa: SIM905
HOSTILE = [
    "</script><b onclick=alert(1)>",
    "\u202eabc\u202c",
    "x" * 10_000,
    "👩‍🚀🦜",
    "a\0b",
    "<img src=x onerror=alert(1)>",
]
VIEWS = ("word", "overview", "matrix", "lines")


@functools.cache
def attended(seed=0, t=T, layers=3, heads=2):
    torch.manual_seed(seed)
    sights = {}
    for i in range(layers):
        q, k = 2 * torch.randn(1, heads, t, 5), torch.randn(1, heads, t, 5)
        sights[f"layers.{i}.self_attn"] = sl.look(q, k, k, sl.masks.causal())
    return sights


def weights(sights, layer, head):
    sight = sights[f"layers.{layer}.self_attn"]
    return sight.rows(list(range(sight.t)))[0, head].numpy()


def text():
    return show.page(attended(), tokens=WORDS, title="A keeper")


def image():
    torch.manual_seed(2)
    words = ("a", "small", "dog")
    picture = caption(words, image=torch.randint(0, 256, (3, 50, 70), dtype=torch.uint8))
    steps = [Step(token=w, probability=0.5, alternatives=[(w, 0.5), ("cat", 0.25)]) for w in words]
    return show.page(picture, steps=steps)


def compare():
    return show.page(attended(), other=attended(1), tokens=WORDS, names=("x", "y"))


def lengths():
    other = attended(3, len(SHORTER), layers=2)
    return show.page(attended(), tokens=WORDS, other=other, other_tokens=SHORTER, names=("long", "short"))


def hostile():
    return show.page(attended(), tokens=[*HOSTILE, *WORDS][:T], title=HOSTILE[0])


def padded():
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[:2] = False
    return show.page(seen(5, 5, mask=mask), tokens=["pad", "pad", *WORDS[:3]])


PAGES = {page.__name__: page for page in (text, image, compare, lengths, hostile, padded)}


class SavedPages:
    """The pages in a folder, by name."""

    def __init__(self, folder):
        self._folder = folder

    def open(self, context, name, address=""):
        """Open one."""
        path = self._folder / f"{name}.html"
        if not path.exists():
            PAGES[name]().save(path)
        return Opened(context, f"{path.as_uri()}#{address}")
