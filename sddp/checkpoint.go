package sddp

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// A checkpoint is a file with the state of a training after some iterations:
//
//	a line of JSON: format, version, origin, number of iterations
//	per iteration:  the numbers of iterationRecord and the cuts of each list so far, in 8 bytes each
//	the points:     with cut selection, the trial points by stage, iteration and pass as 64-bit floats
//	the cuts:       by list, in the order of the pool, alpha and then beta as 64-bit floats
//	32 bytes:       the SHA-256 of everything above
//
// all little-endian. Later iterations depend on nothing else: random numbers are a function of the seed
// and of their purpose, and every linear program starts from its canonical basis
// (docs/adr/0004-canonical-basis.md). The first line and the last iteration determine the length of the
// file, so a file of another length is rejected before memory is allocated for it.
const (
	checkpointFormat  = "cohort-sddp-checkpoint"
	checkpointVersion = 7
	maxCheckpointHead = 4096 // bytes of the first line
	maxSeeds          = maxIterations * maxPasses
	iterationRecord   = 9 // numbers: lower bound, mean, std, ci95, gap, solves, lp, comm, total
)

// origin identifies the training of a checkpoint. A training that resumes must have the same origin, but for
// the solver: otherwise its cuts would differ from those of an uninterrupted training.
type origin struct {
	caseName, caseSHA256 string
	inflowsSHA256        string
	arch, solver, method string
	seed                 uint64
	openings, passes     int
	stages, states       int
	lists                int  // of cuts
	seeds                int  // largest number of cuts of a list before the first iteration
	selects              bool // cut selection
}

// originOf returns the origin of a training.
func originOf(c *Case, opt Options, solver lp.Info, noise *Noise, seeds int) origin {
	return origin{
		caseName: c.Name, caseSHA256: c.SHA256(), inflowsSHA256: noise.digest, arch: runtime.GOARCH, solver: solver.String(), method: opt.method(),
		seed: opt.Seed, openings: opt.Openings, passes: opt.Passes, stages: c.Stages, states: c.states(), lists: opt.futures(c).total(), seeds: seeds, selects: opt.CutSelection,
	}
}

// points returns how many trial points of a stage a checkpoint has for each pass of an iteration: 1 or 0.
func (o origin) points() int {
	if o.selects {
		return 1
	}
	return 0
}

// width returns how many numbers a cut has.
func (o origin) width() int { return 1 + o.states }

// recordBytes returns the length of an iteration in a checkpoint.
func (o origin) recordBytes() int { return 8 * (iterationRecord + o.lists) }

// differences records where the origin of a checkpoint differs from that of the training.
func (o origin) differences(p *problems, file string, want origin) {
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"seed", o.seed, want.seed},
		{"passes", o.passes, want.passes},
		{"openings", o.openings, want.openings},
		{"method", o.method, want.method},
		{"architecture", o.arch, want.arch},
	} {
		if f.got != f.want {
			p.add(file, f.name, "got %v, want %v as in this training: give the options of the checkpoint", f.got, f.want)
		}
	}
	if o.caseSHA256 != want.caseSHA256 || o.stages != want.stages || o.states != want.states {
		p.add(file, "case_sha256", "got %.12s… of case %q, want %.12s… of case %q: resume with the case of the checkpoint",
			o.caseSHA256, o.caseName, want.caseSHA256, want.caseName)
	}
	if p.err() == nil && o.inflowsSHA256 != want.inflowsSHA256 { // otherwise the differences above explain it
		p.add(file, "inflows_sha256", "got %.12s…, want %.12s…: the program that wrote the checkpoint computed other inflows; resume on a processor of the same kind",
			o.inflowsSHA256, want.inflowsSHA256)
	}
}

