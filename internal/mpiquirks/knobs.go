package mpiquirks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// Settings are the settings of the mpi backend, independent of the library. The zero value leaves
// everything to the library.
type Settings struct {
	ThreadLevel string // single, funneled, serialized or multiple; empty: multiple
	CUDA        string // on, off, or auto: the library's default; empty: auto

	EagerLimit int // bytes up to which a message is sent before its receive is posted; 0: the library's limit
	BufferSize int // bytes of the buffers between processes of one node; 0: the library's size

	Tuning map[string]string // the library's algorithm for each collective, such as allreduce

	Profiling      bool // enable the library's statistics, if it has any
	Oversubscribed bool // more ranks than processors: waiting ranks yield
}

// Setting is one environment variable for the library.
type Setting struct {
	Name, Value string
	Why         string
	Applied     bool   // false: the user's value stays, or it is too late
	User        string // the user's value, as NAME=VALUE
	Late        bool   // already read: its reader was loaded before, or other code initialized MPI
}

// String describes what was set, or why not, and for which setting.
func (s Setting) String() string {
	if s.Applied {
		return fmt.Sprintf("%s=%s: %s", s.Name, s.Value, s.Why)
	}
	if s.Late {
		return fmt.Sprintf("%s=%s not set, because it was read before: %s", s.Name, s.Value, s.Why)
	}
	return fmt.Sprintf("%s=%s not set, because the environment has %s: %s", s.Name, s.Value, s.User, s.Why)
}

// option is one thing that a library can be asked for.
type option uint8

const (
	optAlways option = iota // independent of the settings
	optCUDAOn
	optCUDAOff
	optEager
	optBuffer
	optYield
	optProfile
)

var optionNames = [...]string{"always", "CUDA on", "CUDA off", "EagerLimit", "BufferSize", "more ranks than processors", "Profiling"}

// String returns the option's name in Config.
func (o option) String() string { return optionNames[o] }

// knob is one variable of one kind of library.
type knob struct {
	of           []Implementation // nil: all of them
	option       option
	name, value  string // "$" is the number requested, "$ or N" the larger of it and N
	from, before string // versions that have it
	why          string
}

var (
	ofMPICH   = []Implementation{MPICH, MVAPICH, UnknownMPICH, Unknown}
	ofOpenMPI = []Implementation{OpenMPI, UnknownOpenMPI, Unknown}
	ofBoth    = append(slices.Clone(ofMPICH), OpenMPI, UnknownOpenMPI)
)

// The reasons for which variables are set, as [Setting.Why] has them.
const (
	whySignals  = "its signal handlers would replace Go's"
	whyYield    = "there are more ranks than processors"
	whyEager    = "EagerLimit"
	whyBuffer   = "BufferSize"
	whyCUDAOn   = "CUDA is on"
	WhyCUDAOff  = "CUDA is off" // CUDA is off
	WhyProfile  = "Profiling"   // Profiling is asked for
	whyAffinity = "all threads of a rank would run on one processor"
)

