"""Which posterior a command is about: what can be typed of it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Problem:
    """The posterior: a data set, a network, a prior and a temperature.

    Attributes:
        data: digits, breast_cancer, wine, diabetes, a file.npz with x_train,
            y_train, x_test and y_test, tfds:NAME, or a set of the folder SYMJAX_DATA:
            mnist, cifar10, imdb, uci:boston and others.
        split: Of uci:NAME, which of its splits, from 0 on (default: 0), or
            izmailovSEED for the 90/10 split of that reference; of imdb, validation.
        pixels: Of images: normalised (mean 0, standard deviation 1 of the training
            images), or unit: black is 0, white is 1.
        num_train: The first so many training examples. Default: all.
        num_test: The first so many test examples. Default: all.
        model: mlp, lenet, lenet_maxpool, alexnet, resnet20_frn, resnet18_frn, vit or
            cnn_lstm; to be imported and compared only, resnet20 and resnet18.
        widths: Hidden widths of an mlp, such as 64 32. Default: 32.
        activation: relu, tanh, silu or gelu. Default: the model's own; those of mlp,
            lenet, vit and networks with frn are smooth.
        prior: Of every weight: normal, laplace, student_t, logistic, or mixture (of
            a wide and a ten times narrower normal).
        prior_scale: Scale of the prior; of a normal one, its standard deviation; of
            a mixture, that of the wide part.
        noise: Of a regression: learned, heteroscedastic, or a number: the noise's
            standard deviation in units of the normalised targets.
        temperature: T in posterior^(1/T).
        micro_batch: Examples a gradient holds in memory. Default: what fits the
            device.
        force_precision: Of the gradient, while what is accepted is decided in full
            float32: float32, tensorfloat32, or bfloat16 and float16, which store
            activations in half the memory (on a GPU with fused kernels for
            resnet20_frn), or float16x2, in which parameters keep 22 bits: for where
            smaller steps are not accepted more often. Rougher is accepted less often;
            without an accept step, in fits too, its error stays. Default: on a GPU with
            an accept step float16x2 for classes (float16 for mlp and resnet20_frn) and
            float32 for regression; float32 for nuts; else JAX's, which is tensorfloat32
            on a GPU.
    """

    data: str = "digits"
    split: str | None = None
    pixels: Literal["normalised", "unit"] = "normalised"
    num_train: int | None = None
    num_test: int | None = None
    model: str = "mlp"
    widths: tuple[int, ...] | None = None
    activation: str | None = None
    prior: str = "normal"
    prior_scale: float = 1.0
    noise: str = "learned"
    temperature: float = 1.0
    micro_batch: int | None = None
    force_precision: (
        Literal["float32", "tensorfloat32", "bfloat16", "float16", "float16x2"] | None
    ) = None
