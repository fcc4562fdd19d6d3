"""The course's exercises: files to fill in, and a grader that never runs them in its own process."""

import inspect

from sightline.exercises.checks import layers, mechanism, models
from sightline.exercises.exercise import Exercise, handout
from sightline.exercises.grading import SECONDS, Verdict, grade

__all__ = ["EXERCISES", "SECONDS", "Exercise", "Verdict", "file_of", "grade"]

EXERCISES: dict[int, Exercise] = {
    exercise.number: exercise for exercise in (*mechanism.EXERCISES, *layers.EXERCISES, *models.EXERCISES)
}


def file_of(number: int) -> str:
    """The file to fill in for an exercise.

    Example:
        >>> print(file_of(3)[:52])
        # Check it with: sightline exercise check 3 exercise
    """
    return handout(inspect.getsource(EXERCISES[number].key), number)
