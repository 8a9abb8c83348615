//go:build unix

package spawn

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Become turns this process, which a launcher has started as rank of size, into that
// rank of the job whose cohort run listens at address. The process executes the job's
// program with the standard input, output and error, and the processors, that cohort run
// gives to a rank. It stays a child of the launcher. Become returns only if it fails.
func Become(address string, rank, size int) error {
	// Signals of a job are sent to the process groups of its ranks. If the launcher has
	// not made the rank the leader of a group, the rank does so.
	if syscall.Getpgrp() != os.Getpid() {
		if err := syscall.Setpgid(0, 0); err != nil {
			return fmt.Errorf("rank %d: setting its process group: %w", rank, err)
		}
	}
	o, files, err := ask(address, rank, size)
	if err != nil {
		return fmt.Errorf("rank %d: no answer from cohort run, which must be on the same machine: %w", rank, err)
	}
	for i, fd := range files {
		if err := unix.Dup2(fd, i); err != nil {
			return fmt.Errorf("rank %d: descriptor %d: %w", rank, i, err)
		}
	}
	for _, v := range o.Env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("rank %d: %s: %w", rank, name, err)
		}
	}
	runtime.LockOSThread() // a program inherits the affinity of the thread that executes it
	if o.CPUs != nil {
		err := setAffinity(o.CPUs)
		switch {
		case errors.Is(err, fs.ErrPermission): // a container may forbid it
			fmt.Fprintf(os.Stderr, "cohort: rank %d is not bound to processors: %v\n", rank, err)
		case err != nil:
			return fmt.Errorf("rank %d: binding it to processors %v: %w", rank, o.CPUs, err)
		}
	}
	err = syscall.Exec(o.Path, o.Args, os.Environ())
	return fmt.Errorf("rank %d: %w", rank, Explain(o.Path, err))
}

// ask sends cohort run this process's rank, and returns the rank's order and its standard
// input, output and error.
func ask(address string, rank, size int) (o order, files []int, err error) {
	d, err := net.DialTimeout("unix", address, helloLimit)
	if err != nil {
		return o, nil, err
	}
	defer d.Close()
	c := d.(*net.UnixConn)
	c.SetDeadline(time.Now().Add(helloLimit))
	if _, err := fmt.Fprintf(c, "rank %d of %d process %d\n", rank, size, os.Getpid()); err != nil {
		return o, nil, err
	}
	first, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(3*4))
	_, n, _, _, err := c.ReadMsgUnix(first, rights)
	if err != nil {
		return o, nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err == nil && len(messages) == 1 {
		files, err = syscall.ParseUnixRights(&messages[0])
	}
	if err != nil || len(files) != 3 {
		return o, nil, fmt.Errorf("got %d descriptors, want 3 (%v)", len(files), err)
	}
	return o, files, gob.NewDecoder(c).Decode(&o)
}
