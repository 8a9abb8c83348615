package values

import (
	"bytes"
	"encoding/gob"
	"errors"
	"math"
	"math/big"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

type (
	limits struct {
		Most int
		Fn   func()
	}
	withFunc struct {
		Name   string
		Limits []map[string]*limits
	}
	hidden struct {
		A int
		b int
	}
	withHidden struct {
		Name string
		Part struct{ Inner hidden }
	}
	node struct {
		X           int
		Left, Right *node
	}
	// point has an encoding of its own, and a field that gob would leave out.
	point   struct{ x, y int8 }
	halfway struct{ x int }
	config  struct {
		Name  string
		Sizes map[string][]int
		Next  *config
		When  time.Time
		P     point
	}
	loose struct {
		Any any
		All map[string]any
	}
	inner struct{ X int }
)

func (p point) MarshalBinary() ([]byte, error) {
	if p.x < 0 {
		return nil, errors.New("x is negative")
	}
	return []byte{byte(p.x), byte(p.y)}, nil
}

func (p *point) UnmarshalBinary(b []byte) error {
	*p = point{int8(b[0]), int8(b[1])} // panics for a short message
	return nil
}

func (halfway) MarshalBinary() ([]byte, error) { return nil, nil }

// there encodes and decodes a value as ranks do.
func there[T any](x T) (T, error) {
	var buf bytes.Buffer
	if err := encode(&buf, x, nil); err != nil {
		var zero T
		return zero, err
	}
	return Decode[T](buf.Bytes(), 3)
}

func arrives[T any](t *testing.T, x T) {
	t.Helper()
	got, err := there(x)
	if err != nil {
		t.Errorf("%T: %v", x, err)
	} else if !reflect.DeepEqual(got, x) {
		t.Errorf("%T: got %#v, want %#v", x, got, x)
	}
}

// The value that arrives equals the one that was sent, by reflect.DeepEqual.
func TestValuesArriveAsTheyWere(t *testing.T) {
	arrives(t, "")
	arrives(t, "für 🐹")
	arrives(t, 0)
	arrives(t, int8(-128))
	arrives(t, uint64(math.MaxUint64))
	arrives(t, math.Inf(-1))
	arrives(t, complex(1, -2))
	arrives(t, true)
	arrives(t, []string{"a", "", "b"})
	arrives(t, [2][]int{{1}, {2, 3}})
	arrives(t, map[string][]float64{"x": {1, 2}, "y": nil})
	arrives(t, map[[2]int]bool{{1, 2}: true})
	arrives(t, map[string]int(nil))
	arrives(t, map[string]int{})
	arrives(t, []int(nil))
	arrives(t, []int{})
	arrives(t, []byte{})
	arrives(t, struct{ M map[string]int }{})
	arrives(t, point{1, -2})
	arrives(t, &point{1, -2})
	arrives(t, []point{{1, 2}, {3, 4}})
	arrives(t, (*point)(nil))
	arrives(t, (*config)(nil))
	arrives(t, &node{1, &node{X: 2}, &node{3, nil, &node{X: 4}}})
	arrives(t, any(nil))
	arrives(t, any("text"))
	arrives(t, struct{}{})
	arrives(t, []any{1, nil, "two", 3.0, nil})
	arrives(t, map[any]string{nil: "a", 2: "b"})
	arrives(t, [2]map[string]error{{"a": nil}, {}})
	arrives(t, [2]error{})
	arrives(t, map[string]any{"a": nil, "b": 2, "c": nil})
	gob.Register(loose{})
	gob.Register(inner{})
	arrives(t, []any{nil, loose{inner{1}, map[string]any{"n": nil, "i": inner{2}}}, inner{3}})
	arrives(t, time.Unix(1, 2).UTC())
	arrives(t, *big.NewInt(math.MinInt64))
	zero := 0
	arrives(t, &zero)
	arrives(t, config{
		Name: "c", Sizes: map[string][]int{"": {0}, "n": {1, 2}}, Next: &config{Name: "d"}, When: time.Unix(3, 0).UTC(), P: point{5, 6},
	})
}

// A list is nested as deep as it has nodes.
func TestDeepListsArriveUpToTheLimit(t *testing.T) {
	list := func(n int) *node {
		var first *node
		for i := range n {
			first = &node{X: i, Left: first}
		}
		return first
	}
	got, err := there(list(maxDepth))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; got != nil; got = got.Left {
		n++
	}
	if n != maxDepth {
		t.Errorf("%d nodes arrived, want %d", n, maxDepth)
	}
	if _, err := there(list(maxDepth + 1)); !errors.Is(err, cohort.ErrType) {
		t.Errorf("a list of %d nodes: %v, want ErrType", maxDepth+1, err)
	}
}

// The error names the part that cannot be sent.
func TestTypesThatCannotBeSentAreNamed(t *testing.T) {
	loop := &node{X: 1}
	loop.Right = &node{Left: loop}
	tree := map[string]any{"a": 1}
	tree["b"] = []any{tree}
	gob.Register(tree)
	gob.Register([]any{})
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a function":                     {refused(func() {}), "func()"},
		"a channel":                      {refused([]chan int{}), "[]chan int[] is a chan"},
		"a function in fields":           {refused(withFunc{}), "values.withFunc.Limits[][].Fn is a func"},
		"a hidden field":                 {refused(&withHidden{Part: struct{ Inner hidden }{hidden{1, 2}}}), "values.withHidden.Part.Inner.b is not exported"},
		"a set":                          {refused(map[string]struct{}{}), "map[string]struct {}[] is a struct without fields"},
		"one method of two":              {refused(halfway{1}), "values.halfway.x is not exported"},
		"an error from Marshal":          {refused(point{x: -1}), "x is negative"},
		"an unknown type":                {refused(any(config{})), "not registered"},
		"a function behind an interface": {refused(any(func() {})), "func"},
		"a value that contains itself":   {refused(loop), "contains itself"},
		"a map that contains itself":     {refused(tree), "contains itself"},
	} {
		if !errors.Is(c.err, cohort.ErrType) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want ErrType with %q", name, c.err, c.want)
		}
	}
}

