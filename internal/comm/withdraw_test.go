package comm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/datatype"
)

// arriving is a backend that withdraws sends, and on which a message has arrived. It must not be probed for the text of an
// error: then no receive whose own message is withdrawn would get what has arrived.
type arriving struct {
	backend.Comm
	t *testing.T
}

func (a arriving) GiveUp(*backend.Request, error) bool { return false }

func (a arriving) Arrived() (backend.Status, bool) { return backend.Status{Tag: 7}, true }

func (a arriving) Probe(*backend.Bound, int, int, bool) (backend.Status, bool, error) {
	a.t.Error("the text of an error probes")
	return backend.Status{}, false, nil
}

func TestTextOfTimeoutProbesForNothing(t *testing.T) {
	w := NewWorld(context.Background(), arriving{local.New(1)[0], t}, Options{Timeout: time.Millisecond})
	_, err := w.Recv("recv", datatype.Number(backend.Int64), make([]byte, 8), nil, 0, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "one from rank 0 with tag 7 has arrived") {
		t.Errorf("the receive ends with %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
