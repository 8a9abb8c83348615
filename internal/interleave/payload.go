package interleave

import "fmt"

// clock is a vector clock: how much of each thread the owner knows.
type clock [maxThreads]uint32

func (c *clock) join(o *clock) {
	for i, v := range o {
		c[i] = max(c[i], v)
	}
}

// shadow says who has accessed a byte, or a value, and when.
type shadow struct {
	writer int // thread, -1 for none
	when   uint32
	reads  clock
}

// span is memory from lo to hi.
type span struct {
	lo, hi uintptr
	why    string
}

// Payload notes an access to bytes that are no words.
func Payload(b []byte, write bool) {
	if len(b) > 0 {
		PayloadAt(uint64(address(&b[0])), len(b), write)
	}
}

// PayloadAt notes an access to n bytes at an address.
func PayloadAt(addr uint64, n int, write bool) {
	x, t := here()
	for a := uintptr(addr); x != nil && a < uintptr(addr)+uintptr(n); a++ {
		x.access(t, a, write)
	}
}

// Value notes an access to a value that is no word. p points to it.
func Value(p any, write bool) {
	if x, t := here(); x != nil {
		x.access(t, address(p), write)
	}
}

// access checks that what other threads did to some memory is over.
func (x *Run) access(t *thread, a uintptr, write bool) {
	x.touched(a)
	s := x.payload[a]
	if s == nil {
		s = &shadow{writer: -1}
		x.payload[a] = s
	}
	if s.writer >= 0 && s.when > t.clock[s.writer] {
		x.race(t, s.writer, "written", write)
	}
	if !write {
		s.reads[t.id] = t.clock[t.id]
		return
	}
	for r, when := range s.reads {
		if r != t.id && when > t.clock[r] {
			x.race(t, r, "read", write)
		}
	}
	*s = shadow{writer: t.id, when: t.clock[t.id]}
}

func (x *Run) race(t *thread, other int, did string, write bool) {
	does := "reads"
	if write {
		does = "writes"
	}
	x.note(t, does+" a payload", nil)
	x.fail(fmt.Sprintf("race: %s %s a payload that %s has %s, and nothing orders the two", t.name, does, x.threads[other].name, did))
	x.stop(t)
}

// Freed says that nobody may touch some memory any more.
func Freed(b []byte) {
	if x, _ := here(); x != nil && len(b) > 0 {
		lo := address(&b[0])
		x.freed = append(x.freed, span{lo, lo + uintptr(len(b)), x.now.name})
	}
}

// touched checks that an address was not freed.
func (x *Run) touched(a uintptr) {
	for _, f := range x.freed {
		if a >= f.lo && a < f.hi {
			x.fail(fmt.Sprintf("%s touches memory that %s has freed", x.now.name, f.why))
			x.stop(x.now)
		}
	}
}
