package flight

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Dump is the contents of a file.
type Dump struct {
	Job, Backend, Host string
	Rank, Size, Pid    int
	Cause              Cause
	Reason             string    // the error that came first
	Later              []string  // the first errors of other causes
	Started            time.Time // when the process was
	Dumped             time.Time // zero if the rank has not dumped: it was killed, or runs
	Left               time.Time // when the rank left the job in good order, zero if it has not
	Comms              []CommName
	Types              map[uint32]string
	Ops                []Operation // in the order in which they began
	Began              time.Time   // when the rank joined the job
	counts             []counted   // nil: operations were not counted
	hertz              float64     // ticks a second
}

// CommName is a communicator.
type CommName struct {
	ID     uint32
	Name   string
	Size   int
	Rank   int // the dumping rank's
	Leader int // the world rank of its rank 0
}

// Operation is one record.
type Operation struct {
	Ticket uint64
	Kind   Kind
	Form   backend.Form
	Named  bool // a call of cohort's own, whose name is the type's
	Views  bool // AlltoallView, a form of Alltoallv
	Op     backend.OpCode
	Comm   uint32
	Type   uint32
	Count  int64 // elements of a collective, bytes of a message
	Peer   int   // the peer, or the root; none: below -1
	Tag    int
	Seq    uint32
	State  State
	Code   uint8     // of the error of a failure
	Begun  time.Time // zero: not recorded
	After  time.Time // if Begun is not known: the operation began after this time, that of an operation before it
	Since  time.Time // when it came to its state, zero: not recorded
}

// maxSize bounds the size of a job in a file, so that the analysis of a damaged file does not exhaust memory. No job
// has that many ranks, and those of cohort run and tcp have far fewer.
const maxSize = 1 << 20

// Decode reads the contents of a file.
func Decode(b []byte) (*Dump, error) {
	if len(b) < ringAt || string(b[:len(magic)]) != magic {
		return nil, errors.New("not a file of the flight recorder")
	}
	// Aligned, whatever b is.
	m := make(image, max(len(b), fileSize))
	copy(m, b)
	switch v, n := m.word(atVersion), m.word(atSlots); {
	case v != version:
		return nil, fmt.Errorf("version %d of the flight recorder's files; this program reads version %d", v, version)
	case n != Slots || len(b) != fileSize && len(b) != fileSize+tallySize:
		return nil, fmt.Errorf("%d bytes with %d records, want %d with %d: the file is damaged", len(b), n, fileSize, Slots)
	}
	rank, size, hz := m.word(atRank), m.word(atSize), m.hertz()
	if size == 0 || size > maxSize || rank >= size {
		return nil, fmt.Errorf("rank %d of %d: the file is damaged", rank, size)
	}
	if !(hz >= 1e3 && hz <= 1e12) {
		return nil, fmt.Errorf("a clock of %g ticks a second: the file is damaged", hz)
	}
	d := &Dump{
		Job: m.text(jobAt, jobSize), Backend: m.text(backendAt, backendSize), Host: m.text(hostAt, hostSize),
		Rank: int(rank), Size: int(size), Pid: int(int32(m.word(atPid))),
		Cause: Cause(m.word(atCause)), Reason: m.text(reasonAt, reasonSize), Types: make(map[uint32]string),
	}
	const end = reasonAt + reasonSize
	for at := reasonAt; ; {
		n := bytes.IndexByte(m[at:end], 0)
		if at += n + 1; n <= 0 || at == end || m[at] == 0 {
			break
		}
		d.Later = append(d.Later, m.text(at, end-at))
	}
	d.Started, d.Dumped, d.Left = m.start(), m.time(m.word(atDumped)), m.time(m.word(atClosed))
	d.Began, d.counts = m.time(m.word(atBegan)), m.counts()
	d.hertz = hz
	for i := range tableSize {
		if r := m.row(commsAt, i); r.name != "" {
			d.Comms = append(d.Comms, CommName{ID: r.id, Name: r.name, Size: int(r.size), Rank: int(r.rank), Leader: int(r.leader)})
		}
		if r := m.row(typesAt, i); r.name != "" {
			d.Types[r.id] = r.name
		}
	}
	ring := m.ring()
	for i := range ring {
		if r, ok := ring[i].read(); ok {
			if o := m.operation(r); o.Kind.known() {
				d.Ops = append(d.Ops, o)
			}
		}
	}
	slices.SortFunc(d.Ops, func(a, b Operation) int { return cmp.Compare(a.Ticket, b.Ticket) })
	var last time.Time
	for i := range d.Ops {
		d.Ops[i].After = last
		if b := d.Ops[i].Begun; b.After(last) {
			last = b
		}
	}
	return d, nil
}

