//go:build cgo && linux

package jobtest

import (
	"errors"
	"reflect"

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
	forms, args := p.function()
	in := []reflect.Value{reflect.ValueOf(c)}
	for _, x := range args {
		in = append(in, reflect.ValueOf(x))
	}
	out := reflect.ValueOf(forms[p.form]).Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil || p.form == blocking {
		return err
	}
	switch o := out[0].Interface().(type) {
	case *cohort.Persistent:
		_, err := o.Run()
		if err == nil {
			_, err = o.Run()
		}
		return errors.Join(err, o.Close())
	case *cohort.Request:
		return second(o.Wait())
	}
	panic("no operation")
}

// function returns the collective's function of each form, and the arguments after the communicator.
func (p planned) function() (forms [3]any, args []any) {
	type f = [3]any
	op := ops[p.op]
	rooted, vector := []any{p.send, p.recv, p.root}, []any{p.send, p.recv}
	reduced := []any{p.send, p.recv, op}
	switch p.coll {
	case "Bcast":
		return f{cohort.Bcast[uint32], cohort.Ibcast[uint32], cohort.BcastInit[uint32]}, []any{p.recv, p.root}
	case "Gather":
		return f{cohort.Gather[uint32], cohort.Igather[uint32], cohort.GatherInit[uint32]}, rooted
	case "Gatherv":
		return f{cohort.Gatherv[uint32], cohort.Igatherv[uint32], cohort.GathervInit[uint32]}, []any{p.send, p.recv, p.counts, p.displs, p.root}
	case "Allgather":
		return f{cohort.Allgather[uint32], cohort.Iallgather[uint32], cohort.AllgatherInit[uint32]}, vector
	case "Allgatherv":
		return f{cohort.Allgatherv[uint32], cohort.Iallgatherv[uint32], cohort.AllgathervInit[uint32]}, []any{p.send, p.recv, p.counts, p.displs}
	case "Scatter":
		return f{cohort.Scatter[uint32], cohort.Iscatter[uint32], cohort.ScatterInit[uint32]}, rooted
	case "Scatterv":
		return f{cohort.Scatterv[uint32], cohort.Iscatterv[uint32], cohort.ScattervInit[uint32]}, []any{p.send, p.counts, p.displs, p.recv, p.root}
	case "Alltoall":
		return f{cohort.Alltoall[uint32], cohort.Ialltoall[uint32], cohort.AlltoallInit[uint32]}, vector
	case "Alltoallv":
		return f{cohort.Alltoallv[uint32], cohort.Ialltoallv[uint32], cohort.AlltoallvInit[uint32]}, []any{p.send, p.counts, p.displs, p.recv, p.counts, p.displs}
	case "Reduce":
		return f{cohort.Reduce[uint32], cohort.Ireduce[uint32], cohort.ReduceInit[uint32]}, []any{p.send, p.recv, op, p.root}
	case "Allreduce":
		return f{cohort.Allreduce[uint32], cohort.Iallreduce[uint32], cohort.AllreduceInit[uint32]}, reduced
	case "ReduceScatterBlock":
		return f{cohort.ReduceScatterBlock[uint32], cohort.IreduceScatterBlock[uint32], cohort.ReduceScatterBlockInit[uint32]}, reduced
	case "ReduceScatter":
		return f{cohort.ReduceScatter[uint32], cohort.IreduceScatter[uint32], cohort.ReduceScatterInit[uint32]}, []any{p.send, p.recv, p.counts, op}
	case "Scan":
		return f{cohort.Scan[uint32], cohort.Iscan[uint32], cohort.ScanInit[uint32]}, reduced
	case "Exscan":
		return f{cohort.Exscan[uint32], cohort.Iexscan[uint32], cohort.ExscanInit[uint32]}, reduced
	}
	panic("no collective " + p.coll)
}
