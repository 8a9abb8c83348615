package main

import (
	"fmt"
	"testing"
)

func TestPageOfBeginsOnAPage(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 1000, 8192, 100_000, 1 << 20} {
		bytes, floats := pageOf[byte](n, 1), pageOf[float64](n, 8)
		if len(bytes) != n || len(floats) != n {
			t.Errorf("%d elements: got %d and %d", n, len(bytes), len(floats))
		}
		for _, at := range []string{fmt.Sprintf("%p", bytes), fmt.Sprintf("%p", floats)} {
			if at[len(at)-3:] != "000" {
				t.Errorf("%d elements begin at %s", n, at)
			}
		}
	}
}
