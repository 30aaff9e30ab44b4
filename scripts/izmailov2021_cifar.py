"""HMC on CIFAR-10: Izmailov, Vikram, Hoffman, Wilson (2021), their section 6.

What are Bayesian neural network posteriors really like?: the table of methods beside
HMC (agreement and total variation), corrupted test images, temperatures, the prior's
variance and families of priors (the last three they show on IMDB and in figures).

    python scripts/izmailov2021_cifar.py --scale small --out runs/izmailov2021_cifar
    python scripts/izmailov2021_cifar.py --scale paper --parts methods --dry-run

| scale | posterior | time |
|---|---|---|
| tiny | digits, an MLP of 4 units | seconds |
| small | LeNet-5 on the first 800 images | one GPU, 75 minutes at most |
| paper | ResNet-20-FRN on 40,960 images, 61 million gradients | the plan says |

At the scale of the paper three chains make 290 iterations of 70,248 leapfrogs each.
With `--model lenet_maxpool` instead, the command of hmc that `--dry-run` prints is that
of their LeNet-5, of which an iteration takes far less time.

Expected, of their ResNet-20-FRN: agreement and total variation with HMC of a deep
ensemble 91.5 % / .115, mean-field VI 88.8 % / .136, SGLD 91.5 % / .110, SGHMC 92.0 % /
.109, with cyclical steps 92.7 % / .099, and a preconditioner 91.0 % / .111; between
chains of HMC 94.0 % / .074. At the small scale another network and other data have
other numbers. On an H200, all but the sweeps (`--parts methods corruption`, 24 minutes,
HMC 822 s of them): HMC 46.3 % correct, SGD 52.8 % / .431, ensemble 59.7 % / .330,
mean-field VI 23.5 % / .329, SGLD 64.8 % / .168, SGHMC 57.0 % / .193, with cyclical
steps 55.8 % / .212, and a preconditioner 68.4 % / .150, between chains 85.9 % / .065.
R-hat is below 1.05 for 99.7 % of the predictions, the largest 1.10, and for 99.8 % of
the weights; below 1.01 it is for 73 % of the weights, and for 99.9 % after alignment:
what the chains still disagree about is symmetry. As in the paper mean-field VI agrees
with HMC least and a chain of HMC with the others best, and SGLD and SGHMC are nearer to
it than ensembles in total variation. In agreement SGLD is, and SGHMC with a
preconditioner, of which the paper has less than of an ensemble; SGHMC without agrees
less, of which it has more. With 800 draws after a warm-up of 30, HMC had 39.2 % and an
R-hat below 1.05 for 97.8 %: we presume that it was on its way, all chains together.

Needs cifar10.npz (or a prepared tfds:cifar10), at the small scale
cifar10_lossless_subset.npz, in the folder that SYMJAX_DATA names: x_train, y_train,
x_test and y_test, the first 800 or more training images and the first 1,000 to test.
"""

import izmailov2021_parts as parts
import izmailov2021_words as words
import papers
from izmailov2021_parts import Experiment


NUM_EXAMPLES = 40_960
"""Of the training images: what their devices divide."""

EPOCH = NUM_EXAMPLES // 80

VARIANCE = 1 / 5

PUBLISHED = {
    "methods": {
        "ensemble": {"agreement": 0.9152, "total variation": 0.115},
        "mfvi": {"agreement": 0.8875, "total variation": 0.136},
        "sgld": {"agreement": 0.9154, "total variation": 0.110},
        "sghmc": {"agreement": 0.9198, "total variation": 0.109},
        "sghmc_clr": {"agreement": 0.9267, "total variation": 0.099},
        "sghmc_clr_prec": {"agreement": 0.9096, "total variation": 0.111},
        "between chains": {"agreement": 0.9401, "total variation": 0.074},
    }
}

DIFFERS = {
    "tiny": "A network of 4 units on the digits: only to see that everything runs.",
    "small": (
        "LeNet-5 and the first 800 training images instead of ResNet-20-FRN and "
        "40,960. HMC starts at draws of the prior, below temperature 1 at those of the "
        "next warmer run; its step size is adapted, its trajectories are half as long "
        "as theirs. Step sizes of the stochastic samplers are theirs times 40,960 / "
        "800, since the gradient is a sum over the examples (with a preconditioner as "
        "they are). All methods have the prior of HMC; theirs are 1/5 too, but of "
        "optimised networks 1/10."
    ),
    "paper": (
        "As theirs, but: mean-field VI starts from a random network, not from an "
        "optimised one; a mixture of normals has scales 10 : 1; all temperatures "
        "take the step size of temperature 1; HMC's accept step is computed to full "
        "precision. The stochastic samplers are at temperature 1, as the paper writes; "
        "the released code samples at 1 / devices, see --izmailov2021.imitated-devices."
    ),
}


