package sddp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// FieldError reports a wrong field of a file, and what is allowed there.
type FieldError struct {
	File  string // as the caller named it
	Field string // path in the file, such as thermals[3].max_mw; empty for the whole file
	Text  string // what was found, and what is allowed
}

// Error returns file, field and text.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Text
	}
	return e.File + ": " + e.Field + ": " + e.Text
}

// maxFieldErrors is the largest number of errors reported for one read.
const maxFieldErrors = 10

// problems collects the errors of one read.
type problems struct {
	errs []error
	more int
}

// add records an error.
func (p *problems) add(file, field, format string, args ...any) {
	if len(p.errs) == maxFieldErrors {
		p.more++
		return
	}
	p.errs = append(p.errs, &FieldError{File: file, Field: field, Text: fmt.Sprintf(format, args...)})
}

// err returns all errors joined, or nil.
func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more", p.more))...)
	}
	return errors.Join(p.errs...)
}

// object is a JSON object being read. A getter records a problem and returns the zero value when its
// field is missing or invalid; done records the fields that no getter has read. Unlike encoding/json,
// it distinguishes upper and lower case in names and rejects duplicate fields.
type object struct {
	*problems
	file, path string
	values     map[string]json.RawMessage
	order      []string // field names as found
	asked      []string
}

// openObject reads the only value of a file, which must be an object. Otherwise it records a problem
// and returns nil.
func openObject(p *problems, file string, data []byte) *object {
	dec := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		p.add(file, "", "%s", syntaxText(data, err))
		return nil
	}
	end := dec.InputOffset()
	if _, err := dec.Token(); err != io.EOF {
		p.add(file, "", "line %d: unexpected text after the object, want one JSON object", line(data, end))
		return nil
	}
	return newObject(p, file, "", raw)
}

// syntaxText describes a JSON syntax error and its line.
func syntaxText(data []byte, err error) string {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return "the file is empty, want one JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the file ends inside a value, want one JSON object"
	case errors.As(err, &syntax):
		return fmt.Sprintf("line %d: %v", line(data, syntax.Offset), err)
	}
	return err.Error()
}

// line returns the line, from 1, of an offset.
func line(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte{'\n'})
}

// newObject reads raw, which is valid JSON, as an object.
func newObject(p *problems, file, path string, raw json.RawMessage) *object {
	o := &object{problems: p, file: file, path: path, values: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		p.add(file, path, "got %s, want an object", brief(raw))
		return nil
	}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			p.add(file, path, "not a JSON object")
			return nil
		}
		if _, twice := o.values[name]; twice {
			p.add(file, o.field(name), "appears twice, want it once")
			continue
		}
		o.values[name] = value
		o.order = append(o.order, name)
	}
	return o
}

// brief describes a JSON value in a few words.
func brief(raw json.RawMessage) string {
	s := strings.Join(strings.Fields(string(raw)), " ")
	switch {
	case strings.HasPrefix(s, "{"):
		return "an object"
	case strings.HasPrefix(s, "["):
		return "a list"
	case len(s) > 40:
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}

// field returns the path of a field.
func (o *object) field(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// has reports whether the object has a field. It does not count as reading it.
func (o *object) has(name string) bool { _, ok := o.values[name]; return ok }

// optional reports whether the object has a field that it may lack.
func (o *object) optional(name string) bool {
	if !o.has(name) {
		o.asked = append(o.asked, name)
	}
	return o.has(name)
}

// says reports whether a field has one of several texts. It does not count as reading it.
func (o *object) says(name string, texts ...string) bool {
	var s string
	return json.Unmarshal(o.values[name], &s) == nil && slices.Contains(texts, s)
}

// get returns the value of a required field.
func (o *object) get(name, want string) (json.RawMessage, bool) {
	o.asked = append(o.asked, name)
	raw, ok := o.values[name]
	if !ok {
		o.add(o.file, o.field(name), "missing, want %s", want)
	}
	return raw, ok
}

// text returns a string field of 1 to 200 printable characters.
func (o *object) text(name string) string {
	const want = "a string of 1 to 200 characters without line breaks"
	raw, ok := o.get(name, want)
	if !ok {
		return ""
	}
	return readText(o.problems, o.file, o.field(name), want, raw)
}

// readText reads a string of 1 to 200 printable characters.
func readText(p *problems, file, field, want string, raw json.RawMessage) string {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil || s == "" || len([]rune(s)) > 200 ||
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		p.add(file, field, "got %s, want %s", brief(raw), want)
		return ""
	}
	return s
}

// constant checks a string field that has one valid value.
func (o *object) constant(name, value string) bool {
	want := fmt.Sprintf("%q", value)
	raw, ok := o.get(name, want)
	var s string
	if ok && (json.Unmarshal(raw, &s) != nil || s != value) {
		o.add(o.file, o.field(name), "got %s, want %s", brief(raw), want)
		return false
	}
	return ok
}

// whole returns a whole-number field from lo to hi.
func (o *object) whole(name string, lo, hi int64) int64 {
	want := fmt.Sprintf("a whole number from %d to %d", lo, hi)
	raw, ok := o.get(name, want)
	if !ok {
		return 0
	}
	var n int64
	if json.Unmarshal(raw, &n) != nil || string(raw) == "null" || n < lo || n > hi {
		o.add(o.file, o.field(name), "got %s, want %s", brief(raw), want)
		return 0
	}
	return n
}

// seed returns a 64-bit number field, written as a string because JSON numbers may not hold it.
func (o *object) seed(name string) uint64 {
	text := o.text(name)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil && text != "" {
		o.add(o.file, o.field(name), "got %q, want a whole number from 0 to %d as a string", text, uint64(math.MaxUint64))
	}
	return n
}

// number returns a number field from lo to hi.
func (o *object) number(name string, lo, hi float64) float64 {
	want := fmt.Sprintf("a number from %g to %g", lo, hi)
	raw, ok := o.get(name, want)
	if !ok {
		return 0
	}
	return readNumber(o.problems, o.file, o.field(name), want, lo, hi, raw)
}

// readNumber reads a number from lo to hi.
func readNumber(p *problems, file, field, want string, lo, hi float64, raw json.RawMessage) float64 {
	var x float64
	if json.Unmarshal(raw, &x) != nil || string(raw) == "null" || math.IsNaN(x) || x < lo || x > hi {
		p.add(file, field, "got %s, want %s", brief(raw), want)
		return 0
	}
	return x
}

// list returns the elements of a list field.
func (o *object) list(name, want string) []json.RawMessage {
	raw, ok := o.get(name, want)
	if !ok {
		return nil
	}
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		o.add(o.file, o.field(name), "got %s, want %s", brief(raw), want)
		return nil
	}
	return items
}

