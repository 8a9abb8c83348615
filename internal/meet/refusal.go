package meet

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is why a connection was refused.
type Reason uint8

// The reasons.
const (
	Garbage      Reason = iota + 1 // its first bytes are not those of a rank: a port scan, a browser, TLS
	Silent                         // it was closed before the handshake was complete
	Slow                           // the handshake took too long
	Crowded                        // too many handshakes were under way, and it was among the oldest
	WrongVersion                   // it speaks another version of the protocol
	WrongJob                       // it belongs to another job
	WrongRank                      // it wants another rank, or claims a rank that the job does not have
	WrongUse                       // it takes this process for the coordinator, or the coordinator for a rank
	WrongTLS                       // only one side uses TLS
	WrongProof                     // it does not have the secret, or replays another connection
	FailedTLS                      // the TLS handshake failed, most likely because of a certificate
	Descriptors                    // this process has no file descriptor left
	reasons
)

var reasonNames = [reasons]string{
	"", "not a rank", "closed early", "too slow", "too many at once", "another version", "another job", "another rank",
	"another purpose", "TLS on one side only", "wrong secret", "TLS failed", "no descriptor left",
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
	text := fmt.Sprintf("handshake with %s: %v: %s", r.Remote, r.Reason, r.Text)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Unwrap returns the error of the network or of TLS.
func (r *Refusal) Unwrap() error { return r.Err }

// lasting reports whether another attempt at the same address would end in the same way.
func (r *Refusal) lasting() bool {
	return !slices.Contains([]Reason{Silent, Slow, Crowded, Descriptors}, r.Reason)
}

// refusals counts, for each reason, the connections that a Listener refused, and keeps the first error.
type refusals [reasons]struct {
	number int
	first  error
}

func (c *refusals) add(reason Reason, err error) {
	if c[reason].number++; c[reason].first == nil {
		c[reason].first = err
	}
}

// report returns all that was refused in one line, "" if nothing was.
func (c *refusals) report() string {
	total, parts := 0, []string(nil)
	for reason, n := range c {
		if n.number > 0 {
			total += n.number
			parts = append(parts, fmt.Sprintf("%d × %v, first: %v", n.number, Reason(reason), n.first))
		}
	}
	switch total {
	case 0:
		return ""
	case 1:
		return "1 connection refused: " + parts[0]
	}
	return fmt.Sprintf("%d connections refused: %s", total, strings.Join(parts, "; "))
}
