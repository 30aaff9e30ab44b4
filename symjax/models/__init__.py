"""Networks in flax.linen: pure functions of their parameters, without state.

There is no dropout here, nor batch normalisation that is trained: with either, the
output for one example is no function of the parameters and that example, and there is
no likelihood to sample from. Matrices multiply at the precision of
`jax.default_matmul_precision`, which is the caller's choice.
"""

from symjax.models import fused as fused
from symjax.models.activations import ACTIVATIONS, Activation
from symjax.models.alexnet import AlexNet
from symjax.models.cnn_lstm import CNNLSTM, LSTM
from symjax.models.images import from_bytes
from symjax.models.lenet import LeNet, LeNetMaxPool
from symjax.models.mlp import MLP
from symjax.models.names import BATCH_NORMALISED, MODELS, build, defaults
from symjax.models.residual import ConvBN, ResNet18, ResNet18FRN, ResNet20
from symjax.models.resnet import ConvFRN, FilterResponseNorm, ResNet20FRN
from symjax.models.vit import ViT
