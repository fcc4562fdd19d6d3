"""The monitor: the numbers of the matrix, over accumulation, recomputation and several processes."""

import csv
import math

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

import sightline as sl
from sightline.watch.monitor import summarise
from tests.look.look_oracle import entropy, matrix, near, randn
from tests.watch.watch_oracle import mha_matrix

E, H, B, T = 12, 3, 2, 5


def layer():
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(E, H, dim_feedforward=7, dropout=0.0, batch_first=True)
    with torch.no_grad():
        made.self_attn.in_proj_weight.mul_(3)
    return made


def train(model, monitor_options, batches, n_accumulate=1, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.0)
    logged = []
    with sl.Monitor(model, log=lambda step, rows: logged.append((step, list(rows))), **monitor_options):
        for i, x in enumerate(batches):
            model(x).sum().backward()
            if (i + 1) % n_accumulate == 0:
                optimizer.step()
    return logged


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def batches(n):
    return [randn(B, T, E, seed=i, dtype=torch.float32) for i in range(n)]


def check(rows, model, inputs):
    """Rows of a step against the matrix."""
    weights, lse = (
        torch.cat(x) for x in zip(*(mha_matrix(model.self_attn, x, x) for x in inputs), strict=True)
    )
    logits = (weights.amax(-1).log() + lse).transpose(0, 1).flatten(1).amax(-1)
    for row in rows:
        near(torch.tensor(row.max_logit), logits[row.head], 1e-4, 1e-5)
        near(torch.tensor(row.entropy), entropy(weights)[:, row.head].mean(), 1e-4, 1e-5)
        near(torch.tensor(row.first), weights[:, row.head, :, 0].mean(), 1e-4, 1e-5)
        assert not row.dead


def test_every_third_step_is_logged_with_the_numbers_of_the_matrix():
    model, data = layer(), batches(7)
    logged = train(model, {"every": 3}, data)
    assert [step for step, _ in logged] == [0, 3, 6]
    for step, rows in logged:
        assert [(row.step, row.layer, row.head) for row in rows] == [(step, "self_attn", h) for h in range(H)]
        check(rows, model, [data[step]])


def test_accumulated_batches_are_one_step():
    model, data = layer(), batches(6)
    logged = train(model, {"every": 2}, data, n_accumulate=2)
    assert [step for step, _ in logged] == [0, 2]
    check(logged[1][1], model, data[4:6])


def test_recomputation_evaluation_and_other_optimizers_do_not_count():
    model, x = layer(), batches(1)[0].requires_grad_()
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with sl.Monitor(model, every=1) as monitor:
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
        model.eval()
        model(x * 9)
        with torch.no_grad():
            model.train()(x * 9)
        other.step()
        assert monitor.n_steps == 0
        optimizer.step()
    assert monitor.n_steps == 1
    check(monitor.latest, model, [x.detach()])


def test_training_is_the_same_with_and_without():
    results = []
    for watched in (False, True):
        model = layer()
        optimizer = torch.optim.Adam(model.parameters())
        monitor = sl.Monitor(model, every=2) if watched else None
        for x in batches(5):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        if monitor is not None:
            monitor.close()
        assert not model._forward_hooks
        assert not model._forward_pre_hooks
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *results))


def test_dead_heads_are_told():
    q = randn(1, 4, 6, 3, dtype=torch.float32)
    k = randn(1, 4, 6, 3, seed=1, dtype=torch.float32)
    q[:, 0] = 0.0  # looks at all alike
    q[:, 1], k[:, 1] = torch.tensor([50.0, 0, 0]), 0.0
    k[:, 1, 2] = torch.tensor([1.0, 0, 0])  # all weight on the third key
    k[:, 2] = nn.functional.normalize(k[:, 2], dim=-1)
    q[:, 2] = 99 * k[:, 2]  # each looks at itself

    class Model(nn.Module):
        def forward(self, q, k):
            return sl.attention(q, k, k)

    model = Model()
    with sl.Monitor(model, every=1) as monitor:
        model(q, k)
        monitor.step()
    assert [row.dead for row in monitor.latest] == [True, True, False, False]
    near(torch.tensor(monitor.latest[0].entropy), torch.tensor(math.log(6)))


def test_files_and_writers(tmp_path):
    model, path = layer(), tmp_path / "heads.csv"
    with sl.Monitor(model, every=1, log=path) as monitor:
        for x in batches(2):
            model(x)
            monitor.step()
    rows = read(path)
    assert [(row["step"], row["head"]) for row in rows] == [
        (str(s), str(h)) for s in range(2) for h in range(H)
    ]
    assert float(rows[-1]["entropy"]) == monitor.latest[-1].entropy

    class Writer:
        scalars: list = []  # noqa: RUF012

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

    with sl.Monitor(model, every=1, log=Writer()) as monitor:
        model(x)
        monitor.step()
    assert ("attention/self_attn/1/entropy", monitor.latest[1].entropy, 0) in Writer.scalars
    assert len(Writer.scalars) == 4 * H


def _train_in_a_process(rank, n, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=n)
    model, data = layer(), batches(4)
    with sl.Monitor(model, every=1, log=f"{folder}/heads.csv") as monitor:
        for x in data[2 * rank : 2 * rank + 2]:
            model(x)
        monitor.step()
    torch.distributed.destroy_process_group()


def test_several_processes_log_what_all_of_them_saw(tmp_path):
    mp.spawn(_train_in_a_process, (2, str(tmp_path)), nprocs=2)
    rows = read(tmp_path / "heads.csv")
    assert len(rows) == H
    weights, _ = mha_matrix(layer().self_attn, torch.cat(batches(4)), torch.cat(batches(4)))
    near(torch.tensor([float(row["entropy"]) for row in rows]), entropy(weights).mean((0, 2)), 1e-4, 1e-5)


def test_a_sight_without_heads_is_summed_up_as_one():
    q, k, v = (randn(B, T, 4, seed=i) for i in range(3))
    weights, _ = matrix(q, k)
    received, h = weights.sum(-2), entropy(weights)
    expected = [
        (q @ k.mT / 2).max(), torch.tensor(B * T), h.sum(), received[:, 0].sum(), received.amax(-1).sum(),
        (h + weights.amax(-1).log()).sum(),
    ]  # fmt: skip
    near(summarise(sl.look(q, k, v)), torch.stack([x.double() for x in expected])[None])


@pytest.mark.bad_input
def test_what_is_no_monitor():
    with pytest.raises(TypeError, match=r"takes an nn\.Module, got int"):
        sl.Monitor(3)
    with pytest.raises(ValueError, match="every must be a whole number of steps >= 1, got 0"):
        sl.Monitor(layer(), every=0)
    with pytest.raises(ValueError, match=r"must end in \.csv, got 'heads\.txt'"):
        sl.Monitor(layer(), log="heads.txt")
    with pytest.raises(TypeError, match="a SummaryWriter or a function, got int"):
        sl.Monitor(layer(), log=3)


@pytest.mark.bad_input
def test_a_log_without_a_folder_is_refused_before_training(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"needs its folder, got .*heads\.csv'; make .*runs"):
        sl.Monitor(nn.Linear(2, 2), log=tmp_path / "runs" / "heads.csv")
