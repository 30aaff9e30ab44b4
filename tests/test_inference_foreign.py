"""Networks that no one here wrote, from flax NNX, Equinox and Haiku."""

import pytest
from test_inference import (
    by_name,
    check_counts,
    check_elements,
    check_groups,
    infer_unchecked,
)
from zoo import foreign


@pytest.mark.parametrize("case", foreign.CASES, ids=by_name)
def test_the_groups_of_library_layers_are_found(case):
    network = case.make()
    spec = infer_unchecked(network, strict=True)
    check_elements(network, spec)
    check_counts(network, spec)
    check_groups(case, spec)
