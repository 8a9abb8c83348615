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

// coordinator is the ranks' coordinator, which runs in this process.
type coordinator struct {
	secret string // in the form of its file
	choice string // of interfaces
	at     map[*host]netip.AddrPort
	end    func()
}

// startCoordinator starts to listen for the ranks.
func (j *launcher) startCoordinator() error {
	addrs, at, err := j.addresses()
	if err != nil {
		return err
	}
	secret := meet.NewSecret()
	var text strings.Builder
	if err := secret.Send(&text); err != nil {
		return err
	}
	listens, end, err := Coordinate(j.name, j.cfg.Programs.Ranks(), secret, addrs, j.cfg.Stderr)
	if err != nil {
		return err
	}
	j.coordinator = &coordinator{text.String(), j.cfg.Interface, map[*host]netip.AddrPort{}, end}
	for i, h := range j.hosts {
		for _, a := range listens {
			if a.Addr() == at[i] {
				j.coordinator.at[h] = a
			}
		}
	}
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

// interfaces returns the variables by which ranks find each other if rank 0 of each world is its coordinator: they use the
// loopback interface if all hosts see this process there, and that is not set otherwise.
func (j *launcher) interfaces() []string {
	set := []string{"COHORT_TCP_COORDINATOR="}
	if j.cfg.Interface != "" {
		return append(set, "COHORT_TCP_IFACE="+j.cfg.Interface)
	}
	for _, h := range j.hosts {
		if !seenFrom(h.hello.Connection).IsLoopback() {
			return set
		}
	}
	if addrs, err := meet.Interfaces(""); err == nil && os.Getenv("COHORT_TCP_IFACE") == "" {
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
