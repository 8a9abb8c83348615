//go:build !(pmix && linux && (amd64 || arm64))

package pmi

import (
	"context"
	"errors"
)

// loadPMIx returns why PMIx is not used.
func loadPMIx() error { return errors.New("the program is built without the tag pmix") }

func openPMIx(context.Context) (Space, error) { return nil, loadPMIx() }
