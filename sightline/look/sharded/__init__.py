"""Attention that is spread over processes: what each rank has, the ring pass, and how parts come together.

=================  ===================================================================================
``axes.py``        which heads, items, queries and keys of how many a rank has
``placements.py``  the same, read off DTensors and off the parameters of a tensor-parallel module
``blocks.py``      the rectangle of this rank's queries and another rank's keys, and its mask
``collectives.py`` the three collectives, each over many tensors at once
``ring.py``        the keys of every rank visit every other one; what all have found is put together
``look.py``        ``sl.look`` of sharded q, k and v
``gather.py``      parts put together: one collective per statistic for all layers
=================  ===================================================================================
"""
