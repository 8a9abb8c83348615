package tensor

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// What settles a setting is the program, or else the environment, or else the default; what is not allowed
// is an error that says of what and what it is.
func TestConfig(t *testing.T) {
	const chunkVar, directVar = "COHORT_TENSOR_CHUNK", "COHORT_TENSOR_DIRECT"
	for _, k := range []struct {
		cfg           *Config
		chunk, direct string // the environment's
		want          Config
		says          []string // of the error, unless there is none
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
		{nil, "", "yes", Config{}, []string{directVar, `"yes"`, "auto, on and off"}},
		{nil, "", "ON", Config{}, []string{directVar, `"ON"`}},
		{&Config{Direct: "never"}, "", "on", Config{}, []string{directVar, `"never"`}},
	} {
		t.Run(fmt.Sprintf("%+v,%s,%s", k.cfg, k.chunk, k.direct), func(t *testing.T) {
			t.Setenv(chunkVar, k.chunk)
			t.Setenv(directVar, k.direct)
			got, err := k.cfg.settle()
			if k.says != nil {
				if err := is(err, cohort.ErrInit, k.says...); err != nil {
					t.Error(err)
				}
			} else if err != nil || got != k.want {
				t.Errorf("%+v, %v, want %+v", got, err, k.want)
			}
			// A communicator has the same settings, or says the same.
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
