//go:build race

package tensor

func init() { racing = true }
