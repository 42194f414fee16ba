from ._exact import ExactHead as ExactHead
from ._exact import exact_sigmoid_sum as exact_sigmoid_sum
from ._fuse import Fusion as Fusion
from ._fuse import FusionCertificate as FusionCertificate
from ._fuse import fuse as fuse
from ._lattice import from_keys as from_keys
from ._robust import robust_lower_bound as robust_lower_bound
