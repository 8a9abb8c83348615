package flight

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

var origin = Origin{Name: "j1", Backend: "shm", Rank: 3, Size: 4}

// The first error of each cause writes the file; further ones do not change it.
func TestFirstErrorOfEachCauseWritesFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if err := Check(dir); err != nil {
		t.Fatal(err)
	}
	r := New(dir, origin)
	defer r.Close()
	r.End(r.Begin(What(Recv, 0, 0, 0), 1, 0, 0), backend.ErrTimeout)
	for _, c := range []struct {
		cause Cause
		ops   int
	}{{Timeout, 1}, {Timeout, 1}, {Broken, 3}} {
		if got := r.Note(c.cause, "recv: timed out"); got != dir {
			t.Errorf("%v: noted in %q, want %q", c.cause, got, dir)
		}
		dumps, others, err := Read(dir)
		if err != nil || len(dumps) != 1 || others != 0 {
			t.Fatalf("%v: %d dumps, %d others, %v", c.cause, len(dumps), others, err)
		}
		d := dumps[0]
		if d.Cause != Timeout || d.Reason != "recv: timed out" || d.Rank != 3 || d.Size != 4 || d.Job != "j1" || d.Pid != os.Getpid() {
			t.Errorf("%v: %+v", c.cause, d)
		}
		if !inMemory(dir) && len(d.Ops) != c.ops {
			t.Errorf("%v: %d operations, want %d", c.cause, len(d.Ops), c.ops)
		}
		if c.ops == 1 {
			r.End(r.Begin(What(Send, 0, 0, 0), 1, 0, 0), nil)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("%v: the folder has %v, want one file", c.cause, names)
		}
	}
}

// The first error of each cause keeps its text, as far as there is room.
func TestTextsOfAllCausesAreKept(t *testing.T) {
	for _, dir := range []string{t.TempDir(), memoryFolder(t)} {
		r := New(dir, origin)
		defer r.Close()
		lost := "peer lost: rank 1 (process 7) was silent for 1s, and its process has been stopped"
		r.Note(Broken, "barrier: broken")
		r.Note(Lost, "recv: "+lost)
		r.Note(Lost, "send: "+lost)
		r.Note(Timeout, strings.Repeat("x", reasonSize))
		r.Note(Mismatch, "bcast: mismatch")
		d := readOne(t, dir)
		want := []string{"recv: " + lost, strings.Repeat("x", reasonSize-len("barrier: broken")-len("recv: "+lost)-2)}
		if d.Cause != Broken || d.Reason != "barrier: broken" || !slices.Equal(d.Later, want) {
			t.Errorf("%v, %q, %q; want %q", d.Cause, d.Reason, d.Later, want)
		}
	}
}

// A rank that was replaced, and learns of it late, leaves the file of the rank that has its place in the next world.
func TestReplacedRankLeavesFileOfNextWorld(t *testing.T) {
	for _, dir := range []string{t.TempDir(), memoryFolder(t)} {
		first, next := origin, origin
		first.Name, next.Name = "job.0", "job.1"
		replaced, r := New(dir, first), New(dir, next)
		defer r.Close()
		replaced.Note(Lost, "send: peer lost")
		r.Note(Timeout, "recv: timed out")
		replaced.Note(Broken, "recv: broken")
		replaced.Close()
		if d := readOne(t, dir); d.Job != "job.1" || d.Cause != Timeout {
			t.Errorf("the file is of %s: %v, want job.1: %v", d.Job, d.Cause, Timeout)
		}
	}
}

// In a folder in memory the file is up to date without a dump, as after kill -9.
func TestFileInMemoryOutlivesKilledRank(t *testing.T) {
	dir := memoryFolder(t)
	r := New(dir, origin)
	n := r.Begin(What(Recv, 0, 0, 0), 80, Pair(1, 5), Pair(2, 0))
	d := readOne(t, dir)
	if !d.Dumped.IsZero() || !d.Left.IsZero() || len(d.Ops) != 1 || d.Ops[0].State != Open || d.Ops[0].Peer != 2 {
		t.Errorf("under way: %+v", d)
	}
	r.End(n, nil)
	r.Close()
	if d = readOne(t, dir); d.Left.IsZero() || d.Ops[0].State != Done {
		t.Errorf("after Close: %+v", d)
	}
	r.End(r.Begin(0, 0, 0, 0), nil) // no fault
	runtime.KeepAlive(r)
}