// earliest returns when the operation began, or a time before that: exact is whether it is known.
func (o *Operation) earliest() (t time.Time, exact bool) {
	if o.Begun.IsZero() {
		return o.After, false
	}
	return o.Begun, true
}

// time returns the wall time of a tick, zero for 0. A number that makes no sense gives a time that
// makes none.
func (m image) time(tick uint64) time.Time {
	if tick == 0 {
		return time.Time{}
	}
	ns := float64(tick) / m.hertz() * 1e9
	if ns > math.MaxInt64/4 {
		return time.Time{}
	}
	return m.start().Add(time.Duration(ns))
}

func (m image) operation(r record) Operation {
	o := Operation{
		Ticket: r.first &^ uint64(later), Kind: Kind(r.what), Form: backend.Form(r.what >> 8), Op: backend.OpCode(r.what >> 16),
		Named: r.what&NamedByType != 0, Views: r.what&OfViews != 0, Comm: uint32(r.what >> 32), Count: int64(r.count),
		Type: uint32(r.typed), Tag: int(int32(r.typed >> 32)), Peer: int(int32(r.place)), Seq: uint32(r.place >> 32),
		State: State(r.state), Begun: m.time(r.begun), Since: m.time(r.state >> 8),
	}
	if o.State >= Failed {
		o.State, o.Code = Failed, uint8(o.State-Failed)
		if o.Code == 0 { // no error has it: the file is damaged
			o.Code = backend.Code(backend.ErrInternal)
		}
	}
	return o
}

// Read reads the files of a folder, or one file: one dump for each rank. Where there are files of
// several jobs, or worlds of one, it reads those of the last, and others is the number of the other
// files. Jobs of mpi have no names: those of one size leave one set of files, because a rank removes the
// file that it finds when it starts. Those of local are told apart by their process.
func Read(path string) (dumps []*Dump, others int, err error) {
	if dumps, err = readAll(path); err != nil {
		return nil, 0, err
	}
	last, all := dumps[0], len(dumps)
	for _, d := range dumps {
		if d.Began.After(last.Began) { // a process may have been in several worlds
			last = d
		}
	}
	dumps = slices.DeleteFunc(dumps, func(d *Dump) bool { return !d.sameJob(last) })
	slices.SortStableFunc(dumps, func(a, b *Dump) int { return cmp.Compare(a.Rank, b.Rank) })
	for i, d := range dumps[1:] {
		if d.Rank == dumps[i].Rank {
			return nil, 0, fmt.Errorf("%s: two files of rank %d", path, d.Rank)
		}
	}
	return dumps, all - len(dumps), nil
}

// sameJob reports whether two files are those of one job.
func (d *Dump) sameJob(o *Dump) bool {
	return d.Job == o.Job && d.Backend == o.Backend && d.Size == o.Size && (d.Backend != "local" || d.Pid == o.Pid)
}

// readAll reads all files of a folder, or one file: at least one.
func readAll(path string) (dumps []*Dump, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if st.IsDir() {
		names, err := fs.Glob(os.DirFS(path), "[^.]*"+suffix)
		if err != nil {
			return nil, err
		}
		paths = nil
		for _, name := range names {
			paths = append(paths, filepath.Join(path, name))
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s: no files of the flight recorder (rank-NNNN%s)", path, suffix)
		}
	}
	for _, p := range paths {
		b, err := readFile(p)
		if err != nil {
			return nil, err
		}
		d, err := Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		dumps = append(dumps, d)
	}
	return dumps, nil
}

// readFile reads a regular file that is not longer than a recorder's. It opens no other files: reading a pipe
// could block without end, and opening a device can have any effect.
func readFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file, as those of the flight recorder are", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileSize+tallySize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// blocks reports whether a goroutine is in the operation. Nonblocking and persistent operations for which no
// goroutine waits are only under way.
func (o *Operation) blocks() bool {
	if o.Kind == Region {
		return false
	}
	return o.State == Waiting || o.State == Open && (o.Form == backend.Blocking || o.prepares())
}

// prepares reports whether the operation makes a persistent collective: each start has a number.
func (o *Operation) prepares() bool {
	return o.Form == backend.Persistent && o.Kind.Collective() && o.Tag == 0
}
