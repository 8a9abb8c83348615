package meet

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// HandshakeTimeout bounds a handshake, TLS included.
const HandshakeTimeout = 5 * time.Second

// A Conn is a connection whose other end has proved which rank it is.
type Conn struct {
	net.Conn // a *net.TCPConn where it was one, a *tls.Conn over it with TLS

	Rank    int // of the other end, or Launcher
	Purpose Purpose
	Dialed  bool // from this side

	below *under // what TLS runs over; nil without TLS

	// For the frames that this side sends, and for those that it receives. The checksums of headers start
	// from a value that depends on the connection and the direction. That detects frames of another
	// connection, and all but one of 2^32 blindly forged ones. It does not authenticate frames against a
	// peer that can read the traffic; TLS does.
	Enc frame.Encoder
	Dec frame.Decoder
}

// shake is a handshake under way.
type shake struct {
	net.Conn
	id     *Identity
	keys   keys
	during string // the step, for errors
	hello  [helloSize]byte
	reply  [replySize]byte
}

// refuse returns the error of a handshake with a peer that is not admitted.
func (s *shake) refuse(reason Reason, format string, facts ...any) *Refusal {
	return &Refusal{Reason: reason, Remote: s.RemoteAddr().String(), Text: fmt.Sprintf(format, facts...)}
}

// failed returns the error of a handshake whose step ended with err.
func (s *shake) failed(ctx context.Context, err error) error {
	if _, ok := err.(*Refusal); ok {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("handshake with %s: %s: %w", s.RemoteAddr(), s.during, backend.Harmless(context.Cause(ctx)))
	}
	r := &Refusal{Reason: Silent, Remote: s.RemoteAddr().String(), Text: s.during, Err: err}
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case timedOut(err):
		r.Reason = Slow
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.Err = io.EOF // whether a part had arrived makes no difference
	case op != nil && op.Op == "remote error": // a TLS alert
		r.Reason, r.Text = FailedTLS, "it ended TLS, and may have refused this side's certificate"
	}
	return r
}

// run runs a handshake within HandshakeTimeout and ctx, and leaves the connection without a deadline.
// If it fails, it closes the connection.
func run(ctx context.Context, c net.Conn, id *Identity, steps func(*shake) (*Conn, error)) (conn *Conn, err error) {
	if err := id.Check(); err != nil {
		c.Close()
		return nil, err
	}
	s := &shake{Conn: c, id: id, during: "beginning"}
	c.SetDeadline(time.Now().Add(HandshakeTimeout))
	err = within(ctx, c, func() (err error) {
		conn, err = steps(s)
		return err
	})
	if err != nil {
		c.Close()
		return nil, s.failed(ctx, err)
	}
	return conn, nil
}

// Client runs the dialing side's handshake on c: it proves its identity to rank to and checks the proof
// of that rank. On failure c is closed, and the error is a *Refusal, or the cause of ctx's end.
//
// When it has sent its proof, Client waits for the confirmation until ctx ends: the accepting side has a
// limit, and decides.
func Client(ctx context.Context, c net.Conn, id *Identity, to int, purpose Purpose) (*Conn, error) {
	return run(ctx, c, id, func(s *shake) (*Conn, error) {
		s.keys = id.keys()
		h := hello{Purpose: purpose, From: int32(id.Rank), To: int32(to), Job: [8]byte(s.keys.job[:8])}
		if id.TLS != nil {
			h.TLS = 1
		}
		rand.Read(h.Nonce[:])
		h.encode(&s.hello)
		s.during = "sending the hello"
		if _, err := s.Write(s.hello[:]); err != nil {
			return nil, err
		}
		s.during = "waiting for the answer"
		if err := s.expect(s.reply[:], replyMagic); err != nil {
			return nil, err
		}
		if err := s.accepts(to); err != nil {
			return nil, err
		}
		s.during = "sending the proof"
		s.SetDeadline(time.Time{})
		if ctx.Err() != nil { // the deadline was that of its end
			return nil, ctx.Err()
		}
		proof := s.keys.prove("client", s.hello[:], s.reply[:signedReply])
		if _, err := s.Write(proof[:]); err != nil {
			return nil, err
		}
		return s.finish(ctx, &Conn{Conn: c, Purpose: purpose, Dialed: true, Rank: to}, nil)
	})
}