// A goroutine that counts an operation of a recorder to which nothing else refers keeps its memory.
func TestMemoryStaysWhileAnOperationIsCounted(t *testing.T) {
	counted := origin
	counted.Count = true
	for name, count := range map[string]func(r *Recorder, n Ticket){
		"Started":   func(r *Recorder, n Ticket) { r.Started(n) },
		"Completed": func(r *Recorder, n Ticket) { r.Completed(n, 8) },
		"Waited":    func(r *Recorder, n Ticket) { r.Waited(What(Recv, 0, 0, 0), 0) },
		"Received":  func(r *Recorder, n Ticket) { r.Received(What(Recv, 0, 0, 0), 8) },
		"End":       func(r *Recorder, n Ticket) { r.End(n, nil) },
		"End of a record that was overwritten": func(r *Recorder, n Ticket) {
			for range Slots {
				r.Begin(0, 0, 0, 0)
			}
			r.End(n, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan any, 1)
			var tables *[tables]table
			func() {
				r := New(memoryFolder(t), counted)
				n := r.Begin(What(Recv, 0, 0, 0), 80, Pair(1, 5), Pair(2, 0))
				r.Close()
				tables = r.tally.tables
				for i := range tables {
					tables[i].busy = 1 // the count waits
				}
				go func() {
					defer func() { over <- recover() }()
					debug.SetPanicOnFault(true)
					count(r, n)
				}()
			}()
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			for range 5 {
				runtime.GC()
				time.Sleep(time.Millisecond) // on purpose: time for cleanups, which here must not run
			}
			for i := range tables {
				atomic.StoreUint64(&tables[i].busy, 0)
			}
			if p := <-over; p != nil {
				t.Error(p)
			}
		})
	}
}

// memoryFolder returns a folder in memory.
func memoryFolder(t *testing.T) string {
	t.Helper()
	if !inMemory("/dev/shm") {
		t.Skip("no file system in memory at /dev/shm")
	}
	dir, err := os.MkdirTemp("/dev/shm", "cohort-flight-test-*")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func readOne(t *testing.T, dir string) *Dump {
	t.Helper()
	dumps, _, err := Read(dir)
	if err != nil || len(dumps) != 1 {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	return dumps[0]
}

func TestCheckRejectsFoldersThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "/below"} {
		if err := Check(dir); err == nil {
			t.Errorf("Check(%q) has nothing to say", dir)
		}
	}
	if err := Check(""); err != nil {
		t.Error(err)
	}
}

// If the folder is removed after the start, Note returns no folder and no error.
func TestRemovedFolderIsNoError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "f")
	if err := Check(dir); err != nil {
		t.Fatal(err)
	}
	r := New(dir, origin)
	defer r.Close()
	if r.mapped {
		t.Skip("the folder for temporary files is in memory")
	}
	os.RemoveAll(dir)
	if where := r.Note(Timeout, "x"); where != "" {
		t.Errorf("noted in %q, which does not exist", where)
	}
	if err := Check(dir); err != nil {
		t.Fatal(err)
	}
	if where := r.Note(Timeout, "x"); where != dir {
		t.Errorf("noted in %q, want %q", where, dir)
	}
}

