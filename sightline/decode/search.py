"""The searches: greedy, sampling and beam, over any model that can take a step.

    state = model.start(images, look=True)
    found = beam(model, state, width=5, max_length=20)
    found.lists()[0][0]                 # the best caption of the first image, as ids
    found.attention_weights             # where it looked for every word, (B, K, L, H, S)

=================  ==================================================================
``sampling.py``     ``greedy`` and ``sample``: one token after the other
``beam.py``         ``beam``: the likeliest sequences of a search of some width
``hypotheses.py``      ``Hypotheses``: what they hand back; the tree that a beam is read from
``protocol.py``     what they ask of a model and of its state
=================  ==================================================================
"""

from sightline.decode.beam import beam
from sightline.decode.hypotheses import Hypotheses
from sightline.decode.sampling import greedy, sample

__all__ = ["Hypotheses", "beam", "greedy", "sample"]
