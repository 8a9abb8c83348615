package pmi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	initAnswer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
	maxAnswer  = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
	nameAnswer = "cmd=my_kvsname kvsname=kvs_1\n"
	begun      = initAnswer + maxAnswer + nameAnswer
)

// session lets rank 1 of 2 join a server that answers with lines, one a command, and then closes the connection, unless it
// is mute. It returns what rank 0 shares.
func session(ctx context.Context, answers string, mute bool) (string, error) {
	ours, theirs := net.Pipe()
	go func() {
		in := bufio.NewReader(theirs)
		for line := range strings.SplitAfterSeq(answers, "\n") {
			if _, err := in.ReadString('\n'); err != nil || line == "" && mute {
				break
			}
			fmt.Fprint(theirs, line)
		}
		if mute {
			<-ctx.Done()
		}
		theirs.Close()
	}()
	s, err := newWire(ours).begin(ctx, 1, 2)
	if err != nil {
		return "", err
	}
	defer s.Close()
	return Share(ctx, s, "")
}

func TestBadServersAreClearErrors(t *testing.T) {
	for _, c := range []struct {
		name, answers string
		mute          bool
		want          string
	}{
		{"it dies at once", "", false, "has closed the connection before it answered init"},
		{"it dies in the barrier", begun, false, "has closed the connection before it answered barrier_in"},
		{"it never answers", "", true, "did not answer init in time"},
		{"a rank never comes", begun, true, "not all ranks came to the launcher's barrier in time"},
		{"nonsense", "HTTP/1.1 400 Bad Request\n", false, `answered init with "HTTP/1.1 400 Bad Request\n", want response_to_init`},
		{"another version", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n", false, "refused init"},
		{"an endless line", strings.Repeat("x", maxLine+1), false, "more than 65536 bytes"},
		{"no limits", initAnswer + "cmd=maxes\n", false, `keylen_max is ""; want a number, 1 or more`},
		{"no name", initAnswer + maxAnswer + "cmd=my_kvsname\n", false, "no name"},
		{"no value", begun + "cmd=barrier_out\ncmd=get_result rc=-1 msg=key_cohort_not_found value=unknown\n", false, "refused get"},
		{"another program's value", begun + "cmd=barrier_out\ncmd=get_result rc=0 value=x\n", false, "one version of cohort on all ranks"},
		{"another size", begun + "cmd=barrier_out\ncmd=get_result rc=0 value=1/3/x\n", false, `told rank 0 that the job has "3" ranks, and rank 1 that it has 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := time.Minute
			if c.mute {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if got, err := session(ctx, c.answers, c.mute); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v; want an error with %q", got, err, c.want)
			}
		})
	}
	got, err := session(t.Context(), begun+"cmd=barrier_out rc=0\ncmd=get_result rc=0 msg=success value=1/2/a,b/c\ncmd=finalize_ack\n", false)
	if got != "a,b/c" || err != nil {
		t.Errorf("a good server: %q, %v", got, err)
	}
}

// slow is a connection that carries out what ends a call only when it is told to.
type slow struct {
	net.Conn
	now chan struct{}
}

func (s slow) SetDeadline(at time.Time) error {
	if !at.IsZero() {
		<-s.now
	}
	return s.Conn.SetDeadline(at)
}

// TestEndOfOneCallDoesNotEndTheNext cancels the context of a call while its answer comes.
func TestEndOfOneCallDoesNotEndTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		conn, in := slow{ours, make(chan struct{})}, bufio.NewReader(theirs)
		first, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			w := newWire(conn)
			w.call(first, "maxes", "get_maxes") // answered or not
			_, err := w.call(context.Background(), "finalize_ack", "finalize")
			result <- err
		}()
		in.ReadString('\n')
		cancel()
		synctest.Wait() // the deadline is about to be set
		fmt.Fprint(theirs, "cmd=maxes\n")
		synctest.Wait() // the second call has begun, unless it waits for that
		close(conn.now)
		synctest.Wait()
		go func() {
			in.ReadString('\n')
			fmt.Fprint(theirs, "cmd=finalize_ack\n")
		}()
		if err := <-result; err != nil {
			t.Error(err)
		}
		theirs.Close()
	})
}

func TestLongValuesAreRefused(t *testing.T) {
	w := &wire{mostKey: 64, mostVal: 256}
	if err := w.Put(t.Context(), key, strings.Repeat("x", 256)); err == nil || !strings.Contains(err.Error(), "takes 255 bytes at most, not a value of 256") {
		t.Error(err)
	}
}

// TestWrongVariablesAreClearErrors also shows that nothing is closed that is not the launcher's socket.
func TestWrongVariablesAreClearErrors(t *testing.T) {
	for _, c := range []struct{ fd, rank, size, want string }{
		{"3", "0", "", "the size is \"\""},
		{"3", "2", "2", "rank 2 of a job of 2 ranks"},
		{"3", "-1", "2", `the rank is "-1"`},
		{"1", "0", "2", `PMI_FD is "1"; want a number, 3 or more`},
		{"4000", "0", "2", "it is not a socket of this process"},
	} {
		env := map[string]string{"PMI_FD": c.fd, "PMI_RANK": c.rank, "PMI_SIZE": c.size}
		m := Find(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if _, err := m.Open(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", env, err, c.want)
		}
	}
	if m := Find(func(string) (string, bool) { return "", false }); m != nil {
		t.Errorf("means without variables: %v", m)
	}
}

// FuzzWire has a rank join a server that answers anything. It must end with an error, or with a value that the
// server sent.
func FuzzWire(f *testing.F) {
	f.Add(begun + "cmd=barrier_out\ncmd=get_result rc=0 value=1/2/x\ncmd=finalize_ack\n")
	f.Add(begun + "cmd=barrier_out\ncmd=get_result value==\n")
	f.Add(initAnswer + "cmd=maxes keylen_max=99999999999 vallen_max=-1\n")
	f.Add("cmd=\n=\n \n")
	f.Fuzz(func(t *testing.T, answers string) {
		got, err := session(t.Context(), answers, false)
		if err == nil && !strings.Contains(answers, got) {
			t.Errorf("%q is in no answer", got)
		}
	})
}
