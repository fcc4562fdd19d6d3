"""What is seen of sharded attention on several processes, next to one process: all cases, by name.

A row has the largest difference, over all layers and entries, between what the ranks have seen and what one
process sees; of numbers above one, as a share of them.
"""

from typing import Any

import sharded_watch_cases as by_part
import sharded_watch_tokens as by_token

CASES = {
    case.__name__: case
    for case in (
        by_part.ddp, by_part.fsdp, by_part.tp_local, by_part.tp_dtensor, by_part.fsdp_and_tp,
        by_token.torch_ring, by_token.torch_ring_and_tp, by_token.ring, by_token.large_scores,
        by_token.dtensors, by_token.dtensors_watched, by_part.pipeline,
    )
}  # fmt: skip


def try_cases(mesh: Any, names: list[str]) -> list[tuple[str, str, float]]:
    """One rank: the rows of all cases."""
    return [(row.case, row.statistic, row.error) for name in names for row in CASES[name](mesh)]
