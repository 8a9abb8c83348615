package flight

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/internal/view"
)

// A file, and the memory that is written to it, is a head, the names of communicators and of types,
// the ring, and the tables of a rank that counts its operations. Numbers are little-endian, which is the order of all machines that cohort runs on
// with a ring in a file.
const (
	magic   = "cohortFR"
	version = 1

	tableSize = 128 // names of either kind
	nameSize  = 48

	commsAt = 4096
	typesAt = commsAt + tableSize*rowSize
	ringAt  = typesAt + tableSize*rowSize

	rowSize    = 16 + nameSize
	recordSize = 64
	fileSize   = ringAt + Slots*recordSize
	tallySize  = tables * (128 + tableRows*64)
)

// The fields of the head: numbers of 8 bytes, then texts.
const (
	atMagic   = 0
	atVersion = 8
	atSlots   = 16
	atRank    = 24
	atSize    = 32
	atPid     = 40
	atHertz   = 48 // ticks a second, a float64
	atStart   = 56 // wall time of tick 0, nanoseconds since 1970
	atDumped  = 64 // tick of the last dump, 0 for none
	atClosed  = 72 // tick when the rank left the job, 0 if it has not
	atCause   = 80
	atBegan   = 88 // tick when the rank joined the job
	atTexts   = 128
)

// The texts of the head, with the room that each has.
const (
	jobAt, jobSize         = atTexts, 128
	hostAt, hostSize       = jobAt + jobSize, 128
	backendAt, backendSize = hostAt + hostSize, 32
	reasonAt, reasonSize   = backendAt + backendSize, 1024 // of several causes, one text behind the other
)

// Cause is why a dump was made.
type Cause uint64

// The causes. Of several the first is kept.
const (
	NotDumped Cause = iota
	Timeout
	Mismatch
	Lost
	Broken
	Quit  // SIGQUIT
	Asked // by the program
	Aborted
	ProgramFailed // and called CloseWith
	numCauses
)

var causeNames = [numCauses]string{"", "timeout", "mismatch", "peer lost", "broken", "SIGQUIT", "asked", "aborted", "failed"}

// String names the cause; it is empty for no dump.
func (c Cause) String() string {
	if c < numCauses {
		return causeNames[c]
	}
	return "unknown cause"
}

// image is a file's contents in memory.
type image []byte

func (m image) word(at int) uint64       { return binary.LittleEndian.Uint64(m[at:]) }
func (m image) setWord(at int, v uint64) { binary.LittleEndian.PutUint64(m[at:], v) }

// text returns a text: what is before the first zero byte, fit to be printed.
func (m image) text(at, size int) string {
	b, _, _ := bytes.Cut(m[at:at+size], []byte{0})
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
}

// setText writes a text, cut to its room.
func (m image) setText(at, size int, s string) {
	if len(s) > size {
		s = strings.ToValidUTF8(s[:size], "")
	}
	b := m[at : at+size]
	clear(b[copy(b, s):])
}

// row is a line of a table: of a communicator with its size and the caller's rank in it and the
// world rank of its rank 0, or of a type with the length of its elements.
type row struct {
	id, size, rank, leader uint32
	name                   string
}

func (m image) row(table, i int) row {
	at := table + i*rowSize
	w, v := m.word(at), m.word(at+8)
	return row{uint32(w), uint32(w >> 32), uint32(v), uint32(v >> 32), m.text(at+16, nameSize)}
}

func (m image) setRow(table, i int, r row) {
	at := table + i*rowSize
	m.setWord(at, uint64(r.id)|uint64(r.size)<<32)
	m.setWord(at+8, uint64(r.rank)|uint64(r.leader)<<32)
	m.setText(at+16, nameSize, r.name)
}

// tally returns the tables of a rank that counts its operations, nil of one that does not.
func (m image) tally() *[tables]table {
	if len(m) < fileSize+tallySize {
		return nil
	}
	return &view.Of[[tables]table](m[fileSize : fileSize+tallySize])[0]
}

func (m image) ring() *[Slots]record { return &view.Of[[Slots]record](m[ringAt:fileSize])[0] }

func (m image) hertz() float64     { return math.Float64frombits(m.word(atHertz)) }
func (m image) setHertz(h float64) { m.setWord(atHertz, math.Float64bits(h)) }

func (m image) start() time.Time { return time.Unix(0, int64(m.word(atStart))) }
