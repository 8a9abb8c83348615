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

// A hello is the first message: its sender, the rank it wants, and the purpose. The fields are those of the
// message, in little-endian order.
type hello struct {
	Magic    [4]byte
	Version  uint16
	Purpose  Purpose
	TLS      uint8 // 1: TLS follows
	Job      [8]byte
	From, To int32
	Nonce    [nonceSize]byte
}

func (h *hello) encode(b *[helloSize]byte) {
	h.Magic, h.Version = helloMagic, Version
	binary.Encode(b[:], binary.LittleEndian, h)
}

// decodeHello reads a hello whose magic and version have been looked at. Reason and text are those
// of a refusal, "" for none.
func decodeHello(b *[helloSize]byte) (h hello, reason Reason, text string) {
	binary.Decode(b[:], binary.LittleEndian, &h)
	switch {
	case h.Purpose < Rendezvous || h.Purpose > DialRequest:
		return h, WrongUse, fmt.Sprintf("unknown purpose %d", h.Purpose)
	case h.TLS > 1:
		return h, Garbage, fmt.Sprintf("it says %d where it says whether it uses TLS", h.TLS)
	case h.From < 0 || h.From >= MaxRanks || h.To < Launcher || h.To >= MaxRanks || h.From == h.To:
		return h, WrongRank, fmt.Sprintf("from %d to %d", h.From, h.To)
	}
	return h, welcome, ""
}

// welcome is the answer of an accepting side that does not refuse a hello. Any other is the Reason.
const welcome Reason = 0

// A reply is the accepting side's message: its answer, its nonce, and the proof that it has the secret. An
// answer about the version or the job has no proof, because there may be no key that both have.
type reply struct {
	Magic   [4]byte
	Version uint16
	Answer  Reason
	Zero    uint8
	Nonce   [nonceSize]byte
	Proof   [proofSize]byte
}

// signedReply is how much of a reply the proof in it covers.
const signedReply = replySize - proofSize

func (r *reply) encode(b *[replySize]byte) {
	r.Magic = replyMagic
	binary.Encode(b[:], binary.LittleEndian, r)
}

// decodeReply reads a reply whose magic has been looked at. Reason and text are those of a refusal,
// "" for none.
func decodeReply(b *[replySize]byte) (r reply, reason Reason, text string) {
	binary.Decode(b[:], binary.LittleEndian, &r)
	switch {
	case r.Version != Version || r.Answer == WrongVersion:
		return r, WrongVersion, versions(r.Version)
	case r.Answer >= reasons:
		return r, Garbage, fmt.Sprintf("unknown answer %d", r.Answer)
	case r.Zero != 0:
		return r, Garbage, "the reserved byte is not zero"
	}
	return r, welcome, ""
}

func versions(theirs uint16) string {
	return fmt.Sprintf("it speaks version %d of cohort's protocol, this process version %d; run the same release on all ranks", theirs, Version)
}
