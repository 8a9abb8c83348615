//go:build !cgo || !linux || cohort_nompi

package main

import "errors"

const mpiBuilt = false

func describe(string) (report, error) { return report{}, errors.New(withoutMPI) }
