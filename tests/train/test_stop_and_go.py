"""Trainings that are stopped by a signal, go on beyond their end, or have few examples."""

import dataclasses
import logging
import signal

import pytest
import torch
from safetensors.torch import load_file

from sightline.train import Stage, TrainConfig, fit
from tests.train.toy import Toy, ToyObjective

pytestmark = pytest.mark.usefixtures("own_signals")

QUICK = TrainConfig(device="cpu", epochs=3, lr=1e-2, tensorboard=False, threads=0)  # 5 steps an epoch


def train(out, config=QUICK, objective=None, **options):
    torch.manual_seed(7)
    fit(Toy(), objective or ToyObjective(), config, out, shown=False, **options)
    return load_file(out / "model.safetensors")


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


class Signalled(ToyObjective):
    """Sends its process a signal while the loss of a step is computed."""

    def __init__(self, step, number):
        super().__init__()
        self.step, self.number, self.steps = step, number, 0

    def loss(self, model, batch):
        self.steps += 1
        if self.steps == self.step:
            signal.raise_signal(self.number)
        return super().loss(model, batch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 7, 10])  # the first, inside an epoch, the last of one
def test_a_signal_lets_the_step_end_saves_and_stops(tmp_path, step, number):
    whole = train(tmp_path / "whole")
    before = signal.getsignal(number)
    with pytest.raises(
        KeyboardInterrupt, match=f"stopped after step {step} of 15; everything is saved"
    ) as stopped:
        train(tmp_path / "run", objective=Signalled(step, number))
    assert stopped.value.number == number
    assert signal.getsignal(number) is before
    assert_same(train(tmp_path / "run", resume=True), whole)


def test_a_signal_that_is_ignored_stops_nothing(tmp_path):
    """As in the background of a script, where Ctrl-C is for the script alone."""
    whole = train(tmp_path / "whole")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert_same(train(tmp_path / "run", objective=Signalled(3, signal.SIGINT)), whole)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_a_signal_is_answered_at_once(tmp_path, caplog):
    with (
        caplog.at_level(logging.INFO, logger="sightline"),
        pytest.raises(KeyboardInterrupt, match="everything is saved"),
    ):
        train(tmp_path / "run", objective=Signalled(3, signal.SIGINT))
    assert "stopping after this step; once more stops at once" in caplog.messages


def test_a_signal_in_the_very_last_step_ends_a_finished_run(tmp_path):
    whole = train(tmp_path / "whole")
    assert_same(train(tmp_path / "run", objective=Signalled(15, signal.SIGINT)), whole)


def test_a_second_signal_stops_at_once(tmp_path):
    class Twice(Signalled):
        def loss(self, model, batch):
            if self.steps == 6:
                signal.raise_signal(self.number)
            return super().loss(model, batch)

    with pytest.raises(KeyboardInterrupt) as stopped:
        train(tmp_path / "run", objective=Twice(7, signal.SIGINT))
    assert str(stopped.value) == ""  # not after what is saved


def test_more_epochs_train_longer(tmp_path):
    constant = dataclasses.replace(QUICK, schedule="constant", warmup=0.0)
    whole = train(tmp_path / "whole", constant)
    train(tmp_path / "run", dataclasses.replace(constant, epochs=2))
    assert_same(train(tmp_path / "run", constant, resume=True), whole)


def test_a_finished_run_is_not_trained_again(tmp_path):
    objective = Signalled(0, signal.SIGINT)
    train(tmp_path / "run")
    train(tmp_path / "run", objective=objective, resume=True)
    assert objective.steps == 0


def test_a_run_that_lost_patience_stays_ended(tmp_path):
    class NeverBetter(Signalled):
        def evaluate(self, model):
            return {"loss": 1.0}

    impatient = dataclasses.replace(QUICK, patience=1)
    train(tmp_path / "run", impatient, NeverBetter(0, signal.SIGINT))
    objective = NeverBetter(0, signal.SIGINT)
    train(tmp_path / "run", dataclasses.replace(impatient, epochs=9), objective, resume=True)
    assert objective.steps == 0


@pytest.mark.bad_input
def test_a_run_does_not_become_shorter(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(ValueError, match=r"may train longer, not less: epochs was 3 in .*, got 2"):
        train(tmp_path / "run", dataclasses.replace(QUICK, epochs=2), resume=True)


@pytest.mark.bad_input
def test_a_first_stage_does_not_go_on_under_a_second(tmp_path):
    def both(epochs, **options):
        second = Stage(name="second", objective=ToyObjective(), config=QUICK)
        train(tmp_path / "run", dataclasses.replace(QUICK, epochs=epochs), then=[second], **options)

    both(2)
    with pytest.raises(
        ValueError, match=r"'second' of .* began where 'main' ended after 2 epochs, got epochs=3"
    ):
        both(3, resume=True)


def test_the_last_weights_are_kept_where_they_are_wanted(tmp_path):
    class Worsening(ToyObjective):
        def __init__(self):
            super().__init__()
            self.seen = []

        def evaluate(self, model):
            self.seen.append(model.last.weight.detach().clone())
            return {"loss": float(len(self.seen))}

    for keep, which in (("best", 0), ("last", -1)):
        objective = Worsening()
        kept = train(tmp_path / keep, dataclasses.replace(QUICK, keep=keep), objective)
        assert torch.equal(kept["last.weight"], objective.seen[which]), keep


def test_with_the_last_weights_kept_only_the_best_evaluation_is_called_best(tmp_path, capsys):
    class Scored(ToyObjective):
        losses = iter([2.0, 1.0, 3.0])

        def evaluate(self, model):
            return {"loss": next(self.losses)}

    fit(Toy(), Scored(), dataclasses.replace(QUICK, epochs=3, keep="last"), tmp_path / "run")
    epochs = [line for line in capsys.readouterr().err.splitlines() if line.startswith("epoch")]
    assert [line.endswith("  best") for line in epochs] == [True, True, False]


def test_a_training_says_what_it_will_do_and_whether_that_is_too_little(tmp_path, capsys):
    torch.manual_seed(7)
    fit(Toy(), ToyObjective(), QUICK, tmp_path / "run")
    told = capsys.readouterr().err
    assert "53 examples, 5 steps an epoch, 15 steps in all; 77 trainable parameters, on cpu" in told
    assert "15 steps are too few to learn much: raise --epochs 3, or lower --batch-size 64" in told
    fit(Toy(), ToyObjective(), dataclasses.replace(QUICK, steps=7), tmp_path / "few")
    assert "7 steps are too few to learn much: raise --steps 7 to make" in capsys.readouterr().err
    fit(Toy(), ToyObjective(), dataclasses.replace(QUICK, epochs=20), tmp_path / "run", resume=True)
    told = capsys.readouterr().err
    assert "going on after step 15: 53 examples, 5 steps an epoch, 100 steps in all" in told
    assert "too few" not in told
