//go:build !linux

package tcp

import "errors"

// A wakeSocket is needed for shared memory only, which this system does not have.
type wakeSocket struct {
	name string
	fd   int
}

func newWakeSocket(string) (*wakeSocket, error) { return nil, errors.ErrUnsupported }

func (s *wakeSocket) peers([]string) {}
func (s *wakeSocket) send(int)       {}
func (s *wakeSocket) drain()         {}
func (s *wakeSocket) close()         {}
