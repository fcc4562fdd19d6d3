"""Eight heads side by side, each a self-attention of an eighth of the width, then one output projection.

The exercise (ECE 57000, exercise 4): MultiHeadSelfAttention(256, 512, 64, 8) on random input drawn after
``manual_seed(40)``, and the first fifteen numbers of one output.
"""

import torch

import sightline as sl
from sightline import nn

PRINTED = [0.0275, -0.1630, 0.1510, 0.3983, -0.0111, -0.4692, -0.1411, 0.1411]
PRINTED += [0.2040, 0.0587, 0.1210, -0.1313, -0.0088, 0.1773, -0.0538]

torch.manual_seed(40)
x = torch.rand(32, 10, 256)
attend = nn.MultiHeadSelfAttention(256, 512, 64, 8)
output = attend(x)
print(f"output {tuple(output.shape)}")
print("ours            ", " ".join(f"{value:7.4f}" for value in output[-1, 1, :15]))
print("the document's  ", " ".join(f"{value:7.4f}" for value in PRINTED))
torch.testing.assert_close(output[-1, 1, :15], torch.tensor(PRINTED), rtol=0, atol=6e-5)

changed = x.clone()
changed[:, 5:] = 0
apart = (attend(x, sl.masks.causal()) - attend(changed, sl.masks.causal()))[:, :5].abs().max().item()
print(f"\nwith a causal mask, changing the last five tokens changes the first five outputs by {apart:.1e}")
assert apart < 1e-6
