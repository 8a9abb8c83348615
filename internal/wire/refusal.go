package wire

import (
	"fmt"
	"strings"
)

// Reason is why a connection was refused.
type Reason uint8

// The reasons.
const (
	Garbage      Reason = iota // it does not begin as a rank does: a port scan, a browser, TLS
	Silent                     // it was closed before it had said all
	Slow                       // it did not get done in time
	Crowded                    // too many were at it at once, and it was among the oldest
	WrongVersion               // of another version of cohort
	WrongJob                   // of another job
	WrongRank                  // it wants another rank, or says it is one that there is not
	WrongUse                   // it wants to meet where nobody meets
	WrongTLS                   // one side has TLS and the other does not
	WrongProof                 // it does not have the secret, or repeats what another said
	Reflected                  // it sends back what it was sent
	FailedTLS                  // TLS failed: a certificate, most likely
	Descriptors                // the process has no descriptor left
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

// A Refusal is the error of a handshake that failed. Its text holds numbers, and never bytes of the
// other side as they came.
type Refusal struct {
	Reason Reason
	Remote string // the address of the peer
	Text   string // the facts
	Err    error  // what the network or TLS said, if it was that
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

// Unwrap returns what the network or TLS said.
func (r *Refusal) Unwrap() error { return r.Err }

// lasting reports whether another attempt at the same address would end in the same way.
func (r *Refusal) lasting() bool {
	switch r.Reason {
	case Silent, Slow, Crowded, Descriptors:
		return false
	}
	return true
}

// A Count is how many connections a Listener refused for a reason, and the first of them.
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
