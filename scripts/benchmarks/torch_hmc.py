"""HMC as one writes it in PyTorch: a full-batch gradient, leapfrogs, an accept step.

One chain, the same network, prior, step and length as the others. `torch` is imported
where it is used: it is no dependency of symjax.
"""

import importlib
import importlib.util
from typing import Any

import numpy as np


def available():
    """Whether PyTorch can be imported."""
    return importlib.util.find_spec("torch") is not None


def _torch() -> Any:
    return importlib.import_module("torch")


def device():
    torch = _torch()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def to_torch(params):
    """The leaves of a flax network as tensors by their path, kernels turned round."""
    torch = _torch()
    found = {}
    for layer, leaves in _layers(params["params"]):
        for kind, leaf in leaves.items():
            leaf = np.array(leaf)
            turned = (
                {2: (1, 0), 4: (3, 2, 0, 1)}.get(leaf.ndim)
                if kind == "kernel"
                else None
            )
            leaf = leaf if turned is None else leaf.transpose(turned)
            tensor = torch.tensor(np.ascontiguousarray(leaf), device=device())
            found[f"{layer}/{kind}"] = tensor
    return found


def _layers(tree, prefix=""):
    for name, value in tree.items():
        if all(hasattr(leaf, "shape") for leaf in value.values()):
            yield prefix + name, value
        else:
            yield from _layers(value, f"{prefix}{name}/")


def mlp(params, x):
    """`symjax.models.MLP` with silu."""
    F = _torch().nn.functional  # noqa: N806
    names = sorted({path.rsplit("/", 1)[0] for path in params})
    x = x.flatten(1)
    for i, name in enumerate(names):
        x = F.linear(x, params[f"{name}/kernel"], params[f"{name}/bias"])
        x = F.silu(x) if i + 1 < len(names) else x
    return x


def resnet(params, x):
    """`symjax.models.ResNet20FRN`, on images with the channels first."""
    torch = _torch()
    F = torch.nn.functional  # noqa: N806

    place = iter(range(100))

    def conv(x, stride=1):
        name = f"ConvFRN_{next(place)}"
        kernel = params[f"{name}/Conv_0/kernel"]
        side = kernel.shape[-1]
        if side == 3 and stride == 2:  # As "SAME" pads an even side.
            x = F.pad(x, (0, 1, 0, 1))
        x = F.conv2d(
            x,
            kernel,
            params[f"{name}/Conv_0/bias"],
            stride,
            0 if side == 1 or stride == 2 else 1,
        )
        gamma, beta, tau = (
            params[f"{name}/FilterResponseNorm_0/{kind}"][:, None, None]
            for kind in ("gamma", "beta", "tau")
        )
        mean_square = x.square().mean(dim=(2, 3), keepdim=True)
        return torch.maximum(gamma * x * torch.rsqrt(mean_square + 1e-6) + beta, tau)

    maps = F.silu(conv(x))
    for stage in range(3):
        for block in range(3):
            stride = 2 if stage > 0 and block == 0 else 1
            change = conv(F.silu(conv(maps, stride)))
            if stride == 2:
                maps = conv(maps, 2)
            maps = F.silu(maps + change)
    head = params["Dense_0/kernel"], params["Dense_0/bias"]
    return F.linear(maps.mean(dim=(2, 3)), *head)


class Sampler:
    """A chain of HMC on the device.

    Args:
        network: `mlp` or `resnet`.
        params: Of one flax network.
        data: Examples.
        std: Of the normal prior.
        force: `float32` keeps float32 products; anything else allows TF32.
        micro_batch: Examples at a time; None for all.
        compiles: Whether `torch.compile` is used on value and gradient.
    """

    def __init__(self, network, params, data, *, std, force, micro_batch, compiles):
        torch = _torch()
        torch.set_float32_matmul_precision("highest" if force == "float32" else "high")
        torch.backends.cudnn.allow_tf32 = force != "float32"
        torch.backends.cudnn.benchmark = True  # It tries its kernels, as XLA does.
        x = np.array(data.x)
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        self.x = torch.tensor(np.ascontiguousarray(x), device=device())
        self.y = torch.tensor(np.array(data.y), device=device(), dtype=torch.long)
        self.network, self.std = network, std
        self.size = micro_batch or len(self.y)
        self.params = to_torch(params)
        force = torch.func.grad_and_value(self._likelihood)
        self.force = torch.compile(force) if compiles else force
        self.random = torch.Generator(device()).manual_seed(0)
        self.known = None

    def _likelihood(self, params, x, y):
        F = _torch().nn.functional  # noqa: N806
        return -F.cross_entropy(self.network(params, x), y, reduction="sum")

    def gradient(self, params):
        """Value and gradient of the log posterior."""
        slopes = {name: -leaf / self.std**2 for name, leaf in params.items()}
        value = -sum(leaf.square().sum() for leaf in params.values()) / (
            2 * self.std**2
        )
        for begin in range(0, len(self.y), self.size):
            rows = slice(begin, begin + self.size)
            slope, one = self.force(params, self.x[rows], self.y[rows])
            value = value + one
            slopes = {name: slopes[name] + slope[name] for name in slopes}
        return value, slopes

    def transition(self, step_size, num_steps):
        """One transition of `num_steps` gradients; whether it was accepted."""
        torch = _torch()
        params = {name: leaf.detach() for name, leaf in self.params.items()}
        momentum = {
            name: torch.randn(leaf.shape, device=leaf.device, generator=self.random)
            for name, leaf in params.items()
        }
        # The others keep the gradient of where a chain is, too.
        value, slope = self.known = self.known or self.gradient(params)
        before = value - sum(p.square().sum() for p in momentum.values()) / 2
        for _ in range(num_steps):
            half = {n: momentum[n] + step_size / 2 * slope[n] for n in params}
            params = {n: params[n] + step_size * half[n] for n in params}
            value, slope = self.gradient(params)
            momentum = {n: half[n] + step_size / 2 * slope[n] for n in params}
        after = value - sum(p.square().sum() for p in momentum.values()) / 2
        accepts = bool(
            torch.rand((), device=device(), generator=self.random).log()
            < after - before
        )
        if accepts:
            self.params = {name: leaf.detach() for name, leaf in params.items()}
            self.known = value, slope
        return accepts

    def predict(self, x, y):
        """Probabilities of the true classes."""
        torch = _torch()
        x = np.array(x)
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        images = torch.tensor(np.ascontiguousarray(x), device=device())
        with torch.no_grad():
            probs = self.network(self.params, images).softmax(dim=1).cpu().numpy()
        return probs[np.arange(len(y)), np.array(y)]
