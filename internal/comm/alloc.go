package comm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
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

// Allocation is a request for a window.
type Allocation struct {
	op    string
	typ   *backend.Datatype // names the call
	elem  *backend.Datatype // of the window
	n     int               // elements
	reach Reach
	bad   error // an argument error
	lay   window.Layout
}

// Reach says which ranks a window has.
type Reach uint8

// The kinds of windows.
const (
	Anywhere Reach = iota // of any nodes
	OneNode               // of one node, which map each other's parts
	Region                // of one node, n elements in all, the same n on all ranks, all in part 0
)

// NewAllocation returns the request of a call for n elements of a type. err is the error of the type.
func NewAllocation(call string, elem *backend.Datatype, n int, reach Reach, err error) *Allocation {
	a := &Allocation{op: strings.ToLower(call), typ: fenceCall, elem: elem, n: n, reach: reach, bad: err} // any type will do for a call that fails
	if err != nil {
		return a
	}
	if n < 0 {
		a.bad = fault(backend.ErrCount, "%d elements", n)
	}
	a.typ = newCallType(call+" of "+elem.Name, fmt.Sprintf("%s of %d", call, elem.ID))
	return a
}

// agree exchanges the sizes that the ranks request.
func (a *Allocation) agree(c *Comm) ([]int, error) {
	k := c.core
	bad := a.bad
	if bad == nil && a.reach == OneNode {
		bad = oneNode(k.bc)
	}
	if bad == nil && a.spans(k) {
		if level := k.bc.Caps().ThreadLevel; !concurrent(level) {
			bad = fault(backend.ErrNotSupported, "the window spans several nodes, which needs a goroutine that serves the other ranks; "+
				"the MPI library has thread level %s; set Config.MPI.ThreadLevel to serialized or multiple", level)
		}
	}
	k.recorder.Type(a.typ.ID, a.typ.Name)
	counts, err := a.gather(c, bad)
	if err == nil && a.reach == Region {
		clear(counts[1:]) // the others are equal: see sameCount
	}
	return counts, err
}

// gather returns the numbers of elements that the ranks request, nil with an error.
func (a *Allocation) gather(c *Comm, bad error) ([]int, error) {
	all := make([]int64, c.core.size)
	all[c.core.rank] = int64(a.n)
	if err := c.allgather(a.typ, view.Bytes(all), bad); err != nil {
		return nil, err
	}
	counts := make([]int, len(all))
	for r, n := range all {
		counts[r] = int(n)
	}
	return counts, nil
}

// spans reports whether some ranks of a window on k share no memory.
func (a *Allocation) spans(k *core) bool {
	return a.reach == Anywhere && k.size > 1 && (k.sharing == nil || oneNode(k.bc) != nil)
}

// concurrent reports whether an MPI library allows calls of several goroutines.
func concurrent(level string) bool { return level != "single" && level != "funneled" }

// layOut determines where the parts of the ranks that share memory are.
func (a *Allocation) layOut(counts []int) error {
	sizes := make([]int, len(counts))
	for r, n := range counts {
		if sizes[r] = n * a.elem.Size; n > math.MaxInt/a.elem.Size {
			sizes[r] = math.MaxInt // which no machine has
		}
	}
	ok := false
	if a.lay, ok = window.Apart(sizes, shmem.PageSize); !ok {
		most := slices.Max(sizes)
		return fault(backend.ErrAlloc, "rank %d requested %s or more of shared memory, and the whole window exceeds the address space (%s); ask for less",
			slices.Index(sizes, most), bytesText(int64(most)), bytesText(math.MaxInt))
	}
	return nil
}

// room returns an error on all ranks if the memory available to one is too small. All ranks have arrived, so
// windows that they closed before are free again.
func (a *Allocation) room(c *Comm) error {
	k := c.core
	free, from := budget.Free() // below 0: unknown
	if s := k.sharing; s != nil && k.size > 1 {
		if f, why := s.Available(); f >= 0 && (free < 0 || f < free) {
			free, from = f, why
		}
	}
	var short error
	if 0 <= free && free < int64(a.lay.Total) {
		short = fault(backend.ErrAlloc, "%s of shared memory requested, but rank %d can have at most %s: %s",
			bytesText(int64(a.lay.Total)), k.rank, bytesText(free), from)
	}
	one, err := c.join(a.typ, short)
	if one != nil && err == nil {
		err = one.Err
	}
	return err
}

// oneNode returns an error if the ranks are on several nodes.
func oneNode(bc backend.Comm) error {
	for r := range bc.Size() {
		if bc.NodeOf(r) != bc.NodeOf(0) {
			return fault(backend.ErrComm, "ranks 0 and %d are on different nodes and share no memory; make the window on the communicator that SplitShared returns", r)
		}
	}
	return nil
}

