package flight

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
)

// Origin is where a recording comes from: a rank of a job.
type Origin struct {
	Name       string
	Backend    string
	Rank, Size int
	Count      bool // count the operations
}

// Recorder is the ring of one rank and what it takes to write it to a file.
type Recorder struct {
	Ring
	dir  string        // where files go; empty: nowhere
	show string        // what Note returns
	path string        // the file's
	seen atomic.Uint32 // the causes so far, a bit each

	mu     sync.Mutex // guards the image but for its ring, and what follows
	mem    image
	mapped bool // the image is the file
	noted  int  // bytes of the texts of causes that have been written down, each with a zero behind it
	comms  int  // communicators that were named
	types  map[uint32]bool
	closed bool
}

// New returns a recorder whose files go to dir, of which Check has nothing to say; nowhere if dir is
// empty. Where dir is in memory, the file is there from the start and outlives a process that is
// killed.
func New(dir string, origin Origin) *Recorder {
	size := fileSize
	if origin.Count {
		size += tallySize
	}
	r := &Recorder{dir: dir, show: shown(dir), types: make(map[uint32]bool), mem: make(image, size)}
	r.head(origin)
	if dir != "" {
		r.path = filepath.Join(dir, FileName(origin.Rank))
		if origin.Name == "" && origin.Backend != "local" {
			_ = os.Remove(r.path) // of an earlier job, which Read could not tell from this one
		}
		r.share()
	}
	r.recs = r.mem.ring()
	if t := r.mem.tally(); t != nil {
		r.tally = &tally{tables: t}
	}
	if dir != "" {
		watch(r)
	}
	return r
}

// The variables with the folder for the files, and the folder to which a launcher moves them; empty for none.
const (
	EnvDir  = "COHORT_FLIGHT_DIR"
	EnvKept = "COHORT_FLIGHT_KEPT"
)

// shown returns the folder in which the user finally finds the files.
func shown(dir string) string {
	if kept, ok := os.LookupEnv(EnvKept); ok && dir == os.Getenv(EnvDir) {
		return kept
	}
	return dir
}

// Check creates a folder if it does not exist, and returns why files cannot be written to it. An empty name is
// valid.
func Check(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// FileName is the name of a rank's file.
func FileName(rank int) string { return fmt.Sprintf("rank-%04d%s", rank, suffix) }

const suffix = ".flight"

// head writes the head of a new image.
func (r *Recorder) head(origin Origin) {
	m := r.mem
	copy(m[atMagic:], magic)
	for at, v := range map[int]uint64{
		atVersion: version, atSlots: Slots, atRank: uint64(origin.Rank), atSize: uint64(origin.Size), atPid: uint64(os.Getpid()),
		atStart: uint64(epoch.UnixNano()), atBegan: now(),
	} {
		m.setWord(at, v)
	}
	host, _ := os.Hostname() // unknown is as good as empty
	m.setText(jobAt, jobSize, origin.Name)
	m.setText(hostAt, hostSize, host)
	m.setText(backendAt, backendSize, origin.Backend)
}

// share makes the image the file itself where that costs nothing. Without room for it the file is
// tried to be written when there is need.
func (r *Recorder) share() {
	if !inMemory(r.dir) {
		return
	}
	r.mem.setHertz(rate())
	if mem, err := mapFile(r.path, r.mem); err == nil {
		r.mem, r.mapped = mem, true
		// Not at Close: a goroutine may be in an operation still.
		runtime.AddCleanup(r, unmap, mem)
	}
}

// Comm notes the name of a communicator, its size, the rank there, and the world rank of its rank 0.
func (r *Recorder) Comm(id uint32, name string, size, rank, leader int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	i := r.comms
	if i >= tableSize { // the world stays, and of the others the youngest
		i = 1 + (i-1)%(tableSize-1)
	}
	r.comms++
	r.mem.setRow(commsAt, i, row{id, uint32(size), uint32(rank), uint32(leader), name})
}

// Type notes the name of a type that is not a number. Those of the operations in the ring are added
// when it is dumped.
func (r *Recorder) Type(id uint32, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.name(id, name)
	}
}

