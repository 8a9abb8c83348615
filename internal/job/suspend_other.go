//go:build !unix

package job

import "os"

// Suspend does nothing: this system has no such signal.
func Suspend(os.Signal) {}
