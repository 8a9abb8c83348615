package wire

import (
	"encoding/binary"
	"fmt"
)

// Purpose is the use of a connection.
type Purpose uint8

// The purposes.
const (
	Rendezvous  Purpose = iota + 1 // between a rank and the coordinator, when the job starts
	Peer                           // between two ranks, for messages
	DialRequest                    // a connection request: asks a higher rank to dial this one
)

// An unauthenticated peer can make this process parse a hello and a proof, together 64 bytes.
const (
	nonceSize = 16
	helloSize = 40
	replySize = 48
)

// The first eight bytes of either message are the same in all versions, so that any two versions can
// report that they differ. The magic numbers belong to no other protocol: no TLS record and no line of
// ASCII begins with their first byte.
var (
	helloMagic = [4]byte{0xc0, 'h', 'r', '>'}
	replyMagic = [4]byte{0xc0, 'h', 'r', '<'}
)

// A hello is the first message: its sender, the rank it wants, and the purpose.
type hello struct {
	purpose  Purpose
	tls      bool
	job      [8]byte
	from, to int32
	nonce    [nonceSize]byte
}

func (h *hello) encode(b *[helloSize]byte) {
	copy(b[:4], helloMagic[:])
	binary.LittleEndian.PutUint16(b[4:], Version)
	b[6], b[7] = byte(h.purpose), 0
	if h.tls {
		b[7] = 1
	}
	copy(b[8:16], h.job[:])
	binary.LittleEndian.PutUint32(b[16:], uint32(h.from))
	binary.LittleEndian.PutUint32(b[20:], uint32(h.to))
	copy(b[24:], h.nonce[:])
}

// decodeHello reads a hello whose magic and version have been looked at. Reason and text are those
// of a refusal, "" for none.
func decodeHello(b *[helloSize]byte) (h hello, reason Reason, text string) {
	h = hello{
		purpose: Purpose(b[6]), tls: b[7] == 1,
		from: int32(binary.LittleEndian.Uint32(b[16:])), to: int32(binary.LittleEndian.Uint32(b[20:])),
	}
	copy(h.job[:], b[8:])
	copy(h.nonce[:], b[24:])
	switch {
	case h.purpose < Rendezvous || h.purpose > DialRequest:
		return h, WrongUse, fmt.Sprintf("unknown purpose %d", h.purpose)
	case b[7] > 1:
		return h, Garbage, fmt.Sprintf("it says %d where it says whether it uses TLS", b[7])
	case h.from < 0 || h.from >= MaxRanks || h.to < Launcher || h.to >= MaxRanks || h.from == h.to:
		return h, WrongRank, fmt.Sprintf("from %d to %d", h.from, h.to)
	}
	return h, 0, ""
}

// answer is the accepting side's reply to a hello.
type answer uint8

// The answers. Those from badRank on carry a proof: the dialing side has named the job, and can check
// it.
const (
	welcome answer = iota
	badVersion
	badJob
	badRank
	badUse
	badTLS
	answers
)

// A reply is the accepting side's message: its nonce, and the proof that it has the secret.
type reply struct {
	version uint16
	answer  answer
	nonce   [nonceSize]byte
	proof   [proofSize]byte
}

// signedReply is how much of a reply the proof in it covers.
const signedReply = replySize - proofSize

func (r *reply) encode(b *[replySize]byte) {
	copy(b[:4], replyMagic[:])
	binary.LittleEndian.PutUint16(b[4:], r.version)
	b[6], b[7] = byte(r.answer), 0
	copy(b[8:24], r.nonce[:])
	copy(b[24:], r.proof[:])
}

// decodeReply reads a reply whose magic has been looked at. Reason and text are those of a refusal,
// "" for none.
func decodeReply(b *[replySize]byte) (r reply, reason Reason, text string) {
	r = reply{version: binary.LittleEndian.Uint16(b[4:]), answer: answer(b[6])}
	copy(r.nonce[:], b[8:])
	copy(r.proof[:], b[24:])
	switch {
	case r.version != Version || r.answer == badVersion:
		return r, WrongVersion, versions(r.version)
	case r.answer >= answers:
		return r, Garbage, fmt.Sprintf("unknown answer %d", r.answer)
	case b[7] != 0:
		return r, Garbage, "the reserved byte is not zero"
	}
	return r, 0, ""
}

func versions(theirs uint16) string {
	return fmt.Sprintf("it speaks version %d of cohort's protocol, this process version %d; run the same release on all ranks", theirs, Version)
}
