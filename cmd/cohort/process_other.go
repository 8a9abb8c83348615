//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// ownGroup does nothing: this system has no process groups.
func ownGroup(*exec.Cmd) {}

// suspend does nothing: this system has no such signal.
func suspend(os.Signal) {}
