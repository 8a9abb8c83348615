package meet

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
)

// TLS configures TLS 1.3 with certificates on both sides. LoadTLS makes one.
type TLS struct {
	// Name is the DNS name that every certificate of the job has. A certificate with URIs of the form
	// cohort://job/JOB/RANK is valid for these ranks only. JOB is escaped as a path segment.
	Name string

	cert tls.Certificate
	pool *x509.CertPool
}

// LoadTLS reads a certificate, its key, and the certificates of the authorities that sign this job's
// certificates, all in PEM. name is the DNS name that the certificates of all ranks have, "cohort" if it is
// empty. Without any of them there is no TLS, and LoadTLS returns nil.
func LoadTLS(certFile, keyFile, caFile, name string) (*TLS, error) {
	fail := func(err error) (*TLS, error) { return nil, fmt.Errorf("TLS: %w", err) }
	switch {
	case certFile == "" && keyFile == "" && caFile == "" && name == "":
		return nil, nil
	case certFile == "" || keyFile == "" || caFile == "":
		return fail(fmt.Errorf("three files are needed: a certificate (COHORT_TCP_TLS_CERT, %q), its key (COHORT_TCP_TLS_KEY, %q), "+
			"and the authorities (COHORT_TCP_TLS_CA, %q)", certFile, keyFile, caFile))
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fail(fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err))
	}
	authorities, err := os.ReadFile(caFile)
	if err != nil {
		return fail(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return fail(fmt.Errorf("%s contains no certificate", caFile))
	}
	t := &TLS{Name: cmp.Or(name, "cohort"), cert: cert, pool: pool}
	// A certificate that the others would refuse is an error here.
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := t.chain(use); err != nil {
			return fail(fmt.Errorf("certificate %s: %w", certFile, err))
		}
	}
	return t, nil
}

// chain checks this side's own certificate as a peer would.
func (t *TLS) chain(use x509.ExtKeyUsage) error {
	between := x509.NewCertPool()
	for _, der := range t.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err := t.cert.Leaf.Verify(x509.VerifyOptions{DNSName: t.Name, Roots: t.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

// under is what TLS runs over, which can be replaced.
type under struct{ net.Conn }

// Below returns the connection to the network: the one below TLS, if there is TLS.
func (c *Conn) Below() net.Conn {
	if c.below != nil {
		return c.below.Conn
	}
	return c.Conn
}

// Replace makes TLS continue over another connection to the same peer.
func (c *Conn) Replace(by net.Conn) { c.below.Conn = by }

// wrap makes a TLS connection of one that has passed the handshake up to the proofs.
func (t *TLS) wrap(c *Conn, uri string) *tls.Conn {
	cfg := &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{t.cert},
		RootCAs:                     t.pool,
		ClientCAs:                   t.pool,
		ClientAuth:                  tls.RequireAndVerifyClientCert,
		ServerName:                  t.Name,
		DynamicRecordSizingDisabled: true, // frames are long
		SessionTicketsDisabled:      true, // every connection shows its certificates
		VerifyConnection:            func(s tls.ConnectionState) error { return t.names(s, uri) },
	}
	c.below = &under{c.Conn}
	inner := tls.Server(c.below, cfg)
	if c.Dialed {
		inner = tls.Client(c.below, cfg)
	}
	c.Conn = inner
	return inner
}

// names checks that a certificate, whose chain has been verified, is one of the rank's, which has the name uri.
func (t *TLS) names(s tls.ConnectionState, uri string) error {
	cert := s.PeerCertificates[0] // both sides require one
	if err := cert.VerifyHostname(t.Name); err != nil {
		return err
	}
	bound := false
	for _, u := range cert.URIs {
		if u.Scheme == "cohort" {
			if bound = true; u.String() == uri {
				return nil
			}
		}
	}
	if bound {
		return fmt.Errorf("its certificate is for other ranks or jobs than %s", uri)
	}
	return nil
}

// uri is the name that a rank's certificate has.
func (id *Identity) uri(rank int) string {
	if rank >= 0 && id.First.Ranks != nil { // else the Launcher
		rank = id.First.Ranks[rank]
	}
	return rankURI(cmp.Or(id.First.Job, id.Job), rank)
}

func rankURI(job string, rank int) string {
	return "cohort://job/" + url.PathEscape(job) + "/" + strconv.Itoa(rank)
}
