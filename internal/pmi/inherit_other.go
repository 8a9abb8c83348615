//go:build !unix

package pmi

import (
	"errors"
	"net"
)

func inherit(int) (net.Conn, error) {
	return nil, errors.New("descriptors are not inherited on this system")
}
