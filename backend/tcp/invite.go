//go:build linux || darwin

package tcp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cohort-hpc/cohort/internal/meet"
)

// An invitation is what rank 0 tells the others through the launcher's key-value space.
type invitation struct {
	at []netip.AddrPort // where it listens as the coordinator
	l  *meet.Listener   // on rank 0
}

// invite returns rank 0's invitation, and completes the identity of this rank with the secret that comes with it. Rank 0
// makes the secret unless there is a file with one, which is then not sent.
func invite(ctx context.Context, cfg Config, id *meet.Identity, first, last uint16) (inv *invitation, err error) {
	inv = new(invitation)
	had := id.Secret.Valid()
	var text strings.Builder
	if cfg.Rank == 0 {
		addrs, err := meet.Interfaces(cfg.Interface)
		if cfg.Met != "" {
			addrs, err = meet.ListenAddrs(cfg.Interface, cfg.Met)
		}
		if err != nil {
			return nil, err
		}
		if !had {
			id.Secret = meet.NewSecret()
		}
		here := *id
		here.Coordinator = true
		if inv.l, err = cfg.listen(meet.ListenConfig{Addrs: addrs, PortMin: first, PortMax: last, Identity: &here}); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				inv.l.Close()
			}
		}()
		for i, a := range inv.l.Addrs() {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(a.String())
		}
		text.WriteByte('/')
		if !had {
			_ = id.Secret.Send(&text)
		}
	}
	got, err := cfg.Share(ctx, strings.TrimSpace(text.String()))
	if err != nil {
		return nil, err
	}
	list, secret, _ := strings.Cut(got, "/")
	for a := range strings.SplitSeq(list, ",") {
		at, err := netip.ParseAddrPort(a)
		if err != nil {
			return nil, fmt.Errorf("the address of rank 0 in the launcher's key-value space: %w", err)
		}
		inv.at = append(inv.at, at)
	}
	switch {
	case had && secret != "":
		err = fmt.Errorf("rank 0 has no secret, and rank %d has (COHORT_SECRET_FILE or COHORT_SECRET); give all ranks the same, or none", cfg.Rank)
	case !had && cfg.Rank != 0:
		if id.Secret, err = meet.ReadSecret(strings.NewReader(secret)); err != nil {
			err = fmt.Errorf("%w: from rank 0, through the launcher's key-value space; give all ranks the same COHORT_SECRET_FILE, or none", err)
		}
	}
	return inv, err
}
