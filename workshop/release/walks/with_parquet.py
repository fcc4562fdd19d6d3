"""Tables in parquet files."""

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from sightline.data.parquet import ParquetFile
from sightline.data.sources import Folder

parquet.write_table(pa.table({"en": ["a", "b"], "de": ["c", "d"]}), "pairs.parquet")
assert len(ParquetFile(Folder(Path()), "pairs.parquet")) == 2
print("parquet files as data")