func refused[T any](x T) error {
	_, err := there(x)
	return err
}

// A value that two pointers share is not one that contains itself.
func TestSharedPartsAreSent(t *testing.T) {
	shared := &node{X: 7}
	arrives(t, &node{1, shared, shared})
	gob.Register([]any{})
	arrives(t, []any{1, []any{1}})
}

// Behind an interface gob leaves out fields that are not exported, so they may lead back to the value.
func TestHiddenFieldMayLeadBackBehindInterface(t *testing.T) {
	type child struct {
		X      int
		parent *child
	}
	gob.Register(child{})
	loop := child{X: 7}
	loop.parent = &loop
	if got, err := there[any](loop); err != nil || got != any(child{X: 7}) {
		t.Errorf("%v, %v; want %v", got, err, child{X: 7})
	}
}

// A message of another type, or of none, is an error that names the sender.
func TestWrongMessagesNameTheirSender(t *testing.T) {
	var text, own bytes.Buffer
	if err := errors.Join(encode(&text, "text", nil), encode(&own, point{1, 2}, nil)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"text for a number":        decodes[int](text.Bytes()),
		"text for a struct":        decodes[config](text.Bytes()),
		"text for its own methods": decodes[point](text.Bytes()),
		"a point for text":         decodes[string](own.Bytes()),
		"a short point":            decodes[point](own.Bytes()[:2]),
		"nil for a number":         decodes[int]([]byte{nilValue}),
		"text for struct{}":        decodes[struct{}](text.Bytes()),
		"nothing":                  decodes[string](nil),
		"half a text":              decodes[string](text.Bytes()[:text.Len()-1]),
		"a text and more":          decodes[string](append(text.Bytes()[:text.Len():text.Len()], 0)),
	} {
		if !errors.Is(err, cohort.ErrType) || !strings.Contains(err.Error(), "rank 3") {
			t.Errorf("%s: %v, want ErrType that names rank 3", name, err)
		}
	}
	if err := decodes[int]([]byte("xwhy")); !errors.Is(err, cohort.ErrMismatch) || !strings.Contains(err.Error(), "rank 3 has no value: why") {
		t.Errorf("the error of another rank: %v", err)
	}
}

func decodes[T any](b []byte) error {
	_, err := Decode[T](b, 3)
	return err
}

// A map that claims more entries than the message has bytes is refused before it is allocated: 2^30
// entries would take more than 16 GiB.
func TestMapsAreNotAllocatedForTheirClaim(t *testing.T) {
	var buf bytes.Buffer
	if err := encode(&buf, map[int]int{1: 2}, nil); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	at := len(b) - 3 // the number of entries, a key, and a value
	if b[at] != 1 {
		t.Fatalf("the message is %x; where is the number of entries?", b)
	}
	long := append(append(bytes.Clone(b[:at]), 0xfc, 0x40, 0, 0, 0), b[at+1:]...) // 4 bytes: 1<<30
	long[bytes.LastIndexByte(long[:at], byte(len(b)-at+3))] += 4                  // the length of gob's last message
	before := allocated()
	err := decodes[map[int]int](long)
	if !errors.Is(err, cohort.ErrType) || strings.Contains(err.Error(), "panic") {
		t.Errorf("%v, want ErrType", err)
	}
	if n := allocated() - before; n > 1<<20 {
		t.Errorf("%d bytes allocated for a message of %d", n, len(long))
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// FuzzDecode decodes any message as several types. It may fail, but not panic, and what it allocates is
// bounded by the message's length: an element takes a byte at least, and here up to 200 bytes in memory;
// gob allocates up to 10 MiB for a slice before it has read it (internal/saferio).
func FuzzDecode(f *testing.F) {
	for _, x := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return encode(b, "text", nil) },
		func(b *bytes.Buffer) error { return encode(b, map[string][]int{"a": {1, 2}, "b": nil}, nil) },
		func(b *bytes.Buffer) error { return encode(b, []config{{Name: "c", Next: &config{Name: "d"}}}, nil) },
		func(b *bytes.Buffer) error { return encode(b, point{1, 2}, nil) },
		func(b *bytes.Buffer) error { return encode(b, []any{1, "a", nil}, nil) },
	} {
		var buf bytes.Buffer
		if err := x(&buf); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		for _, err := range []error{
			decodes[string](b), decodes[map[string][]int](b), decodes[[]config](b), decodes[point](b), decodes[[]any](b), decodes[*node](b),
		} {
			if err != nil && !errors.Is(err, cohort.ErrType) && !errors.Is(err, cohort.ErrMismatch) {
				t.Errorf("%v is neither ErrType nor ErrMismatch", err)
			}
		}
		if n, most := allocated()-before, uint64(6*(16<<20+4096*len(b))); n > most {
			t.Errorf("%d bytes allocated for a message of %d", n, len(b))
		}
	})
}
