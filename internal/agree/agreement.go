package agree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// ErrExcluded is returned for a message of a member that takes this one for lost.
var ErrExcluded = errors.New("taken for lost")

// Agreement is one member's part in one agreement. It goes in rounds:
//
//  1. Each round the member sends its state, the record so far and whom it takes for lost, to all
//     others that it does not take for lost, and waits for a message or the loss of each of them. A
//     message of one that it takes for lost it ignores. What comes goes into its state.
//  2. The record is decided when all members that are not lost have sent, in one round, the very
//     state that this one has sent. From then on nobody's record can change: who is in the state as
//     lost is heard by nobody, and all others have this record.
//  3. Who has decided sends the outcome to all others instead of the next round's message, and is
//     done. Who receives it does the same.
//
// Without a loss these are two rounds; one if all bring the same.
//
// It must not be used by several goroutines at once.
type Agreement struct {
	me, members, ranks int
	seq, round         uint32
	rec                Record
	dead               Set    // the members taken for lost
	sent               []byte // the state sent in this round
	heard              Set    // whose message of this round has come
	same               bool   // all of these had the state sent here, and nobody was lost in this round
	decided            bool
	out                []byte // what is to be sent; nil if nothing
}

// New begins agreement number seq, a number that is the same for all members and greater than those
// of their agreements before. The caller is member me of members in a job of ranks ranks; it takes
// the members in dead for lost.
func New(me, members, ranks int, seq uint32, rec Record, dead Set) *Agreement {
	a := &Agreement{me: me, members: members, ranks: ranks, seq: seq, dead: slices.Clone(dead), heard: NewSet(members),
		rec: Record{rec.Kinds, rec.Number, rec.Flags, slices.Clone(rec.Lost), slices.Clone(rec.Gone)}}
	a.begin()
	return a
}

// begin begins the next round.
func (a *Agreement) begin() {
	a.round++
	clear(a.heard)
	a.heard.Add(a.me)
	a.same = true
	a.put(0)
	a.sent = a.out[headerSize:]
	a.advance()
}

// put makes the state the next thing to be sent.
func (a *Agreement) put(decided uint32) {
	b := make([]byte, 0, Size(a.members, a.ranks))
	b = binary.LittleEndian.AppendUint32(b, decided)
	b = binary.LittleEndian.AppendUint32(b, a.seq)
	b = binary.LittleEndian.AppendUint32(b, a.round)
	a.out = a.rec.appendTo(b, a.dead)
}

// advance ends the round if nobody is waited for.
func (a *Agreement) advance() {
	for m := range a.members {
		if a.Wants(m) {
			return
		}
	}
	if a.same {
		a.decide()
		return
	}
	a.begin()
}

func (a *Agreement) decide() {
	a.decided = true
	a.put(1)
}

// Wants reports whether member m's next message, or its loss, is waited for.
func (a *Agreement) Wants(m int) bool { return !a.decided && !a.heard.Has(m) && !a.dead.Has(m) }

// Next returns a message to be sent to all members in to, nil if there is none. It has to be asked
// for after New, Receive, and Lose, before any of these is called again. The message stays as it is.
func (a *Agreement) Next() (msg []byte, to []int) {
	if a.out == nil {
		return nil, nil
	}
	msg, a.out = a.out, nil
	for m := range a.members {
		if m != a.me && !a.dead.Has(m) {
			to = append(to, m)
		}
	}
	return msg, to
}

// Receive takes a message from a member that is waited for. Messages of agreements before this one
// are passed over. An error says that the member cannot go on: ErrExcluded, or that the message
// cannot be right.
func (a *Agreement) Receive(from int, msg []byte) error {
	m, err := decode(msg, a.members, a.ranks)
	switch {
	case err != nil:
		return fmt.Errorf("agreement %d with member %d: %w", a.seq, from, err)
	case m.seq < a.seq || !a.Wants(from):
		return nil
	case m.seq > a.seq:
		return fmt.Errorf("member %d is in agreement %d, this one in %d", from, m.seq, a.seq)
	case m.dead.Has(a.me):
		return fmt.Errorf("%w by member %d", ErrExcluded, from)
	case m.decided:
		a.rec = m.rec
		a.dead.AddAll(m.dead)
		a.decide()
		return nil
	case m.round != a.round:
		return fmt.Errorf("member %d is in round %d of agreement %d, this one in %d", from, m.round, a.seq, a.round)
	}
	a.heard.Add(from)
	a.same = a.same && bytes.Equal(m.state, a.sent)
	a.rec.merge(&m.rec)
	a.dead.AddAll(m.dead)
	a.advance()
	return nil
}

// Lose says that a member is lost: nothing comes from it any more.
func (a *Agreement) Lose(m int) {
	if a.decided || a.dead.Has(m) {
		return
	}
	a.dead.Add(m)
	if a.heard.Has(m) {
		return // it counts from the next round on
	}
	a.same = false
	a.advance()
}

// Decided returns the outcome, once there is one. What Next returns then has to be sent all the same.
func (a *Agreement) Decided() (Record, bool) { return a.rec, a.decided }

// Dead returns the members that this one takes for lost.
func (a *Agreement) Dead() Set { return a.dead }

// Round returns the number of the round, from 1 on.
func (a *Agreement) Round() int { return int(a.round) }
