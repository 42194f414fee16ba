"""Approximate rank of attention: certified error profiles and rank brackets."""

from ._attention import attention as attention
from ._bracket import bracket as bracket
from ._bracket import brackets as brackets
from ._bracket import focused_profile as focused_profile
from ._constructions import cross as cross
from ._constructions import row_cover as row_cover
from ._constructions import svd_bracket as svd_bracket
from ._constructions import truncated_svd as truncated_svd
from ._factored import FactoredAttention as FactoredAttention
from ._profile import ErrorProfile as ErrorProfile
from ._profile import RankBracket as RankBracket
from ._profile import error_profile as error_profile
from ._summing import svd_tail as svd_tail
from ._summing import two_summing as two_summing
from ._target import Logits as Logits

__all__ = [
    "ErrorProfile",
    "FactoredAttention",
    "Logits",
    "RankBracket",
    "attention",
    "bracket",
    "brackets",
    "cross",
    "error_profile",
    "focused_profile",
    "row_cover",
    "svd_bracket",
    "svd_tail",
    "truncated_svd",
    "two_summing",
]
