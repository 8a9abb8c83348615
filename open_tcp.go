//go:build !cohort_notcp

package cohort

import (
	"context"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
)

func openTCP(ctx context.Context, s settings) (backend.Comm, error) {
	return tcp.Open(ctx, tcpConfig(s))
}

func tcpConfig(s settings) tcp.Config {
	where, launcher := strings.CutPrefix(s.Coordinator, "launcher@")
	return tcp.Config{
		Rank: s.Rank, Size: s.Size, Job: s.Job, Heartbeat: s.Heartbeat, JoinTimeout: s.JoinTimeout,
		Coordinator: where, Launcher: launcher, Interface: s.Interface, Sockets: s.Sockets, Ports: s.Ports, Checksum: s.Checksum, Connect: s.Connect,
		TLSCert: s.TLSCert, TLSKey: s.TLSKey, TLSCA: s.TLSCA, TLSName: s.TLSName, SecretFile: s.SecretFile,
	}
}
