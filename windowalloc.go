package cohort

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/budget"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
)

// Making windows. The ranks exchange the sizes they request and the memory available to them. The
// backend makes the memory, each rank touches the pages of its own part, and the ranks exchange whether
// that succeeded. So all ranks return an error if one fails, and the memory is closed again.

// allocate makes a window with n elements of T on the calling rank. If whole is set, the window has n
// elements in all, n is the same on all ranks, and all elements belong to part 0.
func allocate[T any](c *Comm, call string, n int, whole bool) (*shared, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	a := &allocation{c: c, whole: whole}
	defer a.end()
	var bad error
	a.typ, a.bytes, bad = asked[T](call, n)
	c.core.recorder.Type(a.typ.ID, a.typ.Name)
	if err := a.agree(bad); err != nil {
		return nil, err
	}
	return a.make()
}

// asked returns the datatype that names a call that makes a window of n elements of T, and their size
// in bytes. A size above math.MaxInt is returned as math.MaxInt, which no machine has.
func asked[T any](call string, n int) (typ *backend.Datatype, bytes int, bad error) {
	elem, bad := typeFor[T]()
	size := view.Size[T]()
	switch {
	case bad != nil:
		return fenceCall, 0, bad // any datatype will do, because the call fails
	case n < 0:
		bad = fault(ErrCount, fmt.Sprintf("%d elements", n))
	case n > math.MaxInt/size:
		bytes = math.MaxInt
	default:
		bytes = n * size
	}
	name := call + " of " + elem.Name
	typ = &backend.Datatype{Kind: backend.Opaque, Size: 8, Name: name, ID: layoutID(fmt.Sprintf("call %s of %d", call, elem.ID)), Call: true}
	backend.NameType(typ.ID, name)
	return typ, bytes, bad
}

// allocation is a window that is being made.
type allocation struct {
	c        *Comm
	typ      *backend.Datatype // names the call
	bytes    int
	whole    bool
	lay      window.Layout
	changing bool // beginChange has been called
}

// end gives the communicator back, and after that lets Close continue.
func (a *allocation) end() {
	k := a.c.core
	k.busy.Store(false)
	if a.changing {
		k.endChange()
	}
}

// agree exchanges the sizes that the ranks request, and returns an error if there is too little memory.
func (a *allocation) agree(bad error) error {
	k := a.c.core
	if bad == nil && !a.whole {
		bad = oneNode(k.bc)
	}
	all, err := a.c.exchange(a.typ, strconv.Itoa(a.bytes), bad)
	if err != nil {
		return err
	}
	sizes := make([]int, k.size)
	for r, text := range all {
		if sizes[r], err = strconv.Atoi(text); err != nil {
			return fault(ErrInternal, err.Error())
		}
	}
	if a.whole {
		for r, n := range sizes {
			if n != sizes[0] {
				err := fault(ErrMismatch, fmt.Sprintf("rank 0 requested %d bytes, rank %d requested %d", sizes[0], r, n))
				k.bc.Break(err)
				return err
			}
			if r > 0 {
				sizes[r] = 0
			}
		}
	}
	ok := false
	if a.lay, ok = window.Apart(sizes, shmem.PageSize); !ok {
		most := slices.Max(sizes)
		return fault(ErrAlloc, fmt.Sprintf("rank %d requested %s or more of shared memory, and the whole window exceeds the address space (%s); ask for less",
			slices.Index(sizes, most), bytesText(int64(most)), bytesText(math.MaxInt)))
	}
	// This comes before the last exchange, so that no rank makes a window with a rank that has closed.
	a.changing = true
	k.beginChange() // before open, so that either Close waits for this or open fails
	if err := a.c.open(); err != nil {
		return err
	}
	return a.room()
}

// room returns an error if the memory available to a rank is too small. All ranks have arrived, so
// windows that they closed before are free again.
func (a *allocation) room() error {
	free, from := budget.Free()
	if s := a.c.core.sharing; s != nil && a.c.core.size > 1 {
		if f, why := s.Available(); f >= 0 && (free < 0 || f < free) {
			free, from = f, why
		}
	}
	text := "" // the limit is unknown
	if free >= 0 {
		text = strconv.FormatInt(free, 10) + " " + from
	}
	all, err := a.c.exchange(a.typ, text, nil)
	if err != nil {
		return err
	}
	for r, text := range all {
		number, from, _ := strings.Cut(text, " ")
		if free, err := strconv.ParseInt(number, 10, 64); err == nil && free < int64(a.lay.Total) {
			return fault(ErrAlloc, fmt.Sprintf("%s of shared memory requested, but rank %d can have at most %s: %s",
				bytesText(int64(a.lay.Total)), r, bytesText(free), from))
		}
	}
	return nil
}

// oneNode returns an error if the ranks are on several nodes.
func oneNode(bc backend.Comm) error {
	for r := range bc.Size() {
		if bc.NodeOf(r) != bc.NodeOf(0) {
			return fault(ErrComm, fmt.Sprintf("ranks 0 and %d are on different nodes and share no memory; make the window on the communicator that SplitShared returns", r))
		}
	}
	return nil
}

