package wire

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// HandshakeTimeout bounds a handshake, TLS included.
const HandshakeTimeout = 5 * time.Second

// wordTimeout is how long the dialing side waits, after the answer, to be admitted. It is longer than the
// accepting side's time, so that the accepting side decides.
const wordTimeout = 2 * HandshakeTimeout

// lastLook is how long a read after the deadline may take, for bytes that have arrived already.
const lastLook = 100 * time.Millisecond

// A Conn is a connection whose other end has proved which rank it is.
type Conn struct {
	net.Conn // a *net.TCPConn where it was one, a *tls.Conn over it with TLS

	Rank    int // of the other end, or Launcher
	Purpose Purpose
	Lane    int
	Dialed  bool // from this side

	session []byte // a key of this connection alone
	enc     *frame.Encoder
	dec     *frame.Decoder
}

// Key returns n bytes of a key that only the two ends of this connection know; n is at most 1024.
// Without TLS, any process with the job's secret that can read the traffic knows it too.
func (c *Conn) Key(label string, n int) []byte {
	return derive(c.session, nil, "cohort tcp key "+label, n)
}

// Frames returns the encoder for the frames this side sends and the decoder for those it receives, the
// same ones each time. limit is the longest payload.
//
// The checksums of headers start from a value that depends on the connection and the direction. That
// detects frames of another connection, and all but one of 2^32 blindly forged ones. It does not
// authenticate frames against a peer that can read the traffic; TLS does.
func (c *Conn) Frames(limit uint64) (*frame.Encoder, *frame.Decoder) {
	if c.enc == nil {
		seeds := derive(c.session, nil, "cohort tcp frames", 8)
		a, b := binary.LittleEndian.Uint32(seeds), binary.LittleEndian.Uint32(seeds[4:])
		if !c.Dialed {
			a, b = b, a
		}
		c.enc, c.dec = &frame.Encoder{Seed: a}, &frame.Decoder{Seed: b}
	}
	c.dec.Limit = limit
	return c.enc, c.dec
}

// shake is a handshake under way.
type shake struct {
	net.Conn
	id    *Identity
	keys  keys
	hello [helloSize]byte
	reply [replySize]byte
	proof [proofSize]byte
}

// refuse returns the error of a handshake.
func (s *shake) refuse(reason Reason, format string, facts ...any) *Refusal {
	return &Refusal{Reason: reason, Remote: remote(s.Conn), Text: fmt.Sprintf(format, facts...)}
}

func remote(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return "a peer"
}

// broke returns the error of a read or write that failed.
func (s *shake) broke(ctx context.Context, during string, err error) error {
	reason, text := Silent, during
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("handshake with %s: %s: %w", remote(s.Conn), during, context.Cause(ctx))
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = Slow
	}
	if err == io.ErrUnexpectedEOF {
		err = io.EOF // whether a part had arrived makes no difference
	}
	return &Refusal{Reason: reason, Remote: remote(s.Conn), Text: text, Err: err}
}

// run runs a handshake within HandshakeTimeout and ctx, and leaves the connection without a deadline.
// If it fails, it closes the connection.
func run(ctx context.Context, c net.Conn, id *Identity, body func(*shake) (*Conn, error)) (conn *Conn, err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err = id.Check(); err != nil {
		return nil, err
	}
	if err = c.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.SetDeadline(time.Unix(1, 0))
	})
	conn, err = body(&shake{Conn: c, id: id})
	if !stop() {
		<-ended
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	if err = c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return conn, nil
}

