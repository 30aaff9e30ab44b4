"""Networks in flax.linen: pure functions of their parameters, without state.

There is no BatchNorm and no dropout here: with either, the output for one example is no
function of the parameters and that example, and there is no likelihood to sample from.
Matrices multiply at the precision of `jax.default_matmul_precision`, which is the
caller's choice.
"""

from symjax.models.activations import ACTIVATIONS, Activation
from symjax.models.lenet import LeNet
from symjax.models.mlp import MLP
from symjax.models.names import MODELS, build
from symjax.models.resnet import ConvFRN, FilterResponseNorm, ResNet20FRN