// valid returns the contents of a file.
func valid(t testing.TB, origin Origin) []byte {
	t.Helper()
	r := New("", origin)
	r.Comm(0, "world", origin.Size, origin.Rank, 0)
	r.End(r.Begin(What(Kind(backend.Bcast), 0, 0, 0), 4, Pair(1, 0), Pair(0, 1)), nil)
	r.Begin(What(Recv, 0, 0, 0), 4, Pair(1, 0), Pair(0, 1))
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadReportsErrors(t *testing.T) {
	good := valid(t, origin)
	change := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return c
	}
	for _, c := range []struct {
		name    string
		data    []byte
		message string
	}{
		{"empty", nil, "not a file of the flight recorder"},
		{"foreign", bytes.Repeat([]byte("text\n"), 20_000), "not a file of the flight recorder"},
		{"cut", good[:len(good)-1], "damaged"},
		{"cut in the names", good[:typesAt], "not a file"},
		{"longer", append(bytes.Clone(good), 0), "damaged"},
		{"version", change(atVersion, 9), "version 9"},
		{"rank", change(atRank, 200), "rank 200 of 4"},
		{"size", change(atSize+3, 1), "rank 3 of 16777220: the file is damaged"},
		{"clock", change(atHertz+7, 0x80), "ticks a second"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "rank-0000.flight")
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{dir, path} {
			if _, _, err := Read(p); err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %q and the file's name", c.name, err, c.message)
			}
		}
	}
	if _, _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no files of the flight recorder") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no folder: no error")
	}
}

// TestReadTakesFilesOfLatestJobOnly has a folder in which an earlier job has left files of ranks of which the later one has
// none: its rank 1 was killed, or it has fewer ranks.
func TestReadTakesFilesOfLatestJobOnly(t *testing.T) {
	dir := t.TempDir()
	defer func(start time.Time, ticks bool) { epoch, counting = start, ticks }(epoch, counting)
	epoch, counting = epoch.Add(-time.Second), false // the ticks of this process began with the other epoch
	for _, c := range []struct {
		origin         Origin
		ranks, dumping []int
		others         int
	}{
		{Origin{Backend: "mpi", Size: 3}, []int{0, 1, 2}, []int{0, 1, 2}, 0},
		{Origin{Backend: "mpi", Size: 3}, []int{0, 1, 2}, []int{0, 2}, 0},
		{Origin{Backend: "mpi", Size: 2}, []int{0, 1}, []int{0}, 1},
		{Origin{Backend: "local", Size: 2}, []int{0, 1}, []int{1}, 2},
		{Origin{Name: "j1", Backend: "shm", Size: 1}, []int{0}, []int{0}, 2},
		{Origin{Name: "j2", Backend: "shm", Size: 1}, []int{0}, []int{0}, 2},
	} {
		epoch = epoch.Add(time.Millisecond) // a later job's processes start later
		all := map[int]*Recorder{}
		for _, c.origin.Rank = range c.ranks {
			all[c.origin.Rank] = New(dir, c.origin)
		}
		for _, rank := range c.dumping {
			all[rank].Note(Timeout, "")
		}
		dumps, others, err := Read(dir)
		var got []int
		for _, d := range dumps {
			got = append(got, d.Rank)
		}
		if err != nil || others != c.others || !slices.Equal(got, c.dumping) {
			t.Errorf("%+v: ranks %v and %d others, want %v, %d: %v", c.origin, got, others, c.dumping, c.others, err)
		}
		for _, r := range all {
			r.Close()
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(valid(f, origin))
	f.Add(valid(f, Origin{Name: "j", Size: 1}))
	f.Add([]byte(magic))
	failed := valid(f, origin)
	failed[ringAt+2*recordSize+48] = byte(Failed) // with no error
	f.Add(failed)
	large := image(valid(f, origin))
	large.setWord(atSize, maxSize)
	f.Add([]byte(large))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err != nil {
			return
		}
		if d.Rank < 0 || d.Rank >= d.Size || len(d.Ops) > Slots || len(d.Comms) > tableSize {
			t.Errorf("rank %d of %d, %d operations, %d communicators", d.Rank, d.Size, len(d.Ops), len(d.Comms))
		}
		dumps := []*Dump{d}
		if f := Analyze(dumps); f.Line == "" {
			t.Error("nothing is said")
		}
		if err := WriteTable(io.Discard, Lines(dumps, Slots)); err != nil {
			t.Error(err)
		}
	})
}
