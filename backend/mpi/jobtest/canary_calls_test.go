//go:build cgo && linux

package jobtest

import (
	"errors"

	"github.com/cohort-hpc/cohort"
)

// planned is a call with its buffers.
type planned struct {
	step
	send, recv []uint32
	counts     []int
	displs     []int
}

// forms are the three forms of a call.
type forms struct {
	blocking    func() error
	nonblocking func() (*cohort.Request, error)
	persistent  func() (*cohort.Persistent, error)
}

// call makes the call; a persistent one is started twice.
func (p planned) call(c *cohort.Comm) error {
	switch f := p.forms(c); p.form {
	case nonblocking:
		return waited(f.nonblocking())
	case persistent:
		o, err := f.persistent()
		if err != nil {
			return err
		}
		_, err = o.Run()
		if err == nil {
			_, err = o.Run()
		}
		return errors.Join(err, o.Close())
	default:
		return f.blocking()
	}
}

func (p planned) forms(c *cohort.Comm) forms {
	op := ops[p.op]
	switch p.coll {
	case "Bcast":
		return forms{func() error { return cohort.Bcast(c, p.recv, p.root) },
			func() (*cohort.Request, error) { return cohort.Ibcast(c, p.recv, p.root) },
			func() (*cohort.Persistent, error) { return cohort.BcastInit(c, p.recv, p.root) }}
	case "Gather":
		return forms{func() error { return cohort.Gather(c, p.send, p.recv, p.root) },
			func() (*cohort.Request, error) { return cohort.Igather(c, p.send, p.recv, p.root) },
			func() (*cohort.Persistent, error) { return cohort.GatherInit(c, p.send, p.recv, p.root) }}
	case "Gatherv":
		return forms{func() error { return cohort.Gatherv(c, p.send, p.recv, p.counts, p.displs, p.root) },
			func() (*cohort.Request, error) { return cohort.Igatherv(c, p.send, p.recv, p.counts, p.displs, p.root) },
			func() (*cohort.Persistent, error) {
				return cohort.GathervInit(c, p.send, p.recv, p.counts, p.displs, p.root)
			}}
	case "Allgather":
		return forms{func() error { return cohort.Allgather(c, p.send, p.recv) },
			func() (*cohort.Request, error) { return cohort.Iallgather(c, p.send, p.recv) },
			func() (*cohort.Persistent, error) { return cohort.AllgatherInit(c, p.send, p.recv) }}
	case "Allgatherv":
		return forms{func() error { return cohort.Allgatherv(c, p.send, p.recv, p.counts, p.displs) },
			func() (*cohort.Request, error) { return cohort.Iallgatherv(c, p.send, p.recv, p.counts, p.displs) },
			func() (*cohort.Persistent, error) {
				return cohort.AllgathervInit(c, p.send, p.recv, p.counts, p.displs)
			}}
	case "Scatter":
		return forms{func() error { return cohort.Scatter(c, p.send, p.recv, p.root) },
			func() (*cohort.Request, error) { return cohort.Iscatter(c, p.send, p.recv, p.root) },
			func() (*cohort.Persistent, error) { return cohort.ScatterInit(c, p.send, p.recv, p.root) }}
	case "Scatterv":
		return forms{func() error { return cohort.Scatterv(c, p.send, p.counts, p.displs, p.recv, p.root) },
			func() (*cohort.Request, error) {
				return cohort.Iscatterv(c, p.send, p.counts, p.displs, p.recv, p.root)
			},
			func() (*cohort.Persistent, error) {
				return cohort.ScattervInit(c, p.send, p.counts, p.displs, p.recv, p.root)
			}}
	case "Alltoall":
		return forms{func() error { return cohort.Alltoall(c, p.send, p.recv) },
			func() (*cohort.Request, error) { return cohort.Ialltoall(c, p.send, p.recv) },
			func() (*cohort.Persistent, error) { return cohort.AlltoallInit(c, p.send, p.recv) }}
	case "Alltoallv":
		return forms{func() error { return cohort.Alltoallv(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs) },
			func() (*cohort.Request, error) {
				return cohort.Ialltoallv(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs)
			},
			func() (*cohort.Persistent, error) {
				return cohort.AlltoallvInit(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs)
			}}
	case "Reduce":
		return forms{func() error { return cohort.Reduce(c, p.send, p.recv, op, p.root) },
			func() (*cohort.Request, error) { return cohort.Ireduce(c, p.send, p.recv, op, p.root) },
			func() (*cohort.Persistent, error) { return cohort.ReduceInit(c, p.send, p.recv, op, p.root) }}
	case "Allreduce":
		return forms{func() error { return cohort.Allreduce(c, p.send, p.recv, op) },
			func() (*cohort.Request, error) { return cohort.Iallreduce(c, p.send, p.recv, op) },
			func() (*cohort.Persistent, error) { return cohort.AllreduceInit(c, p.send, p.recv, op) }}
	case "ReduceScatterBlock":
		return forms{func() error { return cohort.ReduceScatterBlock(c, p.send, p.recv, op) },
			func() (*cohort.Request, error) { return cohort.IreduceScatterBlock(c, p.send, p.recv, op) },
			func() (*cohort.Persistent, error) { return cohort.ReduceScatterBlockInit(c, p.send, p.recv, op) }}
	case "ReduceScatter":
		return forms{func() error { return cohort.ReduceScatter(c, p.send, p.recv, p.counts, op) },
			func() (*cohort.Request, error) { return cohort.IreduceScatter(c, p.send, p.recv, p.counts, op) },
			func() (*cohort.Persistent, error) { return cohort.ReduceScatterInit(c, p.send, p.recv, p.counts, op) }}
	case "Scan":
		return forms{func() error { return cohort.Scan(c, p.send, p.recv, op) },
			func() (*cohort.Request, error) { return cohort.Iscan(c, p.send, p.recv, op) },
			func() (*cohort.Persistent, error) { return cohort.ScanInit(c, p.send, p.recv, op) }}
	case "Exscan":
		return forms{func() error { return cohort.Exscan(c, p.send, p.recv, op) },
			func() (*cohort.Request, error) { return cohort.Iexscan(c, p.send, p.recv, op) },
			func() (*cohort.Persistent, error) { return cohort.ExscanInit(c, p.send, p.recv, op) }}
	}
	panic("no collective " + p.coll)
}
