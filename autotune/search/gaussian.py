"""A Gaussian process: a smooth model of times over the indices of tunables.

Rasmussen, Williams, "Gaussian Processes for Machine Learning" (2006): Matern kernel of order 5/2
with a length per tunable (4.17), the signal's variance worked out, lengths and noise by the
gradient of the marginal likelihood (5.9) times a prior.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_STEPS = 10
"""Of the likelihood's ascent at every fit; each starts where the last one ended."""

_NOISE, _NOISE_SPREAD = np.log(1e-3), 1.5
_LENGTH_SPREAD = 1.0
_LENGTHS = np.log(0.05), np.log(20.0)
_NOISES = np.log(1e-6), np.log(0.3)
_LEAST = 1e-6

_WORK, _FEWEST = 40_000_000, 512
"""Multiplications for deviations, and points that they are worked out for in any case."""


class GaussianProcess:
    """Learns values at points [count, features]; features of one group share a length."""

    def __init__(self, groups: NDArray[np.intp]) -> None:
        self._groups = groups
        count = int(groups.max(initial=-1)) + 1
        self._log_lengths = np.zeros(count)
        self._log_noise = _NOISE
        self._step = np.full(count + 1, 0.2)
        self._slope = np.zeros(count + 1)

    def fit(self, points: Matrix, values: Matrix) -> None:
        """Improve lengths and noise by a few steps of Rprop (Riedmiller, Braun, 1993)."""
        for _ in range(_STEPS):
            slope = self._gradient(points, values)
            turned = slope * self._slope
            factor = np.where(turned > 0, 1.3, np.where(turned < 0, 0.5, 1.0))
            self._step = np.clip(self._step * factor, 1e-3, 0.5)
            self._slope = np.where(turned < 0, 0.0, slope)
            move = -np.sign(self._slope) * self._step
            self._log_lengths = np.clip(self._log_lengths + move[:-1], *_LENGTHS)
            self._log_noise = float(np.clip(self._log_noise + move[-1], *_NOISES))

    def condition(self, points: Matrix, values: Matrix) -> None:
        """Take what is known as it is; the prior mean is zero."""
        covariance, _ = self._covariance(points)
        inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        whitened = inverse @ values
        self._points, self._inverse = points.astype(np.float32), inverse.astype(np.float32)
        self._weights = (whitened @ inverse).astype(np.float32)
        self._variance = max(float(whitened @ whitened) / len(values), _LEAST)

    def predict(self, points: NDArray[np.float32]) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation at every point.

        Of many points the deviation is worked out where the mean is least, and zero elsewhere: as
        many as a fixed amount of work allows, since it grows with the square of what is known.
        """
        across = _kernel(*_decay(self._squares(self._points, points)))
        mean = self._weights @ across
        count = max(_WORK // len(self._points) ** 2, _FEWEST)
        chosen: Any = slice(None)
        if count < len(points):
            chosen = np.argpartition(mean, count)[:count]
        solved = self._inverse @ across[:, chosen]
        left = 1.0 - np.einsum("ij,ij->j", solved, solved)
        deviation = np.zeros(len(points))
        deviation[chosen] = np.sqrt(self._variance * np.maximum(left, _LEAST))
        return mean.astype(float), deviation

    def _squares(self, one: NDArray[np.floating], other: NDArray[np.floating]) -> Matrix:
        """Squared distances in units of the lengths."""
        scale = np.exp(-self._log_lengths)[self._groups].astype(one.dtype)
        one, other = one * scale, other * scale
        squares: Matrix = one @ (-2.0 * other.T)
        squares += (one * one).sum(axis=1)[:, None]
        squares += (other * other).sum(axis=1)
        return np.maximum(squares, 0.0, out=squares)

    def _covariance(self, points: Matrix) -> tuple[Matrix, Matrix]:
        """Of the points with each other, noise added; and minus twice its slope by squares."""
        squares = self._squares(points, points)
        np.fill_diagonal(squares, 0.0)
        root, decay = _decay(squares)
        kernel, slope = _kernel(root, decay), 5.0 / 3.0 * (1.0 + root) * decay
        kernel[np.diag_indices(len(points))] += np.exp(self._log_noise)
        return kernel, slope

    def _gradient(self, points: Matrix, values: Matrix) -> Matrix:
        """Of the negative log posterior by log lengths and log noise."""
        covariance, slope = self._covariance(points)
        inverse = np.linalg.inv(covariance)
        weights = inverse @ values
        variance = max(float(values @ weights) / len(values), _LEAST)
        outer = inverse - np.outer(weights, weights) / variance
        pull = outer * slope
        by_feature = (pull.sum(axis=1) @ (points * points)) - (points * (pull @ points)).sum(axis=0)
        by_length = np.zeros(len(self._log_lengths))
        np.add.at(by_length, self._groups, by_feature)
        by_length *= np.exp(-2.0 * self._log_lengths)
        by_noise = 0.5 * np.exp(self._log_noise) * np.trace(outer)
        return np.append(
            by_length + self._log_lengths / _LENGTH_SPREAD**2,
            by_noise + (self._log_noise - _NOISE) / _NOISE_SPREAD**2,
        )


def _decay(squares: Matrix) -> tuple[Matrix, Matrix]:
    """The scaled distance and its exponential, of which the kernel is made."""
    root = 5.0 * squares
    np.sqrt(root, out=root)
    return root, np.exp(-root)


def _kernel(root: Matrix, decay: Matrix) -> Matrix:
    """The Matern kernel of order 5/2."""
    kernel = root / 3.0
    kernel += 1.0
    kernel *= root
    kernel += 1.0
    kernel *= decay
    return kernel
