"""Makes mixed.gguf, a tiny Llama of random weights (ours) whose matrices are of the types that llama-quantize mixes, quantised by ggml
itself, and mixed.json, what llama.cpp computes from the same numbers in F32.

    pip install gguf llama-cpp-python && python mixed.py
"""

import ctypes
import json
import pathlib
import tempfile

import gguf
import llama_cpp as L
import numpy as np
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).parent
DIM, FFN, HEADS, KV, HEAD, VOCAB = 256, 256, 4, 2, 64, 263
T = gguf.GGMLQuantizationType
MATRICES = [
    ("token_embd", VOCAB, DIM, T.Q5_K), ("blk.0.attn_q", HEADS * HEAD, DIM, T.Q4_K), ("blk.0.attn_k", KV * HEAD, DIM, T.Q5_0),
    ("blk.0.attn_v", KV * HEAD, DIM, T.Q6_K), ("blk.0.attn_output", DIM, HEADS * HEAD, T.Q5_1), ("blk.0.ffn_gate", FFN, DIM, T.Q4_K),
    ("blk.0.ffn_up", FFN, DIM, T.Q5_K), ("blk.0.ffn_down", DIM, FFN, T.Q6_K), ("output", VOCAB, DIM, T.Q4_K),
]
VECTORS = ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"]


def quantise(values, kind):
    f = ctypes.CDLL("libggml-base.so").ggml_quantize_chunk  # loaded with llama.cpp; LD_LIBRARY_PATH says where it lies
    f.restype, f.argtypes = ctypes.c_size_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    rows, cols = values.shape
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((rows, cols // numbers * size), dtype=np.uint8)
    n = f(int(kind), values.ctypes.data, out.ctypes.data, 0, rows, cols, None)
    assert n == out.nbytes
    return out


def write(path, tensors):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("mixed")
    w.add_block_count(1)
    w.add_context_length(256)
    w.add_embedding_length(DIM)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(HEAD)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a"] + [f"<0x{i:02X}>" for i in range(256)])
    w.add_token_scores([0.0, 0.0, 0.0, -3.0, -1.0, -2.0, -0.5] + [0.0] * 256)
    w.add_token_types([2, 3, 3, 1, 1, 1, 1] + [6] * 256)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    for name, data, kind in tensors:
        w.add_tensor(name + ".weight", data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(path, tokens):
    m = L.llama_model_load_from_file(str(path).encode(), L.llama_model_default_params())
    p = L.llama_context_default_params()
    p.n_ctx, p.n_threads, p.n_threads_batch, p.type_k, p.type_v, p.flash_attn_type = 256, 1, 1, 0, 0, 0
    c = L.llama_init_from_model(m, p)
    b = L.llama_batch_init(len(tokens), 0, 1)
    b.n_tokens = len(tokens)
    for i, t in enumerate(tokens):
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, i, 1, 1
        b.seq_id[i][0] = 0
    assert L.llama_decode(c, b) == 0
    return np.ctypeslib.as_array(L.llama_get_logits(c), (len(tokens), VOCAB)).copy()


def main():
    L.llama_backend_init()
    rng = np.random.default_rng(11)
    packed, plain = [], []
    for name, rows, cols, kind in MATRICES:
        q = quantise(rng.normal(0, 0.06, (rows, cols)).astype(np.float32), kind)
        packed.append((name, q, kind))
        plain.append((name, dequantize(q, kind).astype(np.float32), T.F32))
    for name in VECTORS:
        v = rng.normal(1, 0.1, DIM).astype(np.float32)
        packed.append((name, v, T.F32))
        plain.append((name, v, T.F32))
    write(HERE / "mixed.gguf", packed)
    reference = pathlib.Path(tempfile.mkdtemp()) / "mixed-f32.gguf"
    write(reference, plain)
    tokens = [1] + [int(t) for t in rng.integers(3, VOCAB, 39)]
    out = logits(reference, tokens)
    rows = [0, 20, 39]
    json.dump({"tokens": tokens, "rows": rows, "logits": [[round(float(x), 6) for x in out[r]] for r in rows]}, open(HERE / "mixed.json", "w"))


main()
