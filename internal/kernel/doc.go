// Package kernel implements the arithmetic of reductions: for each predefined
// operation and each kind of number a function that combines two vectors of
// bytes into a third.
//
// # Aliasing
//
// The functions are those of [backend.Op.Apply]: dst is a, or b, or overlaps
// neither. An element of dst is written only after the same elements of a and b
// have been read.
//
// # Floats
//
// Min and Max follow Go's built-in functions: a NaN wins, and -0 is below +0, so
// that min(x, y) and min(y, x) are the same except for the bits of a NaN. MinLoc
// and MaxLoc do the same and take the lower index where the values are equal.
// Half-precision numbers are combined as float32 and rounded to nearest, ties
// to even.
package kernel
