//go:build unix

package remote

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/meet"
)

// startCoordinator makes this process the ranks' coordinator, until end is called.
func (j *launcher) startCoordinator() (end func(), err error) {
	addrs, at, err := j.addresses()
	if err != nil {
		return nil, err
	}
	secret := meet.NewSecret()
	var text strings.Builder
	if err := secret.Send(&text); err != nil {
		return nil, err
	}
	j.secret = text.String()
	listens, end, err := Coordinate(j.name, j.cfg.Programs.Ranks(), secret, addrs, j.cfg.Stderr)
	for i, h := range j.hosts {
		for _, a := range listens {
			if a.Addr() == at[i] {
				h.coordinator = a
			}
		}
	}
	return end, err
}

// meeting returns the variables by which a host's ranks find each other: this process is their coordinator, or else rank 0 of
// each world. In that case they use the loopback interface if all hosts see this process there, unless another is set.
func (j *launcher) meeting(h *host) (set []string) {
	if j.cfg.Interface != "" {
		set = append(set, "COHORT_TCP_IFACE="+j.cfg.Interface)
	}
	if j.cfg.Generations == nil {
		return append(set, "COHORT_TCP_COORDINATOR=launcher@"+h.coordinator.String())
	}
	set = append(set, "COHORT_TCP_COORDINATOR=")
	if j.cfg.Interface != "" || os.Getenv("COHORT_TCP_IFACE") != "" || !j.all(func(h *host) bool { return seenFrom(h.hello.Connection).IsLoopback() }) {
		return set
	}
	if addrs, err := meet.Interfaces(""); err == nil {
		set = append(set, "COHORT_TCP_IFACE="+addrs[0].String())
	}
	return set
}

// addresses returns the addresses at which to listen, and which of them each host gets.
func (j *launcher) addresses() (all []netip.Addr, at []netip.Addr, err error) {
	if j.cfg.Interface != "" {
		if all, err = meet.Interfaces(j.cfg.Interface); err != nil {
			return nil, nil, err
		}
	}
	seen := make([]netip.Addr, len(j.hosts))
	for i, h := range j.hosts {
		seen[i] = seenFrom(h.hello.Connection)
	}
	return coordinatorAddresses(all, seen, j.hosts, func(a netip.Addr) bool {
		_, err := meet.Interfaces(a.String())
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
			return nil, nil, fmt.Errorf("host %s sees this machine as %v, which is not an address of it "+
				"(another host is in between); set the address with --interface", hosts[i].Name, a)
		}
		if at = append(at, a); !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all, at, nil
}
