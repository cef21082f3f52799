"""What the study published (Mullin and Hains, arXiv 2609.33916, and its raw results), as data.

GPU times are wall times of OpenACC code in float64, copies to and from the host included; B = 2,
one head, D = 64. Milliseconds by N unless said otherwise.
"""

from __future__ import annotations

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def _by_size(*values: float | None, sizes: tuple[int, ...] = SIZES) -> dict[int, float]:
    return {n: v for n, v in zip(sizes, values, strict=True) if v is not None}


FORWARD_H200 = _by_size(0.166, 0.235, 0.450, 1.759, 5.421, 27.075, 104.6, 431.261)
FORWARD_A100 = _by_size(0.242, 0.383, 0.788, 2.899, 8.808, 31.952, 116.893, 457.188)
BACKWARD_H200 = _by_size(0.679, 1.232, 2.406, 9.227, 31.632, 119.753, 511.843, 2013.925)
V3_H200 = _by_size(0.777, 1.369, 2.677, 6.631, 27.167, 85.831, 273.246, 980.087)

# Over the separate passes (forward and backward) of the same card; v4, and the backward without
# atomics, were run on the A100 alone.
V2_OVER_SEPARATE_H200 = _by_size(1.338, 1.534, 1.532, 1.532, 1.491, 1.525, 1.515, 1.457)
V3_OVER_SEPARATE_H200 = _by_size(0.920, 0.933, 0.937, 0.604, 0.733, 0.585, 0.443, 0.401)
NO_ATOMICS_BACKWARD_A100 = _by_size(0.602, 0.570, 0.563, 0.661, 0.710, 0.699, 0.700, 0.811)
V4_OVER_V3_A100 = _by_size(0.792, 0.753, 0.741, 0.525, 0.713, 0.767, 1.043, 1.322)

# Predicted and counted megabytes (10^6) on the A100, N = 2048.
TRAFFIC = {"read": (6.291, 9.045), "written": (69.206, 142.333)}
# Counted gigabytes (10^9) read and written at N = 4096 on the A100.
FUSED_TRAFFIC = {"v3": (44.2422, 1.358), "v4": (88.4655, 1.368)}
ATOMICS = {"v2": 1_073_741_824, "GK alone": 536_870_912}

# CPU forward, 2 x EPYC 7763 (128 cores): seconds on one thread, best threads, its speed-up, and how
# much longer all 128 take than the best (None: they are the best).
FORWARD_CPU = {
    64: (0.0013, 4, 1.4, 14.5),
    128: (0.0067, 8, 4.0, 5.5),
    256: (0.0271, 16, 7.3, 3.8),
    512: (0.1388, 32, 16.4, 2.3),
    1024: (0.445, 64, 23.4, 1.7),
    2048: (2.13, 128, 43.3, None),
    4096: (7.49, 128, 53.5, None),
    8192: (24.57, 128, 60.6, None),
}
# Fused (five passes) over separate on all 128 threads, single runs.
FUSED_OVER_SEPARATE_CPU = _by_size(0.41, 2.07, 0.44, 1.10, 0.51, 0.99, 0.72, 0.96)
# The same by threads at N = 4096.
FUSED_OVER_SEPARATE_THREADS = dict(
    zip(
        (1, 2, 4, 8, 16, 32, 64, 128), (1.19, 1.01, 1.01, 0.94, 0.90, 0.84, 0.82, 0.72), strict=True
    )
)

CACHE_LENGTHS = tuple(1024 << i for i in range(11))
# Decode on a CPU, float32: best time, its threads, and 128 threads over 64.
DECODE_CPU = {
    1024: (0.035, "16", 535.1),
    2048: (0.073, "8, 16", 477.3),
    4096: (0.154, "64", 286.1),
    8192: (0.217, "64", 182.6),
    16384: (0.288, "64", 142.0),
    32768: (0.358, "64", 95.0),
    65536: (0.627, "128", 0.56),
    131072: (4.581, "32", 5.80),
    262144: (36.358, "64", 1.58),
    524288: (88.404, "64", 2.42),
    1048576: (201.005, "64", 1.28),
}
DECODE_A100 = _by_size(
    *(0.360, 0.436, 0.679, 0.938, 1.469, 2.972, 5.625, 10.916, 21.223, 47.400, 80.896),
    sizes=CACHE_LENGTHS,
)

# Gated MLP with gradients on one CPU thread: Fortran over C.
FORTRAN_OVER_C = _by_size(
    *(1.35, 1.34, 1.19, 1.46, 1.43, 1.67, 1.65, 1.82, 1.84, 1.30, 1.41),
    sizes=tuple(64 << i for i in range(11)),
)

# Transformer block with gradients: one CPU thread, and an A100; milliseconds.
BLOCK_CPU = _by_size(33.0, 90.8, 224.1, 731.6, 1890.5, 8580.1, 106807.9, sizes=SIZES[:7])
BLOCK_A100 = _by_size(43.1, 189.4, 776.0, 3037.5, sizes=SIZES[:4])
# Normalisation and MLP with gradients on an A100, the faster of C and Fortran (Fortran).
NORM_MLP_A100 = _by_size(1.867, 2.885, 4.754, 8.017, 13.212, 23.053, 40.740, sizes=SIZES[:7])
