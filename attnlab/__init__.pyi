from . import certify as certify
from . import fusion as fusion
from . import heads as heads
from . import interaction as interaction
from . import laws as laws
from . import learned as learned
from . import rank as rank
from . import survey as survey
from ._lanes import use_devices as use_devices
from .heads import Head as Head
from .heads import HeadSum as HeadSum
from .heads import sigmoid_sum as sigmoid_sum

__version__: str
