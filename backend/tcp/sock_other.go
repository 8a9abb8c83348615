//go:build !linux && !darwin

package tcp

import (
	"errors"
	"net"
	"time"
)

// supported says that this system has what the backend needs.
const supported = false

var errSystem = errors.ErrUnsupported

var errAgain = errSystem

func again(error) bool { return false }

type socket int

func (socket) read([]byte, []byte) (int, error)  { return 0, errSystem }
func (socket) write([]byte, []byte) (int, error) { return 0, errSystem }

func sockClose(int)  {}
func sockFinish(int) {}

func takeSocket(c net.Conn) (int, error) { return -1, errors.Join(errSystem, c.Close()) }

type pollset struct{}

func (p *pollset) reset()             {}
func (p *pollset) add(int, bool)      {}
func (p *pollset) wait(time.Duration) {}
func (p *pollset) ready(int) bool     { return false }

type bell struct{ r int }

func newBell() (bell, error) { return bell{}, errSystem }

func (b bell) ring()  {}
func (b bell) quiet() {}
func (b bell) close() {}
