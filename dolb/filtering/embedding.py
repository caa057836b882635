"""The map: features reduced by PCA, then placed in the plane by t-SNE."""

from typing import Any, Self

import numpy as np
import openTSNE
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from dolb import progress as shown
from dolb.filtering.checks import rows_for

_TICK = 10  # iterations between two moves of the progress bar
_TRANSFORM_ITERATIONS = 250


def principal_components(features: np.ndarray, n_components: int) -> PCA:
    """Return a fitted PCA with ``n_components``, or as many as there can be; exact, so the same every time."""
    n, width = features.shape
    # By the covariance where that is the smaller matrix: no copy of the features, and none of them is random.
    solver = "covariance_eigh" if n >= width else "full"
    return PCA(min(n_components, n, width), svd_solver=solver).fit(features)


class TSNEMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A map of features in the plane, onto which further features can be placed.

    t-SNE starts from the first two principal components, with a learning rate that follows the number of points and
    exact nearest neighbours, so that one ``random_state`` gives one map on one machine. Other starts and rates are
    there to see what depends on them.

    Parameters
    ----------
    n_components
        Principal components that t-SNE sees.
    perplexity
        Effective number of neighbours of a point; there must be more than three times as many points.
    early_exaggeration_iter, n_iter
        Iterations of the two phases.
    learning_rate
        Of both phases; 0 follows the number of points.
    start
        ``"pca"``, or ``"random"`` for a narrow normal distribution.
    n_jobs
        Processor cores; -1 is all.
    random_state
        Seed of what is random: a random start, or a slight jitter of the other.
    progress
        Show a bar.
    device
        Where the map is made: on ``"cuda"`` every pair of points counts, on ``"cpu"`` far ones are approximated.

    After ``fit``, ``coordinates_`` holds the map, (n, 2).
    """

    coordinates_: np.ndarray

    def __init__(
        self,
        n_components: int = 50,
        perplexity: float = 30,
        early_exaggeration_iter: int = 250,
        n_iter: int = 500,
        learning_rate: float = 0,
        start: str = "pca",
        n_jobs: int = -1,
        random_state: int = 0,
        progress: bool = True,
        device: str = "cpu",
    ):
        self.n_components = n_components
        self.perplexity = perplexity
        self.early_exaggeration_iter = early_exaggeration_iter
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.start = start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress
        self.device = device

    def fit(self, X: Any, y: object = None) -> Self:
        """Make the map of these features; labels, which a pipeline passes on, do not count."""
        features = rows_for(self, "features", X)
        least = int(3 * self.perplexity) + 2
        if len(features) < least:
            raise ValueError(
                f"there are {len(features)} samples for perplexity {self.perplexity:g}; accepted: at least {least}, or "
                f"a perplexity up to {max(0, (len(features) - 2) / 3):.1f}"
            )
        self._pca = principal_components(features, self.n_components)
        if not self._pca.explained_variance_.sum() > 0:
            raise ValueError("the features of all samples are alike, and have no map; accepted: some that differ")
        tsne = openTSNE.TSNE(
            perplexity=self.perplexity,
            initialization=self.start,
            learning_rate=self.learning_rate or "auto",
            early_exaggeration_iter=self.early_exaggeration_iter,
            n_iter=self.n_iter,
            # Nothing random in them, and faster here: 7 s for 20,000 points on one core, approximate ones 24 s.
            neighbors="exact",
            n_jobs=effective_n_jobs(self.n_jobs),
            random_state=self.random_state,
            callbacks_every_iters=_TICK,
            negative_gradient_method=self._gradient(),
        )
        total = self.early_exaggeration_iter + self.n_iter
        with shown.bar(total, "t-SNE", "iteration", self.progress) as bar:

            def tick(*_: object) -> None:
                bar.update(_TICK)  # whose own answer, True where it redraws, would tell openTSNE to stop

            tsne.callbacks = [tick]
            self._embedding = tsne.fit(self._components(features))
        # `transform` of openTSNE centres the map in place; done here, the map and what is placed on it stay together.
        self._embedding -= (self._embedding.max(axis=0) + self._embedding.min(axis=0)) / 2
        # The bar is closed, and cannot be pickled; further points are placed without a GPU.
        self._embedding.gradient_descent_params |= {"callbacks": None, "negative_gradient_method": "auto"}
        self.coordinates_ = np.array(self._embedding)
        self._n_features_out = self.coordinates_.shape[1]
        return self

    def fit_transform(self, X: Any, y: object = None) -> np.ndarray:
        """Make the map of these features and return its coordinates, (n, 2)."""
        return self.fit(X).coordinates_

    def transform(self, X: Any) -> np.ndarray:
        """Place further features, such as those of the test set, on the map; it stays as it is."""
        check_is_fitted(self)
        features = rows_for(self, "features", X, reset=False)
        return np.array(self._embedding.transform(self._components(features), n_iter=_TRANSFORM_ITERATIONS))

    def _gradient(self) -> Any:
        if self.device == "cpu":
            return "auto"
        from dolb.kernels.tsne import Gradient  # late: it needs Triton

        return Gradient(self.device)

    def _components(self, features: np.ndarray) -> np.ndarray:
        components = np.ascontiguousarray(self._pca.transform(features), dtype=np.float64)
        return np.pad(components, ((0, 0), (0, max(0, 2 - components.shape[1]))))  # a start in the plane takes two
