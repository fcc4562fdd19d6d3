"""torch.nn.Transformer and sightline.nn.Transformer: the same constructor, checkpoint and numbers."""

from types import ModuleType

import torch

import sightline as sl

SIZES = {"d_model": 32, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 64}


def built(nn: ModuleType) -> torch.nn.Module:
    torch.manual_seed(0)
    return nn.Transformer(**SIZES, dropout=0.0, batch_first=True)


theirs, ours = built(torch.nn), built(sl.nn)
same = all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())
print(f"{len(theirs.state_dict())} tensors in the checkpoint, from the same seed the same: {same}")
ours.load_state_dict(theirs.state_dict())
theirs.load_state_dict(ours.state_dict())

source, target = torch.randn(3, 11, 32), torch.randn(3, 7, 32)
padded = torch.zeros(3, 11, dtype=torch.bool)
padded[1, 8:] = True
future = torch.nn.Transformer.generate_square_subsequent_mask(7)
arguments = {"tgt_mask": future, "tgt_is_causal": True, "src_key_padding_mask": padded}
arguments |= {"memory_key_padding_mask": padded}

outputs, gradients = [], []
for model in (theirs, ours):
    x = source.clone().requires_grad_()
    output = model(x, target, **arguments)
    output.square().sum().backward()
    outputs.append(output.detach())
    gradients.append(torch.cat([x.grad.flatten(), *(p.grad.flatten() for p in model.parameters())]))

apart = (outputs[0] - outputs[1]).abs().max().item()
relative = ((gradients[0] - gradients[1]).norm() / gradients[0].norm()).item()
print(f"outputs {tuple(outputs[0].shape)}: at most {apart:.1e} apart")
print(f"gradients of {gradients[0].numel()} numbers: {relative:.1e} apart, of their length")
assert same
assert apart < 1e-5
assert relative < 1e-5