// knobs are all variables that cohort sets. The names for MPICH 4.0.2 and Open MPI 4.1.4 were
// compared with the lists of these libraries; those for others are from their manuals.
var knobs = []knob{
	{nil, optAlways, "UCX_HANDLE_ERRORS", "none", "", "", whySignals},
	{nil, optAlways, "UCX_DEBUG_SIGNO", "0", "", "", whySignals},
	{nil, optAlways, "IPATH_NO_BACKTRACE", "1", "", "", whySignals},
	{nil, optAlways, "HFI_NO_BACKTRACE", "1", "", "", whySignals},
	{[]Implementation{MVAPICH2}, optAlways, "MV2_ENABLE_AFFINITY", "0", "", "", whyAffinity},

	{ofMPICH, optCUDAOn, "MPIR_CVAR_ENABLE_GPU", "1", "3.4", "", whyCUDAOn},
	{ofMPICH, optCUDAOff, "MPIR_CVAR_ENABLE_GPU", "0", "3.4", "", WhyCUDAOff},
	{[]Implementation{Intel}, optCUDAOn, "I_MPI_OFFLOAD", "1", "", "", whyCUDAOn},
	{[]Implementation{Intel}, optCUDAOn, "I_MPI_OFFLOAD_MODE", "cuda", "", "", whyCUDAOn},
	{[]Implementation{Intel}, optCUDAOff, "I_MPI_OFFLOAD", "0", "", "", WhyCUDAOff},
	{[]Implementation{Cray}, optCUDAOn, "MPICH_GPU_SUPPORT_ENABLED", "1", "", "", whyCUDAOn},
	{[]Implementation{Cray}, optCUDAOff, "MPICH_GPU_SUPPORT_ENABLED", "0", "", "", WhyCUDAOff},
	{[]Implementation{MVAPICH2}, optCUDAOn, "MV2_USE_CUDA", "1", "", "", whyCUDAOn},
	{[]Implementation{MVAPICH2}, optCUDAOff, "MV2_USE_CUDA", "0", "", "", WhyCUDAOff},
	{ofOpenMPI, optCUDAOn, "OMPI_MCA_opal_cuda_support", "1", "", "5.0a1", whyCUDAOn},
	{ofOpenMPI, optCUDAOff, "OMPI_MCA_opal_cuda_support", "0", "", "5.0a1", WhyCUDAOff},
	{ofOpenMPI, optCUDAOn, "OMPI_MCA_accelerator", "cuda", "5.0a1", "", whyCUDAOn},
	{ofOpenMPI, optCUDAOff, "OMPI_MCA_accelerator", "null", "5.0a1", "", WhyCUDAOff},

	{ofBoth, optEager, "UCX_RNDV_THRESH", "$", "", "", whyEager},
	{ofMPICH, optEager, "MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE", "$", "", "", whyEager},
	{ofMPICH, optEager, "MPIR_CVAR_CH4_OFI_EAGER_MAX_MSG_SIZE", "$", "4.0", "4.3", whyEager},
	{ofMPICH, optEager, "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD", "$", "4.3", "", whyEager},
	{ofOpenMPI, optEager, "OMPI_MCA_btl_vader_eager_limit", "$", "", "5.0a1", whyEager},
	{ofOpenMPI, optEager, "OMPI_MCA_btl_sm_eager_limit", "$", "5.0a1", "", whyEager},
	{ofOpenMPI, optEager, "OMPI_MCA_btl_tcp_eager_limit", "$", "", "", whyEager},
	{[]Implementation{Cray}, optEager, "FI_CXI_RDZV_THRESHOLD", "$", "8.0", "", whyEager},
	{[]Implementation{MVAPICH2}, optEager, "MV2_IBA_EAGER_THRESHOLD", "$", "", "", whyEager},
	{[]Implementation{MVAPICH2}, optEager, "MV2_SMP_EAGERSIZE", "$", "", "", whyEager},

	{ofBoth, optBuffer, "UCX_MM_SEG_SIZE", "$", "", "", whyBuffer},
	{ofMPICH, optBuffer, "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE", "$", "3.4", "", whyBuffer},
	{ofMPICH, optBuffer, "MPIR_CVAR_CH4_PACK_BUFFER_SIZE", "$ or 16384", "4.1", "", whyBuffer}, // at least a cell, or MPI_Init ends the process
	{ofOpenMPI, optBuffer, "OMPI_MCA_btl_vader_max_send_size", "$", "", "5.0a1", whyBuffer},
	{ofOpenMPI, optBuffer, "OMPI_MCA_btl_sm_max_send_size", "$", "5.0a1", "", whyBuffer},
	{[]Implementation{Intel}, optBuffer, "I_MPI_SHM_CELL_FWD_SIZE", "$", "2019", "", whyBuffer},
	{[]Implementation{Intel}, optBuffer, "I_MPI_SHM_CELL_BWD_SIZE", "$", "2019", "", whyBuffer},

	{ofMPICH, optYield, "MPIR_CVAR_POLLS_BEFORE_YIELD", "1", "", "", whyYield},
	{ofMPICH, optYield, "MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1", "5.0a1", "", whyYield},
	{ofOpenMPI, optYield, "OMPI_MCA_mpi_yield_when_idle", "1", "", "", whyYield},
	{[]Implementation{Intel}, optYield, "I_MPI_THREAD_YIELD", "2", "2019", "", whyYield},

	{ofOpenMPI, optProfile, "OMPI_MCA_pml_monitoring_enable", "1", "", "", WhyProfile},
	{ofOpenMPI, optProfile, "OMPI_MCA_pml_monitoring_enable_output", "2", "", "", WhyProfile},
}

