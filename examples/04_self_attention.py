"""Self-attention as a module, and that it can't tell the order of its inputs.

The exercise (ECE 57000, exercise 3) feeds ones to SelfAttention(32, 512, 64) from ``manual_seed(40)``. On
ones every order is the same, so equivariance is shown on random input as well.
"""

import torch

import sightline as sl
from sightline import positions

PRINTED = [-0.0166, -0.4199, -0.5860, 0.3721, 0.5411, 0.4073, 0.8418, 0.2554]
PRINTED += [-0.2712, 0.6178, -0.0495, -0.0552, 0.6988, -0.3643, 0.7696]

torch.manual_seed(40)
x = torch.ones(20, 5, 32)
attend = sl.nn.SelfAttention(32, 512, 64)
output = attend(x)
print(f"output {tuple(output.shape)}")
print("ours            ", " ".join(f"{value:7.4f}" for value in output[-1, 1, :15]))
print("the document's  ", " ".join(f"{value:7.4f}" for value in PRINTED))
torch.testing.assert_close(output[-1, 1, :15], torch.tensor(PRINTED), rtol=0, atol=6e-5)

order = torch.tensor([3, 0, 4, 1, 2])
x = torch.randn(20, 5, 32)
apart = (attend(x[:, order]) - attend(x)[:, order]).abs().max().item()
print(f"\nshuffle, then attend; or attend, then shuffle: at most {apart:.1e} apart")
assert apart < 1e-5

# With positions added, the order matters.
where = positions.SinusoidalPositions(32)
apart = (attend(where(x[:, order])) - attend(where(x))[:, order]).abs().max().item()
print(f"the same with positions added: {apart:.2f} apart")
assert apart > 0.01
