//go:build !unix

package spawn

import (
	"context"
	"os"

	"github.com/cohort-hpc/cohort/internal/job"
)

// Job is a set of ranks that have been started: there is none on this system.
type Job struct{}

// Start returns the error of Supported.
func Start(Config) (*Job, error) { return nil, Supported() }

// Wait returns how the job ended.
func (*Job) Wait() job.Result { return job.Result{} }

// Stop ends the job.
func (*Job) Stop() {}

// NoteStopped does nothing.
func (*Job) NoteStopped() {}

// EndStopped does nothing.
func (*Job) EndStopped() {}

// Init does nothing: no process is a Keeper on this system.
func Init() {}

// Keeper is a process that outlives a killed launcher: there is none on this system.
type Keeper struct{}

// StartKeeper returns the error of Supported.
func StartKeeper() (*Keeper, error) { return nil, Supported() }

// Group does nothing.
func (*Keeper) Group(int) {}

// GroupGone does nothing.
func (*Keeper) GroupGone(int) {}

// Folder does nothing.
func (*Keeper) Folder(string) {}

// Leave does nothing.
func (*Keeper) Leave(string) {}

// Keep does nothing.
func (*Keeper) Keep(string, string) {}

// Close does nothing.
func (*Keeper) Close() {}

// Notify returns a channel that receives nothing.
func Notify() chan os.Signal { return make(chan os.Signal) }

// Become returns the error of Supported.
func Become(string, int, int) error { return Supported() }

// Find returns the error of Supported.
func Find(string) (string, bool, error) { return "", false, Supported() }

// Build returns the error of Supported.
func Build(context.Context, string, *Keeper) (string, func(), error) { return "", nil, Supported() }

const onUnix = false
