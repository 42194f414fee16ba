"""Regression on intervals: logistic errors around a linear predictor, with a ridge penalty.

The response of a row is known to lie in (low, high), either end possibly infinite; its likelihood is the
probability F((high - mu) / s) - F((low - mu) / s) with F the logistic function, which factors into
F(b) F(-a) (1 - exp(a - b)) and so loses no digits in the tails.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

LEAST_SCALE = 0.02  # a few separable rows would otherwise be fitted with no error at all
START_SCALE = 0.3
CURVATURE = 1 / (3 * START_SCALE**2)  # of the logistic likelihood, per squared unit


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: ``mu = (x - centre) / spread @ weights + offset``, errors of scale ``scale``.

    Attributes:
        centre, spread, weights: shape (features,); the spread of a constant feature is infinite.
        offset, scale, penalty: numbers.
    """

    centre: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    offset: float
    scale: float
    penalty: float

    def location(self, features: np.ndarray) -> np.ndarray:
        """Median of the latent response, shape (rows,)."""
        return (features - self.centre) / self.spread @ self.weights + self.offset

    def log_score(self, features: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """log P(low < response < high), shape (rows,)."""
        mu = self.location(features)
        return log_probability((low - mu) / self.scale, (high - mu) / self.scale)

    def quantile(self, features: np.ndarray, level: float) -> np.ndarray:
        """Quantile of the latent response, shape (rows,)."""
        return self.location(features) + self.scale * logit(level)


def log_probability(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log(F(b) - F(a)) for a < b, either infinite.

    >>> float(log_probability(np.array([-np.inf]), np.array([0.0]))[0])
    -0.6931471805599453
    """
    return -np.logaddexp(0, -b) - np.logaddexp(0, a) + np.log(-np.expm1(a - b))


def fit(features: np.ndarray, low: np.ndarray, high: np.ndarray, penalty: float) -> Fit:
    """Maximise the penalised likelihood.

    Arguments:
        features: shape (rows, features), finite.
        low, high: shape (rows,), low < high.
        penalty: multiplies the sum of squares of the weights of standardised features.
    """
    centre, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 1e-9 * (1 + np.abs(centre)), spread, np.inf)
    x = (features - centre) / spread
    finite = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)], [0.0]])
    # Principal components, each scaled by about the square root of its curvature: features are correlated,
    # and quasi-Newton steps in their own coordinates would take thousands of iterations.
    _, s, vt = np.linalg.svd(x, full_matrices=False)
    basis = vt.T / np.sqrt(CURVATURE * s**2 + 2 * penalty)
    x = x @ basis
    start = np.zeros(x.shape[1] + 2)
    start[-2:] = finite.mean(), np.log(START_SCALE)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        moved, offset = parameters[:-2], parameters[-2]
        weights = basis @ moved
        scale = LEAST_SCALE + np.exp(parameters[-1])
        mu = x @ moved + offset
        a, b = (low - mu) / scale, (high - mu) / scale
        both = 1 / np.expm1(b - a)  # 0 where one end is infinite
        da, db = -expit(a) - both, expit(-b) + both
        d_mu = (da + db) / scale
        at_a, at_b = (np.where(np.isfinite(z), z * d, 0.0) for z, d in ((a, da), (b, db)))
        d_scale = (at_a + at_b).sum() / scale * np.exp(parameters[-1])
        value = -log_probability(a, b).sum() + penalty * weights @ weights
        gradient = np.concatenate([d_mu @ x + 2 * penalty * weights @ basis, [d_mu.sum(), d_scale]])
        return value, gradient

    with np.errstate(invalid="ignore", over="ignore"):
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000})
    scale = LEAST_SCALE + np.exp(found.x[-1])
    return Fit(centre, spread, basis @ found.x[:-2], found.x[-2], float(scale), penalty)


def fit_chosen(
    features: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    groups: np.ndarray,
    penalties: list[float],
    folds: int,
    rng: np.random.Generator,
) -> Fit:
    """``fit`` with the penalty that scores best when groups are held out in turn."""
    fold = folds_of(groups, folds, rng)
    scores = []
    for penalty in penalties:
        total = 0.0
        for i in range(folds):
            kept, held = fold != i, fold == i
            model = fit(features[kept], low[kept], high[kept], penalty)
            total += model.log_score(features[held], low[held], high[held]).sum()
        scores.append(total)
    return fit(features, low, high, penalties[int(np.argmax(scores))])


def folds_of(groups: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for every row: groups are shuffled and dealt out, so that a group is never split."""
    names, index = np.unique(groups, return_inverse=True)
    if len(names) < folds:
        raise ValueError(f"{len(names)} groups cannot make {folds} folds.")
    dealt = np.arange(len(names)) % folds
    rng.shuffle(dealt)
    return dealt[index]
