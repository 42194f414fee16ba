"""attnlab: a differentiable theory lab for softmax attention.

Names are imported on first use, so ``import attnlab.certify`` and ``attnlab verify`` load no JAX.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__version__ = "0.2.0"
