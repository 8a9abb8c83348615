//go:build linux

package jobtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/test/names"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// A cluster runs pods of Indexed Jobs. Each is a process with a network, mounts, and a host name of its own. Its file
// system has what a container from scratch has: the program, linked statically, and the files that kubelet makes.
type cluster struct {
	t       *testing.T
	net     *netlab.Net
	dns     *names.Server // on the last host
	program string
	secret  string
	hosts   int // of pods, each with an address that is used once
	used    int
}

const (
	podDomain = ".ranks.lab.svc.cluster.local"
	podRoot   = "TEST_POD_ROOT" // marks a process that becomes a pod, and says where its files are
	podName   = "TEST_POD_NAME"
	podSecret = "TEST_POD_SECRET"
	podUser   = 65532           // as in docs/kubernetes/job.yaml
	nested    = "NETLAB_NESTED" // set where netlab.Need has made this process the root of a user namespace
)

// newCluster makes a cluster with a number of addresses. It returns nil if the test is to end.
func newCluster(t *testing.T, hosts int) *cluster {
	t.Helper()
	if root := os.Getenv(podRoot); root != "" {
		fmt.Fprintln(os.Stderr, becomePod(root))
		os.Exit(1)
	}
	if !netlab.Need(t) {
		return nil
	}
	c := &cluster{t: t, program: filepath.Join(t.TempDir(), "program"), hosts: hosts}
	build := exec.Command("go", "build", "-trimpath", "-o", c.program, "../../../internal/pmi/testdata/ranks")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	var secret strings.Builder
	if err := meet.NewSecret().Send(&secret); err != nil {
		t.Fatal(err)
	}
	c.secret = secret.String()
	var err error
	if c.net, err = netlab.New(netlab.Config{Hosts: hosts + 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.net.Close() })
	if err := c.net.Do(hosts, func() error {
		conn, err := net.ListenPacket("udp", netip.AddrPortFrom(c.net.Addr(hosts), 53).String())
		if err == nil {
			c.dns = names.Serve(conn)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.dns.Close() })
	return c
}

// A pod of a cluster.
type pod struct {
	name  string // in DNS, from the time on when c.know is called
	host  int
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// Write takes the output of the program.
func (p *pod) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *pod) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := "running"
	select {
	case <-p.ended:
		state = p.cmd.ProcessState.String()
	default:
	}
	return fmt.Sprintf("%s: %s\n%s", p.name, state, p.out.String())
}

