package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// busyProgram makes a copy of the test binary a rank of a job that computes: a given number of rounds, or
// until its input ends.
const busyProgram = "busy-rank"

func init() { rankPrograms[busyProgram] = busyRank }

func busyRank(how string) int {
	if err := beBusy(how); err != nil {
		fmt.Println(err)
		return 3
	}
	return 0
}

func beBusy(how string) error {
	// The runtime's goroutines and descriptors for files and signals stay.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	signal.Stop(c)
	files, routines := openFiles(os.Getpid()), runtime.NumGoroutine()
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		return err
	}
	defer world.Close()
	joined := runtime.NumGoroutine()
	fmt.Println("rank", os.Getpid(), os.Getenv("COHORT_SECRET_FILE"))
	times, err := strconv.Atoi(how)
	over := make(chan struct{})
	if forever := err != nil; forever && world.Rank() == 0 {
		input := bufio.NewReader(os.Stdin)
		input.ReadString('\n') // or the input ends
		go func() {
			io.Copy(io.Discard, input)
			close(over)
		}()
	}
	var first []byte
	done := 0
	for more := []int32{1}; more[0] == 1; done++ {
		digest, err := compute(world)
		if err != nil {
			return err
		}
		if first == nil {
			first = digest
			if world.Rank() == 0 {
				fmt.Println("computing")
			}
		}
		if !bytes.Equal(digest, first) {
			return fmt.Errorf("time %d: the result is %x, and was %x", done, digest, first)
		}
		select {
		case <-over:
			more[0] = 0
		default:
			if done+1 == times {
				more[0] = 0
			}
		}
		if err := cohort.Bcast(world, more, 0); err != nil {
			return err
		}
	}
	if err := fewer(joined); err != nil { // those of unauthenticated peers that are gone
		return err
	}
	fmt.Printf("result %x\ntimes %d\n", first, done)
	for _, line := range world.Diagnostics() {
		fmt.Println("diagnostics:", line)
	}
	if err := world.Close(); err != nil {
		return err
	}
	if n := openFiles(os.Getpid()); n > files {
		return fmt.Errorf("%d descriptors are open after Close, %d before Init", n, files)
	}
	return fewer(routines)
}

// compute returns the digest of a computation in which every result depends on all before it, and on the order in
// which numbers are added. All ranks send to all others.
func compute(w *cohort.Comm) ([]byte, error) {
	sum, n, me := sha256.New(), w.Size(), w.Rank()
	x := make([]float64, 3000)
	for i := range x {
		x[i] = 1 / float64(1+i+me)
	}
	all, got := make([]float64, len(x)), make([]float64, len(x))
	for k := range 40 {
		m := []int{1, 100, len(x)}[k%3]
		if err := cohort.Allreduce(w, x[:m], all[:m], cohort.Sum); err != nil {
			return nil, err
		}
		to, from := (me+1)%n, (me+n-1)%n
		if _, err := cohort.Sendrecv(w, all[:m], to, k, got[:m], from, k); err != nil {
			return nil, err
		}
		if err := cohort.Bcast(w, all[:m], k%n); err != nil {
			return nil, err
		}
		for i := range m {
			x[i] = 1/(1+got[i]) + all[i]/float64(3+me)
		}
		if err := binary.Write(sum, binary.LittleEndian, x); err != nil {
			return nil, err
		}
	}
	return sum.Sum(nil), nil
}

// openFiles returns how many descriptors a process has.
func openFiles(pid int) int {
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return len(d)
}

// fewer waits until at most than goroutines are left: canceled ones take some time to end.
func fewer(than int) error {
	for begun := time.Now(); runtime.NumGoroutine() > than; runtime.Gosched() {
		if time.Since(begun) > patience/2 {
			buf := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), than, buf[:runtime.Stack(buf, true)])
		}
	}
	return nil
}

// door is a listener that unauthenticated peers connect to: that of a rank, or that of the coordinator.
type door struct {
	addr string
	rank int            // or meet.Launcher
	id   *meet.Identity // of a rank that may connect there
	use  meet.Purpose   // of that rank's connection

	recorded []byte // the handshake that such a rank once sent
}

// tape is a connection that keeps what is written to it.
type tape struct {
	net.Conn
	wrote bytes.Buffer
}

func (c *tape) Write(b []byte) (int, error) {
	c.wrote.Write(b)
	return c.Conn.Write(b)
}