// Client runs the dialing side's handshake on c: it proves its identity to rank to and checks the proof
// of that rank. On failure c is closed, and the error is a *Refusal, or the cause of ctx's end.
func Client(ctx context.Context, c net.Conn, id *Identity, to int, purpose Purpose, lane int) (*Conn, error) {
	if to < Launcher || to >= id.Size || to == id.Rank || id.Rank < 0 || lane < 0 || lane >= MaxLanes {
		c.Close()
		return nil, fmt.Errorf("handshake from %s to %s, lane %d, in a job of %d", who(id.Rank), who(to), lane, id.Size)
	}
	return run(ctx, c, id, func(s *shake) (*Conn, error) {
		s.keys = id.keys()
		h := hello{purpose: purpose, lane: uint8(lane), tls: id.TLS != nil, from: int32(id.Rank), to: int32(to)}
		copy(h.job[:], s.keys.job[:])
		rand.Read(h.nonce[:])
		h.encode(&s.hello)
		if _, err := s.Write(s.hello[:]); err != nil {
			return nil, s.broke(ctx, "sending the hello", err)
		}
		if err := s.expect(ctx, s.reply[:], replyMagic, "waiting for the answer"); err != nil {
			return nil, err
		}
		if err := s.accepts(to); err != nil {
			return nil, err
		}
		if err := s.SetDeadline(time.Now().Add(wordTimeout)); err != nil {
			return nil, err
		}
		if ctx.Err() != nil { // the deadline was that of its end
			return nil, s.broke(ctx, "sending the proof", ctx.Err())
		}
		s.proof = s.keys.prove("client", s.hello[:], s.reply[:signedReply])
		if _, err := s.Write(s.proof[:]); err != nil {
			return nil, s.broke(ctx, "sending the proof", err)
		}
		return s.finish(ctx, &h, true, nil)
	})
}

// accepts looks at the reply.
func (s *shake) accepts(to int) error {
	r, reason, text := decodeReply(&s.reply)
	if text != "" {
		return s.refuse(reason, "%s", text)
	}
	if r.answer == badJob {
		return s.refuse(WrongJob, "it belongs to another job than %q; another job uses this port, or COHORT_JOB differs", s.id.Job)
	}
	if want := s.keys.prove("server", s.hello[:], s.reply[:signedReply]); !hmac.Equal(r.proof[:], want[:]) {
		return s.refuse(WrongProof, "its job has the same name and another secret: it is another job, or has another secret file")
	}
	switch r.answer {
	case badRank:
		return s.refuse(WrongRank, "it is not %s of %d, or does not expect %s", who(to), s.id.Size, who(s.id.Rank))
	case badUse:
		return s.refuse(WrongUse, "%s is not the coordinator, or the job has started already", who(to))
	case badTLS:
		return s.refuse(WrongTLS, "this process %s, the other %s", withTLS(s.id.TLS != nil), withTLS(s.id.TLS == nil))
	}
	return nil
}

func withTLS(on bool) string {
	if on {
		return "uses TLS"
	}
	return "uses no TLS"
}

// Server runs the accepting side's handshake on c. On failure c is closed, and the error is a *Refusal,
// or the cause of ctx's end.
func Server(ctx context.Context, c net.Conn, id *Identity) (*Conn, error) {
	return serve(ctx, c, id, func() bool { return true })
}

