// The gated MLP of narrow tokens, alone or behind a normalisation: everything about a tile of tokens on chip.
//
// Three launches for all gradients, one for the output alone. Repeats agree bitwise, unless ATOMIC has the shares of the
// tokens add to the gradients of the weights in whatever order they end.
#include "tiled_config.cuh"
#if KERNELS & 1
#include "tiled_tokens.cuh"
#endif
#if KERNELS & 2
#include "tiled_weights.cuh"
#endif
#include "tiled_entries.cuh"
