"""Which of the processes that a launcher started this is; known without torch."""

import os

__all__ = ["launched", "process_share"]


def launched() -> bool:
    """Whether a launcher such as torchrun started this process as one of several in reach of each other."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in names):
        return False
    world = os.environ["WORLD_SIZE"]
    return not world.isdecimal() or int(world) > 1  # what is no number is refused by process_share


def process_share() -> tuple[int, int]:
    """Which process this is, and of how many, as torchrun, Accelerate and Slurm's scripts tell it.

    Raises:
        ValueError: If what they tell is no number below the other.
    """
    rank, world = (os.environ.get(name, default) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(
            f"RANK must be a number below WORLD_SIZE, got RANK={rank!r} and WORLD_SIZE={world!r}; launchers "
            "set both, by hand unset them"
        )
    return int(rank), int(world)
