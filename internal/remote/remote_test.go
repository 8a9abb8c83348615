//go:build unix

package remote

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

func TestHostListsAreParsed(t *testing.T) {
	for _, c := range []struct {
		list    string
		want    []Host
		message string
	}{
		{"a", []Host{{"a", 0}}, ""},
		{"a,b:4,node[3-5]", []Host{{"a", 0}, {"b", 4}, {"node3", 0}, {"node4", 0}, {"node5", 0}}, ""},
		{"n[1-2,7]:3, me@b", []Host{{"n1", 3}, {"n2", 3}, {"n7", 3}, {"me@b", 0}}, ""},
		{"10.0.0.1:2,fd00::1,[fd00::2]:4,[fd00::3]", []Host{{"10.0.0.1", 2}, {"fd00::1", 0}, {"fd00::2", 4}, {"fd00::3", 0}}, ""},
		{"a,b,a,a", []Host{{"a", 3}, {"b", 0}}, ""},
		{"a:2,a:3", []Host{{"a", 5}}, ""},
		{"", nil, "list of hosts is empty"},
		{",,", nil, "list of hosts is empty"},
		{"a:0", nil, "from 1 to 4096"},
		{"a:x", nil, "from 1 to 4096"},
		{"a:99999999999999999999", nil, "from 1 to 4096"},
		{"-oProxyCommand=x", nil, "cannot begin with -"},
		{"a;b", nil, "invalid character"},
		{"$(a)", nil, "invalid character"},
		{"n[1-", nil, "not a list"},
		{"n[1-99999999]", nil, "more than"},
	} {
		got, err := ParseHosts(c.list)
		if !slices.Equal(got, c.want) || (err != nil) != (c.message != "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%q: %v, %v; want %v, %q", c.list, got, err, c.want, c.message)
		}
	}
}

func TestHostfilesAreParsed(t *testing.T) {
	for _, c := range []struct {
		text    string
		want    []Host
		message string
	}{
		{"# of mpirun\na slots=4\n\nb:2 # two\nc slots=3 max_slots=8\nn[1-2] slots=2\n", []Host{{"a", 4}, {"b", 2}, {"c", 3}, {"n1", 2}, {"n2", 2}}, ""},
		{"a\na\nb\nb\n", []Host{{"a", 2}, {"b", 2}}, ""},
		{"a\nb slot=2\n", nil, "line 2: "},
		{"a slots=0", nil, "line 1: "},
		{"# nobody\n", nil, "list of hosts is empty"},
	} {
		got, err := ParseHostfile(c.text)
		if !slices.Equal(got, c.want) || (err != nil) != (c.message != "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%q: %v, %v; want %v, %q", c.text, got, err, c.want, c.message)
		}
	}
}

// TestShareFillsSlotsEvenly checks that all ranks have a place, none above the slots, and that a host has at most one more than
// another that has room.
func TestShareFillsSlotsEvenly(t *testing.T) {
	for _, slots := range [][]int{{0}, {0, 0, 0}, {1, 4, 2}, {0, 4, 0, 1}, {3, 0}, {5, 1, 1, 1, 9}} {
		var hosts []Host
		total := 0
		for i, n := range slots {
			hosts = append(hosts, Host{string(rune('a' + i)), n})
			total += n
		}
		for n := 1; n <= 20; n++ {
			counts, err := share(hosts, n)
			if !slices.Contains(slots, 0) && n > total {
				if err == nil {
					t.Errorf("%d ranks on %v: %v, want an error", n, slots, counts)
				}
				continue
			}
			sum := 0
			for i, c := range counts {
				sum += c
				if slots[i] > 0 && c > slots[i] {
					t.Errorf("%d ranks on %v: %v", n, slots, counts)
				}
				for k, other := range counts {
					if room := slots[i] == 0 || c < slots[i]; room && (other > c+1 || k > i && other > c) {
						t.Errorf("%d ranks on %v: %v is not even", n, slots, counts)
					}
				}
			}
			if err != nil || sum != n {
				t.Errorf("%d ranks on %v: %v, %v", n, slots, counts, err)
			}
		}
	}
}