// encodeCheckpoint writes a checkpoint of the given iterations. Their cuts are the first ones of the pool.
func encodeCheckpoint(w io.Writer, o origin, its []Iteration, pool *Pool) error {
	name, err := json.Marshal(o.caseName)
	if err != nil {
		return err
	}
	digest := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, digest), 1<<16)
	fmt.Fprintf(out, `{"format": %q, "version": %d, "case": %s, "case_sha256": %q, "inflows_sha256": %q, `,
		checkpointFormat, checkpointVersion, name, o.caseSHA256, o.inflowsSHA256)
	fmt.Fprintf(out, `"architecture": %q, "solver": %q, "method": %q, "seed": "%d", `, o.arch, o.solver, o.method, o.seed)
	fmt.Fprintf(out, `"openings": %d, "passes": %d, "stages": %d, "states": %d, "lists": %d, "seeds": %d, "selection": %d, "iterations": %d}`+"\n",
		o.openings, o.passes, o.stages, o.states, o.lists, o.seeds, o.points(), len(its))
	out.Write(packIterations(its))
	put := func(numbers []float64) {
		var b [8]byte
		for _, x := range numbers {
			binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
			out.Write(b[:])
		}
	}
	for t := range o.points() * pool.Stages() {
		put(pool.selection.numbers(t, len(its)*o.passes))
	}
	for i, l := range pool.lists {
		left := its[len(its)-1].ListCuts[i] * o.width()
		for _, part := range l.parts {
			part = part[:min(len(part), left)]
			left -= len(part)
			put(part)
		}
		if left > 0 {
			return fmt.Errorf("a list lacks %d numbers for %d iterations", left, len(its))
		}
	}
	if err := out.Flush(); err != nil { // returns the error of any write above
		return err
	}
	_, err = w.Write(digest.Sum(nil))
	return err
}

// packIterations encodes iterations as in a checkpoint.
func packIterations(its []Iteration) []byte {
	var out []byte
	for _, it := range its {
		for _, x := range []float64{it.LowerBound, it.Upper.Mean, it.Upper.Std, it.Upper.CI95, it.Gap} {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		}
		for _, n := range []int64{it.Solves, int64(it.LP), int64(it.Comm), int64(it.Total)} {
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		}
		for _, n := range it.ListCuts {
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		}
	}
	return out
}

// unpackIterations decodes what packIterations encoded.
func unpackIterations(b []byte, o origin) []Iteration {
	var its []Iteration
	for ; len(b) >= o.recordBytes(); b = b[o.recordBytes():] {
		n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		x := func(i int) float64 { return math.Float64frombits(n(i)) }
		it := Iteration{
			Number: len(its) + 1, LowerBound: x(0),
			Upper: Estimate{Samples: o.passes, Mean: x(1), Std: x(2), CI95: x(3)}, Gap: x(4),
			ListCuts: make([]int, o.lists), Solves: int64(n(5)),
			LP: time.Duration(n(6)), Comm: time.Duration(n(7)), Total: time.Duration(n(8)),
		}
		for t := range it.ListCuts {
			it.ListCuts[t] = int(n(iterationRecord + t))
			it.Cuts += it.ListCuts[t]
		}
		its = append(its, it)
	}
	return its
}

// checkIteration returns an error for an iteration that no training can produce. The digest is right
// here, so another program wrote the file.
func (o origin) checkIteration(it, last Iteration) error {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case !finite(it.LowerBound) || it.LowerBound < last.LowerBound:
		return fmt.Errorf("lower bound %v after %v", it.LowerBound, last.LowerBound)
	case !finite(it.Upper.Mean) || !finite(it.Upper.Std) || it.Upper.Std < 0:
		return fmt.Errorf("forward costs of %v with a deviation of %v", it.Upper.Mean, it.Upper.Std)
	case !(it.Upper.CI95 >= 0) || !(it.Gap >= 0):
		return fmt.Errorf("interval %v and gap %v", it.Upper.CI95, it.Gap)
	case it.Solves < 0 || it.LP < 0 || it.Comm < 0 || it.Total < 0:
		return errors.New("negative times or counts")
	}
	for t, n := range it.ListCuts {
		most := o.passes
		if last.Number == 0 {
			most += o.seeds
		}
		if more := n - last.ListCuts[t]; more < 0 || more > most {
			return fmt.Errorf("%d cuts of list %d after %d", n, t+1, last.ListCuts[t])
		}
	}
	return nil
}

// checkpointReader is a checkpoint that has been verified.
type checkpointReader struct {
	origin
	file     string // for messages
	its      []Iteration
	in       io.ReaderAt
	pointsAt int64 // where the trial points begin
	cutsAt   int64 // where the cuts begin
}