// record keeps the handshake of an admitted rank. A rank's listener really admits it, as a connection request that is
// followed by nothing. The coordinator's rendezvous is over, so an equal server in this process admits it instead.
func (d *door) record() error {
	var c net.Conn
	var err error
	server := make(chan error, 1)
	if d.rank == meet.Launcher {
		like := *d.id
		like.Rank, like.Coordinator = d.rank, true
		here, there := net.Pipe()
		c = here
		go func() {
			_, err := meet.Server(context.Background(), there, &like)
			server <- err
		}()
	} else {
		server <- nil
		if c, err = net.DialTimeout("tcp", d.addr, patience); err != nil {
			return err
		}
	}
	t := &tape{Conn: c}
	_, err = meet.Client(context.Background(), t, d.id, d.rank, d.use)
	err = errors.Join(err, <-server)
	c.Close()
	d.recorded = t.wrote.Bytes()
	return err
}

// A visitor is a kind of unauthenticated peer. It uses one connection, and returns an error if it is not refused as expected.
type visitor struct {
	name         string
	visit        func(c net.Conn, d *door, n int) error
	rank, launch meet.Reason // why a rank and the coordinator refuse it
}

// sends returns a visit that sends bytes, and waits until the connection is closed, which may be by a reset.
func sends(what func(d *door, n int) []byte) func(net.Conn, *door, int) error {
	return func(c net.Conn, d *door, n int) error {
		if _, err := c.Write(what(d, n)); err != nil {
			return err
		}
		got, err := io.Copy(io.Discard, c)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case got > 48:
			return fmt.Errorf("it receives %d bytes", got)
		}
		return nil
	}
}

// asksAs connects as a rank does, with a wrong identity.
func asksAs(change func(id *meet.Identity), want meet.Reason) func(net.Conn, *door, int) error {
	return func(c net.Conn, d *door, _ int) error {
		id := *d.id
		change(&id)
		_, err := meet.Client(context.Background(), c, &id, d.rank, d.use)
		if r, ok := errors.AsType[*meet.Refusal](err); !ok || r.Reason != want {
			return fmt.Errorf("it gets %v, want a refusal for %q", err, want)
		}
		return nil
	}
}

// drip sends a good handshake byte by byte, too slowly, until the connection is closed.
func drip(c net.Conn, d *door, _ int) error {
	one := make([]byte, 1)
	for begun := time.Now(); time.Since(begun) < patience; {
		for _, b := range d.recorded {
			if _, err := c.Write([]byte{b}); err != nil {
				return nil
			}
			if err := c.SetReadDeadline(time.Now().Add(meet.HandshakeTimeout / 20)); err != nil {
				return err
			}
			if _, err := c.Read(one); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
		}
	}
	return fmt.Errorf("it is there after %v", patience)
}

var garbage = []string{"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("\x00\xff", 500)}

var visitors = []visitor{
	{"no secret", asksAs(func(id *meet.Identity) { id.Secret = meet.NewSecret() }, meet.WrongProof), meet.Silent, meet.Silent},
	{"no secret, and a proof by chance", sends(func(d *door, _ int) []byte {
		b := bytes.Clone(d.recorded)
		rand.Read(b[24:]) // the nonce and the proof
		return b
	}), meet.WrongProof, meet.WrongProof},
	{"a recorded handshake", sends(func(d *door, _ int) []byte { return d.recorded }), meet.WrongProof, meet.WrongProof},
	{"another job", asksAs(func(id *meet.Identity) { id.Job = "another" }, meet.WrongJob), meet.WrongJob, meet.WrongJob},
	{"another version", sends(func(d *door, _ int) []byte {
		b := bytes.Clone(d.recorded)
		binary.LittleEndian.PutUint16(b[4:], meet.Version+1)
		return b
	}), meet.WrongVersion, meet.WrongVersion},
	{"a port scan", func(c net.Conn, _ *door, n int) error { return c.(*net.TCPConn).SetLinger(-(n % 2)) }, meet.Silent, meet.Silent}, // an end or a reset
	{"garbage", sends(func(_ *door, n int) []byte { return []byte(garbage[n%len(garbage)]) }), meet.Garbage, meet.Garbage},
	{"a slow loris", drip, meet.Slow, meet.Slow},
}

// visit is one visit of an unauthenticated peer.
func (d *door) visit(t *testing.T, v *visitor, n int) {
	c, err := net.DialTimeout("tcp", d.addr, patience)
	if err == nil {
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(patience)); err == nil {
			err = v.visit(c, d, n)
		}
	}
	if err != nil {
		t.Errorf("rank %d: %s: %v", d.rank, v.name, err)
	}
}

// doors are the listeners of a running job.
func (j *openJob) doors(t *testing.T) []*door {
	t.Helper()
	secret, err := meet.ReadSecretFile(j.secret)
	if err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", j.pids[1]))
	if err != nil {
		t.Fatal(err)
	}
	job := regexp.MustCompile(`(?:^|\x00)COHORT_JOB=([^\x00]*)`).FindSubmatch(env)
	if job == nil {
		t.Fatalf("rank 0 has no COHORT_JOB: %q", env)
	}
	var all []*door
	for rank, pid := range j.pids {
		rank-- // the first is the coordinator, before the ranks
		id := &meet.Identity{Job: string(job[1]), Secret: secret, Size: len(j.pids) - 1}
		d := &door{addr: listening(t, pid)[0].String(), rank: rank, id: id, use: meet.DialRequest}
		if rank == meet.Launcher {
			d.use = meet.Rendezvous
		} else if rank == 0 {
			id.Rank = 1
		}
		if err := d.record(); err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		all = append(all, d)
	}
	return all
}

