package meet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

// MaxAddrs is the largest number of addresses of a rank.
const MaxAddrs = 8

// An ifaceAddr is an address of an interface that is up, with the length of its network.
type ifaceAddr struct {
	iface string
	netip.Prefix
}

// ip returns the address alone.
func (a ifaceAddr) ip() netip.Addr { return a.Addr().Unmap() }

// interfaces returns the addresses of this machine.
func interfaces() ([]ifaceAddr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	var list []ifaceAddr
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs() // an error: the interface has just gone
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				list = append(list, ifaceAddr{i.Name, p})
			}
		}
	}
	return list, nil
}

// Interfaces returns the addresses of this machine that a choice selects. A choice is a list, separated
// by commas, of interface names, networks (10.1.0.0/16, fd00::/8), and addresses. "" selects one loopback
// address, "any" the addresses of all other interfaces. Link-local addresses (fe80::/10) are left out.
func Interfaces(choice string) ([]netip.Addr, error) {
	list, err := interfaces()
	if err != nil {
		return nil, err
	}
	return choose(choice, list)
}

// ListenAddrs is Interfaces for a rank whose coordinator has the given address (HOST:PORT). "" selects the loopback address
// if the coordinator is there, and otherwise the addresses of all other interfaces.
func ListenAddrs(choice, coordinator string) ([]netip.Addr, error) {
	host, _, err := ParseCoordinator(coordinator)
	if err != nil {
		return nil, err
	}
	if a, _ := netip.ParseAddr(host); choice == "" && !a.IsLoopback() && !strings.EqualFold(host, "localhost") {
		choice = "any"
	}
	return Interfaces(choice)
}

// ParsePorts reads the range of ports at which a rank may listen: FIRST-LAST, or one port. "" is any port.
func ParsePorts(text string) (first, last uint16, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		to = from
	}
	a, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	b, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a {
		return 0, 0, backend.Faultf(backend.ErrInit, "COHORT_TCP_PORTS is %q: want a range such as 20000-20100, of ports from 1 to 65535", text)
	}
	return uint16(a), uint16(b), nil
}

func choose(choice string, list []ifaceAddr) ([]netip.Addr, error) {
	var chosen []netip.Addr
	for part := range strings.SplitSeq(choice, ",") {
		fits := chooser(strings.TrimSpace(part))
		none := true
		for _, i := range list {
			a := i.ip()
			if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || !fits(i) {
				continue
			}
			if none = false; !slices.Contains(chosen, a) {
				chosen = append(chosen, a)
			}
		}
		if none && part == "" {
			return nil, fmt.Errorf("the loopback interface has no address; turn it on (ip link set lo up), or select another (COHORT_TCP_IFACE)")
		}
		if none {
			return nil, fmt.Errorf("interface %q: no address of this machine matches; want the name of an interface that is up, "+
				"a network such as 10.1.0.0/16, or an address; this machine has %s", part, describe(list))
		}
	}
	if strings.TrimSpace(choice) == "" {
		chosen = chosen[:1] // one is enough to reach oneself
	}
	if len(chosen) > MaxAddrs {
		return nil, fmt.Errorf("interface %q: %d addresses match, and a rank can have %d; select fewer; this machine has %s",
			choice, len(chosen), MaxAddrs, describe(list))
	}
	return chosen, nil
}

// chooser returns the predicate of one part of a choice.
func chooser(part string) func(ifaceAddr) bool {
	if part == "" || part == "any" {
		return func(a ifaceAddr) bool { return a.ip().IsLoopback() == (part == "") }
	}
	if p, err := netip.ParsePrefix(part); err == nil {
		return func(a ifaceAddr) bool { return p.Contains(a.ip()) }
	}
	if only, err := netip.ParseAddr(part); err == nil {
		return func(a ifaceAddr) bool { return a.ip() == only.Unmap() }
	}
	return func(a ifaceAddr) bool { return a.iface == part }
}

func describe(list []ifaceAddr) string {
	var parts []string
	for _, a := range list {
		parts = append(parts, a.iface+" "+a.String())
	}
	return strings.Join(parts, ", ")
}

// ParseCoordinator splits the address of a coordinator, HOST:PORT.
func ParseCoordinator(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("coordinator %q: want HOST:PORT (COHORT_TCP_COORDINATOR): %w", address, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("coordinator %q: want a port from 1 to 65535", address)
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return "", 0, fmt.Errorf("coordinator %q: name the host; the other ranks connect to this address", address)
	}
	return host, uint16(n), nil
}

// CoordinatorAddrs returns the addresses at which rank 0 listens as the coordinator at host: those of
// host that belong to this machine.
//
// On Debian, a machine's name resolves to 127.0.1.1 on that machine and to another address elsewhere.
// Such a name stands for all addresses of the machine.
//
// A name may be unknown for a while, or still be that of a machine that had it before. CoordinatorAddrs looks it
// up again and again, until ctx ends, and so do the other ranks, which dial it.
func CoordinatorAddrs(ctx context.Context, host string) ([]netip.Addr, error) {
	_, err := netip.ParseAddr(host)
	isName, last := err != nil, error(nil)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		addrs, err := addrsHere(ctx, host)
		if err == nil || !isName {
			return addrs, err
		}
		if last == nil || ctx.Err() == nil { // else it is more precise than a lookup that was cut short
			last = err
		}
		if rest(ctx, pause); ctx.Err() != nil {
			return nil, ended(ctx, "finding the addresses at which rank 0 is to listen: %v", last)
		}
	}
}

// addrsHere is CoordinatorAddrs with one lookup.
func addrsHere(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	list, err := interfaces()
	if err != nil {
		return nil, err
	}
	return ours(host, found, list)
}

func ours(host string, found []netip.Addr, list []ifaceAddr) ([]netip.Addr, error) {
	_, err := netip.ParseAddr(host)
	if named := err != nil && host != "localhost"; named && slices.ContainsFunc(found, netip.Addr.IsLoopback) {
		more, _ := choose("any", list) // an error: it has no others, or too many
		found = slices.Concat(found, more)
	}
	var addrs []netip.Addr
	for _, a := range found {
		mine := a.Is4() && a.IsLoopback() // all of 127.0.0.0/8 is
		mine = mine || slices.ContainsFunc(list, func(i ifaceAddr) bool { return i.ip() == a.WithZone("") })
		if mine && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("the coordinator is %s (%v), which is not an address of this machine (%s); "+
			"name the machine of rank 0", host, found, describe(list))
	}
	return addrs[:min(len(addrs), MaxAddrs)], nil
}

// resolver looks names up. Tests replace it: package net reads its own also in lookups that were given up.
var resolver = net.DefaultResolver

// lookup returns the addresses of a host.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("host %q: %w", host, err)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, nil
}
