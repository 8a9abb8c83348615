//go:build cgo && linux

package mpi

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// deviceSwitch is what tells a kind of library at run time to take CUDA's memory.
type deviceSwitch struct {
	makers []maker
	names  []string // variables, any of which switches it off
	unset  string   // why it is off where the environment has none of them; empty: it is on
	alone  bool     // on means yes where the library does not say
}

// What the variables mean is from the libraries' manuals.
var (
	ompiSwitch = deviceSwitch{names: []string{"OMPI_MCA_opal_cuda_support", "OMPI_MCA_mpi_cuda_support"},
		unset: "it was built with CUDA, which may be off now: if it is to be on, set OMPI_MCA_opal_cuda_support=1"} // see quirkBuiltCUDA
	deviceSwitches = []deviceSwitch{
		{makers: []maker{makeMPICH, makeMVAPICH, makeUnknownMPICH}, names: []string{"MPIR_CVAR_ENABLE_GPU"}},
		{makers: []maker{makeCray}, names: []string{"MPICH_GPU_SUPPORT_ENABLED"}, alone: true,
			unset: "off by itself: with CUDA there, set MPICH_GPU_SUPPORT_ENABLED=1"},
		{makers: []maker{makeIntel}, names: []string{"I_MPI_OFFLOAD"}, alone: true,
			unset: "off by itself: with CUDA there, set I_MPI_OFFLOAD=1 and I_MPI_OFFLOAD_MODE=cuda"},
		{makers: []maker{makeMVAPICH2}, names: []string{"MV2_USE_CUDA"}, alone: true,
			unset: "off by itself: with CUDA there, set MV2_USE_CUDA=1"},
	}
)

// surroundings is what a process knows of the library from elsewhere than the library.
type surroundings struct {
	lookup func(name string) (string, bool)
	mapped func(file string) bool // whether a file whose name begins so is in the process
}

// deviceMemory returns whether the library takes a GPU's memory, of which it says 1 for yes, 0 for no, and
// -1 for nothing; and why. A wrong yes is a crash, a wrong no a copy: what could be either is no yes.
func (p *process) deviceMemory(asked string, says int, around surroundings) (takes, why string) {
	switch {
	case asked == "off":
		return "no", whyCUDAOff
	case says == 0:
		return "no", "as it says"
	case p.polled: // receives are guarded, and collectives made, by other means
		return "no", "calls come one at a time: at thread level serialized on any rank, or in a job of one rank"
	case p.level < libmpi.Serialized:
		return "no", "the thread level is " + p.level.String()
	}
	s := p.deviceSwitch()
	if s == nil {
		return asItSays(says)
	}
	on, by := s.position(p.maker, around.lookup)
	switch {
	case !on && by != "":
		return "no", by
	case !on && says < 0 && !s.alone:
		return asItSays(says)
	case !on:
		return "no", s.unset
	case p.maker == makeCray && !around.mapped("libmpi_gtl_cuda."):
		return "no", by + ", but libmpi_gtl_cuda.so is not in this process: link the program to it, or preload it"
	case says == 1 || !s.alone:
		return asItSays(says)
	}
	if mode, _ := around.lookup("I_MPI_OFFLOAD_MODE"); p.maker == makeIntel && mode != "cuda" {
		return "unknown", by + ", which is not CUDA everywhere: with CUDA there, set I_MPI_OFFLOAD_MODE=cuda"
	}
	return "yes", by
}

func asItSays(says int) (takes, why string) {
	if says == 1 {
		return "yes", "as it says"
	}
	return "unknown", "it does not say"
}

// deviceSwitch returns the switch of the library, nil if it has none, or answers for it itself. What may be
// anyone's has the standard ABI, and is no Open MPI from before that.
func (p *process) deviceSwitch() *deviceSwitch {
	if p.maker != makeUnknown && p.quirks.has(quirkBuiltCUDA) {
		return &ompiSwitch
	}
	for i := range deviceSwitches {
		if slices.Contains(deviceSwitches[i].makers, p.maker) {
			return &deviceSwitches[i]
		}
	}
	return nil
}

// position returns how the environment has a switch, and by which variable: none where it has none.
func (s *deviceSwitch) position(m maker, lookup func(string) (string, bool)) (on bool, by string) {
	on = s.unset == ""
	for _, name := range s.names {
		for _, alias := range aliases(name, m) {
			v, ok := lookup(alias)
			if !ok {
				continue
			}
			if by, on = alias+"="+v, switchedOn(v); !on { // whichever of two counts
				return on, by
			}
		}
	}
	return on, by
}

// switchedOn reads a switch as libraries do. What they would not take is off.
func switchedOn(value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	if n, err := strconv.Atoi(value); err == nil {
		return n != 0
	}
	return slices.Contains([]string{"true", "t", "yes", "y", "on", "enabled", "enable"}, value)
}

// inProcess reports whether a file whose name begins with a text is mapped into this process.
func inProcess(begin string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(maps), "/"+begin)
}

// deviceColls returns the collectives whose buffers the library gets as they are; the same on all ranks.
// Schedules copy and reduce, as do the calls that are never made in place. Where the ranks agree on a call
// first, one of them that can end it early makes it a schedule on all.
func (p *process) deviceColls() (colls uint32) {
	if p.polled || p.agreed || p.guard {
		return 0
	}
	for coll := backend.Bcast; coll <= backend.Exscan; coll++ {
		if !p.sound[coll].native || !p.sound[coll].inPlace {
			continue
		}
		switch coll {
		case backend.Gatherv, backend.Scatterv, backend.Alltoallv: // see scheduled
			if !p.large {
				continue
			}
		case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
			if p.deterministic || !p.deviceOps() {
				continue
			}
		}
		colls |= 1 << coll
	}
	return colls
}

// deviceOps reports whether all reductions that are to be the library's own are.
func (p *process) deviceOps() bool {
	for kind := backend.Int8; kind < backend.Loc; kind++ {
		for op := backend.OpSum; op <= backend.OpMaxLoc; op++ {
			if backend.DeviceOp(op, kind) && p.ops.needsCallback(&backend.Op{Code: op, Type: &backend.Datatype{Kind: kind}}) {
				return false
			}
		}
	}
	return true
}