// accepts looks at the reply.
func (s *shake) accepts(to int) error {
	var r reply
	binary.Decode(s.reply[:], binary.LittleEndian, &r)
	if r.Answer == WrongJob && s.id.Listener != "" {
		return s.refuse(WrongJob, "%s has ended, or has begun to join again", who(to))
	}
	if r.Answer == WrongJob {
		return s.refuse(WrongJob, "it belongs to another job than %q; another job uses this port, or COHORT_JOB differs", s.id.Job)
	}
	if want := s.keys.prove("server", s.hello[:], s.reply[:signedReply]); !hmac.Equal(r.Proof[:], want[:]) {
		return s.refuse(WrongProof, "its job has the same name and another secret: it is another job, or has another secret file")
	}
	switch r.Answer {
	case welcome:
		return nil
	case WrongRank:
		return s.refuse(WrongRank, "it is not %s of %d, or does not expect %s", who(to), s.id.Size, who(s.id.Rank))
	case WrongUse:
		return s.refuse(WrongUse, "%s is not the coordinator, or is not a rank", who(to))
	case WrongTLS:
		return s.refuse(WrongTLS, "this process %s, the other %s", withTLS(s.id.TLS != nil), withTLS(s.id.TLS == nil))
	}
	return s.refuse(Garbage, "it takes the hello for %q", r.Answer)
}

// Server runs the accepting side's handshake on a connection that is not dropped for others.
func Server(ctx context.Context, c net.Conn, id *Identity) (*Conn, error) {
	return serve(ctx, c, id, func() bool { return true })
}

// serve runs the accepting side's handshake on c, which may be dropped for others meanwhile. keep is called
// after the other end's proof and before it is admitted. It reports whether the connection is kept; a kept
// one is not dropped any more. On failure c is closed, and the error is a *Refusal, or the cause of ctx's end.
func serve(ctx context.Context, c net.Conn, id *Identity, keep func() bool) (*Conn, error) {
	return run(ctx, c, id, func(s *shake) (*Conn, error) {
		s.during = "waiting for the hello"
		if err := s.expect(s.hello[:], helloMagic); err != nil {
			if r, ok := err.(*Refusal); ok && r.Reason == WrongVersion {
				_ = s.answer(WrongVersion)
			}
			return nil, err
		}
		s.keys = id.keys() // only now: a port scan is not worth the work
		h, reason, text := id.decodeHello(&s.hello, [8]byte(s.keys.job[:8]))
		if reason != welcome {
			_ = s.answer(reason) // whether it arrives does not matter
			return nil, s.refuse(reason, "%s", text)
		}
		s.during = fmt.Sprintf("answering a peer that claims to be rank %d", h.From)
		if err := s.answer(welcome); err != nil {
			return nil, err
		}
		s.during = fmt.Sprintf("waiting for the proof of a peer that claims to be rank %d", h.From)
		proof := s.keys.prove("client", s.hello[:], s.reply[:signedReply])
		if err := s.compare(c, proof, "it claims to be rank %d of this job, and does not have the secret, or replays another connection", h.From); err != nil {
			return nil, err
		}
		return s.finish(ctx, &Conn{Conn: c, Purpose: h.Purpose, Rank: int(h.From)}, keep)
	})
}

// compare reads a proof, and refuses another one than that wanted.
func (s *shake) compare(c net.Conn, want [proofSize]byte, format string, facts ...any) error {
	var got [proofSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return err
	}
	if !hmac.Equal(got[:], want[:]) {
		return s.refuse(WrongProof, format, facts...)
	}
	return nil
}

// answer sends the reply to a hello.
func (s *shake) answer(a Reason) error {
	r := reply{Version: Version, Answer: a}
	rand.Read(r.Nonce[:])
	r.encode(&s.reply)
	if a != WrongVersion && a != WrongJob {
		r.Proof = s.keys.prove("server", s.hello[:], s.reply[:signedReply])
		r.encode(&s.reply)
	}
	_, err := s.Write(s.reply[:])
	return err
}

