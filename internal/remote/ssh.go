//go:build unix

package remote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

const (
	keptWords  = 20                     // lines of ssh's messages that are kept
	wordsLimit = 300 * time.Millisecond // for the last of them: a master connection keeps the pipe open
)

// sshOptions come after the user's options: ssh uses the first value of each. With them ssh never asks for a
// password, gives up on a host that does not answer, and prints errors only. Port forwarding is off: the user
// configures it for other uses of the host, and only one connection could have it.
var sshOptions = []string{"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "LogLevel=ERROR", "-o", "ClearAllForwardings=yes"}

// srunOptions make srun start one process with all that the job has on a host, beside other steps.
// Without --unbuffered, srun would keep back what has no newline.
var srunOptions = []string{
	"--quiet", "--unbuffered", "--overlap", "--whole", "--nodes=1", "--ntasks=1", "--mem=0", "--cpu-bind=none", "--mpi=none", "--export=ALL",
}

// shell is an ssh or srun to a host.
type shell struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	r     *bufio.Reader
	ended chan struct{} // closed when ssh has ended and its messages have been read

	mu    sync.Mutex
	words []string
}

// openShell starts the boot script on a host. ssh gets a new process group, so that an interrupt from the
// terminal reaches only the launcher, which passes it on.
func openShell(command []string, srun bool, name string, keeper *spawn.Keeper) (*shell, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("%s: not found in PATH; it starts ranks on other hosts (--ssh names another command, --starter srun takes srun)", command[0])
	}
	args := append(slices.Clone(command[1:]), sshOptions...)
	args = append(args, name, bootScript)
	if srun {
		args = append(slices.Clone(command[1:]), srunOptions...)
		args = append(args, "--nodelist="+name, "sh", "-c", bootScript)
	}
	s := &shell{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	if srun { // the user's ssh to this machine is not the agent's connection
		s.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SSH_CONNECTION=") })
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var errs [3]error
	var messages io.ReadCloser
	s.in, errs[0] = s.cmd.StdinPipe()
	s.out, errs[1] = s.cmd.StdoutPipe()
	messages, errs[2] = s.cmd.StderrPipe()
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.r = bufio.NewReaderSize(s.out, maxChunk)
	keeper.Group(s.cmd.Process.Pid)
	go s.watch(messages.(*os.File), keeper)
	return s, nil
}

// watch waits for the end of ssh, and keeps its messages. If a wrapper script of the user dies, the ssh that it has started is
// killed: nothing else would notice that the agent is lost.
func (s *shell) watch(stderr *os.File, keeper *spawn.Keeper) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		r := bufio.NewReaderSize(stderr, 4<<10)
		for begins := true; ; {
			b, more, err := r.ReadLine() // a long line comes in pieces; the first is kept
			if line := strings.TrimSpace(string(b)); begins && line != "" {
				s.mu.Lock()
				if len(s.words) == keptWords {
					s.words = s.words[1:]
				}
				s.words = append(s.words, line[:min(len(line), 500)])
				s.mu.Unlock()
			}
			begins = !more
			if err != nil {
				return
			}
		}
	}()
	s.cmd.ProcessState, _ = s.cmd.Process.Wait()      // cmd.Wait would close the pipes, which may have data
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // nothing, if the group is empty
	keeper.GroupGone(s.cmd.Process.Pid)
	stderr.SetReadDeadline(time.Now().Add(wordsLimit))
	<-read
	stderr.Close()
	close(s.ended)
}

// kill ends ssh. The agent then ends by itself.
func (s *shell) kill() {
	select {
	case <-s.ended:
	default:
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// explain returns why a host cannot be used, with ssh's own messages. If ssh has not ended, it is killed.
func (s *shell) explain(ctx context.Context, err error) error {
	select {
	case <-s.ended:
	case <-time.After(wordsLimit):
		s.kill()
		<-s.ended
	}
	s.mu.Lock()
	text := strings.Join(s.words, "\n  ")
	s.mu.Unlock()
	if context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	how := s.cmd.ProcessState.String()
	status, _ := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	own := err != nil && !isEnd(err)
	switch {
	case own && text == "":
		return err
	case own:
		return fmt.Errorf("%w\n  %s", err, text)
	case text == "" && status.Signaled():
		return fmt.Errorf("%s was killed by %s", filepath.Base(s.cmd.Path), how)
	case text == "":
		return fmt.Errorf("%s ended (%s) without a message%s", filepath.Base(s.cmd.Path), how, hint(status.ExitStatus(), ""))
	}
	return errors.New(text + hint(status.ExitStatus(), text))
}

// hint returns advice for a message of ssh, or of the boot script.
func hint(status int, text string) string {
	switch {
	case strings.Contains(text, "Permission denied (") || strings.Contains(text, "Too many authentication failures"):
		return "\n  set up a key (ssh-copy-id) or an ssh agent, so that 'ssh -o BatchMode=yes HOST true' works without a password"
	case strings.Contains(text, "IDENTIFICATION HAS CHANGED"):
		return ""
	case strings.Contains(text, "Host key verification failed") || strings.Contains(text, "host key is known"):
		return "\n  the host's key is not known here; connect with ssh once by hand, and check the key"
	case strings.Contains(text, `no command "agent"`), strings.Contains(text, `unknown command "agent"`):
		return "\n  the host has another version of cohort; install the same version, or leave out --no-copy"
	case strings.Contains(text, "Invalid generic resource"):
		return "\n  ask salloc or sbatch for GPUs by --gpus-per-node or --gres instead of --gpus"
	case status == 126:
		return "\n  programs in the host's temporary folder cannot be executed; set TMPDIR there, or use --no-copy"
	case status == 127:
		return "\n  cohort is not installed there, neither at the same path nor in PATH; without --no-copy it is copied"
	case status >= 91 && status <= 94:
		return "\n  the executable could not be written to a temporary folder there; TMPDIR names another place"
	}
	return ""
}