PRIOR = words.prior("normal", VARIANCE)

TINY = Experiment(
    problem="--model mlp --widths 4 --data digits",
    variance=VARIANCE,
    hmc="--num-chains 2 --hmc.num-warmup 10 --hmc.step-size 0.05",
    start="init",
    trajectory=words.by_length(1.0),
    num_draws=10,
    num_swept=10,
    minutes=None,
    methods=words.baselines(
        {"ensemble": "--num-members 2 --ensemble.num-steps 50"},
        {"sghmc_clr": "--izmailov2021.cycle-epochs 1"},
        both="--num-chains 2 --num-draws 10 --thinning 2 --start init "
        "--izmailov2021.num-warmup-epochs 1 --izmailov2021.step-size 1e-4",
        prior=PRIOR,
        sgd_prior=PRIOR,
    ),
    temperatures=(0.3,),
    variances=(),
    evaluation="--shift rotate --severities 3",
    cools=True,
)

CYCLES = "--izmailov2021.cycle-epochs 100 --num-draws 60 --thinning 1000"

SMALL = Experiment(
    problem="--model lenet --data cifar10_lossless_subset --num-train 800",
    variance=VARIANCE,
    hmc="--num-chains 3 --warmup auto --hmc.num-warmup 150",
    start="prior",
    trajectory=words.by_length(0.5),
    num_draws=1500,
    num_swept=200,
    minutes=20.0,
    methods=words.baselines(
        {
            "sgd": "--num-members 1 --ensemble.num-steps 2000",
            "ensemble": "--num-members 20 --ensemble.num-steps 2000",
            "mfvi": "--num-members 1 --num-draws 50 --mfvi.num-steps 5000 "
            "--mfvi.noise shared --mfvi.first-std 0.01",
        },
        {
            "sgld": "--izmailov2021.step-size 5e-5 --num-draws 60 --thinning 1000",
            "sghmc": "--izmailov2021.step-size 1.5e-5 --num-draws 60 --thinning 1000",
            "sghmc_clr": f"--izmailov2021.step-size 1.5e-5 {CYCLES}",
            "sghmc_clr_prec": CYCLES,
        },
        both="--num-chains 3 --izmailov2021.num-warmup-epochs 1000",
        prior=PRIOR,
        sgd_prior=PRIOR,
    ),
    temperatures=(0.1, 0.3, 3.0),
    variances=(1 / 50, 2.0),
    evaluation="--shift gaussian_noise defocus_blur brightness contrast pixelate "
    "jpeg --severities 1 3 5 --ood noise permuted",
    cools=True,
)

PAPER = Experiment(
    problem=f"--model resnet20_frn --data cifar10 --num-train {NUM_EXAMPLES}",
    variance=VARIANCE,
    hmc="--num-chains 3 --hmc.num-warmup 0 --hmc.num-unadjusted 50",
    start="init",
    trajectory=words.by_leapfrogs({1.0: 1e-5}, 70_248, VARIANCE),
    num_draws=240,
    num_swept=240,
    minutes=None,
    methods=words.baselines(
        words.published_fits(NUM_EXAMPLES),
        {
            "sgld": f"--num-draws 900 --thinning {10 * EPOCH}",
            "sghmc": f"--num-draws 900 --thinning {10 * EPOCH}",
            "sghmc_clr": f"--num-draws 180 --thinning {50 * EPOCH}",
            "sghmc_clr_prec": f"--num-draws 180 --thinning {50 * EPOCH}",
        },
        both="--num-chains 5 --start init",
        prior=PRIOR,
        sgd_prior=words.prior("normal", 1 / 10),
    ),
    temperatures=(0.1, 0.3, 3.0),
    variances=(1 / 50, 1 / 10, 1.0),
    evaluation="--shift gaussian_noise shot_noise impulse_noise defocus_blur "
    "motion_blur zoom_blur fog brightness contrast elastic pixelate jpeg",
)

EXPERIMENTS = {"tiny": TINY, "small": SMALL, "paper": PAPER}


def main():
    title = "izmailov2021_cifar: HMC on CIFAR-10"
    parts.main(__doc__, title, EXPERIMENTS, DIFFERS, PUBLISHED)


if __name__ == "__main__":
    papers.start(main)