// serve is Server for a connection that may be dropped for others meanwhile. keep is called after the
// other end's proof and before it is admitted. It reports whether the connection is kept; a kept one is
// not dropped any more.
func serve(ctx context.Context, c net.Conn, id *Identity, keep func() bool) (*Conn, error) {
	return run(ctx, c, id, func(s *shake) (*Conn, error) {
		if err := s.expect(ctx, s.hello[:], helloMagic, "waiting for the hello"); err != nil {
			if r, ok := err.(*Refusal); ok && r.Reason == WrongVersion {
				s.sendRefusal(badVersion)
			}
			return nil, err
		}
		s.keys = id.keys() // only now: a port scan is not worth the work
		h, reason, text := decodeHello(&s.hello)
		no, job := welcome, s.keys.job[:len(h.job)]
		switch {
		case !slices.Equal(h.job[:], job):
			no, reason, text = badJob, WrongJob, fmt.Sprintf("its job has the number %x, this one %x", h.job, job)
		case text != "":
			no = badUse
			if reason != WrongUse {
				no = badRank
			}
		case int(h.to) != id.Rank || int(h.from) >= id.Size:
			no, reason, text = badRank, WrongRank, fmt.Sprintf("it claims to be rank %d and wants %s; this is %s of %d",
				h.from, who(int(h.to)), who(id.Rank), id.Size)
		case h.purpose == Rendezvous && !id.Coordinator || h.purpose != Rendezvous && id.Rank < 0:
			no, reason, text = badUse, WrongUse, fmt.Sprintf("it claims to be rank %d, and takes this process for the coordinator, "+
				"or the coordinator for a rank", h.from)
		case h.tls != (id.TLS != nil):
			no, reason, text = badTLS, WrongTLS, fmt.Sprintf("it claims to be rank %d, and %s; this process %s",
				h.from, withTLS(h.tls), withTLS(!h.tls))
		}
		if no != welcome {
			s.sendRefusal(no)
			return nil, s.refuse(reason, "%s", text)
		}
		if err := s.sendReply(welcome); err != nil {
			return nil, s.broke(ctx, fmt.Sprintf("answering a peer that claims to be rank %d", h.from), err)
		}
		if _, err := io.ReadFull(s, s.proof[:]); err != nil {
			return nil, s.broke(ctx, fmt.Sprintf("waiting for the proof of a peer that claims to be rank %d", h.from), err)
		}
		if want := s.keys.prove("client", s.hello[:], s.reply[:signedReply]); !hmac.Equal(s.proof[:], want[:]) {
			return nil, s.refuse(WrongProof, "it claims to be rank %d of this job, and does not have the secret, or replays another connection", h.from)
		}
		return s.finish(ctx, &h, false, keep)
	})
}

// sendRefusal sends a reply that refuses the connection. Whether it arrives does not matter.
func (s *shake) sendRefusal(a answer) { _ = s.sendReply(a) }

func (s *shake) sendReply(a answer) error {
	r := reply{version: Version, answer: a}
	rand.Read(r.nonce[:])
	r.encode(&s.reply)
	if a != badVersion && a != badJob {
		r.proof = s.keys.prove("server", s.hello[:], s.reply[:signedReply])
		r.encode(&s.reply)
	}
	_, err := s.Write(s.reply[:])
	return err
}

// expect reads a message of fixed length. It stops as soon as the first bytes are wrong, without
// waiting for the rest.
func (s *shake) expect(ctx context.Context, b []byte, magic [4]byte, during string) error {
	for n := 0; n < len(b); {
		k, err := s.Read(b[n:])
		n += k
		switch have := min(n, len(magic)); {
		case slices.Equal(b[:have], magic[:have]):
		case have == len(magic) && (slices.Equal(b[:have], helloMagic[:]) || slices.Equal(b[:have], replyMagic[:])):
			return s.refuse(Reflected, "it sends this side's part of the handshake")
		case b[0] == 0x16: // a record of TLS (RFC 8446, section 5.1)
			return s.refuse(Garbage, "it begins with TLS, and cohort's handshake comes before that")
		default:
			return s.refuse(Garbage, "it begins with % x", b[:have])
		}
		if n >= 8 {
			if v := binary.LittleEndian.Uint16(b[4:]); v != Version {
				return s.refuse(WrongVersion, "%s", versions(v))
			}
		}
		if err != nil && n < len(b) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return s.broke(ctx, during, err)
		}
	}
	return nil
}