// start starts the pod of a job that has an index, at a new address.
func (c *cluster) start(job string, index, size int, arg string, env ...string) *pod {
	c.t.Helper()
	short := fmt.Sprint(job, "-", index)
	p := &pod{name: short + podDomain, host: c.used, ended: make(chan struct{})}
	if c.used++; c.used > c.hosts {
		c.t.Fatal("the cluster has too few addresses")
	}
	root := c.t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, dir := range []string{"etc", "proc", "run/cohort"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	write("etc/resolv.conf", fmt.Sprintf("search lab.svc.cluster.local\nnameserver %v\noptions ndots:5\n", c.net.Addr(c.hosts)))
	write("etc/hosts", fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n%v\t%s\t%s\n", c.net.Addr(p.host), p.name, short))
	exe, err := os.Executable()
	if err == nil {
		err = os.Link(c.program, filepath.Join(root, "program"))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	test, _, _ := strings.Cut(c.t.Name(), "/")
	p.cmd = exec.Command(exe, "-test.run=^"+test+"$", arg)
	p.cmd.Env = append(env, podRoot+"="+root, podName+"="+short, podSecret+"="+c.secret, nested+"="+os.Getenv(nested),
		fmt.Sprint("JOB_COMPLETION_INDEX=", index), fmt.Sprint("COHORT_SIZE=", size), "COHORT_SECRET_FILE=/run/cohort/secret")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
	if err := c.net.Start(p.host, p.cmd); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		dog := time.AfterFunc(rankPatience, func() { p.cmd.Process.Signal(syscall.SIGABRT) })
		defer dog.Stop()
		_ = p.cmd.Wait()
	}()
	c.t.Cleanup(func() { c.kill(p, syscall.SIGKILL) })
	return p
}

// becomePod makes a process a pod: it returns only with an error.
func becomePod(root string) error {
	secrets := filepath.Join(root, "run/cohort")
	// kubelet writes a Secret to a memory file system, as a link to a link, and mounts that read-only.
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/proc", filepath.Join(root, "proc"), "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("none", secrets, "tmpfs", 0, ""),
		os.Mkdir(filepath.Join(secrets, "..2026"), 0o755),
		os.WriteFile(filepath.Join(secrets, "..2026/secret"), []byte(os.Getenv(podSecret)), 0o440),
		os.Symlink("..2026", filepath.Join(secrets, "..data")),
		os.Symlink("..data/secret", filepath.Join(secrets, "secret")),
		unix.Sethostname([]byte(os.Getenv(podName))))
	if err == nil && os.Getenv(nested) == "" { // the root of a user namespace can be no one else
		err = os.Chown(filepath.Join(secrets, "..2026/secret"), 0, podUser)
	}
	err = errors.Join(err,
		unix.Mount("", secrets, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		unix.Chroot(root), os.Chdir("/"))
	if err == nil && os.Getenv(nested) == "" {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(podUser), syscall.Setuid(podUser))
	}
	if err != nil {
		return err
	}
	for _, v := range []string{podRoot, podName, podSecret, nested} {
		os.Unsetenv(v)
	}
	return syscall.Exec("/program", []string{"/program", os.Args[len(os.Args)-1]}, os.Environ())
}

// know makes the DNS server know a pod, or its replacement.
func (c *cluster) know(p *pod) { c.dns.Set(p.name, c.net.Addr(p.host)) }

// kill sends a pod a signal and waits until it has ended.
func (c *cluster) kill(p *pod, s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.ended
}

// want waits until pods have ended, which must be with a status and a text.
func (c *cluster) want(status int, text string, pods ...*pod) {
	c.t.Helper()
	for _, p := range pods {
		<-p.ended
		if p.cmd.ProcessState.ExitCode() != status || !strings.Contains(p.String(), text) {
			c.t.Errorf("want status %d and %q of %v", status, text, p)
		}
	}
}

// until waits until a condition holds, before which a pod must not end.
func (c *cluster) until(p *pod, what string, holds func() bool) {
	c.t.Helper()
	for !holds() {
		select {
		case <-p.ended:
			c.t.Fatalf("before it %s: %v", what, p)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestPodsBehaveAsDocumented shows what docs/kubernetes.md promises of the pods of a Job, without a cluster.
func TestPodsBehaveAsDocumented(t *testing.T) {
	c := newCluster(t, 48)
	if c == nil {
		return
	}
	t.Run("restarted while others wait", c.restarted)
	t.Run("lost node", c.lost)
	t.Run("earlier job", c.earlier)
	t.Run("never started", c.never)
	t.Run("end", c.end)
	t.Run("replaced", c.replaced)
}

// replaced kills two pods of a running job, pod 0 among them. The others meet their replacements, which have other addresses,
// in the next world.
func (c *cluster) replaced(t *testing.T) {
	c.t = t
	const size = 3
	pods := make([]*pod, size)
	begin := func(i int) {
		pods[i] = c.start("again", i, size, "rejoin")
		c.know(pods[i])
	}
	for i := range size {
		begin(i)
	}
	for _, p := range pods {
		c.until(p, "has joined", func() bool { return strings.Contains(p.String(), ", sum 6\n") })
	}
	for _, i := range []int{2, 0} {
		c.kill(pods[i], syscall.SIGKILL)
		begin(i)
	}
	for i, p := range pods {
		c.want(0, fmt.Sprintf("rank %d of %d in generation 1, sum 6\n", i, size), p)
	}
}

// restarted starts pods one by one. The DNS server learns their names late, in another order. Before the last one starts,
// pod 1 is killed and pod 0's node is drained. Their replacements have other addresses.
func (c *cluster) restarted(t *testing.T) {
	c.t = t
	const job, size = "train", 4
	within := 20 * time.Second
	if testing.Short() {
		within = 2 * time.Second
	}
	pods := make([]*pod, size)
	begin := func(i int) { pods[i] = c.start(job, i, size, "end") }
	joined := func(i int) {
		c.until(pods[i], "has joined", func() bool {
			n := c.net.Count(pods[i].host, pods[0].host)
			return n.Packets >= 5 && n.Bytes >= 500 // a handshake has fewer
		})
	}
	for _, i := range rand.Perm(size - 1) {
		time.Sleep(rand.N(within / 4)) // on purpose: pods start one by one
		begin(i)
	}
	for _, i := range rand.Perm(size - 1) {
		time.Sleep(rand.N(within / 8)) // on purpose: names become known late
		c.know(pods[i])
	}
	joined(1)
	c.kill(pods[1], syscall.SIGKILL)
	begin(1)
	c.know(pods[1])
	joined(1)
	joined(2)
	old := pods[0]
	c.kill(old, syscall.SIGTERM)
	c.want(75, "rank 0", old)
	begin(0)
	time.Sleep(rand.N(within / 4)) // on purpose: the new name becomes known late
	c.know(pods[0])
	begin(3)
	for i, p := range pods {
		c.want(0, fmt.Sprintf("rank %d of %d on tcp, sum %d\n", i, size, size*(size+1)/2), p)
	}
}

// lost cuts pod 0 off the network while pod 1 waits for others. Nothing ends the connection.
func (c *cluster) lost(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: a pod takes 40 s to find pod 0 lost; make test-all runs it")
	}
	c.t = t
	const job, size = "cut", 3
	old := c.start(job, 0, size, "end")
	c.know(old)
	one := c.start(job, 1, size, "end")
	c.until(one, "has joined", func() bool {
		n := c.net.Count(one.host, old.host)
		return n.Packets >= 5 && n.Bytes >= 500
	})
	c.net.Isolate(old.host, true)
	zero := c.start(job, 0, size, "end")
	c.know(zero)
	c.want(0, "of 3 on tcp, sum 6\n", zero, one, c.start(job, 2, size, "end"))
}

// earlier has a pod 0 of an earlier Job of the same name, which ends after pod 1 of the new Job has found it.
func (c *cluster) earlier(t *testing.T) {
	c.t = t
	const job, size = "twin", 2
	old := c.start(job, 0, size, "end", "COHORT_JOB=uid-1")
	c.know(old)
	one := c.start(job, 1, size, "end", "COHORT_JOB=uid-2")
	c.until(one, "is refused", func() bool { return c.net.Count(old.host, one.host).Bytes > 300 })
	c.kill(old, syscall.SIGTERM)
	zero := c.start(job, 0, size, "end", "COHORT_JOB=uid-2")
	c.know(zero)
	c.want(75, "1 of 2 ranks did not join", old)
	c.want(75, "another job", old)
	c.want(0, "of 2 on tcp, sum 3\n", zero, one)
}

// never starts some of the pods.
func (c *cluster) never(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: pods wait 20 s for others that do not start; make test-all runs it")
	}
	c.t = t
	const limit = "COHORT_JOIN_TIMEOUT=20s"
	var some, none []*pod
	for _, i := range []int{0, 2, 5} {
		some = append(some, c.start("some", i, 6, "end", limit))
		c.know(some[len(some)-1])
	}
	for _, i := range []int{1, 2} {
		none = append(none, c.start("none", i, 3, "end", limit))
	}
	c.want(75, "3 of 6 ranks did not join", some...)
	c.want(75, ": ranks 1, 3, 4", some...)
	c.want(75, "none-0"+podDomain, none...)
	c.want(75, "no such host", none...)
	for i, p := range append(none, some...) {
		if want := fmt.Sprintf("rank %d", []int{1, 2, 0, 2, 5}[i]); !strings.Contains(p.String(), want) {
			t.Errorf("want %q of %v", want, p)
		}
	}
}

// end ends pods of complete jobs: by a signal, also in a collective, and by an error of the program.
func (c *cluster) end(t *testing.T) {
	c.t = t
	const size = 3
	start := func(arg string) (pods []*pod) {
		for i := range size {
			pods = append(pods, c.start(arg, i, size, arg))
			c.know(pods[i])
		}
		return pods
	}
	waiting, adding, failing := start("wait"), start("add"), start("fail")
	for _, p := range append(waiting, adding...) {
		c.until(p, "has joined", func() bool { return strings.Contains(p.String(), ", sum 6\n") })
	}
	c.kill(waiting[2], syscall.SIGTERM)
	c.want(75, "rank 2 saves its work\n", waiting[2])
	c.want(75, "rank 2", waiting...)
	c.kill(adding[2], syscall.SIGTERM)
	c.want(75, "rank 2", adding...)
	c.want(1, "rank 1: no more work\n", failing[1])
	c.want(75, "no more work\n", failing[0], failing[2])
}