// readCheckpoint verifies a file of size bytes and reads everything but the trial points and cuts.
func readCheckpoint(file string, in io.ReaderAt, size int64) (*checkpointReader, error) {
	p := &problems{}
	fail := func(field, format string, args ...any) (*checkpointReader, error) {
		p.add(file, field, format, args...)
		return nil, p.err()
	}
	head := make([]byte, min(size, maxCheckpointHead))
	if _, err := in.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, plainError(err))
	}
	end := bytes.IndexByte(head, '\n') + 1
	if end == 0 {
		return fail("", "not a checkpoint, or damaged: it has no first line")
	}
	r := &checkpointReader{file: file, in: in}
	iterations := r.readHead(p, head[:end])
	if err := p.err(); err != nil {
		return nil, err
	}
	r.pointsAt = int64(end) + int64(r.recordBytes())*int64(iterations)
	// At most 10⁵ iterations of 10⁵ passes, 1200 stages, 10⁵ openings and 7·10⁴ states: below 2⁶³.
	r.cutsAt = r.pointsAt + 8*int64(r.points())*int64(r.stages-1)*int64(iterations)*int64(r.passes)*int64(r.states)
	last := r.cutsAt
	if size >= r.cutsAt+sha256.Size {
		record := make([]byte, r.recordBytes())
		if _, err := in.ReadAt(record, r.pointsAt-int64(len(record))); err != nil {
			return nil, fmt.Errorf("%s: %w", file, plainError(err))
		}
		for _, n := range unpackIterations(record, r.origin)[0].ListCuts {
			if last += 8 * int64(r.width()) * int64(min(max(n, 0), r.seeds+iterations*r.passes)); last > size {
				break // before it overflows
			}
		}
	}
	if size != last+sha256.Size {
		return fail("", "damaged: it has %d bytes, want %d", size, last+sha256.Size)
	}
	digest, sum := sha256.New(), make([]byte, sha256.Size)
	_, err := io.Copy(digest, io.NewSectionReader(in, 0, last))
	if err == nil {
		_, err = in.ReadAt(sum, last)
	}
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, plainError(err))
	}
	if !bytes.Equal(sum, digest.Sum(nil)) {
		return fail("", "damaged: the digest at its end does not match the content")
	}
	packed := make([]byte, r.pointsAt-int64(end))
	if _, err := in.ReadAt(packed, int64(end)); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, plainError(err))
	}
	r.its = unpackIterations(packed, r.origin)
	before := Iteration{LowerBound: math.Inf(-1), ListCuts: make([]int, r.lists)}
	for _, it := range r.its {
		if err := r.checkIteration(it, before); err != nil {
			return fail(fmt.Sprintf("iteration %d", it.Number), "%v", err)
		}
		before = it
	}
	return r, nil
}

// readHead reads the first line and returns the number of iterations.
func (r *checkpointReader) readHead(p *problems, line []byte) (iterations int) {
	o := openObject(p, r.file, line)
	if o == nil || !o.constant("format", checkpointFormat) || o.whole("version", checkpointVersion, checkpointVersion) == 0 {
		return 0
	}
	r.caseName, r.caseSHA256 = o.text("case"), o.text("case_sha256")
	r.inflowsSHA256 = o.text("inflows_sha256")
	r.arch, r.solver = o.text("architecture"), o.text("solver")
	r.method = o.text("method")
	r.seed = o.seed("seed")
	r.openings = int(o.whole("openings", 1, maxOpenings))
	r.passes = int(o.whole("passes", 1, maxPasses))
	r.stages = int(o.whole("stages", 2, maxStages))
	r.states = int(o.whole("states", 0, maxItems*(1+maxOrder)))
	r.seeds = int(o.whole("seeds", 0, maxSeeds))
	r.selects = o.whole("selection", 0, 1) == 1
	lists := int64(r.stages-1) * maxOpenings
	if r.selects {
		lists = int64(r.stages - 1)
	}
	r.lists = int(o.whole("lists", int64(r.stages-1), lists))
	iterations = int(o.whole("iterations", 1, maxIterations))
	o.done()
	return iterations
}

// cuts reads numbers of a list's cuts into dst, beginning with number from.
func (r *checkpointReader) cuts(list, from int, dst []float64) error {
	at := int64(from)
	for _, n := range r.its[len(r.its)-1].ListCuts[:list] {
		at += int64(n) * int64(r.width())
	}
	return r.numbers(fmt.Sprintf("cuts of list %d", list+1), r.cutsAt+8*at, dst)
}

// trials reads numbers of a stage's trial points into dst, beginning with number from.
func (r *checkpointReader) trials(stage, from int, dst []float64) error {
	at := int64(stage)*int64(len(r.its))*int64(r.passes)*int64(r.states) + int64(from)
	return r.numbers(fmt.Sprintf("trial points of stage %d", stage+1), r.pointsAt+8*at, dst)
}

// numbers reads numbers into dst.
func (r *checkpointReader) numbers(what string, at int64, dst []float64) error {
	b := make([]byte, 8*len(dst))
	if _, err := r.in.ReadAt(b, at); err != nil {
		return fmt.Errorf("%s: %w", r.file, plainError(err))
	}
	for i := range dst {
		dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		if math.IsNaN(dst[i]) || math.IsInf(dst[i], 0) {
			return &FieldError{r.file, what, "got an infinity or NaN, want finite numbers"}
		}
	}
	return nil
}
