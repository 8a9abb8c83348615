package agree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// ErrExcluded is returned for a message of a member that considers this one lost.
var ErrExcluded = errors.New("considered lost")

// Agreement is one member's part in one agreement. It has rounds:
//
//  1. In each round a member sends its state to all others that it does not consider lost: the
//     record so far, and the members that it considers lost. Then it waits for a message or the
//     loss of each of them, and merges what it receives into its state. It ignores messages of
//     members that it considers lost.
//  2. The record is decided when all members that are not lost have sent the same state as this
//     one in the same round. From then on no member's record can change: all others ignore the
//     members that are lost in this state, and all others have this record. The members that are lost
//     are Gone in the record, and it contains the records of all that are not. If one that has decided
//     is lost later, the record of the others can say that it is Gone too; they still have one record.
//  3. A member that has decided sends the result to all others instead of the next round's
//     message, and is done. A member that receives a result does the same.
//
// Without a loss that takes two rounds, or one if all members bring the same record.
//
// An Agreement must not be used by several goroutines at once.
type Agreement struct {
	me, members, ranks int
	seq, round         uint32
	rec                Record
	dead               Set    // the members considered lost
	sent               []byte // the state sent in this round
	received           Set    // the members whose message of this round has arrived
	same               bool   // all of them had the state sent here, and no member was lost in this round
	decided            bool
	out                []byte // the message to send next; nil if there is none
}

// New begins agreement number seq. The number is the same for all members and greater than those of
// their earlier agreements. The caller is member me of the given number of members, in a job of the
// given number of ranks. It considers the members in dead lost.
func New(me, members, ranks int, seq uint32, rec Record, dead Set) *Agreement {
	a := &Agreement{me: me, members: members, ranks: ranks, seq: seq, dead: slices.Clone(dead), received: NewSet(members),
		rec: Record{rec.Kinds, rec.Number, rec.Flags, slices.Clone(rec.Lost), slices.Clone(rec.Gone)}}
	a.begin()
	return a
}

// begin begins the next round.
func (a *Agreement) begin() {
	a.round++
	clear(a.received)
	a.received.Add(a.me)
	a.same = true
	a.rec.Gone.AddAll(a.dead)
	a.put(0)
	a.sent = a.out[headerSize:]
	a.advance()
}

// put makes the state the next message to send.
func (a *Agreement) put(decided uint32) {
	b := make([]byte, 0, Size(a.members, a.ranks))
	b = binary.LittleEndian.AppendUint32(b, decided)
	b = binary.LittleEndian.AppendUint32(b, a.seq)
	b = binary.LittleEndian.AppendUint32(b, a.round)
	a.out = a.rec.appendTo(b, a.dead)
}

// advance ends the round if no message or loss is missing.
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

// Wants reports whether the agreement waits for member m's next message, or its loss.
func (a *Agreement) Wants(m int) bool { return !a.decided && !a.received.Has(m) && !a.dead.Has(m) }

// Next returns a message to send to all members in to, or nil. The caller calls it after New, Receive
// and Lose, before it calls any of these again. The message does not change afterwards.
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

// Receive processes a message from a member. It ignores messages of earlier agreements, and of members
// that it does not wait for. After an error this member cannot go on: ErrExcluded, or an error that
// says what is wrong with the message.
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
	a.received.Add(from)
	a.same = a.same && bytes.Equal(m.state, a.sent)
	a.rec.merge(&m.rec)
	a.dead.AddAll(m.dead)
	a.advance()
	return nil
}

// Lose reports that a member is lost: no message of it will be received any more.
func (a *Agreement) Lose(m int) {
	if a.decided || a.dead.Has(m) {
		return
	}
	a.dead.Add(m)
	if a.received.Has(m) {
		return // its loss counts from the next round on
	}
	a.same = false
	a.advance()
}

// Decided returns the record, and whether it is decided. The caller still sends what Next returns.
func (a *Agreement) Decided() (Record, bool) { return a.rec, a.decided }

// Dead returns the members that this one considers lost.
func (a *Agreement) Dead() Set { return a.dead }
