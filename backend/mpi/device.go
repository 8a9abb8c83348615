//go:build cgo && linux

package mpi

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// deviceSwitch is how the environment makes a kind of library accept CUDA memory at run time.
type deviceSwitch struct {
	of    []mpiquirks.Implementation
	names []string // variables, each of which can switch it off
	unset string   // why it is off without any of them; empty: it is on
	alone bool     // the switch decides if the library does not report it
}

// The meaning of the variables is from the libraries' manuals.
var (
	ompiSwitch = deviceSwitch{names: []string{"OMPI_MCA_opal_cuda_support", "OMPI_MCA_mpi_cuda_support"},
		unset: "it was built with CUDA, which may be switched off; set OMPI_MCA_opal_cuda_support=1 to use it"} // see mpiquirks.QuirkBuiltCUDA
	deviceSwitches = []deviceSwitch{
		{of: []mpiquirks.Implementation{mpiquirks.MPICH, mpiquirks.MVAPICH, mpiquirks.UnknownMPICH}, names: []string{"MPIR_CVAR_ENABLE_GPU"}},
		{of: []mpiquirks.Implementation{mpiquirks.Cray}, names: []string{"MPICH_GPU_SUPPORT_ENABLED"}, alone: true,
			unset: "off by default; set MPICH_GPU_SUPPORT_ENABLED=1"},
		{of: []mpiquirks.Implementation{mpiquirks.Intel}, names: []string{"I_MPI_OFFLOAD"}, alone: true,
			unset: "off by default; set I_MPI_OFFLOAD=1 and I_MPI_OFFLOAD_MODE=cuda"},
		{of: []mpiquirks.Implementation{mpiquirks.MVAPICH2}, names: []string{"MV2_USE_CUDA"}, alone: true,
			unset: "off by default; set MV2_USE_CUDA=1"},
	}
)

// surroundings is what a process knows about the library from other sources.
type surroundings struct {
	lookup func(name string) (string, bool)
	mapped func(file string) bool // whether a file with this prefix is mapped into the process
}

// deviceMemory returns whether the library accepts GPU memory, and why. reported is the library's
// answer: 1 for yes, 0 for no, -1 for none. A wrong yes crashes and a wrong no copies, so in doubt
// the answer is not yes.
func (p *process) deviceMemory(asked string, reported int, around surroundings) (takes, why string) {
	switch {
	case asked == "off":
		return "no", mpiquirks.WhyCUDAOff
	case reported == 0:
		return "no", "as it reports"
	case p.job.polled: // guarded receives and collectives work differently then
		return "no", "one call at a time: some rank has thread level serialized, or the job has one rank"
	case p.lib.level < libmpi.Serialized:
		return "no", "the thread level is " + p.lib.level.String()
	}
	s := p.deviceSwitch()
	if s == nil {
		return asReported(reported)
	}
	on, by := s.position(p.lib.implementation, around.lookup)
	switch {
	case !on && by != "":
		return "no", by
	case !on && reported < 0 && !s.alone:
		return asReported(reported)
	case !on:
		return "no", s.unset
	case p.lib.implementation == mpiquirks.Cray && !around.mapped("libmpi_gtl_cuda."):
		return "no", by + ", but libmpi_gtl_cuda.so is not loaded; link the program to it, or preload it"
	case reported == 1 || !s.alone:
		return asReported(reported)
	}
	if mode, _ := around.lookup("I_MPI_OFFLOAD_MODE"); p.lib.implementation == mpiquirks.Intel && mode != "cuda" {
		return "unknown", by + ", which does not always mean CUDA; set I_MPI_OFFLOAD_MODE=cuda"
	}
	return "yes", by
}

func asReported(reported int) (takes, why string) {
	if reported == 1 {
		return "yes", "as it reports"
	}
	return "unknown", "it does not report it"
}

