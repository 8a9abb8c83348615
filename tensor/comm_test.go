package tensor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// The program sets a value, or else the environment, or else the default. A wrong value is an error
// that names the setting and the value.
func TestConfigOverridesEnvironment(t *testing.T) {
	const chunkVar, directVar = "COHORT_TENSOR_CHUNK", "COHORT_TENSOR_DIRECT"
	for _, k := range []struct {
		cfg           *Config
		chunk, direct string // values of the environment variables
		want          Config
		says          []string // words in the error; nil: no error
	}{
		{nil, "", "", Config{4 << 20, "auto"}, nil},
		{&Config{}, "", "", Config{4 << 20, "auto"}, nil},
		{nil, "65536", "off", Config{65536, "off"}, nil},
		{&Config{}, "65536", "on", Config{65536, "on"}, nil},
		{nil, "0", "auto", Config{4 << 20, "auto"}, nil},
		{&Config{Chunk: 2048, Direct: "on"}, "65536", "off", Config{2048, "on"}, nil},
		{&Config{Chunk: 2048}, "65536", "off", Config{2048, "off"}, nil},
		{&Config{Direct: "auto"}, "65536", "off", Config{65536, "auto"}, nil},
		{nil, "1024", "", Config{1024, "auto"}, nil},
		{nil, "1073741824", "", Config{1 << 30, "auto"}, nil},

		{nil, "1023", "", Config{}, []string{chunkVar, "1023 bytes", "1024 to 1073741824"}},
		{nil, "1073741825", "", Config{}, []string{chunkVar, "1073741825 bytes"}},
		{nil, "-4096", "", Config{}, []string{chunkVar, "-4096 bytes"}},
		{nil, "4M", "", Config{}, []string{chunkVar, `"4M"`, "number of bytes"}},
		{nil, " 4096", "", Config{}, []string{chunkVar, `" 4096"`}},
		{nil, "99999999999999999999", "", Config{}, []string{chunkVar, `"99999999999999999999"`}},
		{&Config{Chunk: 7}, "65536", "", Config{}, []string{chunkVar, "7 bytes"}},
		{nil, "", "yes", Config{}, []string{directVar, `"yes"`, "auto, on or off"}},
		{nil, "", "ON", Config{}, []string{directVar, `"ON"`}},
		{&Config{Direct: "never"}, "", "on", Config{}, []string{directVar, `"never"`}},
	} {
		t.Run(fmt.Sprintf("%+v,%s,%s", k.cfg, k.chunk, k.direct), func(t *testing.T) {
			t.Setenv(chunkVar, k.chunk)
			t.Setenv(directVar, k.direct)
			got, err := k.cfg.resolve()
			if k.says != nil {
				if err := is(err, cohort.ErrInit, k.says...); err != nil {
					t.Error(err)
				}
			} else if err != nil || got != k.want {
				t.Errorf("%+v, %v, want %+v", got, err, k.want)
			}
			// A communicator has the same settings, or NewComm returns the same error.
			onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
				c, err := NewComm(world, k.cfg)
				if k.says != nil {
					return is(err, cohort.ErrInit, append(k.says, "tensor: newcomm: ")...)
				}
				if err != nil {
					return err
				}
				if c.cfg != k.want || c.direct != (k.want.Direct == "on") {
					err = fmt.Errorf("a communicator has %+v, direct %v, want %+v", c.cfg, c.direct, k.want)
				}
				if err2 := c.Close(); err == nil {
					err = err2
				}
				return err
			})
		})
	}
}

// Collectives of one communicator do not wait for those of another.
func TestCommunicatorsProgressIndependently(t *testing.T) {
	onRanks(t, []int{2, 3, 4}, collectivesOfTwo)
}

// collectivesOfTwo has all ranks but the last wait in a Bcast of one communicator. The root joins
// it only after the others have reported that a later Allreduce on another communicator is done.
func collectivesOfTwo(_ *testing.T, world *cohort.Comm) error {
	const n, tag = 700, 8 // several pieces
	a := must.Get(NewComm(world, &small))
	b := must.Get(NewComm(world, &small))
	me, root := world.Rank(), world.Size()-1
	sent, err1 := stuff[float64](CPU, root, n)
	sum, err2 := Of([]int64{int64(me) + 1}, 1)
	must.OK(errors.Join(err1, err2))
	word := []byte{1}
	if me == root {
		late := must.Get(Iallreduce(b, sum, sum, Sum))
		for r := range root {
			must.Get(cohort.Recv(world, word, r, tag))
		}
		h, err := Ibcast(a, sent, root)
		return errors.Join(err, WaitAll(h, late), a.Close(), b.Close())
	}
	got := zeros[float64](n)
	first := must.Get(Ibcast(a, got, root))
	second := must.Get(Iallreduce(b, sum, sum, Sum))
	i, _, err := WaitAny(first, second)
	if all := int64(root+1) * int64(root+2) / 2; err == nil && (i != 1 || sum.Data()[0] != all) {
		err = fmt.Errorf("rank %d: operation %d is done first, and the sum is %d, want 1 and %d", me, i, sum.Data()[0], all)
	}
	select {
	case <-first.Done():
		err = errors.Join(err, errors.New("the Bcast is done without its root"))
	default:
	}
	must.OK(errors.Join(err, cohort.Send(world, word, root, tag)))
	return errors.Join(WaitAll(first, second), holds(got, root, n), a.Close(), b.Close())
}
