"""Side-by-side measurements against peers: what is claimed to be fast is timed here, in one run.

==============  ===============================================================================
``timing``      one lap, many interleaved laps, their median and spread; a GPU's peak memory
``memory``      how much a process needs at its peak, measured in a fresh one
``case``        a case: contestants on the same inputs, checked against float64, then timed
``result``      what came out: a result, the outcome of a case, the report of a run
``table``       the report, for people
``machine``     where it was measured
``command``     what ``sightline bench`` and ``python -m sightline.bench`` both do
``attention``   the cases of ``bench attention``
``decode``      the cases of ``bench decode``
==============  ===============================================================================

A new bench is a module with ``cases(device, *, quick)`` and a line in ``command.BENCHES``.
"""
