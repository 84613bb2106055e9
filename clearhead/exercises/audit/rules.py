"""False claims that handouts print: the patterns that find each, and code that refutes it.

Patterns are matched with the text as formulas.normalize writes it: without spaces and LaTeX, in
small letters, √(d) for a root, ^ for a power, · for a product. A proof is an example that runs.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """Patterns of one false claim. topic: text that the rule is about. wrong: a wrong claim. needs:
    must occur in the paragraphs around it. unless: makes it right if it occurs near."""

    id: str
    topic: str
    wrong: str
    sentence: str
    proof: str
    needs: str = ""
    unless: str = ""


D = r"(?:d|n|m)(?:_?\(?(?:k|h|q|head|model)\)?)?"
POS = r"\(*(?:pos|p|t|k)\)*"
PLACE = r"(?:positions?|pos|index|indices|j)"
LENGTH = r"(?:the)?(?:valid)?_?(?:lengths?|lens?)"

RULES = (
    Rule(
        "doubled_exponent",
        r"10000\^|1\.0677",
        rf"10000\^\(*2·?(?:dim|dimension|col|column|channel|index)\)*/|10000\^\(*4·?i/"
        rf"|\({POS},([a-z])\)=(?:sin|cos)\({POS}/\(?10000\^\(*2·?\1\)*/|1\.0677,?1\.0222",
        "the exponent of 10000 is doubled: it counts pairs of dimensions, 2·(dim // 2)/d",
        ">>> import math\n"
        ">>> right = [round(math.sin(1 / 10000 ** (2 * (dim // 2) / 512)), 4) for dim in (0, 2)]\n"
        ">>> right, round(math.sin(1 / 10000 ** (2 * 2 / 512)), 4)  # dimension 2, doubled\n"
        "([0.8415, 0.8219], 0.802)",
        unless=r"//2|⌊|floor|div2",
    ),
    Rule(
        "cosine_own_index",
        r"10000\^",
        r"cos\([^=]{0,12}/\(?10000\^\(*2·?i\+1\)*/",
        "the cosine has its own exponent; the sine and cosine of a pair must share one angle",
        ">>> import math\n"
        ">>> angles = [1 / 10000 ** (2 / 8), 1 / 10000 ** (3 / 8)]  # of sine and cosine\n"
        ">>> round(math.sin(angles[0]) ** 2 + math.cos(angles[1]) ** 2, 3)  # a pair must give 1\n"
        "1.009",
    ),
    Rule(
        "variance",
        r"var(?:iance)?[(\[]*q|std[(\[]*q|varianceof",
        rf"(?:var(?:iance)?(?:of)?[(\[]*q[·^_⊤tki,]{{0,8}}[)\]]*(?:=|is)"
        rf"|varianceof(?:the|each)?(?:dotproduct|product|score)s?(?:q·?k)?(?:is|=)){D}·?σ\^2(?![·σ^\d])"
        rf"|(?:std|standarddeviation)(?:of)?[(\[]*q·?k[)\]]*(?:=|is)√\(?{D}\)?·?σ(?!\^)",
        "Var(q·k) is dσ⁴: each product has the variance σ²·σ²; dσ² is right only for σ = 1",
        ">>> import torch\n"
        ">>> _ = torch.manual_seed(0)\n"
        ">>> q, k = 3 * torch.randn(2, 100_000, 16)  # σ = 3, d = 16\n"
        ">>> variance = (q * k).sum(-1).var().item()\n"
        ">>> round(variance / (16 * 3**4), 1), round(variance / (16 * 3**2), 0)\n"
        "(1.0, 9.0)",
        unless=r"σ(?:\^2)?=1(?!\d)|unitvariance",
    ),
    Rule(
        "inverted_mask",
        rf"{PLACE}(?:<|>)=?{LENGTH}",
        rf"(?:where|if|all|with){PLACE}<{LENGTH}(?:(?!other|rest|else|keep|remain)[\w,]){{0,20}}?"
        r"(?:with|to|by|=|get|gets)-(?:∞|inf|1e9|10\^9)",
        "the mask is inverted: this removes the real keys and attends to the padding",
        ">>> import torch\n"
        ">>> real = torch.arange(4) < 3\n"
        ">>> torch.zeros(4).masked_fill(real, -torch.inf).softmax(-1)  # only the padding\n"
        "tensor([0., 0., 0., 1.])",
    ),
    Rule(
        "length_off_by_one",
        rf"{PLACE}(?:<|>)=?{LENGTH}",
        rf"{PLACE}<={LENGTH}",
        "positions are counted from 0, so `<=` keeps one key of padding; it must be `<`",
        ">>> [position for position in range(4) if position <= 1]  # a length of 1\n[0, 1]",
        needs=r"keep|allow|real|attend|mask|valid|key",
        unless=r"from1|startat1|1-based|countedfromone|one-based",
    ),
    Rule(
        "heads_without_transpose",
        r"(?:reshape|view)\(",
        r"(?:reshape|view)\((?:b|batch|batch_size|n),(?:h|heads|n_heads|num_heads),"
        r"(?:t|s|l|seq_len|length),(?:d_?\w*)\)",
        "reshape keeps the order in memory, so a head gets pieces of several tokens; split the "
        "last axis, then transpose",
        ">>> import torch\n"
        ">>> x = torch.zeros(1, 4, 6); x[0, 0] = 1  # (B, T, D): only the first token is 1\n"
        ">>> x.reshape(1, 2, 4, 3).any(-1).int().tolist()  # the first head has it twice\n"
        "[[[1, 1, 0, 0], [0, 0, 0, 0]]]\n"
        ">>> x.reshape(1, 4, 2, 3).transpose(1, 2).any(-1).int().tolist()\n"
        "[[[1, 0, 0, 0], [1, 0, 0, 0]]]",
        needs=r"head",
        unless=r"transpose|permute|swapaxes|movedim|\.mt|b·h",
    ),
    Rule(
        "features_without_cross_terms",
        r"√\(?2\)?·?x",
        r"1,√\(?2\)?·?x(?:_\(?i\)?)?(?:,|and)x(?:_\(?i\)?)?\^2"
        r"|1,√\(?2\)?·?x_1,√\(?2\)?·?x_2,x_1\^2,x_2\^2",
        "the features of (q·k + 1)² also have the products √2·x_i x_j of different entries",
        ">>> phi = lambda x: [1, *(2**0.5 * a for a in x), *(a * a for a in x)]\n"
        ">>> q, k = [1, 1], [1, -2]\n"
        ">>> (1 * 1 + 1 * -2 + 1) ** 2, round(sum(a * b for a, b in zip(phi(q), phi(k))), 6)\n"
        "(0, 4.0)",
        needs=r"\+1\)\^2|quadratic|polynomial",
        unless=r"x_\(?i\)?·?x_\(?j|x_1·?x_2|i<j|cross|outer",
    ),
    Rule(
        "fourier_width",
        r"[wω](?:_?\w)?~n\(0,|standarddeviation(?:of)?(?:1/)?σ",
        r"[wω](?:_\(?\w\)?)?~n\(0,σ(?:\^2)?(?:·?i(?:_\w)?)?\)"
        r"|frequenc[^.;]{0,40}standarddeviation(?:of)?σ(?![\^/-])",
        "the frequencies of exp(−‖x − y‖²/2σ²) have the standard deviation 1/σ, not σ",
        ">>> import torch\n"
        ">>> _, w = torch.manual_seed(0), torch.randn(100_000)\n"
        ">>> [abs(round((w * s * 2.0).cos().mean().item(), 1)) for s in (2.0, 0.5)]  # σ = 2\n"
        "[0.0, 0.6]\n"
        ">>> round(2.718281828 ** (-(2.0**2) / (2 * 2.0**2)), 1)  # ‖x − y‖ = 2\n"
        "0.6",
        needs=r"exp\(-[^=]{0,30}/\(?2·?σ\^2",
    ),
    Rule(
        "summed_scores",
        r"α_\(?[a-z]",
        r"α_\(?[a-z]\)?=Σ_\(?[a-z](?:=1)?\)?[^=;.]{0,20}q[^=;.]{0,30}k",
        "with the scores summed over j each token has one score, not one for each pair: there is "
        "one mixture for the whole sequence, and no query",
        ">>> import torch\n"
        ">>> x = torch.randn(5, 3)\n"
        ">>> summed = (x @ x.T).sum(1).softmax(0) @ x\n"
        ">>> summed.shape, ((x @ x.T).softmax(-1) @ x).shape  # one mixture; one for each token\n"
        "(torch.Size([3]), torch.Size([5, 3]))",
        needs=r"attention",
        unless=r"summed|sumofthescores|notattention",
    ),
    Rule(
        "same_keys",
        r"keys?(?:for|at|in|are|be)",
        r"(?:same|identical|equal|constant|one)keys?(?:vectors?)?(?:for|at|in|of)?(?:every|each|all)"
        r"(?:the)?(?:position|token)|allkeys(?:are|be|arethe|bethe)(?:equal|identical|same)",
        "equal keys have equal scores, so the output is the mean of the sequence, not its first",
        ">>> import torch\n"
        ">>> keys, values = torch.ones(3, 2), torch.tensor([6.0, 1.0, 2.0])\n"
        ">>> (torch.randn(2) @ keys.T).softmax(-1) @ values  # the mean; the first is 6\n"
        "tensor(3.)",
        needs=r"first",
        unless=r"cannot|mean|average|wouldnot",
    ),
    Rule(
        "scale_without_root",
        r"softmax\(+q·?k",
        r"softmax\(+q·?k\^?\(?[t⊤]?\)*/\(?d(?:_?\(?(?:k|h|head|model)\)?)?(?![a-z\^])",
        "the scores are divided by √d_k, which is their standard deviation for unit variance",
        ">>> import torch\n"
        ">>> _ = torch.manual_seed(0)\n"
        ">>> q, k = torch.randn(2, 100_000, 64)\n"
        ">>> round((q * k).sum(-1).std().item(), 1)  # √64\n"
        "8.0",
    ),
    Rule(
        "scale_after_softmax",
        r"softmax\(+q·?k",
        r"softmax\(q·?k\^?\(?[t⊤]?\)+(?:·?v)?/√",
        "the division by √d_k is inside the softmax; outside, the weights do not sum to 1",
        ">>> import torch\n"
        ">>> (torch.tensor([1.0, 2.0, 3.0]).softmax(-1) / 4**0.5).sum()\n"
        "tensor(0.5000)",
    ),
)

# Recognised by the syntax of code: id → sentence and proof.
CODE_RULES = {
    "slice": (
        "`0:2:` is `0:2`, the first two; every second one is `0::2`",
        ">>> list(range(8))[0:2:], list(range(8))[0::2]\n([0, 1], [0, 2, 4, 6])",
    ),
    "randint": (
        "the upper end of this randint is never drawn; add 1 to it",
        ">>> import numpy as np\n"
        ">>> sorted({int(n) for n in np.random.randint(1, 5, 1000)})\n"
        "[1, 2, 3, 4]",
    ),
    "softmax_overflow": (
        "softmax without subtracting the maximum: exp overflows, and the weights are NaN",
        ">>> import torch\n>>> s = torch.tensor([1000.0, 999.0])\n"
        ">>> s.exp() / s.exp().sum(), (s - s.max()).exp() / (s - s.max()).exp().sum()\n"
        "(tensor([nan, nan]), tensor([0.7311, 0.2689]))",
    ),
    "rtol": (
        "the relative tolerance is so large that an answer of zeros passes, and so does twice the "
        "right answer",
        ">>> import numpy as np\n>>> expected = np.array([0.3, -1.2, 5.0])\n"
        ">>> wrong = 0 * expected, 2 * expected\n"
        ">>> [bool(np.allclose(each, expected, rtol=1)) for each in wrong]\n"
        "[True, True]",
    ),
}