// name writes the name of a type into the table. Locked.
func (r *Recorder) name(id uint32, name string) {
	if r.types[id] || len(r.types) >= tableSize {
		return
	}
	r.mem.setRow(typesAt, len(r.types), row{id: id, name: name})
	r.types[id] = true
}

// nameTypes names the types of the operations in the ring. Locked.
func (r *Recorder) nameTypes() {
	for i := range r.recs {
		if rec, ok := r.recs[i].read(); ok && !backend.NumberType(uint32(rec.typed)) {
			r.name(uint32(rec.typed), backend.TypeName(uint32(rec.typed)))
		}
	}
}

// Note writes the file because of an error, for each cause the first time only, and returns where the
// user finds it: "" if nowhere.
func (r *Recorder) Note(cause Cause, reason string) (where string) {
	if r == nil || r.dir == "" {
		return ""
	}
	bit := uint32(1) << cause
	if r.seen.Or(bit)&bit == 0 && r.dump(cause, reason) != nil {
		r.seen.And(^bit)
		return ""
	}
	return r.show
}

func (r *Recorder) dump(cause Cause, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.mark(cause, reason)
	if r.mapped {
		return nil
	}
	return r.write()
}

// write writes the file, unless it is that of a rank that took this one's place in a later world. Locked.
func (r *Recorder) write() error {
	if b, err := readFile(r.path); err == nil {
		d, err := Decode(b)
		if err == nil && d.Job != r.mem.text(jobAt, jobSize) && d.Began.After(r.mem.time(r.mem.word(atBegan))) {
			return fmt.Errorf("%s is of a later world", r.path)
		}
	}
	return WriteFile(r.path, r.copy())
}

// mark writes into the head that and why there is a dump. Locked.
func (r *Recorder) mark(cause Cause, reason string) {
	r.nameTypes()
	r.mem.setHertz(rate())
	r.mem.setWord(atDumped, now())
	if r.noted == 0 {
		r.mem.setWord(atCause, uint64(cause))
	}
	if r.noted < reasonSize {
		r.mem.setText(reasonAt+r.noted, reasonSize-r.noted, reason)
		r.noted += len(reason) + 1
	}
}

// copy returns a copy of the image without the records that are being written. Locked.
func (r *Recorder) copy() image {
	c := make(image, len(r.mem))
	copy(c, r.mem[:ringAt])
	if r.tally != nil {
		r.tally.copy(c.tally())
	}
	to := c.ring()
	for i := range r.recs {
		if rec, ok := r.recs[i].read(); ok {
			to[i] = rec
		}
	}
	return c
}

// Write writes what a file would have to w.
func (r *Recorder) Write(w io.Writer) error {
	r.mu.Lock()
	r.nameTypes()
	c := r.copy()
	r.mu.Unlock()
	c.setHertz(rate())
	c.setWord(atDumped, now())
	if c.word(atCause) == 0 {
		c.setWord(atCause, uint64(Asked))
	}
	_, err := w.Write(c)
	return err
}

// Close records that the rank has left the job normally. Later records go to memory that is not
// read.
func (r *Recorder) Close() {
	if r.dir != "" {
		unwatch(r)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.mem.setWord(atClosed, now())
	if r.tally != nil {
		r.mem.setHertz(rate())
	}
	if !r.mapped && (r.noted > 0 || r.tally != nil) && r.dir != "" {
		_ = r.write() // if it fails, the old file lacks only this
	}
}

// WriteFile writes a file completely or not at all: until it is complete it has a name that Read ignores.
func WriteFile(path string, data []byte) error { return create(path, data, (*os.File).Close) }

// create is WriteFile that calls a function with the open file before the file gets its name.
func create(path string, data []byte, then func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Write(data); err == nil {
		err = then(f)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