// make makes the memory of ranks that share it, on all of them or on none.
func (a *Allocation) make(c *Comm) (backend.Memory, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	k := c.core
	defer k.life.leave()
	if err := a.room(c); err != nil {
		return nil, err
	}
	mem, err := a.memory(c)
	if err == nil {
		err = shmem.Populate(a.own(k, mem.Bytes()), (&until{bound: c.bound, bc: k.bc}).err)
	}
	one, err := c.join(a.typ, err)
	switch {
	case err == nil && one == nil:
		return mem, nil
	case mem == nil:
	case err != nil:
		mem.Abandon() // the other ranks may not have it
	default:
		_ = mem.Close(c.bound)
	}
	if err != nil {
		return nil, err
	}
	sentinel := backend.ErrAlloc
	if s := backend.Sentinel(backend.Code(one)); s == backend.ErrTimeout || s == backend.ErrCanceled {
		sentinel = s
	}
	return nil, fault(sentinel, "%s of shared memory requested: %v", bytesText(int64(a.lay.Total)), one)
}

// memory makes the memory. The memory of a single rank needs no backend.
func (a *Allocation) memory(c *Comm) (backend.Memory, error) {
	k := c.core
	if k.size == 1 {
		mem, err := window.Anonymous(a.lay.Total)
		if err != nil {
			return nil, err // not mem: a nil *Memory in the interface would not be nil
		}
		return mem, nil
	}
	if k.sharing == nil {
		return nil, fault(backend.ErrNotSupported, "ranks of backend %s share no memory", k.bc.Caps().Backend)
	}
	return k.sharing.Share(c.bound, a.lay.Total, func(mine string) ([]string, error) { return c.exchange(a.typ, mine) })
}

// own returns the memory that this rank touches first: its part and, on rank 0, the heads; or its share
// of a region.
func (a *Allocation) own(k *core, mem []byte) []byte {
	if a.reach != Region {
		return a.lay.First(k.rank, mem)
	}
	each := a.lay.Total / k.size
	if k.rank == k.size-1 {
		return mem[each*k.rank:]
	}
	return mem[each*k.rank : each*(k.rank+1)]
}

// NewRegion makes a window with one copy on each node of c, and a communicator of the ranks of the
// calling rank's node. Either all nodes have a copy, or none.
func (c *Comm) NewRegion(a *Allocation) (*Window, *Comm, error) {
	c = c.withDeadline()
	if err := c.sameCount(a); err != nil {
		return nil, nil, c.failed(a.op, err)
	}
	node, err := c.Split(SplitSharedCall, "region", c.core.bc.NodeOf(c.core.rank), 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	w, err := c.on(node).newWindow(a)
	if c.core.size > node.core.size {
		err = cmp.Or(err, c.allWell(a, err))
	}
	if err != nil {
		_ = w.Close()
		_ = node.Close()
		return nil, nil, c.failed(a.op, err)
	}
	w.c = node // has no limits of this call
	return w, node, nil
}

// sameCount returns an error on every rank if the ranks request different numbers of elements, or an
// argument is wrong.
func (c *Comm) sameCount(a *Allocation) error {
	if err := c.take(); err != nil {
		return err
	}
	defer c.core.life.leave()
	all, err := a.gather(c, a.bad)
	for r, n := range all {
		if n != all[0] {
			err := fault(backend.ErrMismatch, "rank 0 called %s with n = %d, rank %d with n = %d", a.typ.Name, all[0], r, n)
			c.core.bc.Break(err)
			return err
		}
	}
	return err
}

// allWell returns an error on every rank if mine is not nil on one of them.
func (c *Comm) allWell(a *Allocation, mine error) error {
	one, err := c.joinAlone(a.typ, mine)
	if one != nil && err == nil {
		err = fault(backend.ErrAlloc, "on the node of %v", one)
	}
	return err
}

// record is the unit of an exchange: the length of a text and the text.
type record [2 + backend.PublishSize + 2]byte

// exchange is backend.Publish in a call that typ names: it returns the texts of all ranks. The caller has taken
// the communicator.
func (c *Comm) exchange(typ *backend.Datatype, mine string) ([]string, error) {
	k := c.core
	all := make([]record, k.size)
	binary.LittleEndian.PutUint16(all[k.rank][:], uint16(len(mine)))
	copy(all[k.rank][2:], mine)
	if err := c.allgather(typ, view.Bytes(all), nil); err != nil {
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
	unit := (bits.Len64(uint64(n)) - 1) / 10
	if unit == 0 {
		return fmt.Sprint(n, " bytes")
	}
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(int64(1)<<(10*unit)), " KMGTPE"[unit])
}
