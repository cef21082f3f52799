// Between what tensors hold and what is computed in.
#pragma once

#if STORAGE == 1
inline Real wide(Data x) { return from_bfloat16(x); }
inline Data narrow(Real x) { return static_cast<Data>(to_bfloat16(x)); }
#elif STORAGE == 2
inline Real wide(Data x) { return static_cast<Real>(bits_as<_Float16>(x)); }
inline Data narrow(Real x) { return bits_as<Data>(static_cast<_Float16>(x)); }
#else
inline Real wide(Data x) { return x; }
inline Data narrow(Real x) { return static_cast<Data>(x); }
#endif
