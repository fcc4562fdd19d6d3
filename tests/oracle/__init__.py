"""The truth about attention: the whole matrix in float64, masks drawn pair by pair, edits made by hand.

Nothing here knows how Sightline works. It imports ``sl`` for its public names, and torch:

draw.py      numbers from a seed
masks.py     masks as users write them, and the same drawn pair by pair
scores.py    the formulas of the score functions
dense.py     ``Dense``: the matrix, asked by the same names as an ``sl.Sight``
questions.py everything that can be asked of either
gradients.py the gradients of the answers
check.py     comparisons
edits.py     the edits of ``sl.edit``, by hand
sizes.py     the sizes of all tensors that some code creates
"""