func TestCoordinatorAddressIsReachableFromHosts(t *testing.T) {
	loop, a, b, far := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("8.8.8.8")
	hosts := []*host{{Host: Host{Name: "first"}}, {Host: Host{Name: "second"}}}
	mine := func(x netip.Addr) bool { return x == a || x == b }
	for _, c := range []struct {
		name        string
		asked, seen []netip.Addr
		all, at     []netip.Addr
		message     string
	}{
		{"this machine", nil, []netip.Addr{loop, loop}, []netip.Addr{loop}, []netip.Addr{loop, loop}, ""},
		{"two networks", nil, []netip.Addr{a, b}, []netip.Addr{a, b}, []netip.Addr{a, b}, ""},
		{"here and there", nil, []netip.Addr{loop, b}, []netip.Addr{b}, []netip.Addr{b, b}, ""},
		{"asked", []netip.Addr{a, b}, []netip.Addr{far, b}, []netip.Addr{a, b}, []netip.Addr{a, b}, ""},
		{"behind another", nil, []netip.Addr{a, far}, nil, nil, "host second sees this machine as 8.8.8.8"},
		{"not said", nil, []netip.Addr{{}, a}, nil, nil, "host first does not report"},
	} {
		all, at, err := coordinatorAddresses(c.asked, c.seen, hosts, mine)
		if !slices.Equal(all, c.all) || !slices.Equal(at, c.at) || (err != nil) != (c.message != "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, %v, %v", c.name, all, at, err)
		}
	}
	for text, want := range map[string]netip.Addr{"10.0.0.1 1 10.0.0.2 22": a, "::ffff:10.0.0.1 1 x 22": a, "": {}, "UNKNOWN 1 2 3": {}} {
		if got := seenFrom(text); got != want {
			t.Errorf("SSH_CONNECTION %q: %v, want %v", text, got, want)
		}
	}
}

func TestCheckSystemRejectsOtherArchitectures(t *testing.T) {
	uname, err := exec.Command("uname", "-sm").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSystem(strings.Fields(string(uname)), true); err != nil {
		t.Errorf("this machine: %v", err)
	}
	other := []string{"Linux", "sparc64"}
	if err := checkSystem(other, true); err == nil || !strings.Contains(err.Error(), "linux/sparc64") || !strings.Contains(err.Error(), runtime.GOOS+"/"+runtime.GOARCH) {
		t.Errorf("another: %v", err)
	}
	if err := checkSystem(other, false); err != nil {
		t.Errorf("another, with its own programs: %v", err)
	}
}

// TestBootScriptStartsAgentInEveryShell runs the script with the shells that are here as login shells, up to the agent, which is
// a script that sends hello, and counts the files that are left at its end.
func TestBootScriptStartsAgentInEveryShell(t *testing.T) {
	if strings.Count(bootScript, "'") != 2 || strings.ContainsAny(bootScript, "\\!\n") {
		t.Errorf("some login shell takes this apart: %s", bootScript)
	}
	dir := t.TempDir()
	agent := []byte("#!/bin/sh\necho " + agentLine + "\nprintf 'h'\necho \"$0|$*\"\numask\n")
	here := filepath.Join(dir, "there is one")
	if err := os.WriteFile(here, agent, 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := openFile(here, here)
	if err != nil {
		t.Fatal(err)
	}
	defer exe.open.Close()
	moved, broken := *exe, *exe
	moved.path = filepath.Join(dir, "nowhere")
	broken.path = moved.path
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nothing.Close()
	broken.open = nothing // less comes than was said
	shells := 0
	for _, shell := range []string{"sh", "dash", "bash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		shells++
		for _, c := range []struct {
			name    string
			exe     *file
			send    bool
			message func(tmp string) string // what the agent prints, before a * and after it
		}{
			{"same file", exe, true, func(string) string { return "h" + here + "|agent -\n0027\n*" }},
			{"own file", exe, false, func(string) string { return "h" + here + "|agent -\n0027\n*" }},
			{"sent", &moved, true, func(tmp string) string {
				return "h" + tmp + "/cohort-run-*/cohort|agent " + tmp + "/cohort-run-*\n0027\n"
			}},
			{"cut", &broken, true, func(string) string { return "*" }},
			{"nothing there", &moved, false, func(string) string { return "*" }},
		} {
			tmp := filepath.Join(t.TempDir(), "a folder") // with a blank
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", bootScript}
			if shell == "busybox" {
				args = append([]string{"sh"}, args...)
			}
			// The user's umask, which the agent is to have too.
			cmd := exec.Command("sh", append([]string{"-c", `umask 0027; exec "$@"`, "sh", path}, args...)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			err := boot(r, in, c.exe, c.send)
			in.Close()
			if err == nil {
				err = awaitAgent(r)
			}
			said, _ := io.ReadAll(r)
			cmd.Wait()
			want := strings.Split(c.message(tmp), "*")
			rest := string(said)
			for _, part := range want {
				at := strings.Index(rest, part)
				if at < 0 {
					t.Errorf("%s, %s: %v, said %q, want %q", shell, c.name, err, said, want)
					break
				}
				rest = rest[at+len(part):]
			}
			sent, _ := filepath.Glob(filepath.Join(tmp, "cohort-run-*"))
			for _, folder := range sent {
				if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s, %s: %v, %v; want a folder for this user alone", shell, c.name, info, err)
				}
			}
			failed := c.message(tmp) == "*"
			if left, _ := os.ReadDir(tmp); failed && (len(left) > 0 || len(said) > 0 || cmd.ProcessState.Success()) {
				t.Errorf("%s, %s: left %v, said %q, %v", shell, c.name, left, said, cmd.ProcessState)
			}
		}
	}
	if shells == 0 {
		t.Error("there is no shell")
	}
}

// TestBootSkipsOutputOfLoginShell checks what comes of login shells that write before, or only.
func TestBootSkipsOutputOfLoginShell(t *testing.T) {
	exe := &file{path: "/x", sum: "0"}
	for _, c := range []struct{ said, message string }{
		{"Welcome!\nnews" + bootLine + "\n" + agentLine + "\n", ""},
		{bootLine + "\n" + sendLine + "\n" + agentLine + "\n", ""},
		{"", "EOF"},
		{"This account is not available\n", "This account is not available"},
		{strings.Repeat("spam\n", maxNoise), "spam"},
		{strings.Repeat("spam", maxNoise), "spam"},
		{bootLine + "\n" + strings.Repeat("spam", maxNoise), "spam"},
		{bootLine + "\nsh: head: not found\n", "head: not found"},
		{bootLine + "Linux sparc64\n", "sparc64"},
	} {
		said := strings.NewReader(c.said)
		r := bufio.NewReader(said)
		err := boot(r, io.Discard, exe, true)
		if err == nil {
			err = awaitAgent(r)
		}
		if read := len(c.said) - said.Len(); read > 2*maxNoise {
			t.Errorf("%.60q: %d bytes were read", c.said, read)
		}
		if (err != nil) != (c.message != "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%.60q: %v, want %q", c.said, err, c.message)
		}
	}
}

