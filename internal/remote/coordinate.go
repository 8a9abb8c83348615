package remote

import (
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/cohort-hpc/cohort/internal/meet"
)

// Coordinate makes this process the coordinator of a job's ranks, and returns the addresses at which it
// listens. end ends that, and reports refused connections to stderr.
func Coordinate(name string, ranks int, secret meet.Secret, addrs []netip.Addr, stderr io.Writer) (at []netip.AddrPort, end func(), err error) {
	id := &meet.Identity{Job: name, Secret: secret, Rank: meet.Launcher, Size: ranks, Coordinator: true}
	// If the ranks use TLS, they refuse a coordinator without it.
	id.TLS, err = meet.LoadTLS(os.Getenv("COHORT_TCP_TLS_CERT"), os.Getenv("COHORT_TCP_TLS_KEY"), os.Getenv("COHORT_TCP_TLS_CA"), os.Getenv("COHORT_TCP_TLS_NAME"))
	if err != nil {
		return nil, nil, err
	}
	listener, err := meet.Listen(meet.ListenConfig{Addrs: addrs, Identity: id})
	if err != nil {
		return nil, nil, err
	}
	leave := meet.Serve(listener)
	return listener.Addrs(), func() {
		leave()
		if report := listener.Report(); report != "" {
			fmt.Fprintf(stderr, "cohort: coordinator: %s\n", report)
		}
	}, nil
}