// series returns a list field of n numbers from lo to hi. The result always has length n.
func (o *object) series(name string, n int, lo, hi float64) []float64 {
	out := make([]float64, n)
	if items := o.list(name, wantSeries(n, lo, hi)); items != nil {
		readSeries(o.problems, o.file, o.field(name), items, out, lo, hi)
	}
	return out
}

// wantSeries describes a series.
func wantSeries(n int, lo, hi float64) string {
	return fmt.Sprintf("a list of %d numbers, one per period, each from %g to %g", n, lo, hi)
}

// readSeries reads the numbers of a list into out, which has as many.
func readSeries(p *problems, file, field string, items []json.RawMessage, out []float64, lo, hi float64) {
	if len(items) != len(out) {
		p.add(file, field, "got %d values, want %s", len(items), wantSeries(len(out), lo, hi))
		return
	}
	for i, raw := range items {
		out[i] = readNumber(p, file, fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("a number from %g to %g", lo, hi), lo, hi, raw)
	}
}

// table returns a list field of rows series, each of n numbers from lo to hi. The result always has these
// lengths.
func (o *object) table(name string, rows, n int, lo, hi float64) (out [][]float64) {
	for range rows {
		out = append(out, make([]float64, n))
	}
	want := fmt.Sprintf("%d lists, one per block, each %s", rows, wantSeries(n, lo, hi))
	items := o.list(name, want)
	if items != nil && len(items) != rows {
		o.add(o.file, o.field(name), "got %d lists, want %s", len(items), want)
		return out
	}
	for k, raw := range items {
		field := fmt.Sprintf("%s[%d]", o.field(name), k)
		var numbers []json.RawMessage
		if json.Unmarshal(raw, &numbers) != nil || numbers == nil {
			o.add(o.file, field, "got %s, want %s", brief(raw), wantSeries(n, lo, hi))
			continue
		}
		readSeries(o.problems, o.file, field, numbers, out[k], lo, hi)
	}
	return out
}

// varying returns a field that is a number or a series of n numbers, from lo to hi.
func (o *object) varying(name string, n int, lo, hi float64) Series {
	if strings.HasPrefix(string(o.values[name]), "[") {
		return o.series(name, n, lo, hi)
	}
	want := fmt.Sprintf("a number from %g to %g, or a list of %d, one per period", lo, hi, n)
	raw, ok := o.get(name, want)
	if !ok {
		return Series{0}
	}
	return Series{readNumber(o.problems, o.file, o.field(name), want, lo, hi, raw)}
}

// atLeast records a problem for the first of n periods in which a field, which has been read, is below
// another field.
func (o *object) atLeast(name string, have, least Series, other string, n int) {
	for p := range n {
		if x, want := have.At(p), least.At(p); x < want && o.has(name) {
			field := o.field(name)
			if len(have) > 1 {
				field += fmt.Sprintf("[%d]", p)
			}
			o.add(o.file, field, "got %g, want a number from %g, which is %s, to %g", x, want, other, maxFigure)
			return
		}
	}
}

// objects returns the elements of a list of objects.
func (o *object) objects(name string, most int) []*object {
	want := fmt.Sprintf("a list of at most %d objects", most)
	items := o.list(name, want)
	if len(items) > most {
		o.add(o.file, o.field(name), "got %d elements, want %s", len(items), want)
		return nil
	}
	var out []*object
	for i, raw := range items {
		if e := newObject(o.problems, o.file, fmt.Sprintf("%s[%d]", o.field(name), i), raw); e != nil {
			out = append(out, e)
		}
	}
	return out
}

// done records a problem for every field that no getter has read.
func (o *object) done() {
	for _, name := range o.order {
		known := false
		for _, a := range o.asked {
			known = known || a == name
		}
		if !known {
			o.add(o.file, o.field(name), "unknown field, want one of: %s", strings.Join(o.asked, ", "))
		}
	}
}
