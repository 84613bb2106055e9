"""The scan finds forbidden functions by what they are, not by how they are spelled."""

import pytest

from clearhead.exercises.sandbox.forbidden import find_forbidden

FUSED = "torch.nn.functional.scaled_dot_product_attention"
NAMES = [FUSED, "torch.nn.MultiheadAttention", "torch.nn.Transformer"]

USED = {
    "import torch\ntorch.nn.functional.scaled_dot_product_attention(q, k, v)": FUSED,
    "import torch.nn.functional as F\nF.scaled_dot_product_attention(q, k, v)": FUSED,
    "from torch.nn import functional as G\nG.scaled_dot_product_attention(q, k, v)": FUSED,
    "x = 1\nfrom torch.nn.functional import scaled_dot_product_attention as f\nf(q)": FUSED,
    "import torch\nf = torch.nn.functional; f.scaled_dot_product_attention(q)": FUSED,
    "import torch\ngetattr(torch.nn.functional, 'scaled_dot_product_attention')(q)": FUSED,
    "x = 1\n__import__('torch').nn.MultiheadAttention(4, 2)": "torch.nn.MultiheadAttention",
    "import torch\ntorch.ops.aten._scaled_dot_product_attention_math(q, k, v)": FUSED,
    "import torch\ntorch._C._nn.scaled_dot_product_attention(q, k, v)": FUSED,
    "from torch import nn\nclass A(nn.TransformerEncoderLayer): pass": "torch.nn.Transformer",
}
NOT_USED = [
    "def scaled_dot_product_attention(q, k, v): return q\nscaled_dot_product_attention(1, 2, 3)",
    "class A:\n    def f(self): return self.scaled_dot_product_attention(1)",
    "from mine import MultiheadAttention\nMultiheadAttention(2)",
    "import torch\ntorch.softmax(q @ k.mT, -1)  # torch.nn.MultiheadAttention",
    "a syntax error",
    "\0",
]


@pytest.mark.parametrize("source", USED)
def test_G17_a_use_is_found_with_its_line(source):
    found = find_forbidden(source, NAMES)
    assert (found[0].name, found[0].line) == (USED[source], 2)


@pytest.mark.parametrize("source", NOT_USED)
def test_other_things_with_the_same_name_are_not_reported(source):
    assert find_forbidden(source, NAMES) == []
