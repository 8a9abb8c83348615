//go:build unix

package remote

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// report prints the message about a rank's end.
func (s *judge) report(rank int) {
	if r, ok := s.late[rank]; ok {
		delete(s.late, rank)
		s.say(r.text)
	}
}

func (s *judge) say(text string) { s.print.add(s.cfg.Stderr, []byte("cohort: "+text+"\n"), nil) }

func asksForEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// seconds formats a duration for messages.
func seconds(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
