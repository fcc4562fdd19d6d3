"""From presets, saved runs and what was asked for to settings."""

from dataclasses import dataclass

import pytest
import torch

from sightline.data.augment import Augment
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.run_folder import write_config
from sightline.settings import as_json, check, setting
from sightline.tasks.caption.presets import PRESETS
from sightline.tasks.configure import Request, configure, preset_of, saved_preset
from sightline.tasks.registry import task_of
from sightline.tasks.task import TRAINING, Part, Task
from sightline.train.config import TrainConfig, with_min_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Wide:
    architecture: str = setting("wide", "Which.", choices=("wide", "deep"))
    d_model: int = setting(7, "Width.", at_least=1)
    vocab_size: int = setting(0, "Found out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Deep:
    architecture: str = setting("deep", "Which.", choices=("wide", "deep"))
    d_model: int = setting(5, "Width.", at_least=1)
    n_layers: int = setting(3, "Depth.", at_least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    source: str = setting("toys", "Where.")
    word_dropout: float = setting(0.0, "Share.", at_least=0, below=1, aliases=("hidden",))
    deal: str = setting("hash", "How.", former="0.1")
    augment: Augment = setting(Augment(), "Changes.")  # noqa: RUF009 - frozen


@dataclass(frozen=True, kw_only=True, slots=True)
class Second:
    lr: float = setting(0.5, "Rate.", above=0)

    def __post_init__(self) -> None:
        check(self)


def never(*_):
    raise AssertionError


TOY = Task(
    kind="toy",
    summary="Nothing.",
    train_help="",
    predict_help="",
    inputs="TEXT",
    inputs_help="",
    input_is_file=False,
    parts=(
        Part(name="model", config=Wide, title="Model", no_flags=frozenset({"vocab_size"})),
        Part(name="deep", config=Deep, title="Deep model", inside=("model",)),
        Part(name="data", config=Data, title="Data"),
        Part(name="augment", config=Augment, title="Augmentation", inside=("data", "augment")),
        TRAINING,
        Part(name="second", config=Second, title="Second stage", prefix="s_", switch="twice", stage="second"),
    ),
    presets={
        "default": {"train": {"lr": 0.25}},
        "toys": {"train": {"epochs": 3}, "data": {"source": "toys"}, "augment": {"flip": 0.5}},
        "toys-deep": {"train": {"epochs": 11}, "data": {"source": "toys"}, "model": {"n_layers": 2}},
    },
    embedded={"toys": "toys"},
    architectures={"wide": Wide, "deep": Deep},
    sizes={"large": {"d_model": 99}},
    prepare=never,
    open=never,
    dataset=never,
)


def test_defaults_then_preset_then_size_then_what_was_asked_for():
    request = Request(data="toys", size="large", fields={"train": {"lr": 0.125}, "augment": {"flip": 0.25}})
    settings = configure(TOY, request)
    assert settings["train"].epochs == 3
    assert settings["train"].lr == 0.125
    assert settings["model"] == Wide(d_model=99)
    assert settings["data"].augment.flip == 0.25
    assert settings.chosen("model", "d_model") == 99
    assert settings.chosen("model", "vocab_size") is None
    assert "second" not in settings


def test_an_embedded_set_takes_its_own_preset_and_the_models():
    assert preset_of(TOY, Request(data="toys")) == "toys"
    assert preset_of(TOY, Request(data="toys", architecture="deep")) == "toys-deep"
    assert preset_of(TOY, Request(data="toys", fields={"deep": {"n_layers": 1}})) == "toys-deep"
    assert preset_of(TOY, Request(data="elsewhere")) == "default"
    assert preset_of(TOY, Request(data="toys", preset="default")) == "default"


def test_the_model_decides_which_settings_there_are():
    settings = configure(TOY, Request(data="toys", architecture="deep", fields={"deep": {"n_layers": 7}}))
    assert settings["model"] == Deep(n_layers=7)
    assert settings["train"].epochs == 11


def test_data_is_known_by_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert configure(TOY, Request(data="here"))["data"].source == str(tmp_path / "here")
    assert configure(TOY, Request(data="toys"))["data"].source == "toys"


def test_an_optional_part_is_there_when_it_is_asked_for():
    settings = configure(
        TOY, Request(data="toys", fields={"second": {"lr": 2.0}}, parts=frozenset({"second"}))
    )
    assert settings["second"] == Second(lr=2.0)


def saved(folder, **parts):
    whole = {"model": as_json(Wide(d_model=13)), "data": {"source": "toys"}, "train": {"lr": 0.75}} | parts
    write_config(folder, kind="toy", **whole)
    return folder


def test_a_run_goes_on_with_what_it_was_started_with(tmp_path):
    folder = saved(tmp_path, train={"lr": 0.75, "stages": {"second": {"lr": 4.0}}})
    settings = configure(TOY, Request(fields={"train": {"epochs": 30}}), begun=folder)
    assert settings["model"].d_model == 13
    assert (settings["train"].lr, settings["train"].epochs) == (0.75, 30)
    assert settings["second"] == Second(lr=4.0)


def test_an_older_run_keeps_its_names_and_its_ways(tmp_path):
    folder = saved(tmp_path, data={"source": "toys", "hidden": 0.5})
    data = configure(TOY, Request(), begun=folder)["data"]
    assert (data.word_dropout, data.deal) == (0.5, "0.1")
    assert configure(TOY, Request(data="toys"))["data"].deal == "hash"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Request(data="toys", architecture="depe"), "unknown model 'depe', .* did you mean 'deep'"),
        (Request(data="toys", size="larg"), "unknown size 'larg', .* did you mean 'large'"),
        (Request(data="toys", preset="toy"), "unknown preset 'toy' for toy, .* did you mean 'toys'"),
        (Request(), "a training needs data; add --data with a folder, a zip or 'toys'"),
        (
            Request(data="toys", fields={"second": {"lr": 1.0}}),
            "--s-lr is for the second stage, .* add --twice",
        ),
        (
            Request(data="toys", architecture="wide", fields={"deep": {"n_layers": 2}}),
            "--n-layers is no setting of the wide model",
        ),
        (Request(data="toys", fields={"train": {"lr": -1.0}}), "lr must be a positive number, got -1.0"),
        (
            Request(data="toys", fields={"second": {"lr": 0.0}}, parts=frozenset({"second"})),
            "second stage: lr must be a positive number, got 0.0",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(request_, sentence):
    with pytest.raises(ValueError, match=sentence):
        configure(TOY, request_)


@pytest.mark.bad_input
def test_a_run_of_another_kind_is_not_gone_on_with(tmp_path):
    write_config(tmp_path, kind="other", model={}, data={}, train={})
    with pytest.raises(
        ValueError, match="holds a run of kind 'other'; go on with it by `sightline train other"
    ):
        saved_preset(TOY, tmp_path)


def test_the_preset_transformer_has_no_convolution_but_the_cut_into_patches():
    settings = PRESETS["transformer"]["model"]
    model = Captioner(CaptionerConfig(vocab_size=23, **settings))
    cuts = [part for part in model.modules() if isinstance(part, torch.nn.Conv2d)]
    assert [(cut.kernel_size, cut.stride) for cut in cuts] == [((8, 8), (8, 8))]
    assert settings["n_encoder_layers"] >= 2


@pytest.mark.parametrize("kind", ["caption", "translate", "classify"])
def test_a_default_makes_many_steps_of_few_examples(kind):
    """Seventy photos in batches of 64 are two steps an epoch: the epochs of a default would make too few."""
    train = TrainConfig(**task_of(kind).presets["default"]["train"])
    assert with_min_steps(train, n_batches=2).epochs * 2 >= 1000
