//go:build unix

package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// bootScript is the command that ssh executes on a host. Any login shell may read it, so it contains no single
// quote, backslash, or exclamation mark. The script reads the rest from its input, line by line:
//
//	"copy" or "there": whether the launcher sends the executable if the host does not have it
//	its SHA-256, its length, its path
//
// and then the executable, after asking for it. The launcher sends nothing before it is asked, because head may
// read more than its argument says. Finally the script executes the agent. mktemp makes a folder that only this user
// can access. The umask stays unchanged, because the ranks inherit it.
const bootScript = `exec sh -c '` +
	`echo "COHORT-BOOT 1 $(uname -s) $(uname -m)"; ` +
	`IFS= read -r how && IFS= read -r sum && IFS= read -r size && IFS= read -r path || exit 90; ` +
	`if [ "$how" = there ]; then ` +
	`if [ -f "$path" ] && [ -x "$path" ]; then exec "$path" ` + AgentCommand + ` -; fi; ` +
	`exec cohort ` + AgentCommand + ` -; fi; ` +
	`if [ -f "$path" ] && [ -x "$path" ]; then ` +
	`case "$( (sha256sum "$path" || shasum -a 256 "$path") 2>/dev/null)" in "$sum "*) exec "$path" ` + AgentCommand + ` -;; esac; fi; ` +
	`dir=$(mktemp -d "${TMPDIR:-/tmp}/cohort-run-XXXXXX") || exit 91; ` +
	`clean() { rm -rf "$dir"; }; trap clean 0; trap "exit 92" 1 2 15; ` +
	`echo COHORT-SEND; ` +
	`head -c "$size" >"$dir/cohort" && chmod 700 "$dir/cohort" || exit 93; ` +
	`[ "$(wc -c <"$dir/cohort")" -eq "$size" ] || exit 94; ` +
	`exec "$dir/cohort" ` + AgentCommand + ` "$dir"'`

const (
	bootLine  = "COHORT-BOOT 1 "
	sendLine  = "COHORT-SEND"
	agentLine = "COHORT-AGENT" // of the agent: its messages follow
	maxNoise  = 64 << 10       // bytes that a login shell may write before the script runs
)

// file is a file that may be copied to hosts.
type file struct {
	path string // where it is; what hosts are asked for
	open *os.File
	sum  string
	size int64
}

// openFile opens the file at name, which hosts know as path, and computes its checksum. The open file stays the
// same even if another replaces it at that path.
func openFile(name, path string) (*file, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &file{path, f, hex.EncodeToString(hash.Sum(nil)), size}, nil
}

func (f *file) reader() io.Reader { return io.NewSectionReader(f.open, 0, f.size) }

// ownExecutable is the file that this process executes.
func ownExecutable() (*file, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	name := path
	if runtime.GOOS == "linux" {
		name = "/proc/self/exe" // correct even if the file has been replaced or removed
		path = strings.TrimSuffix(path, " (deleted)")
	}
	return openFile(name, path)
}

// boot starts the agent through the boot script's input and output. awaitAgent follows.
func boot(r *bufio.Reader, w io.Writer, exe *file, send bool) error {
	first := ""
	for n := 0; ; {
		line, err := readLine(r, maxNoise-n)
		if n += len(line); err != nil {
			return noise(first+line, err)
		}
		if i := strings.Index(line, bootLine); i >= 0 {
			if err := checkSystem(strings.Fields(line[i+len(bootLine):]), send); err != nil {
				return err
			}
			break
		}
		if first == "" {
			first = line
		}
	}
	how, path := "there", exe.path
	if send {
		how = "copy"
	}
	if strings.ContainsAny(path, "\n\r") {
		path = ""
	}
	if _, err := fmt.Fprintf(w, "%s\n%s\n%d\n%s\n", how, exe.sum, exe.size, path); err != nil {
		return err
	}
	if b, _ := r.Peek(len(sendLine)); !send || string(b) != sendLine { // an error comes again
		return nil
	}
	if line, err := readLine(r, maxNoise); err != nil || strings.TrimSpace(line) != sendLine {
		return noise(line, err)
	}
	_, err := io.Copy(w, exe.reader())
	return err
}

// awaitAgent waits for the agent's first line, after which its messages follow.
func awaitAgent(r *bufio.Reader) error {
	line, err := readLine(r, maxNoise)
	if err == nil && strings.TrimSpace(line) == agentLine {
		return nil
	}
	return noise(line, err)
}

// readLine reads a line of at most limit bytes.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		b, err := r.ReadSlice('\n')
		line = append(line, b...)
		switch {
		case len(line) > limit:
			return string(line), errors.New("a line of its output is too long")
		case err != bufio.ErrBufferFull:
			return string(line), err
		}
	}
}

// noise is the error for a login shell that writes unexpected output.
func noise(line string, err error) error {
	if line = strings.TrimSpace(line); line == "" {
		return err
	}
	return fmt.Errorf("unexpected output of the login shell: %.200q", line)
}

// checkSystem returns an error if programs for this system do not run on a host with that uname output.
func checkSystem(names []string, send bool) error {
	if !send || len(names) != 2 {
		return nil // the host uses its own programs
	}
	system, machine := strings.ToLower(names[0]), strings.ToLower(names[1])
	switch machine {
	case "x86_64":
		machine = "amd64"
	case "aarch64":
		machine = "arm64"
	case "i386", "i486", "i586", "i686":
		machine = "386"
	}
	if system == runtime.GOOS && machine == runtime.GOARCH {
		return nil
	}
	return fmt.Errorf("the host is %s/%s, and this program is built for %s/%s; install cohort and the program there, and use --no-copy",
		system, machine, runtime.GOOS, runtime.GOARCH)
}

// A patience is the input of a host that has not sent hello yet. It gives the host up when nothing happens there.
type patience struct {
	shell   *shell
	begun   time.Time
	timer   *time.Timer
	expired atomic.Bool // the host was given up
}

func newPatience(s *shell) *patience {
	p := &patience{shell: s, begun: time.Now()}
	p.timer = time.AfterFunc(shellLimit, func() {
		p.expired.Store(true)
		s.kill()
	})
	return p
}

// Write restarts the time limit: the host has asked for data, or has received the data before.
func (p *patience) Write(b []byte) (int, error) {
	n, err := p.shell.in.Write(b)
	// Data in the buffers of ssh and the network may need as long again as all data before.
	p.timer.Reset(shellLimit + time.Since(p.begun))
	return n, err
}

// explain returns why there is no agent.
func (p *patience) explain(ctx context.Context, err error) error {
	switch {
	case !p.expired.Load() || context.Cause(ctx) != nil:
		return p.shell.explain(ctx, err)
	case isEnd(err):
		return fmt.Errorf("the agent did not start within %v", shellLimit)
	}
	return fmt.Errorf("%w, and nothing more within %v", err, shellLimit)
}