// TestRunTCPRefusesHostilePeers has unauthenticated peers of all kinds connect to the coordinator and to every rank of a
// job while it computes and connects. All are refused, and each process reports that in one line. The job's results have
// the same bits as without them, and no goroutine or descriptor is left of them.
func TestRunTCPRefusesHostilePeers(t *testing.T) {
	const ranks = 3
	each := 3
	if testing.Short() {
		each = 1
	}
	t.Setenv("COHORT_TCP_SHM", "0")
	alone := startOpenJob(t, ranks, "1")
	want, launcher := alone.end(t, "result")
	if slices.Sort(want); len(want) != ranks || launcher != "" {
		t.Fatalf("a job without unauthenticated peers prints %q and %q", want, launcher)
	}
	j := startOpenJob(t, ranks, "")
	files := make([]int, len(j.pids))
	for i, pid := range j.pids {
		files[i] = openFiles(pid)
		if i > 1 {
			files[i]++ // ranks 1 and 2 are not connected yet
		}
	}
	doors := j.doors(t)
	var all sync.WaitGroup
	for _, d := range doors {
		for i := range visitors {
			for n := range each {
				if v := &visitors[i]; v.rank == meet.Slow {
					all.Go(func() { d.visit(t, v, n) })
				}
			}
		}
	}
	if _, err := io.WriteString(j.input, "go\n"); err != nil {
		t.Fatal(err)
	}
	if !j.output.Scan() || j.output.Text() != "[0] computing" {
		t.Fatalf("rank 0 prints %q", j.output.Text())
	}
	for _, d := range doors {
		all.Go(func() {
			for n := range each {
				for i := range visitors {
					if v := &visitors[i]; v.rank != meet.Slow {
						d.visit(t, v, n)
					}
				}
			}
		})
	}
	all.Wait()
	for i, pid := range j.pids {
		for begun := time.Now(); openFiles(pid) > files[i]; runtime.Gosched() {
			if time.Since(begun) > patience {
				t.Errorf("process %d of the job has %d descriptors, and %d before the unauthenticated peers came", i, openFiles(pid), files[i])
				break
			}
		}
	}

	lines, launcher := j.end(t, "")
	var got, reported []string
	for _, line := range lines {
		switch {
		case strings.Contains(line, "] result "):
			got = append(got, line)
		case strings.Contains(line, "unauthenticated peers"):
			reported = append(reported, line)
		case strings.HasPrefix(line, "[0] times "):
			t.Logf("%s", line)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the ranks say\n%q\nand without unauthenticated peers\n%q", lines, want)
	}
	count := func(reason func(*visitor) meet.Reason) map[string]int {
		m := map[string]int{}
		for i := range visitors {
			m[reason(&visitors[i]).String()] += each
		}
		return m
	}
	if slices.Sort(reported); len(reported) != ranks {
		t.Fatalf("the ranks report of unauthenticated peers %q", reported)
	}
	for rank, line := range reported {
		refusals(t, fmt.Sprintf("[%d] diagnostics: unauthenticated peers: ", rank), line, count(func(v *visitor) meet.Reason { return v.rank }))
	}
	line, ok := strings.CutSuffix(launcher, "\n")
	if !ok || strings.Contains(line, "\n") {
		t.Errorf("the launcher prints %q, want one line", launcher)
	}
	refusals(t, "cohort: coordinator: ", line, count(func(v *visitor) meet.Reason { return v.launch }))
}

// refusals checks that a line reports how many connections were refused, why, and the address of the first of each kind.
func refusals(t *testing.T, begin, line string, want map[string]int) {
	t.Helper()
	total, got := 0, map[string]int{}
	for _, m := range regexp.MustCompile(`(\d+) × ([^,]+), first: handshake with (?:127\.0\.0\.1|\[::1\]):\d+: ([^:]+)`).FindAllStringSubmatch(line, -1) {
		n, _ := strconv.Atoi(m[1])
		total += n
		if got[m[2]] += n; m[2] != m[3] {
			t.Errorf("%q are reported as %q", m[2], m[3])
		}
	}
	if !strings.HasPrefix(line, begin+fmt.Sprintf("%d connections refused: ", total)) || !maps.Equal(got, want) {
		t.Errorf("got %v, want %v, in %q", got, want, line)
	}
}
