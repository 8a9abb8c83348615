//go:build cgo && linux

package mpi

// tags maps cohort's tags below 0 to MPI's tags on ctl, which are 0 and above and may be few. Each kind of message has its
// part of the range:
//
//	collectives              the lower half
//	persistent collectives   the next quarter
//	controls                 the first few of the last quarter: one tag for each kind of message of this backend
//	CreateGroup              the rest
//
// A tag of a collective repeats after as many operations of its kind as there are tags. By then the earlier operation is
// long complete. Those of CreateGroup all differ.
type tags struct {
	calls      int // the number of tags of collectives, a power of 2
	persistent int // that of persistent ones
}

func newTags(maxTag int) tags {
	bits := 0
	for bits < 30 && 1<<(bits+1) <= maxTag {
		bits++
	}
	return tags{calls: 1 << (bits - 1), persistent: 1 << (bits - 2)}
}

const (
	firstPersistent = 1 << 30   // of -1-tag; see backend.PersistentTag
	firstGroup      = 3<<29 + 1 // of -1-tag; see backend.GroupTag
	controlRoom     = 16        // tags for controls
)

// of returns MPI's tag of one of cohort's below 0.
func (t tags) of(tag int) int {
	u := -1 - tag
	if u < firstPersistent {
		return u & (t.calls - 1)
	}
	if u >= firstGroup {
		return t.notice() + controlRoom + min(u-firstGroup, t.persistent-controlRoom-1) // the last one is that of NoTag
	}
	return t.calls + (u-firstPersistent)&(t.persistent-1)
}

// notice is the tag of notices that the communicator is broken.
func (t tags) notice() int { return t.calls + t.persistent }

// report and answer are the tags of the messages about retired communicators.
func (t tags) report() int { return t.notice() + 1 }
func (t tags) answer() int { return t.notice() + 2 }

// failure is the tag of the message of a rank that fails.
func (t tags) failure() int { return t.notice() + 3 }

// last is the tag of the reports in a round of drain.
func (t tags) last(round int) int { return t.notice() + 4 + round }

// commit is the tag of the messages of transactions; see together.
func (t tags) commit() int { return t.notice() + 6 }

const controlTags = 7 // from notice to commit

// counted reports whether the balance of a communicator counts the messages with a tag of controls (retire.go). The others
// are received before the communicator is freed in any case.
func (t tags) counted(control int) bool { return control == t.notice() || control == t.commit() }
