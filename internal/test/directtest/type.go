package directtest

import (
	"encoding/binary"

	"github.com/cohort-hpc/cohort/backend"
)

var le = binary.LittleEndian

// Int is a type of 8 bytes with a commutative sum.
var Int = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}

// Sum adds Ints.
var Sum = &backend.Op{Code: backend.OpSum, Commutative: true, Type: Int, Apply: func(dst, a, b []byte) {
	for i := 0; i < len(dst); i += 8 {
		le.PutUint64(dst[i:], le.Uint64(a[i:])+le.Uint64(b[i:]))
	}
}}

// Matrix is a type of 32 bytes, a 2 by 2 matrix of integers modulo 2^64.
var Matrix = &backend.Datatype{Kind: backend.Opaque, Size: 32, Name: "matrix", ID: 0x6d617472}

// Product multiplies Matrices: associative and not commutative, so that a
// wrong order of operands shows.
var Product = &backend.Op{Code: backend.OpUser, Type: Matrix, Apply: func(dst, a, b []byte) {
	for i := 0; i < len(dst); i += 32 {
		x, y := matrix(a[i:]), matrix(b[i:])
		for k, v := range [4]uint64{
			x[0]*y[0] + x[1]*y[2], x[0]*y[1] + x[1]*y[3],
			x[2]*y[0] + x[3]*y[2], x[2]*y[1] + x[3]*y[3],
		} {
			le.PutUint64(dst[i+8*k:], v)
		}
	}
}}

func matrix(b []byte) (m [4]uint64) {
	for k := range m {
		m[k] = le.Uint64(b[8*k:])
	}
	return m
}
