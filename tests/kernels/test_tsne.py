"""The gradient of t-SNE by kernels against openTSNE's own; without a GPU, through Triton's interpreter."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import openTSNE
from openTSNE.tsne import kl_divergence_bh
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

from dolb.filtering.embedding import TSNEMap
from dolb.kernels.tsne import Gradient

pytestmark = pytest.mark.gpu if torch.cuda.is_available() else []
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def affinities(n):
    return openTSNE.affinity.PerplexityBasedNN(load_digits().data[:n], perplexity=10, method="exact")


@pytest.mark.parametrize("width", [1e-4, 20.0], ids=["at the start", "spread out"])
def test_the_gradient_is_opentsnes_without_its_approximation(width):
    known, embedding, ours = affinities(70).P, np.random.default_rng(0).normal(size=(70, 2)) * width, Gradient(DEVICE)
    ours(embedding, known)
    known *= 12  # in place, as it exaggerates them
    _, expected = kl_divergence_bh(embedding, known, dof=1, bh_params={"theta": 0.0})
    expected -= expected.mean(axis=0)  # forces of pairs cancel; among points that nearly meet its tree leaves a rest
    np.testing.assert_allclose(ours(embedding, known)[1], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_opentsne_descends_by_it():
    def descended(method, **how):
        made = openTSNE.TSNEEmbedding(start.copy(), affinities(40), negative_gradient_method=method, **how)
        return np.asarray(made.optimize(3, exaggeration=4, learning_rate=10).optimize(2, learning_rate=10))

    start = np.random.default_rng(0).normal(size=(40, 2))
    expected = descended("bh", theta=0.0)
    np.testing.assert_allclose(descended(Gradient(DEVICE)), expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected - start).max() > 0.1


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
def test_a_map_made_on_a_gpu_is_the_same_again_and_takes_further_points():
    features = load_digits().data.astype(np.float32)
    one, again = (TSNEMap(device="cuda", progress=False).fit(features) for _ in range(2))
    np.testing.assert_array_equal(one.coordinates_, again.coordinates_)
    placed = one.transform(features[:50])
    assert np.median(np.hypot(*(placed - one.coordinates_[:50]).T)) < 0.05 * np.ptp(one.coordinates_)
    by_cpu = TSNEMap(progress=False).fit(features)
    kept = [trustworthiness(features, made.coordinates_, n_neighbors=10) for made in (by_cpu, one)]
    assert kept[1] == pytest.approx(kept[0], abs=0.01)
