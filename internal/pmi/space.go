package pmi

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Environment looks up a variable, as os.LookupEnv does.
type Environment func(string) (string, bool)

func (e Environment) get(name string) string {
	v, _ := e(name)
	return strings.TrimSpace(v)
}

// A Space is the key-value space of a job. Its methods return an error when ctx ends, and after an error the
// Space can only be closed. One goroutine at a time may use it.
type Space interface {
	// Rank and Size are this process's place in the job, and Job is a name that no other job of the launcher has.
	Rank() int
	Size() int
	Job() string

	// Put stores a value. Keys are short words; a value is printable ASCII without spaces, quotes, ; and =.
	Put(ctx context.Context, key, value string) error

	// Fence returns when all ranks have called it. Then all of them can get what was put before.
	// Collective: all ranks of the job call it.
	Fence(ctx context.Context) error

	// Get returns the value that rank owner has put.
	Get(ctx context.Context, owner int, key string) (string, error)

	// Close tells the launcher that this rank needs the space no more. The job may go on.
	Close() error
}

// Means are how this process can reach its launcher's key-value space.
type Means struct {
	Name     string // "PMI-1"
	Evidence string // "PMI_FD=6"
	open     func(context.Context) (Space, error)
}

// String returns the name and the variable that shows it.
func (m *Means) String() string { return m.Name + " (" + m.Evidence + ")" }

// Open joins the space. It waits for the launcher until ctx ends.
func (m *Means) Open(ctx context.Context) (Space, error) {
	s, err := m.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", m, err)
	}
	return s, nil
}

// Find returns the means that the environment of this process shows, nil if it shows none.
func Find(env Environment) *Means {
	if fd := env.get("PMI_FD"); fd != "" {
		return &Means{"PMI-1", "PMI_FD=" + fd, func(ctx context.Context) (Space, error) { return openFD(ctx, fd, env) }}
	}
	if port := env.get("PMI_PORT"); port != "" {
		return &Means{"PMI-1", "PMI_PORT=" + port, func(ctx context.Context) (Space, error) { return openPort(ctx, port, env) }}
	}
	if name := space(env); name != "" && loadPMIx() == nil {
		return &Means{"PMIx", name, openPMIx}
	}
	return nil
}

// space returns the variable that shows that the launcher has PMIx, "" if none does.
func space(env Environment) string {
	name := env.get("PMIX_NAMESPACE")
	if name == "" || env.get("PMIX_RANK") == "" {
		return ""
	}
	return "PMIX_NAMESPACE=" + name
}

// Missing returns why this process does not use its launcher's PMIx, nil if it does, or there is none.
func Missing(env Environment) error {
	if name := space(env); name != "" {
		if err := loadPMIx(); err != nil {
			return fmt.Errorf("PMIx (%s) is not used: %w", name, err)
		}
	}
	return nil
}

// closeLimit is how long a launcher may take to let a rank go.
const closeLimit = 5 * time.Second

// key and version are those of what rank 0 shares.
const (
	key     = "cohort"
	version = "1"
)

// Share returns on every rank the value that rank 0 gives. Collective: all ranks of the job call it, once.
func Share(ctx context.Context, s Space, value string) (string, error) {
	if s.Rank() == 0 {
		if err := s.Put(ctx, key, version+"/"+strconv.Itoa(s.Size())+"/"+value); err != nil {
			return "", err
		}
	}
	if err := s.Fence(ctx); err != nil {
		return "", err
	}
	text, err := s.Get(ctx, 0, key)
	if err != nil {
		return "", err
	}
	v, rest, _ := strings.Cut(text, "/")
	size, shared, ok := strings.Cut(rest, "/")
	switch {
	case !ok || v != version:
		return "", fmt.Errorf("rank 0 has put a text of %d bytes that is not this version's; use one version of cohort on all ranks", len(text))
	case size != strconv.Itoa(s.Size()):
		return "", fmt.Errorf("the launcher told rank 0 that the job has %q ranks, and rank %d that it has %d", size, s.Rank(), s.Size())
	}
	return shared, nil
}

// number reads a rank or a size that must be from least on.
func number(name, text string, least int) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || int(n) < least {
		return 0, fmt.Errorf("%s is %q; want a number, %d or more", name, text, least)
	}
	return int(n), nil
}

func place(rank, size string) (r, n int, err error) {
	if r, err = number("the rank", rank, 0); err != nil {
		return 0, 0, err
	}
	if n, err = number("the size", size, 1); err != nil {
		return 0, 0, err
	}
	if r >= n {
		return 0, 0, fmt.Errorf("rank %d of a job of %d ranks", r, n)
	}
	return r, n, nil
}
