import pytest
import torch

from sightline.bench import command, train
from sightline.bench.timing import HostStopwatch, Repeats
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.tasks.caption.objective import caption_loss

CPU = torch.device("cpu")
TINY = CaptionerConfig(
    vocab_size=37,
    image_size=16,
    patch=8,
    d_model=16,
    n_heads=2,
    n_layers=2,
    n_encoder_layers=1,
    d_ff=24,
    max_length=17,
)


def test_torchs_twin_has_the_same_loss_and_no_layer_of_ours():
    torch.manual_seed(0)
    ours = Captioner(TINY).eval()
    twin = Captioner(TINY)
    twin.load_state_dict(ours.state_dict())
    train.with_torch_layers(twin).eval()
    names = {type(module).__module__ for module in twin.modules()}
    assert not {name for name in names if name.startswith(("sightline.layers", "sightline.attention"))}
    twin.decoder.layers.register_forward_pre_hook(train._repeat_memory)
    batch = train._caption_batch(TINY, 3, CPU)
    with torch.no_grad():
        mine, theirs = (caption_loss(model, batch.images, batch.ids) for model in (ours, twin))
    torch.testing.assert_close(mine.total, theirs.total)
    assert mine.terms == theirs.terms


def test_a_race_of_steps_tells_its_rate():
    setup = train._compare_captioners(TINY, 3, CPU)
    timed = train.TimedCase(name="tiny", device=CPU, bar=1.0, setup=lambda: setup)
    case = train.StepCase(timed=timed, examples=(3, "images"))
    outcome = case.measure(HostStopwatch(), Repeats(budget=0.01, minimum=1, maximum=2))
    assert [result.contestant for result in outcome.results] == ["sightline", "torch.nn"]
    assert any("images/s" in note for note in outcome.notes)


@pytest.mark.parametrize("quick", [True, False])
def test_cases_are_named_by_kind(quick):
    names = [case.name for case in train.cases(CPU, quick=quick)]
    assert names[0].startswith("cpu train caption grids")
    assert "train" in command.BENCHES
    assert train.bar(torch.device("cuda")) == 1.1