// make makes the memory on all ranks, or on none.
func (a *allocation) make() (*shared, error) {
	k := a.c.core
	mem, err := a.memory()
	if err == nil {
		err = shmem.Populate(a.own(mem.Bytes()), shmem.Until(a.c.bound, k.bc))
	}
	all, err := a.c.exchange(a.typ, encode(err), nil)
	if err != nil {
		if mem != nil {
			mem.Abandon() // the other ranks may not have it
		}
		return nil, err
	}
	if r := slices.IndexFunc(all, func(t string) bool { return t != "" }); r >= 0 {
		if mem != nil {
			_ = mem.Close()
		}
		return nil, a.decode(r, all[r])
	}
	k.windowsMade++
	s := &shared{a.c, window.New(k.bc, mem, a.lay), k.windowsMade}
	k.mu.Lock()
	k.windows = append(k.windows, s)
	k.mu.Unlock()
	return s, nil
}

// encode returns the text by which a rank reports why it has no memory: the number of the sentinel and
// the error. It is empty for nil.
func encode(err error) string {
	if err == nil {
		return ""
	}
	return reason(fmt.Errorf("%d %w", backend.Code(err), err))
}

// decode returns the error that all ranks return for a rank's report. It is ErrTimeout or ErrCanceled
// if the rank ran out of time, and ErrAlloc otherwise.
func (a *allocation) decode(rank int, report string) error {
	number, text, _ := strings.Cut(report, " ")
	sentinel := ErrAlloc
	if code, err := strconv.ParseUint(number, 10, 8); err == nil {
		if s := backend.Sentinel(uint8(code)); s == ErrTimeout || s == ErrCanceled {
			sentinel = s
		}
	}
	return fault(sentinel, fmt.Sprintf("%s of shared memory requested: rank %d: %s", bytesText(int64(a.lay.Total)), rank, text))
}

// reason returns an error's text, cut to the length that ranks can exchange. It is empty for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if text = strings.ToValidUTF8(text[:min(len(text), backend.PublishSize)], ""); text == "" {
		return "no reason"
	}
	return text
}

// memory makes the memory. The memory of a single rank needs no backend.
func (a *allocation) memory() (backend.Memory, error) {
	k := a.c.core
	if k.size == 1 {
		area, err := shmem.Anonymous(a.lay.Total)
		if err != nil {
			return nil, err // not area: a nil *Area in the interface would not be nil
		}
		return area, nil
	}
	if k.sharing == nil {
		return nil, fault(ErrNotSupported, fmt.Sprintf("ranks of backend %s share no memory", k.bc.Caps().Backend))
	}
	return k.sharing.Share(a.c.bound, a.lay.Total, func(mine string) ([]string, error) { return a.c.exchange(a.typ, mine, nil) })
}

// own returns the memory that this rank touches first: its part and, on rank 0, the locks; or its share
// of the whole.
func (a *allocation) own(mem []byte) []byte {
	k := a.c.core
	if a.whole {
		each := a.lay.Total / k.size
		if k.rank == k.size-1 {
			return mem[each*k.rank:]
		}
		return mem[each*k.rank : each*(k.rank+1)]
	}
	lo := a.lay.Offsets[k.rank]
	hi := lo + a.lay.Sizes[k.rank]
	if k.rank == 0 {
		lo = 0
	}
	return mem[lo:hi]
}

// record is the unit of an exchange: the length of a text and the text.
type record [2 + backend.PublishSize + 2]byte

// exchange is backend.Publish in a call that typ names: it returns the texts of all ranks. If this rank
// has an argument error, exchange returns that, and the others get an error too. The caller has taken
// the communicator.
func (c *Comm) exchange(typ *backend.Datatype, mine string, bad error) ([]string, error) {
	k := c.core
	all := make([]record, k.size)
	binary.LittleEndian.PutUint16(all[k.rank][:], uint16(len(mine)))
	copy(all[k.rank][2:], mine)
	call := &k.call
	*call = backend.Call{
		Coll: backend.Allgather, InPlace: true, Root: -1, Type: typ, Count: view.Size[record]() / typ.Size,
		Recv: view.Bytes(all), Err: bad,
	}
	err := k.collective(c.bound, call)
	*call = backend.Call{Root: -1}
	if err != nil {
		return nil, err
	}
	texts := make([]string, k.size)
	for r := range all {
		n := min(int(binary.LittleEndian.Uint16(all[r][:])), backend.PublishSize)
		texts[r] = string(all[r][2 : 2+n])
	}
	return texts, nil
}

// bytesText returns a size for readers, such as "1.5 GiB".
func bytesText(n int64) string {
	x, unit := float64(n), -1
	for x >= 1024 && unit < 5 {
		x /= 1024
		unit++
	}
	if unit < 0 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strconv.FormatFloat(x, 'f', 1, 64) + " " + "KMGTPE"[unit:unit+1] + "iB"
}
