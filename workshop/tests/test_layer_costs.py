"""What the picture of a layer's costs counts."""

from workshop.figures import layer_costs as script


def test_costs_of_a_layer_are_those_of_the_table():
    width, length = script.E, 11
    expected = {
        "Attention": (2 * length**2 * width + 3 * length * width**2, 3, 2),
        "Recurrent": (2 * length * width**2, length, length),
        "Convolution": (3 * length * width**2, 1, length - 1),
    }
    assert {name: script.costs(getattr(script, name), length) for name in expected} == expected
