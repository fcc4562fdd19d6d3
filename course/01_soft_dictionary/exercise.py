"""Exercise 1: a dictionary that answers with a mixture.

A dictionary gives the value of the one key that matches. A soft dictionary gives every key a score, turns the
scores into weights that sum to one, and answers with the weighted sum of all values.

Plain Python is enough here: lists, and the module math.

Check it with: pytest course/01_soft_dictionary
"""

import math


def softmax(scores: list[float]) -> list[float]:
    """Turn scores into weights: exp of each score, divided by the sum of all exps.

    It must work for scores such as 1000, too, where math.exp alone gives an error. Subtract the largest score
    from all of them first: the weights stay the same, and no exponent is above zero.

    >>> softmax([2.0, 2.0])
    [0.5, 0.5]
    """
    raise NotImplementedError  # your code here


def look_up(scores: list[float], values: list[list[float]]) -> list[float]:
    """Answer with the mixture: the sum of weight times value, number by number.

    values[i] is the vector (a list of numbers) that belongs to scores[i]. All vectors are equally long.

    >>> look_up([7.0, 7.0], [[1.0, 0.0], [0.0, 4.0]])
    [0.5, 2.0]
    """
    raise NotImplementedError  # your code here
