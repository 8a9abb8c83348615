package pmi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// wire is a Space by PMI-1's simple wire protocol, version 1.1: each side sends a line of fields, cmd=NAME KEY=VALUE ...,
// and the rank begins (MPICH 4.0, src/pmi/simple). Hydra and Flux speak it, and so does Slurm where srun has --mpi=pmi2.
type wire struct {
	conn net.Conn
	in   *bufio.Reader

	rank, size       int
	kvs              string
	mostKey, mostVal int
}

// maxLine bounds an answer. PMI-1's own programs take 1024 bytes.
const maxLine = 64 << 10

// openFD joins through the socket that a launcher has opened for this process.
func openFD(ctx context.Context, fd string, env Environment) (Space, error) {
	rank, size, err := place(env.get("PMI_RANK"), env.get("PMI_SIZE"))
	if err != nil {
		return nil, fmt.Errorf("PMI_RANK, PMI_SIZE: %w", err)
	}
	n, err := number("PMI_FD", fd, 3)
	if err != nil {
		return nil, err
	}
	conn, err := inherit(n)
	if err != nil {
		return nil, fmt.Errorf("it is not a socket of this process (%w): a rank has closed it, which then joined or started this program; start each rank with the launcher", err)
	}
	return newWire(conn).begin(ctx, rank, size)
}

// openPort joins through an address at which a launcher listens. Rank and size come from there.
func openPort(ctx context.Context, port string, env Environment) (Space, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	w := newWire(conn)
	at := map[string]string{}
	_, err = w.call(ctx, "initack", "initack pmiid="+cmp.Or(env.get("PMI_ID"), env.get("PMI_RANK")))
	for err == nil && (at["size"] == "" || at["rank"] == "" || at["debug"] == "") {
		var fields map[string]string
		fields, err = w.call(ctx, "set", "")
		for k, v := range fields {
			at[k] = v
		}
	}
	if err == nil {
		var rank, size int
		if rank, size, err = place(at["rank"], at["size"]); err == nil {
			return w.begin(ctx, rank, size)
		}
	}
	conn.Close()
	return nil, err
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, maxLine)}
}

// begin opens the space. On failure it closes the connection.
func (w *wire) begin(ctx context.Context, rank, size int) (Space, error) {
	w.rank, w.size = rank, size
	_, err := w.call(ctx, "response_to_init", "init pmi_version=1 pmi_subversion=1")
	var most, name map[string]string
	if err == nil {
		most, err = w.call(ctx, "maxes", "get_maxes")
	}
	if err == nil {
		w.mostKey, err = number("keylen_max", most["keylen_max"], 1)
	}
	if err == nil {
		w.mostVal, err = number("vallen_max", most["vallen_max"], 1)
	}
	if err == nil {
		name, err = w.call(ctx, "my_kvsname", "get_my_kvsname")
	}
	if w.kvs = name["kvsname"]; err == nil && w.kvs == "" {
		err = errors.New("the launcher has no name for the job's key-value space")
	}
	if err != nil {
		w.conn.Close()
		return nil, err
	}
	return w, nil
}

func (w *wire) Rank() int   { return w.rank }
func (w *wire) Size() int   { return w.size }
func (w *wire) Job() string { return w.kvs }

func (w *wire) Put(ctx context.Context, key, value string) error {
	if len(key) >= w.mostKey || len(value) >= w.mostVal { // the lengths include the 0 that ends a text in C
		return fmt.Errorf("the launcher's key-value space takes %d bytes at most, not a value of %d; select fewer addresses (COHORT_TCP_IFACE)", w.mostVal-1, len(value))
	}
	_, err := w.call(ctx, "put_result", "put kvsname="+w.kvs+" key="+key+" value="+value)
	return err
}

func (w *wire) Fence(ctx context.Context) error {
	_, err := w.call(ctx, "barrier_out", "barrier_in")
	return err
}

func (w *wire) Get(ctx context.Context, _ int, key string) (string, error) {
	fields, err := w.call(ctx, "get_result", "get kvsname="+w.kvs+" key="+key)
	return fields["value"], err
}

func (w *wire) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_, err := w.call(ctx, "finalize_ack", "finalize")
	return errors.Join(err, w.conn.Close())
}

// call sends a command, unless that is empty, and returns the fields of the answer, which must be the one wanted.
func (w *wire) call(ctx context.Context, want, command string) (map[string]string, error) {
	err := w.conn.SetDeadline(time.Time{})
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		w.conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-over // else it may end the next call
		}
	}()
	if err == nil && command != "" {
		_, err = io.WriteString(w.conn, "cmd="+command+"\n")
	}
	var line []byte
	if err == nil {
		line, err = w.in.ReadSlice('\n')
	}
	name, _, _ := strings.Cut(cmp.Or(command, want), " ")
	switch {
	case ctx.Err() != nil:
		if name == "barrier_in" {
			return nil, errors.New("not all ranks came to the launcher's barrier in time")
		}
		return nil, fmt.Errorf("the launcher did not answer %s in time", name)
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("the launcher answered %s with more than %d bytes", name, maxLine)
	case err != nil:
		return nil, fmt.Errorf("the launcher has closed the connection before it answered %s (%w); has it ended, or has this process joined before?", name, err)
	}
	got, fields := parse(string(line))
	switch rc := fields["rc"]; {
	case got != want:
		return nil, fmt.Errorf("the launcher answered %s with %.80q, want %s", name, line, want)
	case rc != "" && rc != "0":
		return nil, fmt.Errorf("the launcher refused %s: %.80q", name, line)
	}
	return fields, nil
}

// parse returns a line's command and its other fields. Words that are not fields are ignored.
func parse(line string) (command string, fields map[string]string) {
	fields = make(map[string]string)
	for word := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(word, "="); ok {
			fields[k] = v
		}
	}
	command = fields["cmd"]
	delete(fields, "cmd")
	return command, fields
}
