"""The trusted checker: certificates, their file format, and what each one proves.

This package imports neither JAX nor anything else of attnlab, so that what it says does not depend
on how a witness was found. It computes in NumPy float64 with a-priori rounding bounds, in Arb balls
(python-flint), or in integers.

>>> import numpy as np
>>> from attnlab import certify
>>> A = np.eye(4)
>>> cert = certify.Certificate(
...     kind="rank-lower",
...     claim={"rank": 3, "error": 0.99},
...     witness={"L": np.eye(4), "R": np.eye(4)},
...     subject={"attention": A},
... )
>>> bool(cert.verify())
True
"""

from ._certificate import Certificate as Certificate
from ._certificate import load as load
from ._errors import CertificateError as CertificateError
from ._errors import InvalidWitness as InvalidWitness
from ._verdict import Verdict as Verdict

__all__ = ["Certificate", "CertificateError", "InvalidWitness", "Verdict", "load"]
