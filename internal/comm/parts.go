package comm

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// InPieces reports whether the backend packs or unpacks a message of n bytes to or from a peer piece by piece.
func (c *Comm) InPieces(n, peer int) bool {
	return c != nil && c.core != nil && c.core.pieces > 0 && n >= c.core.pieces && peer != c.core.rank
}

// SendParts is Send of a message that the backend packs in buf, if parts is not nil.
func (c *Comm) SendParts(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, dest, tag int, err error) error {
	if parts == nil || err != nil || dest == backend.ProcNull {
		return c.Send(op, typ, buf, dest, tag, backend.Standard, err)
	}
	if err = c.checkSend(dest, tag, nil); err == nil {
		k := c.core
		err = k.traced(k.message(flight.Send, backend.Blocking, len(buf), typ.ID, tag, dest), func() error {
			return c.sendParts(typ, buf, parts, dest, tag)
		})
	}
	if err != nil {
		return c.Failed(op, dest, tag, err)
	}
	return nil
}

func (c *Comm) sendParts(typ *backend.Datatype, buf []byte, parts backend.Parts, dest, tag int) error {
	p := c.core.job.pending()
	p.req.Begin()
	p.req.Parts = parts
	c.core.bc.Isend(&p.req, buf, dest, tag, backend.Standard.Of(typ.Elems()))
	_, err := c.finish(p)
	return err
}

// RecvParts is Recv of a message that the backend may unpack, if parts is not nil.
func (c *Comm) RecvParts(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, source, tag int, err error) (st backend.Status, _ error) {
	if parts == nil || err != nil || source == backend.ProcNull {
		return c.Recv(op, typ, buf, source, tag, err)
	}
	if err = c.checkRecv(source, tag, nil); err == nil {
		k := c.core
		err = k.traced(k.message(flight.Recv, backend.Blocking, len(buf), typ.ID, tag, source), func() (err error) {
			p := k.job.pending()
			p.req.Begin()
			p.req.Parts, p.typ = parts, typ
			k.bc.Irecv(&p.req, buf, source, backendTag(tag))
			st, err = c.finish(p)
			return k.arrived(err)
		})
	}
	if err != nil {
		return st, c.Failed(op, source, tag, err)
	}
	return st, nil
}
