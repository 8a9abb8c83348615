package meet

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

// decodeHello reads a hello whose magic and version have been looked at. job is this job's number. Reason
// and text are those of a refusal, welcome and "" for none.
func (id *Identity) decodeHello(b *[helloSize]byte, job [8]byte) (h hello, reason Reason, text string) {
	binary.Decode(b[:], binary.LittleEndian, &h)
	from, to := int(h.From), int(h.To)
	switch {
	case h.Job != job:
		return h, WrongJob, fmt.Sprintf("its job has the number %x, this one %x", h.Job, job)
	case h.TLS > 1:
		return h, Garbage, fmt.Sprintf("it says %d where it says whether it uses TLS", h.TLS)
	case to != id.Rank || from < 0 || from >= id.Size || from == to:
		return h, WrongRank, fmt.Sprintf("it claims to be rank %d and wants %s; this is %s of %d", from, who(to), who(id.Rank), id.Size)
	case h.Purpose < Rendezvous || h.Purpose > DialRequest || (h.Purpose == Rendezvous) != id.Coordinator:
		return h, WrongUse, fmt.Sprintf("it claims to be rank %d, and has purpose %d: it takes this process for the coordinator, "+
			"or the coordinator for a rank", from, h.Purpose)
	case (h.TLS == 1) != (id.TLS != nil):
		return h, WrongTLS, fmt.Sprintf("it claims to be rank %d, and %s; this process %s", from, withTLS(h.TLS == 1), withTLS(h.TLS == 0))
	}
	return h, welcome, ""
}

func withTLS(on bool) string {
	if on {
		return "uses TLS"
	}
	return "uses no TLS"
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
