package coll

import (
	"fmt"
	"strings"
)

var spaceNames = [...]string{"send", "recv", "temp"}

// String returns the region as "recv[0:64]".
func (r Region) String() string {
	return fmt.Sprintf("%s[%d:%d]", spaceNames[r.Space], r.Off, r.Off+r.N)
}

// String describes the action: "send[0:8] -> 3", "temp[0:8] <- 3",
// "recv[0:8] = send[0:8]", "recv[0:8] = temp[0:8] op recv[0:8]".
func (a Action) String() string {
	switch a.Kind {
	case SendTo:
		return fmt.Sprintf("%v -> %d", a.A, a.Peer)
	case RecvFrom:
		return fmt.Sprintf("%v <- %d", a.Dst, a.Peer)
	case Copy:
		return fmt.Sprintf("%v = %v", a.Dst, a.A)
	case Reduction:
		return fmt.Sprintf("%v = %v op %v", a.Dst, a.A, a.B)
	}
	return fmt.Sprintf("Kind(%d)", a.Kind)
}

// String describes the schedule, one line for each round: the messages, and after a bar
// the local work.
func (s *Schedule) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s, %d bytes of scratch\n", s.Algorithm, s.Scratch)
	for i, r := range s.Rounds {
		fmt.Fprintf(&w, "%3d", i+1)
		sep := "  "
		for _, a := range r.Comm {
			w.WriteString(sep + a.String())
			sep = ", "
		}
		sep = "  | "
		for _, a := range r.Local {
			w.WriteString(sep + a.String())
			sep = ", "
		}
		w.WriteByte('\n')
	}
	return w.String()
}
