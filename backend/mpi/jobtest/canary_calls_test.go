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

// call makes the call; a persistent one is started twice.
func (p planned) call(c *cohort.Comm) error {
	op := ops[p.op]
	var err error
	var q *cohort.Request
	var o *cohort.Persistent
	switch p.coll {
	case "Bcast":
		switch p.form {
		case blocking:
			return cohort.Bcast(c, p.recv, p.root)
		case nonblocking:
			q, err = cohort.Ibcast(c, p.recv, p.root)
		case persistent:
			o, err = cohort.BcastInit(c, p.recv, p.root)
		}
	case "Gather":
		switch p.form {
		case blocking:
			return cohort.Gather(c, p.send, p.recv, p.root)
		case nonblocking:
			q, err = cohort.Igather(c, p.send, p.recv, p.root)
		case persistent:
			o, err = cohort.GatherInit(c, p.send, p.recv, p.root)
		}
	case "Gatherv":
		switch p.form {
		case blocking:
			return cohort.Gatherv(c, p.send, p.recv, p.counts, p.displs, p.root)
		case nonblocking:
			q, err = cohort.Igatherv(c, p.send, p.recv, p.counts, p.displs, p.root)
		case persistent:
			o, err = cohort.GathervInit(c, p.send, p.recv, p.counts, p.displs, p.root)
		}
	case "Allgather":
		switch p.form {
		case blocking:
			return cohort.Allgather(c, p.send, p.recv)
		case nonblocking:
			q, err = cohort.Iallgather(c, p.send, p.recv)
		case persistent:
			o, err = cohort.AllgatherInit(c, p.send, p.recv)
		}
	case "Allgatherv":
		switch p.form {
		case blocking:
			return cohort.Allgatherv(c, p.send, p.recv, p.counts, p.displs)
		case nonblocking:
			q, err = cohort.Iallgatherv(c, p.send, p.recv, p.counts, p.displs)
		case persistent:
			o, err = cohort.AllgathervInit(c, p.send, p.recv, p.counts, p.displs)
		}
	case "Scatter":
		switch p.form {
		case blocking:
			return cohort.Scatter(c, p.send, p.recv, p.root)
		case nonblocking:
			q, err = cohort.Iscatter(c, p.send, p.recv, p.root)
		case persistent:
			o, err = cohort.ScatterInit(c, p.send, p.recv, p.root)
		}
	case "Scatterv":
		switch p.form {
		case blocking:
			return cohort.Scatterv(c, p.send, p.counts, p.displs, p.recv, p.root)
		case nonblocking:
			q, err = cohort.Iscatterv(c, p.send, p.counts, p.displs, p.recv, p.root)
		case persistent:
			o, err = cohort.ScattervInit(c, p.send, p.counts, p.displs, p.recv, p.root)
		}
	case "Alltoall":
		switch p.form {
		case blocking:
			return cohort.Alltoall(c, p.send, p.recv)
		case nonblocking:
			q, err = cohort.Ialltoall(c, p.send, p.recv)
		case persistent:
			o, err = cohort.AlltoallInit(c, p.send, p.recv)
		}
	case "Alltoallv":
		switch p.form {
		case blocking:
			return cohort.Alltoallv(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs)
		case nonblocking:
			q, err = cohort.Ialltoallv(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs)
		case persistent:
			o, err = cohort.AlltoallvInit(c, p.send, p.counts, p.displs, p.recv, p.counts, p.displs)
		}
	case "Reduce":
		switch p.form {
		case blocking:
			return cohort.Reduce(c, p.send, p.recv, op, p.root)
		case nonblocking:
			q, err = cohort.Ireduce(c, p.send, p.recv, op, p.root)
		case persistent:
			o, err = cohort.ReduceInit(c, p.send, p.recv, op, p.root)
		}
	case "Allreduce":
		switch p.form {
		case blocking:
			return cohort.Allreduce(c, p.send, p.recv, op)
		case nonblocking:
			q, err = cohort.Iallreduce(c, p.send, p.recv, op)
		case persistent:
			o, err = cohort.AllreduceInit(c, p.send, p.recv, op)
		}
	case "ReduceScatterBlock":
		switch p.form {
		case blocking:
			return cohort.ReduceScatterBlock(c, p.send, p.recv, op)
		case nonblocking:
			q, err = cohort.IreduceScatterBlock(c, p.send, p.recv, op)
		case persistent:
			o, err = cohort.ReduceScatterBlockInit(c, p.send, p.recv, op)
		}
	case "ReduceScatter":
		switch p.form {
		case blocking:
			return cohort.ReduceScatter(c, p.send, p.recv, p.counts, op)
		case nonblocking:
			q, err = cohort.IreduceScatter(c, p.send, p.recv, p.counts, op)
		case persistent:
			o, err = cohort.ReduceScatterInit(c, p.send, p.recv, p.counts, op)
		}
	case "Scan":
		switch p.form {
		case blocking:
			return cohort.Scan(c, p.send, p.recv, op)
		case nonblocking:
			q, err = cohort.Iscan(c, p.send, p.recv, op)
		case persistent:
			o, err = cohort.ScanInit(c, p.send, p.recv, op)
		}
	case "Exscan":
		switch p.form {
		case blocking:
			return cohort.Exscan(c, p.send, p.recv, op)
		case nonblocking:
			q, err = cohort.Iexscan(c, p.send, p.recv, op)
		case persistent:
			o, err = cohort.ExscanInit(c, p.send, p.recv, op)
		}
	}
	switch {
	case err != nil:
		return err
	case q != nil:
		_, err = q.Wait()
		return err
	}
	for range 2 {
		if err = o.Start(); err == nil {
			_, err = o.Wait()
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, o.Close())
}
