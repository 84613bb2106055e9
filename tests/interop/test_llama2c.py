"""llama2.c's file: equal to its own arithmetic in NumPy and to `transformers`; every bad file."""

import struct

import numpy as np
import pytest
import torch

from clearhead.files import BadFile
from clearhead.interop import load, load_llama
from clearhead.interop.llama2c import NAMES, read_llama2c

#            dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
SHAPES = {
    "tied": (12, 10, 2, 3, 3, 17, 11),
    "untied": (12, 10, 2, 3, 3, -17, 11),
    "grouped": (24, 14, 3, 4, 2, 19, 13),
    "one key head": (20, 7, 1, 5, 1, -23, 9),
}


def draw(header, seed=0):
    """The arrays of a file by their names in llama2.c, in the file's order."""
    D, F, L, H, G, V, T = header
    Dh = D // H
    random = np.random.default_rng(seed)
    shapes = {
        "token_embedding_table": (abs(V), D),
        "rms_att_weight": (L, D),
        "wq": (L, H * Dh, D),
        "wk": (L, G * Dh, D),
        "wv": (L, G * Dh, D),
        "wo": (L, D, H * Dh),
        "rms_ffn_weight": (L, D),
        "w1": (L, F, D),
        "w2": (L, D, F),
        "w3": (L, F, D),
        "rms_final_weight": (D,),
        "freq_cis_real": (T, Dh // 2),
        "freq_cis_imag": (T, Dh // 2),
    } | ({"wcls": (-V, D)} if V < 0 else {})
    return {name: random.normal(0, 0.5, shape).astype("<f4") for name, shape in shapes.items()}


def to_bytes(header, arrays):
    return struct.pack("<7i", *header) + b"".join(a.tobytes() for a in arrays.values())


def logits_of_llama2c(header, w, tokens):
    """The forward pass as llama2.c makes it, position by position, neighbours turned together."""
    D, _, L, H, G, _, _ = header
    Dh = D // H
    w = {name: a.astype(np.float64) for name, a in w.items()}

    def norm(x, gain):
        return gain * x / np.sqrt((x * x).mean() + 1e-5)

    def turn(x, position):
        y = x.copy()
        for i in range(0, len(x), 2):
            angle = position / 10000.0 ** ((i % Dh) / Dh)
            y[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
            y[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
        return y

    keys, values, rows = [[] for _ in range(L)], [[] for _ in range(L)], []
    for position, token in enumerate(tokens):
        x = w["token_embedding_table"][token].copy()
        for n in range(L):
            y = norm(x, w["rms_att_weight"][n])
            q = turn(w["wq"][n] @ y, position)
            keys[n].append(turn(w["wk"][n] @ y, position))
            values[n].append(w["wv"][n] @ y)
            out = np.zeros(D)
            for h in range(H):
                own, shared = slice(h * Dh, (h + 1) * Dh), h // (H // G)
                other = slice(shared * Dh, (shared + 1) * Dh)
                scores = np.array([q[own] @ k[other] / np.sqrt(Dh) for k in keys[n]])
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out[own] = sum(a * v[other] for a, v in zip(weights, values[n], strict=True))
            x += w["wo"][n] @ out
            y = norm(x, w["rms_ffn_weight"][n])
            gate = w["w1"][n] @ y
            x += w["w2"][n] @ (gate / (1 + np.exp(-gate)) * (w["w3"][n] @ y))
        rows.append(w.get("wcls", w["token_embedding_table"]) @ norm(x, w["rms_final_weight"]))
    return np.array(rows)


@pytest.fixture
def write(tmp_path):
    def to_file(data):
        path = tmp_path / "model.bin"
        path.write_bytes(data)
        return path

    return to_file


@pytest.mark.parametrize("case", SHAPES)
def test_the_logits_are_those_of_llama2c(case, write):
    header = SHAPES[case]
    arrays = draw(header)
    path = write(to_bytes(header, arrays))
    tokens = np.random.default_rng(1).integers(abs(header[5]), size=header[6])
    expected = logits_of_llama2c(header, arrays, tokens)
    with torch.no_grad():
        exact = load_llama(path, dtype=torch.float64)(torch.tensor(tokens)[None])[0].numpy()
        single = load_llama(path)(torch.tensor(tokens)[None])[0].numpy()
    assert expected.std() > 0.5
    assert np.abs(exact - expected).max() <= 1e-9
    assert np.abs(single - expected).max() <= 1e-4


@pytest.mark.parametrize("case", ["llama grouped, tied", "llama"])
def test_a_llama_of_transformers_written_for_llama2c(oracles, case, write):
    """Row i and i + Dh/2 of their head stand as 2i and 2i + 1 in the file."""
    oracle = oracles[case]
    c, state = oracle.settings, oracle.model.state_dict()
    Dh = c.hidden_size // c.num_attention_heads
    L, V = c.num_hidden_layers, c.vocab_size
    tied = c.tie_word_embeddings
    header = (c.hidden_size, c.intermediate_size, L, c.num_attention_heads, c.num_key_value_heads)
    header += (V if tied else -V, c.max_position_embeddings)

    def neighbours(weight):
        order = [h + i + half for h in range(0, len(weight), Dh) for i in range(Dh // 2)
                 for half in (0, Dh // 2)]  # fmt: skip
        return weight[order]

    def stacked(name, change=lambda w: w):
        layers = [change(state[f"model.layers.{n}.{name}.weight"]) for n in range(L)]
        return torch.stack(layers).numpy()

    arrays = {
        "embedding": state["model.embed_tokens.weight"].numpy(),
        "rms_att_weight": stacked("input_layernorm"),
        "wq": stacked("self_attn.q_proj", neighbours),
        "wk": stacked("self_attn.k_proj", neighbours),
        "wv": stacked("self_attn.v_proj"),
        "wo": stacked("self_attn.o_proj"),
        "rms_ffn_weight": stacked("post_attention_layernorm"),
        "w1": stacked("mlp.gate_proj"),
        "w2": stacked("mlp.down_proj"),
        "w3": stacked("mlp.up_proj"),
        "rms_final_weight": state["model.norm.weight"].numpy(),
        "freq_cis": np.zeros(c.max_position_embeddings * Dh, dtype="<f4"),
    } | ({} if tied else {"wcls": state["lm_head.weight"].numpy()})
    ours = load_llama(write(to_bytes(header, arrays)))
    theirs = load_llama(oracle.folder)
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter)


def test_the_report_says_what_was_read(write):
    arrays = draw(SHAPES["tied"])
    model, report = read_llama2c(write(to_bytes(SHAPES["tied"], arrays)))
    angles = arrays.pop("freq_cis_real").size + arrays.pop("freq_cis_imag").size
    assert report.kind == "llama2.c"
    assert report.n_bytes == sum(a.nbytes for a in arrays.values())
    assert report.n_parameters == model.n_parameters == report.n_bytes // 4
    assert report.ignored == {"freq_cis": f"{angles} rotary angles, computed from the positions"}
    assert not model.training


@pytest.mark.parametrize(("case", "tied"), [("tied", True), ("untied", False)])
def test_a_negative_vocabulary_says_that_the_head_is_its_own(case, tied, write):
    model = load_llama(write(to_bytes(SHAPES[case], draw(SHAPES[case]))))
    assert (model.head.weight is model.embedding.weight) == tied
    assert model.config.tied == tied
    assert model.config.vocab_size == 17


def test_every_parameter_has_memory_of_its_own(write):
    model = load_llama(write(to_bytes(SHAPES["grouped"], draw(SHAPES["grouped"]))))
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in model.parameters())


# Bad files


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("value", [0, -1, -(2**31), 2**31 - 1, 10**9, 10**6, 1 << 20])
def test_an_absurd_header_is_refused_before_anything_is_read(field, value, write):
    header = list(SHAPES["tied"])
    if NAMES[field] == "vocab_size" and value == -1:
        value = -2
    header[field] = value
    path = write(to_bytes(SHAPES["tied"], draw(SHAPES["tied"])).replace(
        struct.pack("<7i", *SHAPES["tied"]), struct.pack("<7i", *header)
    ))  # fmt: skip
    with pytest.raises(BadFile, match=r"model.bin (has|is not a llama2.c model)"):
        load(path)


def test_a_header_that_fits_its_size_but_no_model_is_refused(write):
    for header, words in [
        ((6, 4, 1, 4, 4, 5, 3), "d_model is 6, which n_heads=4 does not divide"),
        ((12, 4, 1, 3, 2, 5, 3), "n_heads is 3, which n_kv_heads=2 does not divide"),
        ((9, 4, 1, 3, 3, 5, 3), "d_head must be even"),
    ]:
        D, F, L, H, G, V, T = header
        Dh = D // H
        count = V * D + L * (2 * D + 2 * D * H * Dh + 2 * D * G * Dh + 3 * D * F) + D + T * Dh
        with pytest.raises(BadFile, match=r"model.bin is not a llama2.c model") as error:
            load(write(struct.pack("<7i", *header) + bytes(4 * count)))
        assert words in str(error.value)


def test_a_sparse_file_of_a_million_layers_is_refused_at_once(tmp_path):
    header = (2, 1, 1_000_000, 1, 1, 2, 2)
    path = tmp_path / "sparse.bin"
    with open(path, "wb") as file:
        file.write(struct.pack("<7i", *header))
        file.truncate(28 + 4 * (4 + 1_000_000 * (4 + 16 + 6) + 2 + 4))
    with pytest.raises(BadFile, match="its n_layers would be 1,000,000"):
        load(path)


def test_a_file_cut_at_any_length_is_refused(write):
    data = to_bytes(SHAPES["tied"], draw(SHAPES["tied"]))
    for length in [*range(0, 64), *range(64, len(data), 401), len(data) - 4, len(data) - 1]:
        with pytest.raises(BadFile, match=r"model.bin has"):
            load(write(data[:length]))


@pytest.mark.parametrize("n", [1, 3, 4, 12, 1000])
def test_bytes_at_the_end_are_refused(n, write):
    data = to_bytes(SHAPES["tied"], draw(SHAPES["tied"]))
    with pytest.raises(
        BadFile, match=f"has {len(data) + n:,} bytes, but its header .* {len(data):,}"
    ):
        load(write(data + bytes(n)))


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(90),
        b"Once upon a time, there was a little girl",
        b"\x80\x02" * 40,
    ],
)
def test_a_foreign_file_is_refused(content, write):
    with pytest.raises(BadFile, match=r"model.bin is not a llama2.c model"):
        load(write(content))


def test_a_later_format_is_refused_by_name(write):
    with pytest.raises(BadFile, match=r"a later format of llama2.c; export it with version 0"):
        load(write(struct.pack("<7i", 0x616B3432, 1, 12, 10, 2, 3, 3) + bytes(900)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("token_embedding_table", "embedding.weight"),
        ("wk", "stack.blocks.1.attention.proj_k.weight"),
        ("w3", "stack.blocks.1.feed_forward.proj_in.weight"),
        ("rms_final_weight", "stack.norm.gain"),
        ("wcls", "head.weight"),
    ],
)
def test_F07_a_number_that_is_none_is_refused_with_its_tensor(name, ours, value, write):
    arrays = draw(SHAPES["untied"])
    arrays[name].reshape(-1)[-1] = value
    with pytest.raises(BadFile, match=f"tensor {ours} holds NaN or an infinity"):
        load(write(to_bytes(SHAPES["untied"], arrays)))


def test_F07_a_number_that_does_not_fit_the_dtype_is_refused(write):
    arrays = draw(SHAPES["tied"])
    arrays["wv"][1, 2, 3] = 1e6
    path = write(to_bytes(SHAPES["tied"], arrays))
    assert load_llama(path, dtype=torch.bfloat16).config.n_layers == 2
    with pytest.raises(BadFile, match=r"blocks.1.attention.proj_v.weight has numbers too large"):
        load_llama(path, dtype=torch.float16)


def test_a_folder_a_missing_file_and_a_pipe(tmp_path):
    with pytest.raises(BadFile, match="is not there"):
        load_llama(tmp_path / "nothing.bin")
    with pytest.raises(BadFile, match=r"config.json is not there"):
        load_llama(tmp_path)
