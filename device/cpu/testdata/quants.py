"""Writes quants.json: one row of every quantised type and the numbers that the Python package gguf (2.4.6) makes of it.

    pip install gguf && python quants.py > quants.json

The bytes are drawn at random, so that every bit of a block counts, but for the F16 factors, which are plain numbers.
"""

import base64
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

FACTORS = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q5_0: [0], T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
COLS = 512

rng = np.random.default_rng(7)
out = {}
for t, factors in FACTORS.items():
    numbers, size = GGML_QUANT_SIZES[t]
    blocks = rng.integers(0, 256, (COLS // numbers, size), dtype=np.uint8)
    for at in factors:
        f = rng.normal(0, 0.02, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = f.view(np.uint8).reshape(-1, 2)
    row = blocks.reshape(1, -1)
    numbers = dequantize(row, t).astype("<f4")
    out[t.name] = {"row": base64.b64encode(row.tobytes()).decode(), "numbers": base64.b64encode(numbers.tobytes()).decode()}
json.dump(out, sys.stdout, indent=1)
print()
