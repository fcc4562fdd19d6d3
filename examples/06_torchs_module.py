"""nn.MultiheadAttention taken apart: its one head, written by hand, gives what the module gives.

The exercise (week 8, June 2023) derives the manual way and checks it against torch's module; here
sightline's drop-in stands beside both, with the same weights.
"""

import torch
import torch.nn.functional as F

import sightline as sl

d, B, T = 4, 1, 5
torch.manual_seed(0)
Q, K, V = torch.randn(B, T, d), torch.randn(B, T, d), torch.randn(B, T, d)

theirs = torch.nn.MultiheadAttention(d, num_heads=1, bias=False, batch_first=True)
ours = sl.nn.MultiheadAttention(d, num_heads=1, bias=False, batch_first=True)
print("state_dict:", ours.load_state_dict(theirs.state_dict()))

their_output, their_weights = theirs(Q, K, V)
our_output, our_weights = ours(Q, K, V)

# The manual way: project, score, mix, project.
W_q, W_k, W_v = theirs.in_proj_weight.chunk(3)
q, k, v = Q[0] @ W_q.T, K[0] @ W_k.T, V[0] @ W_v.T
weights = F.softmax(q @ k.T / d**0.5, dim=-1)
output = weights @ v @ theirs.out_proj.weight.T

print("\nlargest difference        weights   output")
pairs = {
    "by hand, torch": (weights - their_weights[0], output - their_output[0]),
    "by hand, sightline": (weights - our_weights[0], output - our_output[0]),
    "sightline, torch": (our_weights - their_weights, our_output - their_output),
}
for name, apart in pairs.items():
    of_weights, of_output = (x.abs().max().item() for x in apart)
    print(f"{name:22s} {of_weights:10.1e} {of_output:8.1e}")
    assert max(of_weights, of_output) < 1e-6
