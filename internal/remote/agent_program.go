//go:build unix

package remote

import (
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// program returns the path that ranks execute: a command of this host, the file on this host if it is the right
// one, or a copy of the launcher's, which is received once.
func (a *agent) program(in *gob.Decoder, p program, copies map[string]string) (path string, err error) {
	here := p.Path
	switch {
	case !strings.Contains(here, "/"):
		path, err := exec.LookPath(here)
		if err != nil {
			return "", fmt.Errorf("%s: not found in the host's PATH (%s); give a path with a slash to copy a file", here, os.Getenv("PATH"))
		}
		return path, nil
	case p.Sum == "":
		_, folder, err := spawn.Find(here)
		if err == nil && folder {
			err = fmt.Errorf("%s: is a folder on this host", here)
		}
		return here, err
	}
	if f, err := openFile(here, here); err == nil {
		f.open.Close()
		if info, err := os.Stat(here); err == nil && f.sum == p.Sum && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return here, nil
		}
	}
	if copies[p.Path] == "" {
		copies[p.Path], err = a.receive(in, p)
	}
	return copies[p.Path], err
}

// receive asks the launcher for a program and stores it.
func (a *agent) receive(in *gob.Decoder, p program) (path string, err error) {
	a.link.text(kindNeed, p.Path)
	dir, err := os.MkdirTemp(a.folder, "bin-*")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(p.Path))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	for {
		m, err := a.next(in, kindFile)
		if err != nil {
			return "", err
		}
		if len(m.Data) == 0 {
			break
		}
		hash.Write(m.Data)
		if _, err := f.Write(m.Data); err != nil {
			return "", fmt.Errorf("store the program: %w; TMPDIR names another place", err)
		}
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != p.Sum {
		return "", fmt.Errorf("%s: the copy differs from the file: it was changed while it was sent", p.Path)
	}
	return path, f.Close()
}
