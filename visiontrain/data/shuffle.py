"""A permutation without a list: the number at a position is computed when it is asked for."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np

ROUNDS = 6
_WORD = 2**64 - 1

Numbers = TypeVar("Numbers", int, np.ndarray)


class Shuffle:
    """The numbers below ``n`` in another order: ``shuffle[position]`` for one position or an array of them.

    A Feistel network on pairs of numbers, each below ``side``, the root of n rounded up; what lands at n or above goes
    through again until it is below (cycle walking), so that below n every number comes once.

    Args:
        entropy: of the keys; whole numbers from 0.
        n: how many numbers, at least 1.

    Source:
        Luby and Rackoff, How to Construct Pseudorandom Permutations, SIAM J. Comput. 17, 1988.
        Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002, ia.cr/2001/012: sides of any length, cycle walking.
    """

    def __init__(self, entropy: Sequence[int], n: int) -> None:
        self.n = n
        self.side = math.isqrt(n - 1) + 1
        self.keys = [int(key) for key in np.random.SeedSequence(entropy).generate_state(ROUNDS, np.uint64)]

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, at: int | np.integer) -> int: ...
    @overload
    def __getitem__(self, at: np.ndarray) -> np.ndarray: ...
    def __getitem__(self, at: int | np.integer | np.ndarray) -> int | np.ndarray:
        """The number at a position, or those at an array of positions, as int64.

        Raises:
            IndexError: a position is not in 0 .. n - 1.
        """
        if isinstance(at, np.ndarray):
            return self._numbers(at)
        number = operator.index(at)
        if not 0 <= number < self.n:
            raise IndexError(f"position {number} of {self.n}")
        number = self._turn(number)
        while number >= self.n:
            number = self._turn(number)
        return number

    def _numbers(self, at: np.ndarray) -> np.ndarray:
        if at.size and not 0 <= int(at.min()) <= int(at.max()) < self.n:
            raise IndexError(f"positions {at.min()} to {at.max()} of {self.n}")
        numbers = self._turn(at.astype(np.uint64))
        while (over := numbers >= self.n).any():
            numbers[over] = self._turn(numbers[over])
        return numbers.astype(np.int64)

    def _turn(self, number: Numbers) -> Numbers:
        """A permutation of all pairs: each round adds to one half a hash of the other."""
        left, right = number % self.side, number // self.side
        for key in self.keys:
            left, right = right, (left + (_mixed(right ^ key) >> 16)) % self.side
        return left + self.side * right


def _mixed(word: Numbers) -> Numbers:
    """64 other bits for 64, every one of them moved by each of the old; the same for ints and for arrays of uint64.

    Source:
        Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014: the finalizer of SplitMix64.
    """
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)