// TestMessagesArriveUnchanged sends messages over a link, among them texts that are no UTF-8.
func TestMessagesArriveUnchanged(t *testing.T) {
	const odd = "\xff\xfe \u00e4 \xc3("
	sent := []message{
		{Kind: kindOutput, N: 1, Data: []byte("[0] text\n")},
		{Kind: kindPing},
		{Kind: kindWork, Work: &work{Programs: []program{{spawn.Program{Path: odd, Args: []string{odd, ""}, Ranks: 1}, "sum"}}, Env: []string{"A=" + odd}, Folder: odd}},
		{Kind: kindExit, Exit: &job.Exit{Rank: 1, ID: 4, Status: 9, How: "exited with status 9", After: "1 s", GoesOn: true, Follows: true}},
		{Kind: kindExit, Exit: &job.Exit{}},
		{Kind: kindRequest, ID: 2, Request: &generation.Request{Ask: &generation.Ask{}}},
		{Kind: kindRequest, ID: 2, Request: &generation.Request{Ask: &generation.Ask{Lost: []int{0, 3}}}},
		{Kind: kindTell, ID: 3, Tell: &generation.Message{Place: &generation.Place{}}},
		{Kind: kindBye, Yes: true},
	}
	var b bytes.Buffer
	l := newLink(closer{&b})
	for _, m := range sent {
		l.send(m)
	}
	l.close()
	<-l.done
	from := gob.NewDecoder(&b)
	for _, want := range sent {
		var got message
		if err := from.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v (%v)", want, got, err)
		}
	}
	if err := from.Decode(new(message)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// TestLinkReportsFailedWrite has the other end be gone.
func TestLinkReportsFailedWrite(t *testing.T) {
	r, w := io.Pipe()
	l := newLink(w)
	r.CloseWithError(syscall.EPIPE)
	for range 2 {
		if err := l.deliver(message{Kind: kindFile, Data: []byte("a")}, nil); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("got %v, want %v", err, syscall.EPIPE)
		}
	}
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// FuzzHosts checks that any list and file gives hosts that ssh can be called with, or an error.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"a,b:4,node[3-5]", "[fd00::1]:4", "a slots=4\n#x\nb", "-x", "a:b:c", "[[", "]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) ([]Host, error){ParseHosts, ParseHostfile} {
			hosts, err := parse(text)
			if (err == nil) != (len(hosts) > 0) {
				t.Fatalf("%q: %v, %v", text, hosts, err)
			}
			for _, h := range hosts {
				if h.Name == "" || h.Name[0] == '-' || strings.ContainsAny(h.Name, " \t\r\n,;'\"$`") || h.Slots < 0 {
					t.Fatalf("%q: host %+v", text, h)
				}
			}
		}
	})
}
