//go:build !unix

package cohorttest

import "errors"

var errStop = errors.New("processes cannot be stopped on this system")

func stopProcess(int) error     { return errStop }
func continueProcess(int) error { return errStop }

func limitMemory() error { return errors.ErrUnsupported }
