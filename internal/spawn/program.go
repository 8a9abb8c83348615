//go:build unix

package spawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Find locates PROGRAM as a shell does. A name with a slash is a path; any other name is
// looked up in PATH. If it is not found there, a folder of that name is used: that of a Go
// main package to build.
func Find(name string) (path string, folder bool, err error) {
	if name == "" {
		return "", false, errors.New("the program's name is empty")
	}
	if !strings.ContainsRune(name, '/') && name != "." && name != ".." {
		found, err := exec.LookPath(name)
		if err == nil || errors.Is(err, exec.ErrDot) { // PATH includes the current folder: a shell uses it too
			return found, false, nil
		}
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return "", false, fmt.Errorf("%s: not found in PATH, and not a file or folder here", name)
		case !info.IsDir():
			return "", false, fmt.Errorf("%s: not found in PATH; to run the file in this folder, write ./%s", name, name)
		}
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", name, bare(err))
	}
	switch {
	case info.IsDir():
		return name, true, nil
	case !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s: neither a regular file nor a folder", name)
	case strings.HasSuffix(name, ".go"):
		return "", false, fmt.Errorf("%s: is a source file; give the folder of its package: %s", name, filepath.Dir(name)+"/")
	case info.Mode().Perm()&0o111 == 0:
		return "", false, fmt.Errorf("%s: not executable; if it is a program: chmod +x %s", name, name)
	}
	return name, false, nil
}

// bare strips operation and path from an error.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Build builds the Go main package in folder. It returns the executable, and a function
// that removes it and all other files of the build. If this process is killed, the
// keeper, which may be nil, removes them. The build ends when ctx does.
func Build(ctx context.Context, folder string, k *Keeper) (path string, remove func(), err error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", nil, fmt.Errorf("%s: building a folder needs the go command, which is not in PATH; install Go, or give an executable", folder)
	}
	tmp, err := os.MkdirTemp("", "cohort-run-*")
	if err != nil {
		return "", nil, fmt.Errorf("%s: creating a folder to build in: %w; TMPDIR names another place", folder, err)
	}
	k.Folder(tmp)
	remove = func() { os.RemoveAll(tmp) }
	bin := filepath.Join(tmp, "bin")
	if err = os.Mkdir(bin, 0o700); err == nil {
		err = build(ctx, tool, folder, tmp, bin, k)
	}
	if err == nil {
		var entries []os.DirEntry
		if entries, err = os.ReadDir(bin); err == nil && len(entries) != 1 {
			err = fmt.Errorf("%s: go build made %d executables, want 1", folder, len(entries))
		}
		if err == nil {
			return filepath.Join(bin, entries[0].Name()), remove, nil
		}
	}
	remove()
	return "", nil, err
}

const buildNote = 2 * time.Second // a user at a terminal learns of a build that takes longer

// build runs the go command from a thread that lives until the command ends.
func build(ctx context.Context, tool, folder, tmp, bin string, k *Keeper) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, "build", "-o", bin+"/", ".")
	cmd.Dir = folder
	cmd.Env = append(cmd.Environ(), "GOTMPDIR="+tmp, "TMPDIR="+tmp) // the linker and the C compiler use TMPDIR
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = sysProcAttr(nil)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // for output that a busy machine still has to read
	if isTerminal(os.Stderr) {
		note := time.AfterFunc(buildNote, func() { fmt.Fprintf(os.Stderr, "cohort: building %s\n", folder) })
		defer note.Stop()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			k.Group(cmd.Process.Pid)
			err = cmd.Wait()
			k.GroupGone(cmd.Process.Pid)
		}
		result <- err
	}()
	err := <-result
	text := strings.TrimRight(out.String(), "\n")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return nil
	case strings.Contains(text, "no main packages to build"):
		return fmt.Errorf("%s: the Go package is not a main package and cannot be run", folder)
	case text == "":
		return fmt.Errorf("%s: go build: %w", folder, err)
	}
	return fmt.Errorf("%s: go build failed:\n%s", folder, text)
}

// Explain returns an error that explains to a user why the program at path could not be started.
func Explain(path string, err error) error {
	advice := ""
	switch _, missing := os.Stat(path); {
	case errors.Is(err, syscall.ENOEXEC):
		advice = fmt.Sprintf("; it is neither a program for %s/%s nor a script, which begins with a line such as #!/bin/sh", runtime.GOOS, runtime.GOARCH)
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		advice = "; the file is there, but not the interpreter in its first line, or the dynamic loader that it needs"
	case errors.Is(err, fs.ErrPermission):
		advice = "; the file is not executable, or its file system is mounted noexec (TMPDIR names where folders are built)"
	}
	return fmt.Errorf("%s: %w%s", path, bare(err), advice)
}