// finish starts TLS, if it is used, and ends the handshake with the server's confirmation. With TLS the
// client sends a second proof, and the confirmation is a proof too, both over a value that only the two
// ends of the TLS connection have (RFC 9266). A peer in the middle that relayed the first proofs has two
// TLS connections, and so fails.
func (s *shake) finish(ctx context.Context, h *hello, dialed bool, keep func() bool) (*Conn, error) {
	c := &Conn{Conn: s.Conn, Purpose: h.purpose, Lane: int(h.lane), Dialed: dialed, Rank: int(h.from)}
	if dialed {
		c.Rank = int(h.to)
	}
	var binding []byte
	if s.id.TLS != nil {
		inner, err := s.id.TLS.wrap(s.Conn, s.id.Job, c.Rank, dialed)
		if err != nil {
			return nil, s.refuse(FailedTLS, "%v", err)
		}
		if err := inner.HandshakeContext(ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || cutOff(err) {
				return nil, s.broke(ctx, "starting TLS", err)
			}
			return nil, &Refusal{Reason: FailedTLS, Remote: remote(s.Conn), Text: who(c.Rank), Err: err}
		}
		if binding, err = s.bind(ctx, inner, dialed); err != nil {
			return nil, err
		}
		c.Conn = inner
	}
	if err := s.word(ctx, c, binding, keep); err != nil {
		return nil, err
	}
	salt := slices.Concat(s.hello[:], s.reply[:], binding)
	c.session = derive(s.keys.key[:], salt, "cohort tcp session", 32)
	return c, nil
}

// cutOff reports whether an error means only that the other end has closed the connection. It may have
// dropped it for others, in which case another attempt may succeed.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// bind makes the client prove that the TLS connection is its own, and returns the channel binding.
func (s *shake) bind(ctx context.Context, c *tls.Conn, dialed bool) ([]byte, error) {
	state := c.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPORTER-cohort-tcp", nil, 32)
	if err != nil {
		return nil, s.refuse(FailedTLS, "it gives no channel binding: %v", err)
	}
	proof := s.keys.prove("client in TLS", s.hello[:], s.reply[:], binding)
	if dialed {
		if _, err := c.Write(proof[:]); err != nil && (ctx.Err() != nil || timedOut(err)) {
			return nil, s.broke(ctx, "sending the proof in TLS", err)
		}
		return binding, nil // if the other end has closed, its reason can still be read
	}
	if _, err := io.ReadFull(c, s.proof[:]); err != nil {
		return nil, s.alert(ctx, "waiting for the proof in TLS", err)
	}
	if !hmac.Equal(s.proof[:], proof[:]) {
		return nil, s.refuse(WrongProof, "it has another TLS connection: a third party is in between")
	}
	return binding, nil
}

// word is the last message, from the server: it has admitted the connection, and does not drop it for
// others. Without it a client could use a connection that the server has closed.
func (s *shake) word(ctx context.Context, c *Conn, binding []byte, keep func() bool) error {
	word := s.keys.prove("server takes it", s.hello[:], s.reply[:], binding)
	if !c.Dialed {
		if !keep() {
			return net.ErrClosed
		}
		if _, err := c.Write(word[:]); err != nil {
			return s.broke(ctx, fmt.Sprintf("confirming the connection of rank %d", c.Rank), err)
		}
		return nil
	}
	n, err := io.ReadFull(c, s.proof[:])
	if err != nil && timedOut(err) && ctx.Err() == nil {
		// A deadline ends a read before it looks at the bytes that are there, and this process may have been
		// descheduled.
		if err = s.SetReadDeadline(time.Now().Add(lastLook)); err == nil && ctx.Err() == nil {
			_, err = io.ReadFull(c, s.proof[n:])
		}
	}
	if err != nil {
		during := "waiting for the confirmation"
		switch {
		case !cutOff(err):
		case binding == nil:
			during += "; it may have dropped this connection for others"
		default:
			// A client whose certificate is refused learns it only here: with TLS 1.3 its handshake has
			// succeeded before.
			during += "; it may have dropped this connection for others, or refused this side's certificate"
		}
		return s.alert(ctx, during, err)
	}
	if !hmac.Equal(s.proof[:], word[:]) {
		return s.refuse(WrongProof, "its confirmation is for another connection: a third party is in between")
	}
	return nil
}

// alert returns the error of a read that failed, perhaps because of a TLS alert from the other end.
func (s *shake) alert(ctx context.Context, during string, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return &Refusal{Reason: FailedTLS, Remote: remote(s.Conn), Text: "it ended TLS, and may have refused this side's certificate", Err: err}
	}
	return s.broke(ctx, during, err)
}
