// Elements that are only moved, by their size.
#pragma once
#ifndef BYTES
#define BYTES 4  // of an element
#endif

#if BYTES == 8
typedef double Data;
#elif BYTES == 4
typedef float Data;
#else
typedef unsigned short Data;
#endif
