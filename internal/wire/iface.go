package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxAddrs is the largest number of addresses of a rank.
const MaxAddrs = 8

// An iface is an interface of this machine that is up.
type iface struct {
	name  string
	addrs []netip.Prefix // its addresses, with the length of their networks
}

// interfaces returns the interfaces that are up.
func interfaces() ([]iface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	var list []iface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		f := iface{name: i.Name}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				f.addrs = append(f.addrs, p)
			}
		}
		list = append(list, f)
	}
	return list, nil
}

// Interfaces returns the addresses of this machine that a choice selects. A choice is a list,
// separated by commas, of interface names, networks (10.1.0.0/16, fd00::/8), and addresses. ""
// selects one loopback address, "any" the addresses of all other interfaces. Link-local addresses
// (fe80::/10) are left out.
func Interfaces(choice string) ([]netip.Addr, error) {
	list, err := interfaces()
	if err != nil {
		return nil, err
	}
	return choose(choice, list)
}

func choose(choice string, list []iface) ([]netip.Addr, error) {
	var chosen []netip.Addr
	for part := range strings.SplitSeq(choice, ",") {
		fits, err := wanted(strings.TrimSpace(part), list)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, i := range list {
			for _, p := range i.addrs {
				a := p.Addr().Unmap()
				if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || !fits(i.name, a) {
					continue
				}
				if n++; !slices.Contains(chosen, a) {
					chosen = append(chosen, a)
				}
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("interface %q: no address of this machine matches; it has %s", part, describe(list))
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

// wanted returns the predicate of one part of a choice.
func wanted(part string, list []iface) (func(string, netip.Addr) bool, error) {
	switch {
	case part == "":
		return func(_ string, a netip.Addr) bool { return a.IsLoopback() }, nil
	case part == "any":
		return func(_ string, a netip.Addr) bool { return !a.IsLoopback() }, nil
	case slices.ContainsFunc(list, func(i iface) bool { return i.name == part }):
		return func(name string, _ netip.Addr) bool { return name == part }, nil
	}
	if p, err := netip.ParsePrefix(part); err == nil {
		return func(_ string, a netip.Addr) bool { return p.Contains(a) }, nil
	}
	if only, err := netip.ParseAddr(part); err == nil {
		return func(_ string, a netip.Addr) bool { return a == only.Unmap() }, nil
	}
	return nil, fmt.Errorf("interface %q: neither the name of an interface that is up, nor a network such as 10.1.0.0/16, nor an address; this machine has %s",
		part, describe(list))
}

func describe(list []iface) string {
	var parts []string
	for _, i := range list {
		text := i.name
		for _, p := range i.addrs {
			text += " " + p.String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// ParseCoordinator splits the address of a coordinator, HOST:PORT.
func ParseCoordinator(address string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("coordinator %q: want HOST:PORT: %w", address, err)
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
func CoordinatorAddrs(ctx context.Context, host string) ([]netip.Addr, error) {
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

func ours(host string, found []netip.Addr, list []iface) ([]netip.Addr, error) {
	var addrs []netip.Addr
	add := func(a netip.Addr) {
		if !slices.Contains(addrs, a) && len(addrs) < MaxAddrs {
			addrs = append(addrs, a)
		}
	}
	loop := false
	for _, a := range found {
		mine := a.Is4() && a.IsLoopback() // all of 127.0.0.0/8 is
		for _, i := range list {
			mine = mine || slices.ContainsFunc(i.addrs, func(p netip.Prefix) bool { return p.Addr().Unmap() == a.WithZone("") })
		}
		if mine {
			add(a)
			loop = loop || a.IsLoopback()
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("the coordinator is %s (%v), which is not an address of this machine (%s); "+
			"name the machine of rank 0", host, found, describe(list))
	}
	if _, err := netip.ParseAddr(host); loop && err != nil && host != "localhost" {
		if more, err := choose("any", list); err == nil {
			for _, a := range more {
				add(a)
			}
		}
	}
	return addrs, nil
}

// lookup returns the addresses of a host.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	if err == nil && len(found) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return nil, fmt.Errorf("host %q: %w", host, err)
	}
	return found, nil
}
