//go:build unix

package remote

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// coordinator is the ranks' coordinator, which runs in this process.
type coordinator struct {
	secret string // in the form of its file
	choice string // of interfaces
	door   *wire.Listener
	at     map[*host]netip.AddrPort
	end    func()
}

// startCoordinator starts to listen for the ranks.
func (j *launcher) startCoordinator() error {
	addrs, at, err := j.addresses()
	if err != nil {
		return err
	}
	secret := wire.NewSecret()
	var text strings.Builder
	if err := secret.Send(&text); err != nil {
		return err
	}
	id := &wire.Identity{Job: j.name, Secret: secret, Rank: wire.Launcher, Size: j.cfg.Ranks, Coordinator: true}
	if cert := os.Getenv("COHORT_TCP_TLS_CERT"); cert != "" { // the ranks use TLS too, and refuse a coordinator without it
		id.TLS, err = wire.LoadTLS(cert, os.Getenv("COHORT_TCP_TLS_KEY"), os.Getenv("COHORT_TCP_TLS_CA"), cmp.Or(os.Getenv("COHORT_TCP_TLS_NAME"), "cohort"))
		if err != nil {
			return err
		}
	}
	door, err := wire.Listen(wire.ListenConfig{Addrs: addrs, Identity: id})
	if err != nil {
		return err
	}
	m := &coordinator{secret: text.String(), choice: j.cfg.Interface, door: door, at: map[*host]netip.AddrPort{}}
	for i, h := range j.hosts {
		for _, a := range door.Addrs() {
			if a.Addr() == at[i] {
				m.at[h] = a
			}
		}
	}
	leave := wire.Serve(door)
	m.end = func() {
		leave()
		if report := door.Report(); report != "" {
			fmt.Fprintf(j.cfg.Stderr, "cohort: coordinator: %s\n", report)
		}
	}
	j.coordinator = m
	return nil
}

// variables returns the variables by which a host's ranks find the coordinator.
func (m *coordinator) variables(h *host) []string {
	set := []string{"COHORT_TCP_COORDINATOR=launcher@" + m.at[h].String()}
	if m.choice != "" {
		set = append(set, "COHORT_TCP_IFACE="+m.choice)
	}
	return set
}

// addresses returns the addresses at which to listen, and which of them each host gets.
func (j *launcher) addresses() (all []netip.Addr, at []netip.Addr, err error) {
	if j.cfg.Interface != "" {
		if all, err = wire.Interfaces(j.cfg.Interface); err != nil {
			return nil, nil, err
		}
	}
	seen := make([]netip.Addr, len(j.hosts))
	for i, h := range j.hosts {
		seen[i] = seenFrom(h.hello.Connection)
	}
	return coordinatorAddresses(all, seen, j.hosts, func(a netip.Addr) bool {
		_, err := wire.Interfaces(a.String())
		return err == nil
	})
}

// seenFrom returns the address of the ssh client in a value of SSH_CONNECTION, the zero one if there is none.
func seenFrom(connection string) netip.Addr {
	client, _, _ := strings.Cut(connection, " ")
	a, err := netip.ParseAddr(client)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// coordinatorAddresses chooses the address at which each host's ranks connect to this process: an address of the
// --interface option, or else the one that the host sees. The loopback interface is used only if all hosts see this
// process there: ranks that connect there assume that all ranks are on the loopback interface.
func coordinatorAddresses(asked, seen []netip.Addr, hosts []*host, mine func(netip.Addr) bool) (all, at []netip.Addr, err error) {
	outside := slices.IndexFunc(seen, func(a netip.Addr) bool { return a.IsValid() && !a.IsLoopback() && mine(a) })
	for i, a := range seen {
		switch {
		case len(asked) > 0:
			if !slices.Contains(asked, a) {
				a = asked[0]
			}
		case !a.IsValid():
			return nil, nil, fmt.Errorf("host %s does not report the address of this machine (SSH_CONNECTION); set it with --interface", hosts[i].Name)
		case a.IsLoopback() && outside >= 0:
			a = seen[outside]
		case !a.IsLoopback() && !mine(a):
			return nil, nil, fmt.Errorf("host %s sees this machine as %v, which is not an address of it (another host is in between); set the address with --interface", hosts[i].Name, a)
		}
		if at = append(at, a); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all, at, nil
}
