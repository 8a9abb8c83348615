//go:build !(pmix && linux && (amd64 || arm64))

package pmi

func pmix(Environment) *Means { return nil }