// expect reads a message of fixed length. It stops as soon as the first bytes are wrong, without
// waiting for the rest.
func (s *shake) expect(b []byte, magic [4]byte) error {
	for n := 0; n < len(b); {
		k, err := s.Read(b[n:])
		n += k
		if have := min(n, len(magic)); !slices.Equal(b[:have], magic[:have]) {
			return s.refuse(Garbage, "it begins with % x", b[:have])
		}
		if n >= 6 {
			if v := binary.LittleEndian.Uint16(b[4:]); v != Version {
				return s.refuse(WrongVersion, "it speaks version %d of cohort's protocol, this process version %d; run the same release on all ranks", v, Version)
			}
		}
		if err != nil && n < len(b) {
			return err
		}
	}
	return nil
}

// finish starts TLS, if it is used, and ends the handshake with the server's confirmation: it has admitted
// the connection, and does not drop it for others. Without it a client could use a connection that the
// server has closed.
func (s *shake) finish(ctx context.Context, c *Conn, keep func() bool) (*Conn, error) {
	var binding []byte // empty without TLS
	if s.id.TLS != nil {
		var err error
		if binding, err = s.startTLS(ctx, c); err != nil {
			return nil, err
		}
	}
	confirmation := s.keys.prove("server takes it", s.hello[:], s.reply[:], binding)
	if c.Dialed {
		s.during = "waiting for the confirmation; it may have dropped this connection for others"
		if s.id.TLS != nil { // with TLS 1.3 the client's own handshake ends before the server checks its certificate
			s.during += ", or refused this side's certificate"
		}
		if err := s.compare(c, confirmation, "its confirmation is for another connection: a third party is in between"); err != nil {
			return nil, err
		}
	} else {
		s.during = fmt.Sprintf("confirming the connection of rank %d", c.Rank)
		if !keep() {
			return nil, net.ErrClosed
		}
		if _, err := c.Write(confirmation[:]); err != nil {
			return nil, err
		}
	}
	seeds := derive(s.keys.key[:], slices.Concat(s.hello[:], s.reply[:], binding), "cohort tcp frames", 8)
	c.Enc.Seed, c.Dec.Seed = binary.LittleEndian.Uint32(seeds), binary.LittleEndian.Uint32(seeds[4:])
	if !c.Dialed {
		c.Enc.Seed, c.Dec.Seed = c.Dec.Seed, c.Enc.Seed
	}
	return c, nil
}

// startTLS makes c a TLS connection, and returns a value that only its two ends have (RFC 9266). The client
// sends a second proof over that value, and the confirmation covers it too. A peer in the middle that
// relayed the first proofs has two TLS connections, and so fails.
func (s *shake) startTLS(ctx context.Context, c *Conn) (binding []byte, err error) {
	s.during = "starting TLS"
	inner := s.id.TLS.wrap(c, s.id.uri(c.Rank))
	if err := inner.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil && !timedOut(err) && !cutOff(err) {
			err = &Refusal{Reason: FailedTLS, Remote: s.RemoteAddr().String(), Text: who(c.Rank), Err: err}
		}
		return nil, err
	}
	state := inner.ConnectionState()
	if binding, err = state.ExportKeyingMaterial("EXPORTER-cohort-tcp", nil, 32); err != nil {
		return nil, s.refuse(FailedTLS, "binding: %v", err)
	}
	proof := s.keys.prove("client in TLS", s.hello[:], s.reply[:], binding)
	if c.Dialed {
		s.during = "sending the proof in TLS"
		if _, err := c.Write(proof[:]); err != nil && (ctx.Err() != nil || timedOut(err)) {
			return nil, err
		}
		return binding, nil // if the other end has closed, its reason can still be read
	}
	s.during = "waiting for the proof in TLS"
	return binding, s.compare(c, proof, "it has another TLS connection: a third party is in between")
}

// cutOff reports whether an error means only that the other end has closed the connection. It may have
// dropped it for others, in which case another attempt may succeed.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
