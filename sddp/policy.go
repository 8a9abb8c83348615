package sddp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cohort-hpc/cohort"
)

// Policy is the result of a training: the cuts, and the case and options they belong to.
type Policy struct {
	CaseName   string
	CaseSHA256 string
	// FutureSHA256 is a hash of all that the cost after a stage depends on: the case but for the initial
	// storage, the inflows, and the risk. Policies with the same hash have cuts of the same functions.
	FutureSHA256 string
	Reservoirs   []string // names, in the order of the slopes of a cut
	Seed         uint64
	Openings     int
	Passes       int
	Risk         Risk
	MultiCut     bool
	Iterations   int
	LowerBound   float64
	Pool         *Pool
}

// PolicyFile is the name of the policy in an output folder.
const PolicyFile = "policy.json"

// The format named in a policy file.
const (
	policyFormat  = "cohort-sddp-policy"
	policyVersion = 3
)

// Encode returns the text of a policy file. Its numbers read back with the same bits.
//
// Not collective.
func (p *Policy) Encode() []byte {
	var b bytes.Buffer
	quoted := func(s string) []byte {
		q, err := json.Marshal(s)
		if err != nil {
			panic(err) // a string always has a JSON form
		}
		return q
	}
	fmt.Fprintf(&b, "{\n  \"format\": %q,\n  \"version\": %d,\n", policyFormat, policyVersion)
	fmt.Fprintf(&b, "  \"case\": %s,\n  \"case_sha256\": %q,\n", quoted(p.CaseName), p.CaseSHA256)
	fmt.Fprintf(&b, "  \"seed\": \"%d\",\n  \"openings\": %d,\n  \"passes\": %d,\n", p.Seed, p.Openings, p.Passes)
	fmt.Fprintf(&b, "  \"cvar_lambda\": %s,\n  \"cvar_alpha\": %s,\n", exactText(p.Risk.Lambda), exactText(p.Risk.Alpha))
	if p.MultiCut {
		b.WriteString("  \"multi_cut\": 1,\n")
	}
	fmt.Fprintf(&b, "  \"iterations\": %d,\n  \"lower_bound\": %s,\n", p.Iterations, exactText(p.LowerBound))
	fmt.Fprintf(&b, "  \"future_sha256\": %q,\n  \"reservoirs\": [", p.FutureSHA256)
	for i, name := range p.Reservoirs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(quoted(name))
	}
	fmt.Fprintf(&b, "],\n  \"cuts_sha256\": %q,\n  \"cuts\": [", p.Pool.SHA256())
	for list := range p.Pool.lists {
		if list > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    [")
		for i := range p.Pool.Len(list) {
			if i > 0 {
				b.WriteByte(',')
			}
			alpha, beta := p.Pool.Cut(list, i)
			b.WriteString("\n      [" + exactText(alpha))
			for _, x := range beta {
				b.WriteString(", " + exactText(x))
			}
			b.WriteByte(']')
		}
		b.WriteString("\n    ]")
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes()
}

// exactText returns the shortest decimal that reads back as x.
func exactText(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// LoadPolicy reads the policy of a case on rank 0 and sends it to all ranks. path is an output folder of
// a training, or the policy file.
//
// Collective: all ranks of world call it. Only rank 0 uses path.
//
// Errors: those of the file and of [ParsePolicy], on all ranks.
func LoadPolicy(world *cohort.Comm, path string, c *Case) (*Policy, error) {
	return loadPolicy(world, path, c, true)
}

// LoadWarmStart is LoadPolicy for a policy to begin a training with (Options.Warm), or to simulate on a changed
// case. It may be of another case that has as many stages and the same reservoirs.
//
// Collective: all ranks of world call it. Only rank 0 uses path.
func LoadWarmStart(world *cohort.Comm, path string, c *Case) (*Policy, error) {
	return loadPolicy(world, path, c, false)
}

// loadPolicy reads a policy of a case, or one that fits it.
func loadPolicy(world *cohort.Comm, path string, c *Case, same bool) (*Policy, error) {
	file := path
	if info, err := os.Stat(path); world.Rank() == 0 && err == nil && info.IsDir() {
		file = filepath.Join(path, PolicyFile)
	}
	t := newTeam(world)
	packed, err := t.fromFirst("read policy", func() ([]byte, error) {
		data, err := readPolicyFile(file)
		if err != nil {
			return nil, err
		}
		_, err = parsePolicy(file, data, c, same) // here, so that all ranks return the error of rank 0
		return packTexts([][]byte{[]byte(file), data}), err
	})
	if err != nil {
		return nil, err
	}
	texts := unpackTexts(packed)
	return parsePolicy(string(texts[0]), texts[1], c, same)
}

// readPolicyFile returns the text of a policy file. A regular file may have any length, as a training
// may write any. A pipe or a device has no length, so maxFile bounds what is read from it.
func readPolicyFile(file string) (data []byte, err error) {
	info, err := os.Stat(file)
	if err == nil && info.Mode().IsRegular() {
		data, err = os.ReadFile(file)
	} else if err == nil {
		data, err = readStream(file)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", file, plainError(err))
	}
	return data, nil
}

// readStream reads a pipe or a device up to maxFile bytes.
func readStream(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes from a pipe or device; copy it to a file", maxFile)
	}
	return data, err
}

// ParsePolicy reads the text of a policy file, which must be for the case. The name of the file appears
// in errors only.
//
// Not collective.
//
// Errors: up to ten [*FieldError], each with the field and what is allowed there.
func ParsePolicy(file string, data []byte, c *Case) (*Policy, error) {
	return parsePolicy(file, data, c, true)
}

// parsePolicy reads a policy of the case or, if same is not set, one with as many stages and the same
// reservoirs.
func parsePolicy(file string, data []byte, c *Case, same bool) (*Policy, error) {
	p := &problems{}
	o := openObject(p, file, data)
	if o == nil {
		return nil, p.err()
	}
	if !o.constant("format", policyFormat) || o.whole("version", policyVersion, policyVersion) == 0 {
		return nil, p.err()
	}
	out := &Policy{CaseName: o.text("case"), CaseSHA256: o.text("case_sha256")}
	if err := p.err(); err != nil {
		return nil, err
	}
	if want := c.SHA256(); same && out.CaseSHA256 != want {
		p.add(file, "case_sha256", "got %.12s… of a case %q, want %.12s… of the case %q: a policy is valid only for the case it was trained for",
			out.CaseSHA256, out.CaseName, want, c.Name)
		return nil, p.err()
	}
	out.Seed = o.seed("seed")
	out.Openings = int(o.whole("openings", 1, maxOpenings))
	out.Passes = int(o.whole("passes", 1, maxPasses))
	out.Risk = Risk{o.number("cvar_lambda", 0, 1), o.number("cvar_alpha", 0, 1)}
	if err := out.Risk.check(); err != nil {
		p.add(file, "cvar_alpha", "%v", err)
	}
	out.Iterations = int(o.whole("iterations", 1, maxIterations))
	out.LowerBound = o.number("lower_bound", 0, math.MaxFloat64)
	out.FutureSHA256 = o.text("future_sha256")
	for i, raw := range o.list("reservoirs", "a list of names") {
		out.Reservoirs = append(out.Reservoirs, readText(p, file, fmt.Sprintf("reservoirs[%d]", i), "a name", raw))
	}
	if want := c.reservoirNames(); p.err() == nil && !slices.Equal(out.Reservoirs, want) {
		p.add(file, "reservoirs", "got %q, want those of the case, %q", out.Reservoirs, want)
	}
	sum := o.text("cuts_sha256")
	out.MultiCut = o.optional("multi_cut") && o.whole("multi_cut", 0, 1) == 1
	out.Pool = readCuts(o, c, Options{Openings: max(out.Openings, 1), MultiCut: out.MultiCut}.futures(c))
	o.done()
	if err := p.err(); err != nil {
		return nil, err
	}
	if got := out.Pool.SHA256(); got != sum {
		p.add(file, "cuts_sha256", "got %q, but the cuts in the file have %q: the file was changed or damaged", sum, got)
	}
	return out, p.err()
}

// readCuts reads the field cuts: for each stage but the last, or for each of its futures, a list of cuts, each
// alpha and then beta.
func readCuts(o *object, c *Case, f futures) *Pool {
	width := 1 + c.states()
	pool := newPoolOf(f, c.states())
	things := "stages"
	if f.most() > 1 {
		things = "lists, one for each opening of each stage but the first"
	}
	lists := o.list("cuts", fmt.Sprintf("a list of %d %s", len(pool.lists), things))
	if len(lists) != len(pool.lists) {
		if o.has("cuts") {
			o.add(o.file, "cuts", "got %d, want %d %s", len(lists), len(pool.lists), things)
		}
		return pool
	}
	for t, raw := range lists {
		var cuts [][]float64
		if err := json.Unmarshal(raw, &cuts); err != nil {
			o.add(o.file, fmt.Sprintf("cuts[%d]", t), "got %s, want a list of cuts, each a list of %d numbers", brief(raw), width)
			continue
		}
		for i, cut := range cuts {
			if len(cut) != width {
				o.add(o.file, fmt.Sprintf("cuts[%d][%d]", t, i), "got %d numbers, want %d: alpha and one per reservoir and lagged inflow", len(cut), width)
				continue
			}
			pool.add(t, cut)
		}
	}
	return pool
}
