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

// MaxAddrs is how many addresses a rank can have.
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

// Interfaces returns the addresses of this machine that a choice stands for: a list, with commas, of
// names of interfaces, networks (10.1.0.0/16, fd00::/8), and addresses. "" is the loopback
// interface, and "any" all addresses of all others. Addresses that mean something on one link only
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
			return nil, fmt.Errorf("interface %q: no address of this machine fits; it has %s", part, describe(list))
		}
	}
	if strings.TrimSpace(choice) == "" {
		chosen = chosen[:1] // one is enough to reach oneself
	}
	if len(chosen) > MaxAddrs {
		return nil, fmt.Errorf("interface %q: %d addresses fit, and a rank can have %d: name fewer; this machine has %s",
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
	return nil, fmt.Errorf("interface %q: it is no interface that is up, no network such as 10.1.0.0/16, and no address; this machine has %s",
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
		return "", 0, fmt.Errorf("coordinator %q: the port is to be a number from 1 to 65535", address)
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return "", 0, fmt.Errorf("coordinator %q: name the host: the other ranks are to find it by this", address)
	}
	return host, uint16(n), nil
}

// CoordinatorAddrs returns where rank 0 listens in order to be the coordinator at host: the
// addresses of this machine among those that host has.
//
// A name that means 127.0.1.1 or its like on the machine it is the name of, as Debian has it, means
// another address elsewhere. It stands for all addresses of the machine then.
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
		return nil, fmt.Errorf("the coordinator is to be at %s (%v), which is none of this machine's addresses: %s; "+
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
