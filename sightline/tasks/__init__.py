"""What Sightline learns: tasks, runs that open, and one way to train them."""

from sightline.tasks.registry import kinds, register, task

__all__ = ["kinds", "register", "task"]
