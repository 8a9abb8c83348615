package wire

import (
	"fmt"
	"strings"
)

// Reason is why a connection was refused.
type Reason uint8

// The reasons.
const (
	Garbage      Reason = iota // its first bytes are not those of a rank: a port scan, a browser, TLS
	Silent                     // it was closed before the handshake was complete
	Slow                       // the handshake took too long
	Crowded                    // too many handshakes were under way, and it was among the oldest
	WrongVersion               // it speaks another version of the protocol
	WrongJob                   // it belongs to another job
	WrongRank                  // it wants another rank, or claims a rank that the job does not have
	WrongUse                   // it takes this process for the coordinator, or the coordinator for a rank
	WrongTLS                   // only one side uses TLS
	WrongProof                 // it does not have the secret, or replays another connection
	Reflected                  // it sends back the bytes it received
	FailedTLS                  // the TLS handshake failed, most likely because of a certificate
	Descriptors                // this process has no file descriptor left
	reasons
)

var reasonNames = [reasons]string{
	"not a rank", "closed early", "too slow", "too many at once", "another version", "another job", "another rank",
	"another purpose", "TLS on one side only", "wrong secret", "a reflection", "TLS failed", "no descriptor left",
}

// String implements fmt.Stringer.
func (r Reason) String() string {
	if r >= reasons {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return reasonNames[r]
}

// A Refusal is the error of a handshake that failed. Its text holds numbers, and never raw bytes from
// the other side.
type Refusal struct {
	Reason Reason
	Remote string // the address of the peer
	Text   string // the facts
	Err    error  // the error of the network or of TLS, if there is one
}

// Error implements error.
func (r *Refusal) Error() string {
	text := "handshake with " + r.Remote + ": " + r.Reason.String()
	if r.Text != "" {
		text += ": " + r.Text
	}
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Unwrap returns the error of the network or of TLS.
func (r *Refusal) Unwrap() error { return r.Err }

// lasting reports whether another attempt at the same address would end in the same way.
func (r *Refusal) lasting() bool {
	switch r.Reason {
	case Silent, Slow, Crowded, Descriptors:
		return false
	}
	return true
}

// A Count is the number of connections that a Listener refused for a reason, and the first error.
type Count struct {
	Reason Reason
	Number int
	First  error
}

// counts are those of a Listener, which guards them.
type counts [reasons]Count

func (c *counts) add(reason Reason, err error) {
	if c[reason].Number == 0 {
		c[reason].First = err
	}
	c[reason].Reason = reason
	c[reason].Number++
}

// report is one line of all that was refused, "" if nothing was.
func (c *counts) report() string {
	total, parts := 0, make([]string, 0, reasons)
	for _, n := range c {
		if n.Number > 0 {
			total += n.Number
			parts = append(parts, fmt.Sprintf("%d × %v, first: %v", n.Number, n.Reason, n.First))
		}
	}
	if total == 0 {
		return ""
	}
	what := "connections"
	if total == 1 {
		what = "connection"
	}
	return fmt.Sprintf("%d %s refused: %s", total, what, strings.Join(parts, "; "))
}