// deviceSwitch returns the library's switch, nil if it has none or reports the state of it itself.
// A library of unknown make has the standard ABI, so it is no Open MPI from before that.
func (p *process) deviceSwitch() *deviceSwitch {
	if p.lib.implementation != mpiquirks.Unknown && p.lib.quirks.Has(mpiquirks.QuirkBuiltCUDA) {
		return &ompiSwitch
	}
	for i := range deviceSwitches {
		if slices.Contains(deviceSwitches[i].of, p.lib.implementation) {
			return &deviceSwitches[i]
		}
	}
	return nil
}

// position returns whether a switch is on, and the variable that says so, if any.
func (s *deviceSwitch) position(m mpiquirks.Implementation, lookup func(string) (string, bool)) (on bool, by string) {
	on = s.unset == ""
	for _, name := range s.names {
		for _, alias := range mpiquirks.Aliases(name, m) {
			v, ok := lookup(alias)
			if !ok {
				continue
			}
			if by, on = alias+"="+v, switchedOn(v); !on { // off if any of them is off
				return on, by
			}
		}
	}
	return on, by
}

// switchedOn reads a switch as the libraries do. An invalid value is off.
func switchedOn(value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	if n, err := strconv.Atoi(value); err == nil {
		return n != 0
	}
	return slices.Contains([]string{"true", "t", "yes", "y", "on", "enabled", "enable"}, value)
}

// inProcess reports whether a file whose name starts with begin is mapped into this process.
func inProcess(begin string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(maps), "/"+begin)
}

// deviceColls returns the collectives that pass their buffers to the library unchanged. It is the
// same on all ranks. Schedules copy and reduce. Where the ranks agree on a call first, a rank that
// can end it early makes it a schedule on all.
func (p *process) deviceColls() (colls uint32) {
	if p.job.polled || p.job.agrees() || p.lib.guard {
		return 0
	}
	for coll := backend.Bcast; coll <= backend.Exscan; coll++ {
		if !p.lib.colls[coll].native {
			continue
		}
		switch coll {
		case backend.Reduce, backend.Allreduce:
			if !p.lib.colls[coll].inPlace[backend.Blocking] {
				continue
			}
		case backend.Gatherv, backend.Scatterv, backend.Alltoallv: // see scheduled
			if !p.lib.large {
				continue
			}
		}
		if reduces(coll) && (p.job.deterministic || !p.deviceOps()) {
			continue
		}
		colls |= 1 << coll
	}
	return colls
}

// deviceLeast is the length in bytes up to which a buffer may be copied before the library gets it.
const deviceLeast = 4 << 10

// Direct implements backend.Devices.
func (c *comm) Direct(coll backend.Coll, op backend.OpCode, kind backend.Kind, bytes int) bool {
	return c.size > 1 && bytes > deviceLeast &&
		(coll == 0 || c.p.device.colls>>coll&1 != 0 && (!reduces(coll) || deviceOp(op, kind)))
}

// End implements backend.Devices.
func (c *comm) End(run func(end func()) error) { c.p.ending.run.Store(&run) }

func reduces(coll backend.Coll) bool {
	switch coll {
	case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
		return true
	}
	return false
}

// deviceOp reports whether the library reduces elements of this kind with its own op, so that no Go
// function reads the operands.
func deviceOp(op backend.OpCode, kind backend.Kind) bool {
	switch kind {
	case backend.Int32, backend.Int64:
		return op == backend.OpSum || op == backend.OpProd || op == backend.OpMin || op == backend.OpMax
	case backend.Float32, backend.Float64:
		return op == backend.OpSum || op == backend.OpProd
	}
	return false
}

// deviceOps reports whether the library itself computes all reductions that should be its own.
func (p *process) deviceOps() bool {
	for kind := backend.Int8; kind < backend.Loc; kind++ {
		for op := backend.OpSum; op <= backend.OpMaxLoc; op++ {
			if deviceOp(op, kind) && p.ops.needsCallback(&backend.Op{Code: op, Type: &backend.Datatype{Kind: kind}}) {
				return false
			}
		}
	}
	return true
}
