//go:build cgo && linux

package mpi

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// Of which collectives the library gets the buffers follows from what is known to be wrong with it, and
// from what the job asked for.
func TestDeviceColls(t *testing.T) {
	for _, c := range []struct {
		name                    string
		family, vendor, version string
		change                  func(p *process)
		are, not                []backend.Coll
	}{
		{"MPICH", "mpich", "MPICH", "4.0.2", nil,
			[]backend.Coll{backend.Bcast, backend.Allreduce, backend.Allgatherv, backend.Alltoallv, backend.ReduceScatterBlock},
			[]backend.Coll{backend.Barrier, backend.Reduce, backend.ReduceScatter}}, // wrong in place
		{"Open MPI", "openmpi", "Open MPI", "4.1.4", nil,
			[]backend.Coll{backend.Bcast, backend.Reduce, backend.Allreduce, backend.Allgatherv, backend.Alltoall},
			[]backend.Coll{backend.Alltoallv, backend.Gatherv}}, // run as messages, whose receives are guarded
		{"deterministic", "mpich", "MPICH", "4.0.2", func(p *process) { p.deterministic = true },
			[]backend.Coll{backend.Bcast, backend.Allgather}, []backend.Coll{backend.Allreduce, backend.ReduceScatterBlock, backend.Scan}},
		{"one thread", "mpich", "MPICH", "4.0.2", func(p *process) { p.polled = true }, nil, []backend.Coll{backend.Bcast, backend.Allreduce}},
	} {
		q := quirksOf(c.family, c.vendor, c.version)
		p := &process{quirks: q, guard: q.overruns(), large: true, sound: newSound(q), level: libmpi.Multiple}
		for op := range p.ops.predefined {
			p.ops.predefined[op] = libmpi.Op(1) // as if the library were loaded
		}
		if c.change != nil {
			c.change(p)
		}
		colls := p.deviceColls()
		for _, coll := range c.are {
			if colls>>coll&1 == 0 {
				t.Errorf("%s: the library does not get the buffers of %v", c.name, coll)
			}
		}
		for _, coll := range c.not {
			if colls>>coll&1 != 0 {
				t.Errorf("%s: the library gets the buffers of %v", c.name, coll)
			}
		}
	}
}

// What is asked for, and the thread level, count more than what the library says.
func TestDeviceMemory(t *testing.T) {
	for _, c := range []struct {
		asked  string
		says   int
		level  libmpi.Level
		polled bool
		want   string
	}{
		{"", 1, libmpi.Multiple, false, "yes"}, {"on", 1, libmpi.Serialized, false, "yes"}, {"auto", 0, libmpi.Multiple, false, "no"},
		{"on", 0, libmpi.Multiple, false, "no"}, {"", -1, libmpi.Multiple, false, "unknown"}, {"off", 1, libmpi.Multiple, false, "no"},
		{"", 1, libmpi.Funneled, false, "no"}, {"", 1, libmpi.Multiple, true, "no"},
	} {
		p := &process{level: c.level, polled: c.polled}
		if got := p.deviceMemory(c.asked, c.says); got != c.want {
			t.Errorf("asked %q, the library says %d, level %v, polled %v: %s, want %s", c.asked, c.says, c.level, c.polled, got, c.want)
		}
	}
}
