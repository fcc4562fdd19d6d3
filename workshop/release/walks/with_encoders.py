"""A pretrained image encoder."""

import torch

from sightline.models.caption_encoders import pretrained_grid, pretrained_network

net = pretrained_network("efficientnet_lite0")
with torch.no_grad():
    print("efficientnet_lite0 with its weights:", *pretrained_grid(net, torch.zeros(1, 3, 64, 64), 64).shape)
