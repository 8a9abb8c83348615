//go:build !cohort_notcp

package cohort

import (
	"context"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
)

func init() {
	register("tcp", known{priority: 30, open: func(ctx context.Context, s settings) (backend.Comm, error) {
		return tcp.Open(ctx, tcpConfig(s))
	}})
}

func tcpConfig(s settings) tcp.Config {
	where, launcher := strings.CutPrefix(s.TCP.Coordinator, "launcher@")
	tls := s.TCP.TLS
	return tcp.Config{
		Config: s.common(), Coordinator: where, Met: strings.TrimPrefix(s.first.coordinator, "launcher@"), Launcher: launcher, Worlds: s.podWorlds, Interface: s.TCP.Interface, Ports: s.TCP.Ports,
		SecretFile: s.TCP.SecretFile, Secret: s.secret,
		Connect: string(s.TCP.Connect), Checksum: s.TCP.Checksum, Sockets: s.TCP.Sockets,
		TLSCert: tls.Cert, TLSKey: tls.Key, TLSCA: tls.CA, TLSName: tls.Name, FirstJob: s.first.job, FirstRanks: s.first.ranks,
	}
}
