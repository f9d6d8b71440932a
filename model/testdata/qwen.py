"""Makes tiny Qwen2 and Qwen3 models of random weights, and what transformers, torch and tokenizers make of them.

    pip install torch transformers tokenizers jinja2 && python qwen.py TEMPLATES

TEMPLATES is a folder with Qwen2.5's and Qwen3's chat templates as their makers publish them (tokenizer_config.json of
Qwen/Qwen2.5-7B-Instruct and of Qwen/Qwen3-0.6B, Apache-2.0): qwen2.jinja and qwen3.jinja. Writes qwen2/ and qwen3/ beside this file,
Hugging Face directories with a golden.json each. The weights are drawn, the vocabulary is trained on the lines below: all ours.
"""

import json
import pathlib
import sys

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CORPUS = [
    "The quire is a gathering of pages, and the binder counts the leaves before the book is bound.",
    "I'm sure they've said it's what we'd do; you'll see that he doesn't.", "Pages, pages and more pages: 12345 of them.",
    "def add(a, b):\n    return a + b\n", "Der Buchbinder zählt die Lagen. Привет, страница! 本を数える。",
] * 4
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
TEXTS = [
    "", " ", "  ", "\n", "\r\n\r\n  x", "Hello world", "hello  world   ", "I'm, I'M, it's, they'LL, 'tis, don't", "x's 's'S ſ'ſ",
    "1", "12", "1234567", "3.14159", "a1b22c333", "½ ² Ⅷ ٣", "e\u0301cole vs \u00e9cole", "A\u030angstro\u0308m", "\u1100\u1161\u11a8",
    "!!!???", " ...", "a!\n\nb", "foo\n \n\tbar", "\t\tindent", "tail   ", "new\nline\r\nand\rmore", "(a+b)*c == d;", "https://example.org/?q=1&r=2",
    "Привет, мир", "本を 数える。", "日本語123テスト", "مرحبا", "👩‍👩‍👧 family", "naïve façade", "\u00a0nbsp\u00a0", "\u3000wide", "zero\u200bwidth",
    "the pages of the quire", "def f(x):\n    return x\n", "<|im_end|> typed", "<think>typed</think>", "mixed 中a文b字1", "\u0000\u0001", "İstanbul ﬁn",
]
CHATS = [
    [{"role": "user", "content": "Count the leaves."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"}],
    [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<think>\nadd them\n</think>\n\n2"}, {"role": "user", "content": "And 2+2?"}],
    [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nbecause"}],
]


def train():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    tok.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKS])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    return tok


def config(arch, vocab, ids):
    shape = dict(
        vocab_size=vocab, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_key_value_heads=2, max_position_embeddings=256,
        rope_theta=1000000.0, rms_norm_eps=1e-6, bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"], use_sliding_window=False,
    )
    if arch == "qwen2":
        return AutoConfig.for_model("qwen2", num_attention_heads=6, tie_word_embeddings=True, **shape)
    return AutoConfig.for_model("qwen3", num_attention_heads=4, head_dim=16, tie_word_embeddings=False, **shape)


def main(templates):
    tok = train()
    for arch in ("qwen2", "qwen3"):
        out = HERE / arch
        out.mkdir(exist_ok=True)
        fast = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|im_end|>", pad_token="<|endoftext|>")
        ids = {m: tok.token_to_id(m) for m in MARKS}
        torch.manual_seed(3)
        padded = (tok.get_vocab_size() + 15) // 16 * 16  # as real ones are
        model = AutoModelForCausalLM.from_config(config(arch, padded, ids), dtype=torch.float32).eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.randn_like(p) * (0.3 if p.dim() == 1 else 0.15) + (1 if "norm" in name else 0))
                p.copy_(p.to(torch.bfloat16).to(torch.float32))
        golden = {"logits": [], "texts": [], "chats": []}
        tokens = [t for text in TEXTS[5:12] for t in tok.encode(text).ids] + [ids["<|im_start|>"]]
        golden["tokens"] = tokens
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0]
        golden["logits"] = [[round(float(x), 6) for x in logits[i]] for i in (0, 1, len(tokens) // 2, len(tokens) - 1)]
        golden["rows"] = [0, 1, len(tokens) // 2, len(tokens) - 1]
        plain = json.loads(tok.to_str())
        plain["added_tokens"] = []
        typed = Tokenizer.from_str(json.dumps(plain))  # what a user types becomes no mark
        golden["texts"] = [{"text": t, "ids": typed.encode(t).ids} for t in TEXTS]
        source = (pathlib.Path(templates) / (arch + ".jinja")).read_text()
        fast.chat_template = source
        for chat in CHATS:
            for thinking in ([None] if arch == "qwen2" else [None, True, False]):
                kw = {} if thinking is None else {"enable_thinking": thinking}
                for prompt in (True, False):
                    text = fast.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt, **kw)
                    golden["chats"].append({"messages": chat, "prompt": prompt, "thinking": thinking, "text": text})
        model.to(torch.bfloat16).save_pretrained(out)
        tok.save(str(out / "tokenizer.json"), pretty=False)
        (out / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "bos_token": None, "chat_template": source}, indent=1))
        (out / "generation_config.json").write_text(json.dumps({
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}))
        (out / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")


main(sys.argv[1])