// Environment returns the variables to set before loading a library: of an ABI family, and a
// vendor and version as far as they are known. Variables that lookup
// finds keep their values. The error, an ErrInit, names what the library cannot do and what it can.
func (s Settings) Environment(family mpifind.Family, vendor, version string, lookup func(string) (string, bool)) ([]Setting, error) {
	r := ParseRelease(version)
	m := Of(family, vendor, r)
	var list []Setting
	add := func(name, value, why string) {
		set := Setting{Name: name, Value: value, Why: why, Applied: true}
		for _, alias := range Aliases(name, m) {
			if v, ok := lookup(alias); ok {
				set.Applied, set.User = false, alias+"="+v
				break
			}
		}
		list = append(list, set)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, o := range s.options() {
		n := len(list)
		for _, k := range knobs {
			if k.option == o && k.has(m, r) {
				add(k.name, k.valued(s.amount(o)), k.why)
			}
		}
		if needed := o == optCUDAOn || o == optCUDAOff || o == optEager || o == optBuffer; needed && len(list) == n {
			return nil, refuse("%s: cohort knows no setting for %v; it has settings for %s", strings.TrimSpace(m.String()+" "+version), o, can(m, r))
		}
	}
	if err := crashes(m, r, list); err != nil {
		return nil, err
	}
	for _, op := range slices.Sorted(maps.Keys(s.Tuning)) {
		set, err := tune(m, r, op, s.Tuning[op])
		if err != nil {
			return nil, err
		}
		for _, t := range set {
			if !slices.ContainsFunc(list, func(l Setting) bool { return l.Name == t.name }) {
				add(t.name, t.value, t.why)
			}
		}
	}
	return list, nil
}

// valued returns the knob's value for a requested number.
func (k *knob) valued(amount int) string {
	value, least, _ := strings.Cut(k.value, " or ")
	if n, err := strconv.Atoi(least); err == nil {
		amount = max(amount, n)
	}
	return strings.Replace(value, "$", strconv.Itoa(amount), 1)
}

func (s Settings) options() []option {
	of := []option{optAlways}
	for _, asked := range []struct {
		o  option
		ok bool
	}{
		{optCUDAOn, s.CUDA == "on"}, {optCUDAOff, s.CUDA == "off"}, {optEager, s.EagerLimit != 0}, {optBuffer, s.BufferSize != 0},
		{optYield, s.Oversubscribed}, {optProfile, s.Profiling},
	} {
		if asked.ok {
			of = append(of, asked.o)
		}
	}
	return of
}

func (s Settings) amount(o option) int {
	if o == optBuffer {
		return s.BufferSize
	}
	return s.EagerLimit
}

// check rejects values that no library accepts.
func (s Settings) check() error {
	switch {
	case !slices.Contains([]string{"", "auto", "on", "off"}, s.CUDA):
		return refuse("CUDA %q: want auto, on or off", s.CUDA)
	case !between(s.EagerLimit, leastEager, mostEager):
		return refuse("EagerLimit %d: want %d to %d bytes, or 0 for the library's limit", s.EagerLimit, leastEager, mostEager)
	case !between(s.BufferSize, leastBuffer, mostBuffer):
		return refuse("BufferSize %d: want %d to %d bytes, or 0 for the library's size", s.BufferSize, leastBuffer, mostBuffer)
	}
	return nil
}

// Outside of these sizes libraries hang or abort in MPI_Init. Open MPI 4.1.4 aborts with an eager limit below its header,
// and hangs with one of 3 GiB. Below 256, UCX lets the short message wait by which ranks agree before a call. MPICH 4.0.2 hangs with buffers of a few bytes. It has 512 buffers, and aborts if there is
// no room for them.
const (
	leastEager, mostEager   = 256, 1 << 30
	leastBuffer, mostBuffer = 512, 1 << 20
)

// between reports whether a number of bytes is in a range, or 0.
func between(bytes, least, most int) bool { return bytes == 0 || bytes >= least && bytes <= most }

// crashes rejects settings that would crash the library.
func crashes(m Implementation, r Release, list []Setting) error {
	for _, l := range list {
		// See QuirkCUDACrash: before it is loaded we do not know whether the library has CUDA.
		if l.Name == "OMPI_MCA_opal_cuda_support" && l.Value == "1" && l.Applied && QuirksIn(m, r).Has(QuirkCUDACrash) {
			return refuse("CUDA on: %v crashes if it was built without CUDA; if `ompi_info --parsable --all` prints "+
				"opal_built_with_cuda_support:value:true, set %s=1 in the environment", m, l.Name)
		}
	}
	return nil
}

// has reports whether a release of an implementation has the variable.
func (k *knob) has(m Implementation, r Release) bool {
	if k.of != nil && !slices.Contains(k.of, m) {
		return false
	}
	// The bounds are in the implementation's own numbering.
	if m == MVAPICH || m == UnknownMPICH || m == UnknownOpenMPI || m == Unknown {
		return true
	}
	return r.within(k.from, k.before)
}

// can lists the options that a library has.
func can(m Implementation, r Release) string {
	var of []string
	for _, k := range knobs {
		if n := k.option.String(); k.option != optAlways && k.option != optYield && k.has(m, r) && !slices.Contains(of, n) {
			of = append(of, n)
		}
	}
	if algorithms(m) != nil {
		of = append(of, "Tuning")
	}
	if of == nil {
		return "nothing"
	}
	return strings.Join(of, ", ")
}

// Aliases returns the names under which a library reads a variable. MPICH has three for each.
func Aliases(name string, m Implementation) []string {
	rest, ok := strings.CutPrefix(name, "MPIR_CVAR_")
	if !ok {
		return []string{name}
	}
	all := []string{name, "MPIR_PARAM_" + rest, "MPICH_" + rest}
	if m == MVAPICH {
		all = append(all, "MVP_"+rest)
	}
	return all
}

// refuse returns the error of a setting that is not possible.
func refuse(format string, args ...any) error {
	return backend.Faultf(backend.ErrInit, format, args...)
}
